"""ddpgen remove: take an optional part out of a project."""

from ddpgen import parts

command = parts.command("Remove PART, such as slurm, from the project in PATH.", add=False)
