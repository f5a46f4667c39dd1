"""Templates of others: a team's fork in git, plain `copier copy`, and what would run something."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from releases import NEW, NEWEST, OLD, at
from support import Tool, commit, edit, git
from updates import ANSWERS, files_of


@pytest.fixture
def fork(tool: Tool, shelf: Path) -> Path:
    """A team's fork of this repository's template, in git, with one release."""
    folder = tool.cwd / "team template"
    shutil.copytree(shelf / OLD / "template", folder)
    edit(folder / "project/notes.py", "old", "the team's")
    git(folder, "init", "--quiet")
    commit(folder)
    git(folder, "tag", "v1.0.0")
    return folder


def next_release(fork: Path, tag: str = "v1.1.0") -> None:
    """Change the fork and release it."""
    edit(fork / "project/notes.py", "the team's", "the team's second")
    commit(fork)
    if tag:
        git(fork, "tag", tag)


def copier(tool: Tool, cwd: Path, *words: str | Path) -> None:
    """Run plain Copier."""
    command = [sys.executable, "-m", "copier", *words]
    done = subprocess.run(
        command, cwd=cwd, env=tool.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_project_of_a_fork_stays_with_the_fork(newest: Tool, fork: Path, prefix: str) -> None:
    """A path is recorded as an absolute one, so that it is found from everywhere."""
    source = f"{prefix}{fork}" if prefix else "team template"
    done = newest("new", "proj", "--yes", "--gpus", "3", "--template", source)
    assert done.code == 0, done.err
    project = newest.cwd / "proj"
    recorded = yaml.safe_load((project / ANSWERS).read_text())
    assert recorded["_commit"] == "v1.0.0"
    assert recorded["_src_path"] == f"{prefix}{fork}"
    assert "the team's" in (project / "notes.py").read_text()
    assert newest("update", "--check", "proj").code == 0
    next_release(fork)
    assert newest("update", "--check", "proj").code == 3
    edit(project / "long.py", "LINE_9 = 9\n", "LINE_9 = 'mine'\n")
    commit(project)
    done = newest("update", "proj", "--set", "gpus=4")
    assert done.code == 0, done.err
    assert yaml.safe_load((project / ANSWERS).read_text()) == {
        **recorded,
        "_commit": "v1.1.0",
        "gpus": 4,
    }
    assert "the team's second" in (project / "notes.py").read_text()
    assert "LINE_9 = 'mine'" in (project / "long.py").read_text()
    commit(project)
    assert newest("diff", "proj").out.count("\n-LINE_9 = 9\n+LINE_9 = 'mine'\n") == 1


def test_a_fork_without_tags_is_followed_by_its_branch(newest: Tool, fork: Path) -> None:
    git(fork, "tag", "--delete", "v1.0.0")
    assert newest("new", "proj", "--yes", "--template", str(fork)).code == 0
    next_release(fork, tag="")
    assert newest("update", "--check", "proj").code == 3
    done = newest("update", "proj")
    assert done.code == 0, done.err
    assert "the team's second" in (newest.cwd / "proj/notes.py").read_text()
    assert newest("update", "--check", "proj").code == 0


def test_a_project_of_plain_copier_is_updated_by_both(newest: Tool, fork: Path) -> None:
    copier(newest, newest.cwd, "copy", "--quiet", "--defaults", fork, "proj")
    project = newest.cwd / "proj"
    git(project, "init", "--quiet")
    commit(project)
    next_release(fork)
    copier(newest, project, "update", "--quiet", "--defaults")
    by_copier = files_of(project)
    git(project, "stash", "--quiet", "--include-untracked")
    done = newest("update", "proj")
    assert done.code == 0, done.err
    assert files_of(project) == by_copier
    commit(project)
    edit(fork / "project/notes.py", "second", "third")
    commit(fork)
    git(fork, "tag", "v1.2.0")
    copier(newest, project, "update", "--quiet", "--defaults")
    assert "the team's third" in (project / "notes.py").read_text()


UNSAFE = {
    "a task": ("_tasks: ['touch PWNED']\n", "task: touch PWNED"),
    "a task in a list": ("_tasks:\n  - [touch, PWNED]\n", "task: touch PWNED"),
    "a task by name": ("_tasks:\n  - command: touch PWNED\n", "task: touch PWNED"),
    "an extension": ("_jinja_extensions: [os.path]\n", "Jinja extension: os.path"),
    "a migration": (
        "_migrations:\n  - command: touch PWNED\n    version: v1.1.0\n",
        "migration: touch PWNED",
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_would_run_something_is_listed_and_refused(
    newest: Tool, fork: Path, name: str
) -> None:
    """Protects `refuse_to_run`, also where a template is safe at first and not later."""
    setting, says = UNSAFE[name]
    assert newest("new", "safe", "--yes", "--template", str(fork)).code == 0
    config = fork / "copier.yml"
    config.write_text(config.read_text() + "\n---\n!include more.yml\n")
    (fork / "more.yml").write_text(setting)
    next_release(fork)
    for done in (
        newest("new", "proj", "--yes", "--template", str(fork)),
        newest("update", "safe"),
    ):
        assert done.code == 1
        first, second = done.err.splitlines()
        assert says in first
        assert second.startswith("try: --trust")
    assert not (newest.cwd / "proj").exists()
    assert not list(newest.cwd.rglob("PWNED"))


def test_a_task_runs_when_it_is_trusted(newest: Tool, fork: Path) -> None:
    config = fork / "copier.yml"
    config.write_text(config.read_text() + "_tasks: ['touch MADE_BY_TASK']\n")
    next_release(fork)
    done = newest("new", "proj", "--yes", "--trust", "--template", str(fork))
    assert done.code == 0, done.err
    assert (newest.cwd / "proj/MADE_BY_TASK").exists()
    edit(fork / "project/notes.py", "second", "third")
    commit(fork)
    git(fork, "tag", "v2.0.0")
    assert newest("update", "proj").code == 1
    done = newest("update", "proj", "--trust")
    assert done.code == 0, done.err
    assert "third" in (newest.cwd / "proj/notes.py").read_text()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("nowhere", "the template nowhere is not there"),
        ("ext::sh -c touch% PWNED", "is not there"),
        ("--upload-pack=touch PWNED", "is not there"),
        ("file:///nowhere", "cannot get the template file:///nowhere"),
        ("~nobody-of-that-name/template", "is not there"),
        ("", "the template '' is not there"),
        ("empty", "is no template of Copier: it has no copier.yml"),
    ],
)
def test_a_template_that_cannot_be_had_is_named(newest: Tool, source: str, says: str) -> None:
    (newest.cwd / "empty").mkdir()
    done = newest("new", "proj", "--yes", f"--template={source}")
    assert done.code == 1
    assert says in done.err
    assert not (newest.cwd / "proj").exists()
    assert not list(newest.cwd.rglob("PWNED"))


def test_the_questions_are_those_of_the_fork(newest: Tool, fork: Path) -> None:
    config = fork / "copier.yml"
    extra = "cluster: a\nlevel:\n  type: int\n  default: 1\n  choices: [1, 2, 3]\n"
    config.write_text(config.read_text() + extra)
    next_release(fork)
    done = newest("new", "proj", "--yes", "--template", str(fork), "--set", "cluster=b")
    assert done.code == 0, done.err
    assert "cluster: b\n" in (newest.cwd / "proj" / ANSWERS).read_text()
    done = newest("new", "other", "--yes", "--template", str(fork), "--set", "clusters=b")
    assert "did you mean cluster?" in done.err
    edit(config, "choices: [1, 2, 3]", "choices: [2, 3]")
    edit(config, "type: int\n  default: 1\n  choices: [2", "type: int\n  default: 2\n  choices: [2")
    commit(fork)
    git(fork, "tag", "v3.0.0")
    done = newest("update", "proj")
    assert done.code == 0, done.err
    assert "level was 1, which the template no longer takes; it is now 2" in done.err


def test_questions_that_only_copier_understands_are_left_to_it(newest: Tool, fork: Path) -> None:
    """Protects `make_question`: a recorded answer of theirs must not stop an update."""
    config = fork / "copier.yml"
    config.write_text(
        config.read_text()
        + "ports:\n  type: int\n  multiselect: true\n  choices: [80, 443]\n  default: [80]\n"
        + "mode:\n  type: str\n  default: a\n  choices:\n    A: a\n"
        + "    B:\n      value: b\n      validator: ''\n"
        + "computed:\n  type: \"{{ 'str' }}\"\n  default: x\n"
    )
    next_release(fork)
    done = newest("new", "proj", "--yes", "--template", str(fork), "--set", "mode=b")
    assert (done.code, done.err) == (0, "")
    edit(fork / "project/notes.py", "second", "third")
    commit(fork)
    git(fork, "tag", "v1.2.0")
    done = newest("update", "proj", "--set", "ports=[80, 443]")
    assert done.code == 0, done.err
    recorded = yaml.safe_load((newest.cwd / "proj" / ANSWERS).read_text())
    assert (recorded["mode"], recorded["ports"], recorded["computed"]) == ("b", [80, 443], "x")


BROKEN = {
    "no YAML": ("a: [\n", "is not valid YAML"),
    "not UTF-8": ("\udcff\n", "is not valid YAML"),
    "an unknown tag": ("a: !b c\n", "is not valid YAML"),
    "includes itself": ("!include copier.yml\n", "copier.yml includes itself"),
    "includes from anywhere": ("!include /etc/passwd\n", "includes '/etc/passwd': only a"),
    "includes from above": ("!include ../*.yml\n", "includes '../*.yml': only a relative"),
    "includes nothing": ("!include ''\n", "includes '': Unacceptable pattern"),
    "an unknown type": ("a:\n  type: colour\n  default: x\n", 'Unsupported type "colour"'),
    "an unknown setting": ("_envops: {undefined: no.thing}\n", "Copier cannot use the template"),
    "a later Copier": ("_min_copier_version: '99'\n", "requires Copier version >= 99"),
    "tasks that are none": ("_tasks: 3\n", "would run: task: 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_template_of_others_is_no_bug_of_ddpgen(
    newest: Tool, fork: Path, name: str
) -> None:
    """Protects `config.read`, `explained` and `what_it_runs`."""
    text, says = BROKEN[name]
    assert newest("new", "proj", "--yes", "--template", str(fork)).code == 0
    (fork / "copier.yml").write_bytes(os.fsencode(text))
    next_release(fork)
    before = files_of(newest.cwd / "proj")
    for done in (newest("update", "proj"), newest("new", "p", "--yes", "--template", str(fork))):
        assert done.code == 1, done
        assert says in done.err
        assert "bug" not in done.err
    assert files_of(newest.cwd / "proj") == before
    assert not (newest.cwd / "p").exists()


def test_a_revision_of_others_is_named_with_or_without_v(newest: Tool, fork: Path) -> None:
    assert newest("new", "proj", "--yes", "--template", str(fork)).code == 0
    assert newest("update", "proj", "--check", "--to", "1.0.0").code == 0
    next_release(fork)
    assert newest("update", "proj", "--check", "--to", "1.1.0").code == 3
    assert "has no version '7'" in newest("update", "proj", "--check", "--to", "7").err
    assert newest("update", "proj", "--to", "1.1.0").code == 0


def test_each_version_of_ours_can_be_named(newest: Tool, tool: Tool, shelf: Path) -> None:
    assert at(tool, shelf, OLD)("new", "proj", "--yes").code == 0
    for version in (NEW, NEWEST):
        assert newest("update", "proj", "--to", version).code == 0
        commit(newest.cwd / "proj")
    assert newest("update", "--check", "proj").code == 0
