"""An update goes well whatever git is set to, and wherever the project stands."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import Tool, commit, git, snapshot
from updates import assert_right

SETTINGS = {
    "untracked files are not shown": "[status]\n showUntrackedFiles = no\n",
    "a hook that fails": "[core]\n hooksPath = {home}/hooks\n",
    "a template with a hook": "[init]\n templateDir = {home}/template\n",
    "signatures without gpg": "[commit]\n gpgSign = true\n[gpg]\n program = /bin/false\n",
    "other prefixes": "[diff]\n noprefix = true\n mnemonicPrefix = true\n external = /bin/false\n",
    "whitespace errors": "[apply]\n whitespace = error\n[core]\n whitespace = tab-in-indent\n",
    "colours": "[color]\n ui = always\n diff = always\n",
    "other markers": "[merge]\n conflictStyle = zdiff3\n[diff]\n algorithm = histogram\n",
    "nobody": "[user]\n useConfigOnly = true\n",
    "renames": "[status]\n renames = copies\n[diff]\n renames = copies\n",
    "paths as they are": "[core]\n quotePath = false\n",
    "a file system monitor": "[core]\n fsmonitor = /bin/false\n untrackedCache = true\n",
    "relative paths": "[status]\n short = true\n branch = true\n relativePaths = true\n",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_of_git_do_not_matter(newest: Tool, proj: Path, name: str) -> None:
    """Protects `git.SETTINGS` and `_COPIER_SETTINGS`."""
    home = Path(newest.env["HOME"])
    for hooks in (home / "hooks", home / "template/hooks"):
        hooks.mkdir(parents=True)
        for hook in ("post-checkout", "pre-commit", "post-index-change"):
            (hooks / hook).write_text("#!/bin/sh\nexit 1\n")
            (hooks / hook).chmod(0o755)
    (home / ".gitconfig").write_text(SETTINGS[name].format(home=home))
    assert_right(newest("update", "proj"), proj)


VARIABLES = {
    "another hash": {"GIT_DEFAULT_HASH": "sha256"},
    "German": {"LANG": "de_DE.UTF-8", "LANGUAGE": "de", "LC_ALL": "de_DE.UTF-8"},
    "no locale": {"LANG": "C", "LC_ALL": "C"},
    "a setting from the command line": {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "status.showUntrackedFiles",
        "GIT_CONFIG_VALUE_0": "no",
    },
}


@pytest.mark.parametrize("name", VARIABLES)
def test_the_variables_of_git_do_not_matter(newest: Tool, proj: Path, name: str) -> None:
    """Protects `git.environment`."""
    assert_right(newest("update", "proj", env=VARIABLES[name]), proj)


def test_inside_a_hook_the_other_repository_is_not_touched(newest: Tool, proj: Path) -> None:
    """Protects `LOCAL_VARIABLES`: a hook of another repository points git there."""
    other = newest.cwd / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    before = snapshot(other)
    env = {"GIT_DIR": f"{other}/.git", "GIT_INDEX_FILE": f"{other}/.git/index"}
    assert_right(newest("update", "proj", env={**env, "GIT_WORK_TREE": str(other)}), proj)
    assert snapshot(other) == before


def test_a_conflict_in_a_repository_with_sha256_needs_rej_files(
    newest: Tool, original: Path
) -> None:
    """Copier writes an empty SHA-1 into the index where it marks a conflict."""
    project = newest.cwd / "proj"
    shutil.copytree(original, project, ignore=shutil.ignore_patterns(".git"))
    git(newest.cwd, "init", "--quiet", "--object-format=sha256", "proj")
    commit(project)
    before = snapshot(project)
    done = newest("update", "proj")
    assert done.code == 1
    assert "sha256" in done.err
    assert {k: v for k, v in snapshot(project).items() if not k.startswith(".git/")} == {
        k: v for k, v in before.items() if not k.startswith(".git/")
    }
    assert "--conflict rej" in done.err
    assert newest("update", "proj", "--conflict", "rej").code == 2
    assert "LINE_5 = 'mine'" in (project / "long.py.rej").read_text()
    assert "UD leftover.py" in git(project, "status", "--porcelain")


def test_files_that_git_ignores_are_kept(newest: Tool, proj: Path) -> None:
    """Protects `_read_added`: git could not bring them back."""
    (proj / ".git/info/exclude").write_text("added.py\n")
    (proj / "added.py").write_text("a result of a week\n")
    done = newest("update", "proj")
    assert "git ignores it" in done.out
    assert (proj / "added.py").read_text() == "a result of a week\n"


def test_another_owner_is_said_with_gits_own_advice(newest: Tool, proj: Path) -> None:
    """Protects the hint of `_two_lines`."""
    shutil.chown(proj / ".git", 12345)
    shutil.chown(proj, 12345)
    done = newest("update", "proj")
    assert done.code == 1
    assert "dubious ownership" in done.err
    assert "git config --global --add safe.directory" in done.err


def test_windows_line_ends_by_the_users_own_setting(newest: Tool, proj: Path) -> None:
    """Protects `* -text` of the template; what is checked out with CRLF comes back with CRLF."""
    (Path(newest.env["HOME"]) / ".gitconfig").write_text("[core]\n autocrlf = true\n")
    clone = newest.cwd / "clone"
    subprocess.run(
        ["git", "clone", "--quiet", proj, clone], check=True, env=newest.env, capture_output=True
    )
    assert b"\r\n" in (clone / "notes.py").read_bytes()
    done = newest("update", "clone")
    assert done.code == 2, done.err
    assert 'NOTE = "new"' in (clone / "notes.py").read_text()
    assert b"\r" not in (clone / "added.py").read_bytes()
    assert "config.py" not in done.out  # the template has not changed it
    assert b"\r\n" in (clone / "config.py").read_bytes()
    changed = subprocess.run(
        ["git", "diff", "--stat", "--ignore-submodules"],
        cwd=clone,
        env=newest.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"notes\.py +\| +2 \+-", changed), changed


def test_windows_line_ends_that_were_committed_are_a_conflict(newest: Tool, proj: Path) -> None:
    """The whole file differs, so somebody has to decide; no line of the owner's is gone."""
    for name in ("long.py", "notes.py"):
        (proj / name).write_bytes((proj / name).read_bytes().replace(b"\n", b"\r\n"))
    commit(proj)
    assert newest("update", "proj").code == 2
    states = git(proj, "status", "--porcelain").splitlines()
    assert {"UU long.py", "UU notes.py"} <= set(states)
    assert b"LINE_5 = 'mine'\r\n" in (proj / "long.py").read_bytes()
    assert b'NOTE = "old"\r\n' in (proj / "notes.py").read_bytes()


