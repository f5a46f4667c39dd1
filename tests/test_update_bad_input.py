"""What is in the way of an update is said in two lines, and the project stays as it is."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from releases import OLD
from support import IDENTITY, Tool, commit, edit, git, snapshot
from updates import ANSWERS


def _dirty(proj: Path) -> None:
    edit(proj / "notes.py", "old", "mine")


def _untracked(proj: Path) -> None:
    (proj / "new file").write_text("mine")


def _staged(proj: Path) -> None:
    _dirty(proj)
    git(proj, "add", "--all")


def _no_repository(proj: Path) -> None:
    shutil.rmtree(proj / ".git")


def _no_commit(proj: Path) -> None:
    _no_repository(proj)
    git(proj, "init", "--quiet")


def _no_answers(proj: Path) -> None:
    (proj / ANSWERS).unlink()


def _answers(before: str, after: str) -> Callable[[Path], None]:
    def change(proj: Path) -> None:
        edit(proj / ANSWERS, before, after)
        commit(proj)

    return change


def _not_tracked(proj: Path) -> None:
    git(proj, "rm", "--quiet", "--cached", ANSWERS)
    (proj / ".git/info/exclude").write_text(f"{ANSWERS}\n")
    git(proj, *IDENTITY, "commit", "--quiet", "--message", "work")


def _merging(proj: Path) -> None:
    git(proj, "switch", "--quiet", "--create", "side")
    (proj / "side").write_text("side")
    commit(proj)
    git(proj, "switch", "--quiet", "-")
    git(proj, *IDENTITY, "merge", "--quiet", "--no-ff", "--no-commit", "side")


def _rebasing(proj: Path) -> None:
    _dirty(proj)
    commit(proj)
    env = ("-c", "sequence.editor=sed -i s/^pick/edit/", *IDENTITY)
    git(proj, *env, "rebase", "--quiet", "--interactive", "HEAD~1")


SOURCE = "_src_path: ~/.local/share/ddpgen/template.bundle\n"
CASES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "changed": (_dirty, "changes that are not committed: notes.py", "git stash"),
    "untracked": (_untracked, "changes that are not committed: new file", "git commit"),
    "staged": (_staged, "changes that are not committed: notes.py", "git commit"),
    "no repository": (_no_repository, "not in a git repository", "git init"),
    "no commit": (_no_commit, "has no commit yet", "git commit"),
    "no answers": (_no_answers, f"it has no {ANSWERS}", "ddpgen adopt"),
    "not tracked": (_not_tracked, "git does not track", "git add --force"),
    "merging": (_merging, "a merge is under way", "git merge --continue"),
    "rebasing": (_rebasing, "a rebase is under way", "git rebase --continue"),
    "markers": (
        _answers("gpus: 2\n", "<<<<<<< HEAD\ngpus: 2\n=======\ngpus: 4\n>>>>>>> side\n"),
        "line 4: a conflict marker",
        "keep one of the two sides",
    ),
    "twice": (
        _answers("gpus: 2\n", "gpus: 2\ngpus: 4\n"),
        "line 5: gpus is given twice",
        "keep one gpus",
    ),
    "no YAML": (_answers("gpus: 2\n", "gpus: [2\n"), "is not valid YAML", "git log -p"),
    "a list": (_answers("# Written", "- 1\n# Written"), "is not valid YAML", "git log -p"),
    "wrong type": (_answers("gpus: 2\n", "gpus: many\n"), "line 4: gpus: 'many'", "--set gpus="),
    "refused by the template": (
        _answers("gpus: 2\n", "gpus: 999\n"),
        "line 4: gpus: must be a whole number from 1 to 128",
        "--set gpus=",
    ),
    "no choice": (_answers("tracker: tensorboard", "tracker: paper"), "'paper'", "--set tracker="),
    "no revision": (_answers(f"_commit: v{OLD}\n", ""), "_commit does not say", "git log -p"),
    "a number": (_answers(f"_commit: v{OLD}\n", "_commit: 1.5\n"), "line 2: _commit", "git log -p"),
    "no source": (_answers(SOURCE, ""), "_src_path does not say", "git log -p"),
    "a source of lists": (_answers(SOURCE, "_src_path: [a]\n"), "line 3: _src_path", "git log -p"),
    "unknown revision": (_answers(f"v{OLD}", "v1.2.3"), "v1.2.3", "adopt"),
    "no version": (_answers(f"v{OLD}", "main"), "'main' is no version", "adopt"),
    "an option": (_answers(f"v{OLD}", "--help"), "'--help' is no version", "adopt"),
    "newer": (_answers(f"v{OLD}", "v999.0.0"), "was made by ddpgen v999.0.0", "--upgrade ddpgen"),
    "another's": (_answers(SOURCE, "_src_path: /nowhere\n"), "/nowhere is not there", "looked for"),
    "a command": (
        _answers(SOURCE, "_src_path: 'ext::sh -c touch% PWNED'\n"),
        "is not there",
        "looked for",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_in_the_way_is_said_and_nothing_changes(
    newest: Tool, proj: Path, name: str
) -> None:
    prepare, says, advice = CASES[name]
    prepare(proj)
    before = {k: v for k, v in snapshot(proj).items() if not k.startswith(".git/")}
    done = newest("update", "proj")
    assert done.code == 1, done
    first, second = done.err.splitlines()
    assert first.startswith("error: ")
    assert says in first
    assert second.startswith("try: ")
    assert advice in second
    assert done.out == ""
    assert {k: v for k, v in snapshot(proj).items() if not k.startswith(".git/")} == before
    assert not (proj / ".git/ddpgen-update").exists()
    assert not list(newest.cwd.rglob("PWNED"))


def test_a_folder_that_is_none_and_no_git(newest: Tool, proj: Path) -> None:
    assert "is not a folder" in newest("update", "nowhere").err
    programs = newest.cwd / "programs"
    programs.mkdir()
    done = newest("update", "proj", env={"PATH": str(programs)})
    assert done.code == 1
    assert "git is not installed" in done.err


def test_two_at_once_and_one_waits(newest: Tool, proj: Path) -> None:
    """Protects the lock: two updates of one project would undo each other."""
    handle = os.open(proj / ".git/ddpgen-update.lock", os.O_WRONLY | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    done = newest("update", "proj")
    os.close(handle)
    assert done.code == 1
    assert "another ddpgen is at work" in done.err


def test_the_next_command_undoes_what_a_crash_has_left(newest: Tool, proj: Path) -> None:
    """Protects `scratch.recover`: here the machine has died between two renames."""
    before = (proj / "notes.py").read_bytes()
    journal = proj / ".git/ddpgen-update/journal"
    journal.mkdir(parents=True)
    (journal / "0.old").write_bytes(before)
    (proj / "notes.py").write_text("half of an update")
    digest = hashlib.sha256(b"half of an update").hexdigest()
    step = {"target": str(proj / "notes.py"), "new": str(journal / "0.new")}
    step |= {"old": str(journal / "0.old"), "digest": digest}
    (journal / "journal.json").write_text(json.dumps({"steps": [step], "folders": []}))
    done = newest("diff", "proj", "--template", "model.py")
    assert done.code == 0, done.err
    assert (proj / "notes.py").read_bytes() == before
    assert not (proj / ".git/ddpgen-update").exists()
