"""`ddpgen new PATH` makes a whole project, whatever is around it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from support import Tool, git, snapshot

from ddpgen import __version__


def test_makes_the_project_and_its_first_commit(tool: Tool) -> None:
    done = tool("new", "myproj", "--gpus", "4", "--yes")
    assert (done.code, done.err) == (0, "")
    project = tool.cwd / "myproj"
    assert (project / "model.py").is_file()
    assert os.access(project / "launch.sh", os.X_OK)
    assert "gpus: 4" in (project / ".copier-answers.yml").read_text()
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "log", "--format=%s") == f"New project by ddpgen {__version__}"
    assert os.listdir(tool.cwd) == ["myproj"], "the temporary folder is gone"


def test_records_where_it_came_from_the_same_on_every_machine(tool: Tool) -> None:
    """Protects `record_source`: Copier writes the path of the installed template."""
    tool("new", "myproj", "--yes")
    lines = (tool.cwd / "myproj/.copier-answers.yml").read_text().splitlines()
    commit, source = (line for line in lines if line.startswith("_"))
    # A release, or a snapshot after it while the template is worked on.
    assert re.fullmatch(r"_commit: v\d+\.\d+\.\d+(\.post1\+g[0-9a-f]{10})?", commit)
    assert source == "_src_path: ~/.local/share/ddpgen/template.bundle"


def test_a_pipe_is_not_asked_and_takes_the_defaults(tool: Tool) -> None:
    tool("new", "a/myproj", "--yes", "--no-git")
    done = tool("new", "b/myproj", "--no-git", stdin=subprocess.DEVNULL)
    assert done.code == 0
    assert snapshot(tool.cwd / "a/myproj") == snapshot(tool.cwd / "b/myproj")


@pytest.mark.parametrize(
    "path",
    [
        "myproj",
        "missing/parents/myproj",
        "with space/myproj",
        "it's/myproj",
        "$(touch pwned)/myproj",
        "-dash/myproj",
        "pr\u00fcfung/myproj",
        "new\nline/myproj",
    ],
)
def test_the_printed_commands_work_when_pasted(tool: Tool, path: str) -> None:
    """Protects the quoting in `_quoted`."""
    done = tool("new", "--yes", "--", path)
    assert done.code == 0, done.err
    block = done.out.split("Next:\n")[1]
    assert "\n  python -m pip install -e .\n  ./launch.sh\n" in block
    enter = block.split("\n  python")[0]
    pasted = subprocess.run(
        ["bash", "-c", f"{enter}\n test -x ./launch.sh && pwd -P"],
        cwd=tool.cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    assert pasted.stdout == f"{tool.cwd / path}\n"
    assert not (tool.cwd / "pwned").exists()


def test_a_path_that_is_not_utf8_is_printed_as_it_is(tool: Tool) -> None:
    """Protects `prepare_streams`: such a path cannot be encoded, and must come out as its bytes."""
    done = tool("new", b"caf\xe9/myproj", "--yes", env={"LC_ALL": "C"})
    assert done.code == 0, done.err
    command = next(line for line in done.out.splitlines() if line.startswith("  cd"))
    subprocess.run([b"bash", b"-c", os.fsencode(command)], cwd=tool.cwd, check=True)


def test_several_machines_start_on_one_first(tool: Tool) -> None:
    done = tool("new", "myproj", "--nodes", "2", "--yes")
    assert "\n  NNODES=1 ./launch.sh\n" in done.out
    assert "all 2" in done.out


def test_an_empty_folder_becomes_the_project(tool: Tool) -> None:
    (tool.cwd / "myproj").mkdir()
    assert tool("new", "myproj/", "--yes").code == 0
    assert (tool.cwd / "myproj/model.py").is_file()


def test_a_link_to_an_empty_folder_is_followed_and_said(tool: Tool) -> None:
    (tool.cwd / "elsewhere").mkdir()
    (tool.cwd / "myproj").symlink_to("elsewhere")
    done = tool("new", "myproj", "--yes")
    assert done.code == 0
    assert f"the project goes to {tool.cwd / 'elsewhere'}" in done.err
    assert (tool.cwd / "elsewhere/model.py").is_file()
    assert "project_name: myproj" in (tool.cwd / "elsewhere/.copier-answers.yml").read_text()


def test_the_name_can_differ_from_the_folder(tool: Tool) -> None:
    assert tool("new", "my folder", "--set", "project_name=myproj", "--yes").code == 0
    assert "project_name: myproj" in (tool.cwd / "my folder/.copier-answers.yml").read_text()


def test_a_soft_keyword_is_allowed_with_a_warning(tool: Tool) -> None:
    done = tool("new", "match", "--yes")
    assert done.code == 0
    assert "note: match is a word of Python's grammar" in done.err


def test_dry_run_lists_each_file_with_its_size_and_writes_nothing(tool: Tool) -> None:
    before = snapshot(tool.cwd.parent)
    done = tool("new", "myproj", "--dry-run", "--yes")
    assert done.code == 0
    assert snapshot(tool.cwd.parent) == before
    listed = [line.split() for line in done.out.splitlines()[:-1]]
    tool("new", "myproj", "--yes", "--no-git")
    written = {
        str(path.relative_to(tool.cwd / "myproj")): path.stat().st_size
        for path in (tool.cwd / "myproj").rglob("*")
        if path.is_file()
    }
    assert {name: int(size.replace(",", "")) for size, name in listed} == written


def test_files_have_the_permissions_of_new_files(tool: Tool) -> None:
    """Protects `_own`: Copier copies the permissions of the installed template."""
    umask = ["sh", "-c", 'umask 027; exec "$@"', "sh"]
    assert tool("new", "myproj", "--yes", prefix=umask).code == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tool.cwd / "myproj").iterdir()}
    assert (modes["model.py"], modes["launch.sh"]) == (0o640, 0o750)


def test_a_home_that_is_missing_or_read_only_does_no_harm(tool: Tool) -> None:
    assert tool("new", "one", "--yes", env={"HOME": "/nonexistent"}).code == 0
    unset = ["env", "-u", "HOME"]
    assert tool("new", "two", "--yes", prefix=unset).code == 0


def test_a_malformed_copier_settings_file_changes_nothing(tool: Tool) -> None:
    """Protects `settings=copier.Settings()`: Copier reads the user's file otherwise."""
    settings = Path(tool.env["HOME"], ".config/copier/settings.yml")
    settings.parent.mkdir(parents=True)
    settings.write_text("defaults: [unclosed\n")
    assert tool("new", "one", "--yes").code == 0
    settings.write_text("defaults:\n  gpus: 7\n")
    assert tool("new", "two", "--yes").code == 0
    assert "gpus: 2" in (tool.cwd / "two/.copier-answers.yml").read_text()
