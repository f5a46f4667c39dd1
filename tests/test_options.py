"""What the template asks, `ddpgen new` can be told, and each answer is taken as it is meant."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import ROOT, Tool

from ddpgen.commands.new import command
from ddpgen.template import questions

EXTRA = """
grad_clip:
  type: float
  help: Largest norm of the gradient
  default: 1.5

compile_model:
  type: bool
  help: Compile the model
  default: false

flavour:
  type: str
  help: How it tastes
  default: sweet
  choices:
    "sweet: with sugar": sweet
    "sour: with lemon": sour
"""
ADDED = ("grad_clip", "compile_model", "flavour")


def answers_of(project: Path) -> dict[str, object]:
    """Return what a project remembers of its answers."""
    found: dict[str, object] = yaml.safe_load((project / ".copier-answers.yml").read_text())
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the tool with its template, where the template asks three more questions."""
    folder = tmp_path / "a rather long name with spaces, where YAML breaks a line in two or three"
    for part in ("ddpgen", "template"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "template/copier.yml").open("a") as file:
        file.write(EXTRA)
    return folder


def ddpgen(checkout: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the tool of a checkout."""
    return subprocess.run(
        [sys.executable, "-m", "ddpgen", *arguments],
        cwd=checkout,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_question_added_to_the_template_is_an_option(checkout: Path) -> None:
    shown = " ".join(ddpgen(checkout, "new", "--help").stdout.split())
    assert "--grad-clip X Largest norm of the gradient. [default: 1.5]" in shown
    assert "--compile-model true|false Compile the model. [default: false]" in shown
    assert "--flavour NAME How it tastes: sweet, sour. [default: sweet]" in shown


def test_a_question_added_to_the_template_is_answered_by_its_option(checkout: Path) -> None:
    typed = ["--grad-clip", "0.25", "--compile-model", "yes", "--flavour", "sour"]
    done = ddpgen(checkout, "new", "proj", "--yes", "--no-git", *typed)
    assert done.returncode == 0, done.stderr
    answers = answers_of(checkout / "proj")
    assert (answers["grad_clip"], answers["compile_model"]) == (0.25, True)
    assert answers["flavour"] == "sour"


def test_a_template_that_is_broken_is_said_in_two_lines(checkout: Path) -> None:
    """Protects `explained`; the template may be somebody else's."""
    (checkout / "template/project/broken.txt.jinja").write_text("{% if %}\n")
    done = ddpgen(checkout, "new", "proj", "--yes")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: Copier cannot use the template: TemplateSyntaxError: ")
    assert second.startswith("try: DDPGEN_DEBUG=1")
    assert not (checkout / "proj").exists()
    assert not list(checkout.glob(".ddpgen-*"))
    assert "Traceback" in ddpgen(checkout, "new", "proj", "--yes", DDPGEN_DEBUG="1").stderr


def test_a_bug_is_said_in_two_lines(checkout: Path) -> None:
    """Protects the last branch of `_translate`: whatever happens, nobody reads a traceback."""
    (checkout / "ddpgen/_history").mkdir(exist_ok=True)
    (checkout / "ddpgen/_history/index.json").write_text("no JSON")
    done = ddpgen(checkout, "new", "proj", "--yes")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ddpgen has a bug: JSONDecodeError: ")
    assert second.startswith("try: DDPGEN_DEBUG=1")


def test_a_long_path_to_the_template_leaves_no_trace(checkout: Path) -> None:
    """Protects the pattern of `record_source`, which has to remove each line of the path."""
    assert ddpgen(checkout, "new", "proj", "--yes", "--no-git").returncode == 0
    lines = (checkout / "proj/.copier-answers.yml").read_text().splitlines()
    assert set(answers_of(checkout / "proj")) == {"_commit", "_src_path", *questions(), *ADDED}
    assert not [line for line in lines if "rather" in line or line.startswith(" ")]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--grad-clip", "much", "'much' is not a number"),
        ("--compile-model", "maybe", "'maybe' is neither true nor false"),
        ("--flavour", "salty", "choose from sweet, sour"),
    ],
)
def test_an_added_question_refuses_what_it_cannot_take(
    checkout: Path, option: str, value: str, message: str
) -> None:
    done = ddpgen(checkout, "new", "proj", option, value)
    assert done.returncode == 2
    assert message in done.stderr