def test_the_store_is_built_where_it_is_missing_and_where_it_is_damaged(
    newest: Tool, proj: Path
) -> None:
    """Protects `_open_ours`."""
    bundle = Path(newest.env["HOME"]) / ".local/share/ddpgen/template.bundle"
    assert not bundle.exists()
    assert newest("update", "proj", "--dry-run").code == 2
    whole = bundle.read_bytes()
    bundle.write_bytes(whole[: len(whole) // 2])
    assert newest("update", "proj", "--dry-run").code == 2
    assert bundle.read_bytes() == whole
    bundle.write_bytes(b"no bundle at all")
    assert_right(newest("update", "proj"), proj)


def test_a_project_in_a_folder_of_a_larger_repository(newest: Tool, original: Path) -> None:
    """What is not committed elsewhere in the repository is no hindrance, and stays."""
    top = newest.cwd / "mono"
    project = top / "sub dir/proj"
    shutil.copytree(original, project, ignore=shutil.ignore_patterns(".git"))
    (top / "other.txt").write_text("other\n")
    git(top, "init", "--quiet")
    commit(top)
    (top / "other.txt").write_text("not committed\n")
    (top / "new.txt").write_text("not tracked\n")
    done = newest("update", "mono/sub dir/proj")
    assert done.code == 2, done.err
    assert (top / "other.txt").read_text() == "not committed\n"
    assert "LINE_30 = 3000" in (project / "long.py").read_text()
    states = set(git(top, "status", "--porcelain").splitlines())
    assert {'UU "sub dir/proj/long.py"', '?? "sub dir/proj/added.py"', "?? new.txt"} <= states
    again = newest("update", "--set", "gpus=3", cwd=project)
    assert "has changes that are not committed" in again.err


def test_a_detached_head_and_a_linked_worktree(newest: Tool, proj: Path) -> None:
    git(proj, "worktree", "add", "--quiet", "--detach", "../linked")
    linked = newest.cwd / "linked"
    done = newest("update", "linked")
    assert done.code == 2, done.err
    assert "UU long.py" in git(linked, "status", "--porcelain")
    assert git(proj, "status", "--porcelain") == ""
    assert git(proj, "worktree", "list").count("\n") == 1


def test_a_link_in_place_of_a_file_is_not_followed(newest: Tool, proj: Path) -> None:
    """What a link leads to may be anywhere, and is not the template's to write."""
    outside = newest.cwd / "outside.py"
    outside.write_text("outside\n")
    (proj / "notes.py").unlink()
    (proj / "notes.py").symlink_to(outside)
    commit(proj)
    newest("update", "proj")
    assert outside.read_text() == "outside\n"


@pytest.mark.parametrize("mask", ["022", "077"])
def test_permissions_stay(newest: Tool, proj: Path, mask: str) -> None:
    """Protects `_keep_permissions`."""
    (proj / "notes.py").chmod(0o640)
    done = newest("update", "proj", prefix=["sh", "-c", f'umask {mask}; exec "$@"', "sh"])
    assert done.code == 2
    assert (proj / "notes.py").stat().st_mode & 0o777 == 0o640
    assert (proj / "added.py").stat().st_mode & 0o777 == 0o666 & ~int(mask, 8)


def test_a_full_disk_leaves_everything_as_it_was(newest: Tool, proj: Path) -> None:
    """Protects the order: everything is ready before the first file changes."""
    before = {k: v for k, v in snapshot(proj).items() if not k.startswith(".git/objects")}
    assert newest("update", "proj", "--dry-run").code == 2  # so that only the project is short
    for size in ("150", "400", "700"):
        script = (
            f"mount -t tmpfs -o size={size}k none mnt && cp -a proj mnt/ 2>/dev/null; "
            'cd mnt/proj && git status >/dev/null; cp -a . ../../before; "$@"; code=$?; '
            "cp -a . ../../after; exit $code"
        )
        for name in ("mnt", "before", "after"):
            shutil.rmtree(newest.cwd / name, ignore_errors=True)
        (newest.cwd / "mnt").mkdir()
        unshare = ["unshare", "--mount", "sh", "-c", script, "sh"]
        done = newest("update", prefix=unshare)
        assert done.code == 1, (size, done)
        for name in ("before", "after"):
            shutil.rmtree(newest.cwd / name / ".git", ignore_errors=True)
        assert snapshot(newest.cwd / "after") == snapshot(newest.cwd / "before")
    assert {k: v for k, v in snapshot(proj).items() if not k.startswith(".git/objects")} == before
