"""What an owner has put where the template wants to write is said, and never written through."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Tool, commit, edit, git, snapshot, without_root_powers
from updates import ANSWERS, assert_right, commands_of, files_of

from ddpgen import project, scratch


def _folder_becomes_link(proj: Path) -> None:
    shutil.move(proj / "configs", proj.parent / "outside")
    (proj / "configs").symlink_to(proj.parent / "outside")


def _folder_becomes_file(proj: Path) -> None:
    shutil.rmtree(proj / "configs")
    (proj / "configs").write_text("mine\n")


def _file_becomes_folder(proj: Path) -> None:
    (proj / "notes.py").unlink()
    (proj / "notes.py").mkdir()
    (proj / "notes.py/mine").write_text("mine\n")


def _answers_become_link(proj: Path) -> None:
    shutil.move(proj / ANSWERS, proj.parent / "outside")
    (proj / ANSWERS).symlink_to(proj.parent / "outside")


TRACKED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link to a folder": (_folder_becomes_link, "configs is a link in this project"),
    "a file": (_folder_becomes_file, "configs is a file in this project"),
    "a folder": (_file_becomes_folder, "notes.py is a folder in this project"),
    "linked answers": (_answers_become_link, f"{ANSWERS} is a link"),
}


@pytest.mark.parametrize("name", TRACKED)
def test_what_is_in_the_place_of_the_templates_is_named(
    newest: Tool, proj: Path, name: str
) -> None:
    """Protects `_refuse_obstacles`, and that nothing is written through a link, or in a dry run."""
    prepare, says = TRACKED[name]
    prepare(proj)
    commit(proj)
    before = files_of(newest.cwd)
    for words in (["--dry-run"], []):
        done = newest("update", "proj", "--set", "tracker=none", *words)
        assert done.code == 1, done
        assert says in done.err
        assert "try: " in done.err
    after = files_of(newest.cwd)
    outside = {name: it for name, it in before.items() if not name.startswith("proj/.git")}
    assert {name: it for name, it in after.items() if not name.startswith("proj/.git")} == outside


@pytest.mark.parametrize("kind", ["link", "file"])
def test_an_ignored_thing_where_the_template_adds_a_folder_is_kept(
    newest: Tool, proj: Path, kind: str
) -> None:
    """Protects `in_the_way`: through a link, the file would land outside of the project."""
    outside = newest.cwd / "outside"
    outside.mkdir()
    (proj / ".git/info/exclude").write_text("kubernetes\n")
    if kind == "link":
        (proj / "kubernetes").symlink_to(outside)
    else:
        (proj / "kubernetes").write_text("mine\n")
    done = newest("add", "kubernetes", "proj")
    assert done.code == 0, done.err
    assert re.search("kept yours  kubernetes/job.yaml +git ignores kubernetes", done.out)
    assert not list(outside.iterdir())
    assert (proj / "kubernetes").is_symlink() is (kind == "link")


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_changes_that_git_was_told_not_to_see_are_not_lost(
    newest: Tool, proj: Path, flag: str
) -> None:
    """Protects `_tracked`: such a change is in no commit, so nothing could bring it back."""
    git(proj, "update-index", flag, "notes.py")
    edit(proj / "notes.py", "old", "of this machine")
    done = newest("update", "proj")
    assert done.code == 1
    assert "git was told not to look at: notes.py" in done.err
    assert "of this machine" in (proj / "notes.py").read_text()
    advice = done.err.split("try: ")[1].split(", then")[0]
    subprocess.run(advice, shell=True, cwd=proj, check=True)
    assert "notes.py" in git(proj, "status", "--porcelain")


def test_a_sparse_checkout_is_no_hindrance(newest: Tool, proj: Path) -> None:
    """Files that are not checked out stay so, and are not taken for deleted ones."""
    git(proj, "sparse-checkout", "set", "tests")
    assert not (proj / "configs").exists()
    assert_right(newest("update", "proj"), proj)
    assert not (proj / "configs").exists()
    assert "configs" not in git(proj, "status", "--porcelain")


@pytest.mark.parametrize("words", ["--split-index", "--index-version=4", "--untracked-cache"])
def test_each_form_of_gits_index_is_updated(newest: Tool, proj: Path, words: str) -> None:
    """Protects `_index`: it is git that writes the unmerged files into a copy."""
    git(proj, "update-index", *words.split("="))
    assert_right(newest("update", "proj"), proj)
    git(proj, "fsck", "--strict")


def test_a_project_with_a_submodule_and_a_project_that_is_one(newest: Tool, proj: Path) -> None:
    (newest.cwd / "library").mkdir()
    git(newest.cwd / "library", "init", "--quiet")
    (newest.cwd / "library/file").write_text("the library's\n")
    commit(newest.cwd / "library")
    allowed = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git(proj, *allowed, str(newest.cwd / "library"), "library")
    commit(proj)
    git(newest.cwd, "init", "--quiet", "above")
    git(newest.cwd / "above", *allowed, str(proj), "inner")
    for project_ in (proj, newest.cwd / "above/inner"):
        assert_right(newest("update", str(project_)), project_)
    assert (proj / "library/file").read_text() == "the library's\n"
    assert "library" not in git(proj, "status", "--porcelain")


def test_the_bits_of_an_owner_stay(newest: Tool, proj: Path) -> None:
    """An executable file that the template changes stays executable."""
    (proj / "notes.py").chmod(0o755)
    commit(proj)
    assert_right(newest("update", "proj"), proj)
    assert os.access(proj / "notes.py", os.X_OK)


def test_an_added_file_that_somebody_ignores_everywhere_is_committed(
    newest: Tool, proj: Path
) -> None:
    """Protects `Outcome.ignored`: `git add --all` passes over it."""
    home = Path(newest.env["HOME"])
    (home / "ignore").write_text("added.py\n")
    identity = "[user]\n name = x\n email = x@localhost\n"
    (home / ".gitconfig").write_text(f"{identity}[core]\n excludesFile = {home}/ignore\n")
    done = newest("update", "proj")
    go_on = commands_of(done, "Go on:")
    subprocess.run(go_on, shell=True, cwd=newest.cwd, check=True, env=newest.env)
    assert git(proj, "ls-files", "added.py") == "added.py"


def test_below_the_project_one_is_told_where_it_is(newest: Tool, proj: Path) -> None:
    for words in (["update"], ["update", "--check"], ["diff"], ["add", "slurm"]):
        done = newest(*words, cwd=proj / "tests")
        assert done.code == 1
        assert f"try: cd {proj}, then the same command again" in done.err


def test_a_file_name_that_copier_cannot_read_is_named(newest: Tool, proj: Path) -> None:
    with open(os.fsencode(proj) + b"/\xff.py", "w") as file:
        file.write("MINE = 1\n")
    commit(proj)
    done = newest("update", "proj")
    assert done.code == 1
    assert "Copier reads no file name that is not UTF-8: \\udcff.py" in done.err


def test_answers_that_are_as_they_were_are_no_update(newest: Tool, proj: Path) -> None:
    """Protects the comparison with the recorded answers."""
    assert newest("update", "proj", "--conflict", "rej").code == 2
    git(proj, "add", "--all")
    commit(proj)
    assert "is up to date" in newest("update", "proj", "--set", "gpus=2").out


def test_check_takes_nothing_that_it_would_pass_over(newest: Tool, proj: Path) -> None:
    done = newest("update", "proj", "--check", "--set", "gpus=8")
    assert done.code == 2
    assert "--check goes with neither" in done.err


@pytest.mark.parametrize("home", ["read-only", "nobody's"])
def test_without_a_home_that_can_be_written_an_update_works(
    newest: Tool, proj: Path, home: str
) -> None:
    """Protects `_open_ours`: the template is then at hand for this one command."""
    if home == "read-only":
        Path(newest.env["HOME"]).chmod(0o500)
        done = newest("update", "proj", prefix=without_root_powers())
    else:  # a user of a container, who stands in no list of users
        script = (
            "import pwd, sys\n"
            "def unknown(number): raise KeyError(number)\n"
            "pwd.getpwuid = unknown\n"
            "from ddpgen.cli import run\n"
            "sys.exit(run(['update', 'proj']))"
        )
        env = {"PYTHONPATH": str(newest.executable.parent.parent)}
        python = ["env", "--unset=HOME", sys.executable, "-c", script]
        done = newest("update", "proj", env=env, prefix=python)
    assert_right(done, proj)


def test_a_lock_is_taken_on_a_file_that_is_open_for_writing(
    newest: Tool, proj: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects `_locked`: NFS takes an exclusive lock on no other, as flock(2) says."""
    real = fcntl.flock

    def flock_of_nfs(file: "int | object", operation: int) -> None:
        number = file if isinstance(file, int) else file.fileno()  # type: ignore[attr-defined]
        assert fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        real(number, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    with scratch.folder(project.locate(proj)) as place:
        assert place.is_dir()
    assert not list((proj / ".git").glob("ddpgen*"))


def test_a_file_system_without_locks_is_no_hindrance(
    newest: Tool, proj: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the second `except` of `_hold`: Lustre may be mounted so."""

    def no_lock(file: object, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with scratch.folder(project.locate(proj)) as place:
        assert place.is_dir()


def test_a_lock_that_was_removed_just_now_is_none(newest: Tool, proj: Path) -> None:
    """Protects the comparison in `_hold`: two would each hold another file of that name."""
    path = proj / ".git/ddpgen-update.lock"
    with path.open("w") as lock:
        path.unlink()
        assert not scratch._hold(lock, path)
        path.touch()
        assert not scratch._hold(lock, path)


def test_settings_of_git_c_do_not_matter(newest: Tool, proj: Path) -> None:
    """Protects GIT_CONFIG_PARAMETERS in `LOCAL_VARIABLES`, as an alias of git has it."""
    settings = ("-c", "status.showUntrackedFiles=no", "-c", "merge.conflictStyle=zdiff3")
    alias = f"alias.up=!cd {newest.cwd} && {newest.executable} update proj"
    done = subprocess.run(
        ["git", "-C", str(proj), *settings, "-c", alias, "up"],
        env=newest.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    text = (proj / "long.py").read_text()
    assert text.count("<<<<<<< before updating") == 1
    assert "|||||||" not in text
    assert not list(proj.rglob("*.rej"))


def test_a_project_that_is_moved_after_a_crash_is_put_right(newest: Tool, proj: Path) -> None:
    """Protects the relative paths of the journal."""
    before = files_of(proj)
    script = (
        "import os, sys; from ddpgen import journal; from ddpgen.cli import run\n"
        "os.fork = lambda: 0\n"  # the writing process is this one
        "done = []\n"
        "def die(source, target):\n"
        "    if len(done) == 3: os._exit(9)\n"
        "    done.append(os.replace(source, target))\n"
        "journal._move = die\n"
        "run(['update', 'proj'])\n"
    )
    env = {**newest.env, "PYTHONPATH": str(newest.executable.parent.parent)}
    code = subprocess.run([sys.executable, "-c", script], cwd=newest.cwd, env=env).returncode
    assert code == 9
    assert files_of(proj) != before
    assert (proj / ".git/ddpgen-update/journal/journal.json").exists()
    moved = proj.rename(newest.cwd / "moved")
    assert newest("update", "moved", "--dry-run").code == 2
    assert files_of(moved) == before
    assert snapshot(moved / ".git").keys().isdisjoint({"ddpgen-update", "ddpgen-update.lock"})
