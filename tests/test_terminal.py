"""On a terminal `ddpgen new` asks what was not given, with defaults for this machine."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from support import Tool, snapshot
from terminal import CTRL_C, CTRL_D, DOWN, ENTER, SPACE, Terminal

Start = Callable[..., Terminal]
ASKED = [
    "GPUs on each machine",
    "Machines that train",
    "What model.py",
    "Where curves go",
    "Optional parts",
]
# All answers but the number of GPUs.
OTHERS = ["--nodes", "1", "--preset", "vision", "--tracker", "none", "--with", ""]


@pytest.fixture
def start(tool: Tool) -> Iterator[Start]:
    """Start `ddpgen new` on a terminal."""
    started: list[Terminal] = []

    def start_one(*arguments: str, **env: str) -> Terminal:
        command: list[str | Path] = [tool.executable, "new", *arguments]
        started.append(Terminal(command, tool.cwd, {**tool.env, **env}))
        return started[-1]

    yield start_one
    for terminal in started:
        terminal.kill()


def answers_of(project: Path) -> dict[str, object]:
    """Return what a project remembers of its answers."""
    found: dict[str, object] = yaml.safe_load((project / ".copier-answers.yml").read_text())
    return found


def machine_with(tool: Tool, gpus: int) -> str:
    """Return a PATH whose nvidia-smi lists so many GPUs."""
    folder = tool.cwd.parent / "bin"
    folder.mkdir()
    lines = "".join(f"echo 'GPU {i}: NVIDIA H200 (UUID: GPU-{i})'\n" for i in range(gpus))
    (folder / "nvidia-smi").write_text(f'#!/bin/sh\n[ "$1" = -L ] || exit 1\n{lines}')
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}:{tool.env['PATH']}"


def test_asks_each_question_and_takes_the_answers(tool: Tool, start: Start) -> None:
    terminal = start("myproj")
    for question, keys in zip(
        ASKED, ["\b\b\b6", "\b2", DOWN + DOWN, DOWN + DOWN, SPACE + DOWN + SPACE], strict=True
    ):
        terminal.expect(question)
        terminal.type(keys + ENTER)
    terminal.expect("Made")
    assert terminal.end() == 0
    answers = answers_of(tool.cwd / "myproj")
    assert answers["gpus"] == 6
    assert answers["nodes"] == 2
    assert answers["preset"] == "vision"
    assert answers["tracker"] == "mlflow"
    assert answers["parts"] == ["slurm", "docker"]


def test_asks_only_for_what_is_not_given(tool: Tool, start: Start) -> None:
    terminal = start("myproj", "--gpus", "3", "--preset", "vision", "--with", "ci")
    for question in ("Machines that train", "Where curves go"):
        terminal.expect(question)
        terminal.type(ENTER)
    terminal.expect("Made")
    assert terminal.end() == 0
    for question in ("GPUs on each machine", "What model.py", "Optional parts"):
        assert question not in terminal.shown
    assert answers_of(tool.cwd / "myproj")["gpus"] == 3


def test_yes_asks_nothing_and_takes_the_defaults_of_the_template(tool: Tool, start: Start) -> None:
    terminal = start("myproj", "--yes", PATH=machine_with(tool, 5))
    assert terminal.end() == 0
    assert answers_of(tool.cwd / "myproj")["gpus"] == 2


@pytest.mark.parametrize(
    ("gpus", "visible", "suggested"),
    [(3, None, 3), (3, "0", 1), (3, "2,1", 2), (3, "1,-1,2", 1), (3, "7,8,9,10", 3), (16, None, 8)],
)
def test_suggests_the_gpus_of_this_machine(
    tool: Tool, start: Start, gpus: int, visible: str | None, suggested: int
) -> None:
    env = {"PATH": machine_with(tool, gpus)}
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    terminal = start("myproj", "--no-git", *OTHERS, **env)
    terminal.expect("GPUs on each machine")
    terminal.type(ENTER)
    assert terminal.end() == 0
    assert answers_of(tool.cwd / "myproj")["gpus"] == suggested


@pytest.mark.parametrize("visible", ["", "-1"])
def test_suggests_the_processors_where_no_gpu_may_be_used(
    tool: Tool, start: Start, visible: str
) -> None:
    terminal = start("myproj", PATH=machine_with(tool, 5), CUDA_VISIBLE_DEVICES=visible)
    for question in ASKED:
        terminal.expect(question)
        terminal.type(ENTER)
    assert terminal.end() == 0
    suggested = min(len(os.sched_getaffinity(0)), 8)
    assert answers_of(tool.cwd / "myproj")["gpus"] == suggested


def test_a_wrong_answer_is_asked_again(tool: Tool, start: Start) -> None:
    terminal = start(
        "myproj",
        "--set",
        "nodes=1",
        "--set",
        "preset=vision",
        "--set",
        "tracker=none",
        "--with",
        "",
    )
    terminal.expect("GPUs on each machine")
    terminal.type("\b\b\b0" + ENTER)
    terminal.expect("must be a whole number from 1 to 128")
    terminal.type("\b4" + ENTER)
    assert terminal.end() == 0
    assert answers_of(tool.cwd / "myproj")["gpus"] == 4


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_leaving_the_questions_writes_nothing(tool: Tool, start: Start, key: str) -> None:
    terminal = start("parent/myproj")
    terminal.expect("GPUs on each machine")
    terminal.type(ENTER)
    terminal.expect("Machines that train")
    terminal.type(key if key == CTRL_C else "\b" + key)
    code = terminal.end()
    assert code == (130 if key == CTRL_C else 1)
    assert "error: " in terminal.shown
    assert "Traceback" not in terminal.shown
    assert snapshot(tool.cwd) == {}


def test_a_terminal_that_is_closed_leaves_nothing(tool: Tool, start: Start) -> None:
    terminal = start("parent/myproj")
    terminal.expect("GPUs on each machine")
    terminal.process.send_signal(signal.SIGHUP)
    assert terminal.end() == 129
    assert snapshot(tool.cwd) == {}


def test_a_refusal_comes_before_the_questions(tool: Tool, start: Start) -> None:
    (tool.cwd / "myproj").mkdir()
    (tool.cwd / "myproj/file").write_text("mine")
    terminal = start("myproj")
    assert terminal.end() == 1
    assert "not empty" in terminal.shown
    assert ASKED[0] not in terminal.shown


@pytest.mark.parametrize(("key", "code", "kept"), [("y", 0, False), ("n", 1, True), ("", 1, True)])
def test_force_asks_before_it_overwrites(
    tool: Tool, start: Start, key: str, code: int, kept: bool
) -> None:
    """Protects `_agree_to_overwrite`; without an answer nothing is overwritten."""
    model = tool.cwd / "myproj/model.py"
    model.parent.mkdir()
    model.write_text("mine")
    before = snapshot(tool.cwd)
    terminal = start("myproj", "--force", "--gpus", "2", *OTHERS)
    terminal.expect("Overwrite model.py?")
    terminal.type(key + ENTER)
    assert terminal.end() == code
    assert (model.read_text() == "mine") is kept
    if kept:
        assert snapshot(tool.cwd) == before
