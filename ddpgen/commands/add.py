"""ddpgen add: give a project an optional part."""

from ddpgen import parts

command = parts.command("Add PART, such as slurm, to the project in PATH.", add=True)
