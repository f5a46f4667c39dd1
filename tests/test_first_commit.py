"""The first commit, whatever the user's git is set to."""

from pathlib import Path

import pytest
from support import Tool, git, snapshot


def test_no_git_makes_no_repository(tool: Tool) -> None:
    assert tool("new", "myproj", "--yes", "--no-git").code == 0
    assert not (tool.cwd / "myproj/.git").exists()


def test_an_existing_repository_is_left_alone(tool: Tool) -> None:
    git(tool.cwd, "init", "--quiet")
    done = tool("new", "myproj", "--yes")
    assert done.code == 0
    assert "inside a git repository already" in done.err
    assert not (tool.cwd / "myproj/.git").exists()
    assert git(tool.cwd, "status", "--porcelain") == "?? myproj/"


def test_without_git_the_project_is_made_and_the_lack_is_said(tool: Tool, tmp_path: Path) -> None:
    done = tool("new", "myproj", "--yes", env={"PATH": str(tmp_path)})
    assert done.code == 0
    assert "git is not installed" in done.err
    assert (tool.cwd / "myproj/model.py").is_file()


def test_an_identity_is_used_where_there_is_one(tool: Tool) -> None:
    config = "[user]\n name = Ada\n email = ada@example.org\n"
    Path(tool.env["HOME"], ".gitconfig").write_text(config)
    tool("new", "myproj", "--yes")
    assert git(tool.cwd / "myproj", "log", "--format=%an <%ae>") == "Ada <ada@example.org>"


def test_no_identity_is_no_error(tool: Tool) -> None:
    """Protects the second attempt in `_commit`."""
    Path(tool.env["HOME"], ".gitconfig").write_text("[user]\n useConfigOnly = true\n")
    done = tool("new", "myproj", "--yes")
    assert (done.code, done.err) == (0, "")
    assert git(tool.cwd / "myproj", "log", "--format=%an") == "ddpgen"


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n hooksPath = {home}/hooks\n",
        "[init]\n templateDir = {home}/template\n",
        "[commit]\n gpgSign = true\n[gpg]\n program = /bin/false\n",
        "[core]\n autocrlf = true\n safecrlf = true\n",
        "[core]\n excludesFile = {home}/ignore\n",
        "[commit]\n template = /nonexistent\n[init]\n defaultBranch = trunk\n",
    ],
)
def test_the_settings_of_the_user_do_not_break_it(tool: Tool, setting: str) -> None:
    """Protects `git.SETTINGS` and `add --force`."""
    home = Path(tool.env["HOME"])
    for hooks in (home / "hooks", home / "template/hooks"):
        hooks.mkdir(parents=True)
        (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
        (hooks / "pre-commit").chmod(0o755)
    (home / "ignore").write_text("*.py\n")
    (home / ".gitconfig").write_text(setting.format(home=home))
    done = tool("new", "myproj", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "model.py" in git(tool.cwd / "myproj", "ls-files").splitlines()


def test_inside_a_hook_the_other_repository_is_not_touched(tool: Tool) -> None:
    """Protects `git.LOCAL_VARIABLES`: a hook's GIT_DIR would make the commit land elsewhere."""
    other = tool.cwd.parent / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    before = snapshot(other)
    env = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / ".git/index")}
    assert tool("new", "myproj", "--yes", env=env).code == 0
    assert snapshot(other) == before
    assert git(tool.cwd / "myproj", "status", "--porcelain") == ""


def test_a_git_that_fails_leaves_a_project_without_a_repository(tool: Tool, tmp_path: Path) -> None:
    broken = tmp_path / "bin/git"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nmkdir -p .git\necho fatal: no luck >&2\nexit 128\n")
    broken.chmod(0o755)
    done = tool("new", "myproj", "--yes", env={"PATH": f"{broken.parent}:/usr/bin:/bin"})
    assert done.code == 0
    assert "git failed: no luck" in done.err
    assert not (tool.cwd / "myproj/.git").exists()
