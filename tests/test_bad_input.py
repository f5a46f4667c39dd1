"""What is wrong is said in two lines, with the right exit code, and nothing is written."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support import Result, Tool, snapshot, without_root_powers

USAGE = 2
ENVIRONMENT = 1


def assert_refused(done: Result, code: int, message: str, hint: str = "") -> None:
    """Check the shape of a refusal: the exit code, and one line each for what and what instead."""
    assert done.code == code, done
    assert done.out == ""
    first, *others = done.err.splitlines()
    assert re.match(f"error: .*{message}", first), done.err
    assert [line[:5] for line in others] in ([], ["try: "]), done.err
    assert re.search(hint, "".join(others)), done.err


NAMES = [
    ("", "'' does not end in the name"),
    (".", r"'\.' does not end in the name"),
    ("..", r"'\.\.' does not end in the name"),
    ("a/..", r"'a/\.\.' does not end in the name"),
    ("/", "'/' does not end in the name"),
    ("-rf", "starts with - like an option"),
    ("my proj", "more than letters, digits, - and _"),
    ("a\nb", "cannot be printed"),
    ("a\x1bb", "cannot be printed"),
    ("a\\b", "path separator"),
    ('"quoted"', "does not start with a letter"),
    ("it's", "more than letters"),
    ("$(touch pwned)", "does not start with a letter"),
    ("a$(touch pwned)", "more than letters"),
    ("{{ 7 * 7 }}", "does not start with a letter"),
    ("a{{ 7 * 7 }}", "more than letters"),
    ("\U0001f680", "outside of a-z"),
    ("proj\u00e9", "outside of a-z"),
    ("\u05d0\u05d1", "outside of a-z"),
    ("a" * 300, "300 characters, and 64 is the most"),
    ("123abc", "does not start with a letter"),
    ("trailing.", "more than letters"),
    ("trailing-", "ends with - or _"),
    ("class", "keyword of Python"),
    ("None", "keyword of Python"),
    ("test", "standard library"),
    ("random", "standard library"),
    ("Logging", "standard library"),
    ("torch", "a package that the project needs"),
    ("Scikit_Learn", "a package that the project needs"),
    ("ddpgen", "a package that the project needs"),
    ("CON", "reserved on Windows"),
    ("nul", "reserved on Windows"),
    ("com1", "reserved on Windows"),
]


@pytest.mark.parametrize(("name", "message"), NAMES)
def test_a_name_that_no_project_can_have(tool: Tool, name: str, message: str) -> None:
    """Protects `names.check`; the suggestion has to be a name that is accepted."""
    done = tool("new", "--yes", "--", name)
    assert_refused(done, USAGE, message, "ddpgen new [A-Za-z]")
    assert snapshot(tool.cwd) == {}


@pytest.mark.parametrize("name", ["", "../evil", "/abs/evil", "a/b", "..", "class", "x y", "-rf"])
def test_a_bad_name_is_refused_wherever_it_is_given(tool: Tool, name: str) -> None:
    answers = tool.cwd.parent / "answers.yml"
    answers.write_text(f"project_name: '{name}'\n")
    for options in (["--set", f"project_name={name}"], ["--answers", answers]):
        done = tool("new", "myproj", "--yes", *options)
        assert_refused(done, USAGE, "cannot be a project's name", "--set project_name=")
    assert snapshot(tool.cwd) == {}


def test_what_is_suggested_can_be_pasted(tool: Tool) -> None:
    """Protects the quoting of the parent in `_check_name`."""
    done = tool("new", "{a} $(touch pwned)/class", "--yes")
    assert_refused(done, USAGE, "keyword of Python")
    command = done.err.splitlines()[1].removeprefix("try: ")
    assert shlex.split(command) == ["ddpgen", "new", "{a} $(touch pwned)/my_class"]


VALUES = [
    (["--gpus", "0"], "--gpus: must be a whole number from 1 to 128", "--gpus 2"),
    (["--gpus", "-1"], "--gpus: must be a whole number from 1 to 128", "--gpus 2"),
    (["--gpus", "1000000"], "--gpus: must be a whole number from 1 to 128", "--gpus 2"),
    (["--gpus", "9" * 5000], "'--gpus': .* is not a whole number", "--help"),
    (["--gpus", "1.5"], "'--gpus': '1.5' is not a whole number", "--help"),
    (["--gpus", "abc"], "'--gpus': 'abc' is not a whole number", "--help"),
    (["--gpus", "1e3"], "'--gpus': '1e3' is not a whole number", "--help"),
    (["--gpus", ""], "'--gpus': '' is not a whole number", "--help"),
    (["--gpus", "\u0662"], "'--gpus': .* is not a whole number", "--help"),
    (["--gpus"], "'--gpus' requires an argument", "--help"),
    (["--nodes", "0"], "--nodes: must be a whole number from 1 to 4096", "--nodes 1"),
    (["--preset", "visoin"], "did you mean vision", "--help"),
    (["--preset", "zzz"], "choose from .*regression, .*vision", "--help"),
    (["--tracker", "TensorBoard"], "did you mean tensorboard", "--help"),
    (["--with", "slurm,dokcer"], "'dokcer' is not a choice; did you mean docker", "--help"),
    (["--gpuss", "2"], "No such option.*--gpuss", "--help"),
    (["--project-name", "x"], "No such option", "--help"),
    (["extra"], "unexpected extra argument", "--help"),
    (["--set", "gpus"], "--set 'gpus' has no =", "--set gpus=4"),
    (["--set", "=4"], "there is no question ''", "one of"),
    (["--set", "gpsu=4"], "there is no question 'gpsu'", "did you mean gpus"),
    (["--set", "_src_path=x"], "there is no question '_src_path'", "one of"),
    (["--set", "gpus=abc"], "--set gpus: 'abc' is not a whole number", "--help"),
    (["--set", "gpus=0"], "--gpus: must be a whole number", "--gpus 2"),
    (["--set", "gpus=4", "--set", "gpus=4"], "--set gpus=... is given twice", "once"),
    (["--set", "preset=$(id)"], "is not a choice", "--help"),
    (["--set", "gpus=4", "--gpus", "2"], "--gpus and --set gpus=... give different", "once"),
    (["--answers", "missing.yml"], "File 'missing.yml' does not exist", "--help"),
    (["--answers", "."], "File '.' is a directory", "--help"),
    (["--answers", "/dev/zero"], "too large", ""),
]


@pytest.mark.parametrize(("options", "message", "hint"), VALUES)
def test_a_value_that_cannot_be_meant(
    tool: Tool, options: list[str], message: str, hint: str
) -> None:
    done = tool("new", "missing/parent/myproj", "--yes", *options)
    assert_refused(done, USAGE, message, hint)
    assert snapshot(tool.cwd) == {}


ANSWERS = [
    (b"", "answers.yml holds no answers"),
    (b"# only a comment\n", "answers.yml holds no answers"),
    (b"- gpus\n- 4\n", "answers.yml holds no answers"),
    (b"just text", "answers.yml holds no answers"),
    (b"gpus: 4\npreset: [vision\n", r"answers.yml, line \d, is not valid YAML"),
    (b"gpus: 4\n\tpreset: vision\n", "answers.yml, line 2, is not valid YAML"),
    (b"\x7fELF\x02\x01\x01\x00\x00", "answers.yml is not valid YAML"),
    (b"\xff\xfe\x00g\x00p", "answers.yml is not a text file"),
    (b"gpus: 4\n---\ngpus: 2\n", "is not valid YAML"),
    (b"[" * 100_000, "is not valid YAML"),
    (b"gpus: *nobody\n", "line 1, is not valid YAML"),
    (b"preset: vision\ngpsu: 4\n", "line 2: there is no question 'gpsu'"),
    (b"preset: vision\ngpus: 4\ngpus: 2\n", "line 3: gpus is given twice"),
    (b"gpus: four\n", "line 1: gpus: 'four' is not a whole number"),
    (b"gpus: true\n", "line 1: gpus: True is not a whole number"),
    (b"gpus: 4.7\n", "line 1: gpus: 4.7 is not a whole number"),
    (b"gpus:\n", "line 1: gpus: None is not a whole number"),
    (b"gpus: {a: 1}\n", "line 1: gpus: a nested or malformed value is not a whole number"),
    (b"gpus: !!python/object/apply:os.system [id]\n", "line 1: gpus: "),
    (b"gpus: !!int four\n", "line 1: gpus: a nested or malformed value"),
    (b"parts: [slurm, [docker]]\n", "line 1: parts: a nested or malformed value"),
    (b"parts: 4\n", "line 1: parts: 4 is not a list"),
    (b"preset: null\n", "line 1: preset: None is not a choice"),
    (b"[a, b]: 1\n", "line 1: there is no question"),
    (b"project_name: 2024\n", "line 1: project_name: 2024 is not text; put it in quotes"),
]


@pytest.mark.parametrize(("content", "message"), ANSWERS)
def test_a_file_of_answers_that_is_malformed(tool: Tool, content: bytes, message: str) -> None:
    file = tool.cwd.parent / "answers.yml"
    file.write_bytes(content)
    assert_refused(tool("new", "myproj", "--yes", "--answers", file), USAGE, f".*{message}")
    assert snapshot(tool.cwd) == {}


def test_a_file_of_answers_that_cannot_be_read(tool: Tool) -> None:
    file = tool.cwd.parent / "answers.yml"
    file.write_text("gpus: 4\n")
    file.chmod(0)
    done = tool("new", "myproj", "--answers", file, prefix=without_root_powers())
    assert_refused(done, USAGE, "answers.yml' is not readable")
    assert snapshot(tool.cwd) == {}


def test_an_existing_file(tool: Tool) -> None:
    (tool.cwd / "myproj").write_text("mine")
    for force in ([], ["--force"]):
        done = tool("new", "myproj", "--yes", *force)
        assert_refused(done, ENVIRONMENT, "myproj exists and is a file", "myproj2")
    assert snapshot(tool.cwd) == {"myproj": b"mine"}


def test_a_parent_that_is_a_file(tool: Tool) -> None:
    (tool.cwd / "parent").write_text("mine")
    done = tool("new", "parent/sub/myproj", "--yes")
    assert_refused(done, ENVIRONMENT, "parent is not a folder")
    assert snapshot(tool.cwd) == {"parent": b"mine"}


def test_a_folder_that_is_not_empty(tool: Tool) -> None:
    (tool.cwd / "myproj").mkdir()
    for name in "abcd":
        (tool.cwd / "myproj" / name).write_text(name)
    before = snapshot(tool.cwd)
    done = tool("new", "myproj", "--yes")
    assert_refused(done, ENVIRONMENT, r"not empty \(it has a, b, c, \.\.\.\)", "--force")
    assert snapshot(tool.cwd) == before


def test_a_dangling_link(tool: Tool) -> None:
    (tool.cwd / "myproj").symlink_to("nowhere")
    done = tool("new", "myproj", "--yes", "--force")
    assert_refused(done, ENVIRONMENT, "myproj is a link that leads nowhere")
    assert snapshot(tool.cwd) == {"myproj": "link to nowhere"}


def test_a_link_that_leads_in_circles(tool: Tool) -> None:
    (tool.cwd / "myproj").symlink_to("myproj")
    assert_refused(tool("new", "myproj", "--yes"), ENVIRONMENT, "is a link that leads nowhere")


def test_a_read_only_parent(tool: Tool) -> None:
    tool.cwd.chmod(0o555)
    done = tool("new", "sub/myproj", "--yes", prefix=without_root_powers())
    tool.cwd.chmod(0o755)
    assert_refused(done, ENVIRONMENT, "cannot write to", "a folder of your own")
    assert snapshot(tool.cwd) == {}


def test_a_folder_that_may_not_be_looked_into(tool: Tool) -> None:
    locked = tool.cwd / "locked"
    (locked / "myproj").mkdir(parents=True)
    locked.chmod(0)
    done = tool("new", "locked/myproj", "--yes", prefix=without_root_powers())
    locked.chmod(0o755)
    assert_refused(done, ENVIRONMENT, "Permission denied", "a folder of your own")
    assert snapshot(tool.cwd) == {"locked": "folder", "locked/myproj": "folder"}


def test_a_path_that_is_too_long(tool: Tool) -> None:
    for parent in ("x" * 300, "/".join(["y" * 200] * 30)):
        done = tool("new", f"{parent}/myproj", "--yes")
        assert_refused(done, ENVIRONMENT, "the path is too long", "shorter")
    assert snapshot(tool.cwd) == {}


def test_a_temporary_folder_that_cannot_be_written_stops_only_a_dry_run(tool: Tool) -> None:
    nowhere = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "/nonexistent")
    assert tool("new", "myproj", "--yes", env=nowhere).code == 0


def test_closed_streams(tool: Tool) -> None:
    for number, redirection in enumerate(["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]):
        shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
        done = tool("new", f"proj{number}", "--no-git", prefix=shell)
        assert (done.code, done.err) == (0, "")
        assert (tool.cwd / f"proj{number}/model.py").is_file()


def test_output_that_cannot_be_written(tool: Tool) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [tool.executable, "presets"],
            env=tool.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert done.stderr.startswith("error: cannot write the output: No space left on device")


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_an_argument_that_is_not_text(tool: Tool, locale: str) -> None:
    strict = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for argument in (b"caf\xe9", "proj\u00e9".encode()):
        done = tool("new", argument, "--yes", env=strict)
        assert_refused(done, USAGE, "cannot be a project's name", "ddpgen new [a-z]")
        assert tool("new", argument + b"/myproj", "--yes", "--no-git", env=strict).code == 0
        shutil.rmtree(os.fsencode(tool.cwd) + b"/" + argument)
    assert snapshot(tool.cwd) == {}


def test_an_unknown_command(tool: Tool) -> None:
    assert_refused(tool("nwe"), USAGE, "No such command 'nwe'", "ddpgen --help")
    assert_refused(tool("new"), USAGE, "Missing argument 'PATH'", "ddpgen new --help")
