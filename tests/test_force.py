"""--force adds to a folder that holds files, and loses none of them."""

import pytest
from support import Tool, git, snapshot


def test_adds_what_is_missing_and_keeps_the_rest(tool: Tool) -> None:
    folder = tool.cwd / "myproj"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    done = tool("new", "myproj", "--yes", "--force")
    assert done.code == 0, done.err
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "model.py").is_file()
    assert "notes.txt" not in git(folder, "ls-files"), "the owner decides what is committed"
    assert not list(folder.glob(".ddpgen-*"))


def test_refuses_to_overwrite_when_nobody_can_be_asked(tool: Tool) -> None:
    folder = tool.cwd / "myproj"
    (folder / "tests").mkdir(parents=True)
    (folder / "model.py").write_text("mine")
    before = snapshot(tool.cwd)
    done = tool("new", "myproj", "--yes", "--force")
    assert done.code == 1
    assert "files that would be overwritten: model.py" in done.err
    assert snapshot(tool.cwd) == before


def test_the_same_content_is_nothing_to_overwrite(tool: Tool) -> None:
    tool("new", "myproj", "--yes")
    (tool.cwd / "myproj/data.py").unlink()
    done = tool("new", "myproj", "--yes", "--force")
    assert done.code == 0, done.err
    assert "1 file (" in done.out
    assert (tool.cwd / "myproj/data.py").is_file()


def test_dry_run_says_what_would_be_overwritten(tool: Tool) -> None:
    tool("new", "myproj", "--yes")
    (tool.cwd / "myproj/model.py").write_text("mine")
    before = snapshot(tool.cwd)
    done = tool("new", "myproj", "--force", "--dry-run", "--yes")
    assert done.code == 0
    assert [line.split()[1:] for line in done.out.splitlines()[:-1]] == [
        ["model.py", "(overwrites)"]
    ]
    assert snapshot(tool.cwd) == before


def test_an_empty_folder_that_cannot_be_replaced_is_filled(tool: Tool) -> None:
    (tool.cwd / "myproj").mkdir()
    inode = (tool.cwd / "myproj").stat().st_ino
    assert tool("new", "myproj", "--yes", "--force").code == 0
    assert (tool.cwd / "myproj").stat().st_ino == inode


@pytest.mark.parametrize("link", ["model.py", "tests"])
def test_a_link_in_the_way_is_refused(tool: Tool, link: str) -> None:
    """Protects `_refuse_obstacles`: writing through it would change a file elsewhere."""
    outside = tool.cwd.parent / "outside"
    outside.mkdir()
    (tool.cwd / "myproj").mkdir()
    (tool.cwd / "myproj" / link).symlink_to(outside)
    before = snapshot(tool.cwd.parent)
    done = tool("new", "myproj", "--yes", "--force")
    assert done.code == 1
    assert f"{link} is a link" in done.err
    assert snapshot(tool.cwd.parent) == before


@pytest.mark.parametrize(("name", "is_folder"), [("model.py", True), ("tests", False)])
def test_a_file_or_folder_in_the_way_is_refused(tool: Tool, name: str, is_folder: bool) -> None:
    place = tool.cwd / "myproj" / name
    place.mkdir(parents=True) if is_folder else place.parent.mkdir()
    if not is_folder:
        place.write_text("mine")
    before = snapshot(tool.cwd)
    done = tool("new", "myproj", "--yes", "--force")
    assert done.code == 1
    assert "the project needs a" in done.err
    assert snapshot(tool.cwd) == before
