"""The project as a checkout: its git repository, and the release of the template it has."""

from pathlib import Path

from ddpgen import check, git, source
from ddpgen.console import Failure
from ddpgen.doctor.finding import Finding, error, ok, warning
from ddpgen.project import Origin, under_way

FIRST_COMMIT = "git add --all && git commit -m 'New project'"


def check_git(folder: Path) -> Finding:
    """Can what is trained be found again in a commit?"""
    # Without the first option git would write its index anew.
    status = ("--no-optional-locks", "status", "--porcelain=v2", "--branch", "--no-renames")
    try:
        told = git.text(folder, *status, "--untracked-files=normal", "--", ".").splitlines()
        command = under_way(Path(git.text(folder, "rev-parse", "--absolute-git-dir")))
    except git.GitFailure as problem:
        if "not a git repository" in problem.message:
            return warning(
                "git", "the project is in no git repository", f"git init && {FIRST_COMMIT}"
            )
        return warning("git", problem.message, problem.hint or "git status, and see what it says")
    head = next(line.split()[-1] for line in told if line.startswith("# branch.oid "))
    changed = [line for line in told if not line.startswith("#")]
    if command:
        return error("git", f"a {command} is under way", f"git {command} --continue, or --abort")
    if any(line.startswith("u ") for line in changed):
        return error("git", "files with conflicts", "resolve them, then git add and git commit")
    if head == "(initial)":
        return warning("git", "there is no commit yet", FIRST_COMMIT)
    if changed:
        files = "1 file is" if len(changed) == 1 else f"{len(changed)} files are"
        return warning(
            "git",
            f"{files} not as committed: no commit has what is trained",
            "git add --all && git commit, before a run that counts",
        )
    return ok("git", f"clean, at {head[:10]}")


def check_template(origin: Origin) -> Finding:
    """Does the template have something newer?"""
    if not source.is_ours(origin.source):  # asking it may need the network
        return ok("template", f"{origin.commit} of {origin.source}")
    try:
        newest = check.newest(origin, None)
    except Failure as problem:
        return error("template", problem.message, problem.hint)
    if newest != origin.commit:
        return warning("template", f"{origin.commit}, and {newest} is there", "ddpgen update")
    return ok("template", f"{origin.commit}, the newest")