def test_every_question_is_in_the_help_with_its_help_choices_and_default(tool: Tool) -> None:
    shown = " ".join(tool("new", "--help").out.split())
    asked = {name: question for name, question in questions().items() if name != "project_name"}
    assert set(asked) == {"gpus", "nodes", "preset", "tracker", "parts"}
    for question in asked.values():
        assert f" {question.option} " in shown
        assert question.help in shown
        assert ", ".join(question.choices) in shown
        default = question.default or "none of them"
        assert f"[default: {default}]" in shown


def test_no_option_is_declared_twice() -> None:
    names = [name for parameter in command.params for name in parameter.opts]
    assert len(names) == len(set(names))
    assert {parameter.name for parameter in command.params} >= questions().keys() - {"project_name"}


def test_an_option_wins_over_a_file_and_so_does_set(tool: Tool) -> None:
    (tool.cwd / "answers.yml").write_text("gpus: 3\nnodes: 3\npreset: vision\nparts: [ci]\n")
    done = tool(
        "new", "myproj", "--answers", "answers.yml", "--gpus", "4", "--set", "nodes=2", "--yes"
    )
    assert done.code == 0, done.err
    answers = answers_of(tool.cwd / "myproj")
    given = {name: answers[name] for name in ("gpus", "nodes", "preset", "parts", "tracker")}
    assert given == {
        "gpus": 4, "nodes": 2, "preset": "vision", "parts": ["ci"], "tracker": "tensorboard",
    }  # fmt: skip


def test_the_same_answer_given_twice_is_no_conflict(tool: Tool) -> None:
    assert tool("new", "myproj", "--gpus", "4", "--set", "gpus=4", "--yes").code == 0


def test_the_answers_of_a_project_make_another_like_it(tool: Tool) -> None:
    tool("new", "one", "--gpus", "3", "--with", "slurm,ci", "--yes")
    (tool.cwd / "sub").mkdir()
    done = tool("new", "sub/one", "--answers", "one/.copier-answers.yml", "--yes")
    assert done.code == 0, done.err
    assert answers_of(tool.cwd / "sub/one") == answers_of(tool.cwd / "one")


def test_another_project_gives_its_answers_and_not_its_name(tool: Tool) -> None:
    """Protects `of_a_project` in answers.py; a name in a file of one's own is taken."""
    tool("new", "one", "--gpus", "3", "--yes")
    tool("new", "two", "--answers", "one/.copier-answers.yml", "--yes")
    assert answers_of(tool.cwd / "two") == {**answers_of(tool.cwd / "one"), "project_name": "two"}
    (tool.cwd / "answers.yml").write_text("project_name: mine\n")
    tool("new", "three", "--answers", "answers.yml", "--yes")
    assert answers_of(tool.cwd / "three")["project_name"] == "mine"


@pytest.mark.parametrize("typed", ["ci,slurm", "slurm,ci", " slurm , ci,", "slurm,ci,slurm"])
def test_parts_are_a_list_in_the_order_of_the_template(tool: Tool, typed: str) -> None:
    assert tool("new", "myproj", "--with", typed, "--yes", "--no-git").code == 0
    assert answers_of(tool.cwd / "myproj")["parts"] == ["slurm", "ci"]


def test_no_parts_can_be_said(tool: Tool) -> None:
    (tool.cwd / "answers.yml").write_text("parts: [ci]\n")
    tool("new", "myproj", "--answers", "answers.yml", "--with", "", "--yes")
    assert answers_of(tool.cwd / "myproj")["parts"] == []


def test_answers_can_come_through_a_pipe(tool: Tool) -> None:
    shell = ["bash", "-c", 'exec "$@" --answers <(echo "gpus: 5")', "bash"]
    assert tool("new", "myproj", "--yes", prefix=shell).code == 0
    assert answers_of(tool.cwd / "myproj")["gpus"] == 5
