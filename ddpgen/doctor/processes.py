"""Processes of the project's Python that are watched, and of which none is ever left.

Each is the leader of a session of its own, so that its DataLoader workers end with it. A Ctrl-C or
a SIGTERM unwinds `run`, which kills them; when the doctor itself is killed, Linux does.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpgen import signals

INSIDE = Path(__file__).parent / "inside"
GRACE = 3.0  # seconds in which the other processes may say what they know, after the first failure
SLACK = 5.0  # seconds after which a process that should have ended itself is killed
POLL = 0.05


@dataclass
class Process:
    """One process, and where it writes.

    Attributes:
        handle: the running process.
        answers: the file of its answers, a line of JSON each.
        output: the file of all that it printed.
        code: the exit code, or minus the signal; None when it had to be killed here.
    """

    handle: "subprocess.Popen[bytes]"
    answers: Path
    output: Path
    code: int | None = None

    def told(self, name: str) -> list[dict[str, Any]]:
        """Return the lines with such a fact; one that is being written is left out."""
        try:
            lines = self.answers.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in told if name in line]

    def fact(self, name: str) -> Any:
        """Return what it has told last under a name; None when it has not."""
        told = self.told(name)
        return told[-1][name] if told else None

    def last_words(self) -> str:
        """Return the last line that it printed."""
        lines = self.output.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def hangs_at(self, folder: Path) -> str | None:
        """Return where in the project it hung when it ended itself for that; None if it did not.

        Args:
            folder: the project's.
        """
        try:
            stack = Path(f"{self.answers}.stack").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        if not stack:
            return None
        main_thread = stack.split("\n\n")[-1]
        frames = re.findall(r'File "(.+)", line (\d+) in (.+)', main_thread)
        ours = [f"{Path(f).name}:{line} in {name}" for f, line, name in frames if _in(f, folder)]
        return ours[0] if ours else "not in this project"

    def kill(self) -> None:
        """Kill it with all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.handle.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.handle.wait(SLACK)


def run(
    commands: Sequence[Sequence[str]],
    scratch: Path,
    patience: float,
    environments: Sequence[Mapping[str, str]],
) -> list[Process]:
    """Run processes to their end and return them; none of them is alive then.

    Args:
        commands: the command line of each; the word "FILE" in it becomes the file of its answers.
        scratch: where the files go.
        patience: seconds in which each has to tell something new.
        environments: of each.
    """
    started: list[Process] = []
    try:
        for number, (command, environment) in enumerate(zip(commands, environments, strict=True)):
            answers = scratch / f"{len(list(scratch.iterdir()))}-{number}.jsonl"
            with signals.held():
                started.append(_start(command, answers, environment))
        _wait(started, patience + SLACK)
        for process in started:
            process.code = process.handle.poll()
    finally:
        for process in started:
            process.kill()
    return started


def _start(command: Sequence[str], answers: Path, environment: Mapping[str, str]) -> Process:
    output = answers.with_suffix(".txt")
    words = [word.replace("FILE", str(answers)) for word in command]
    with output.open("wb") as stream:
        handle = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Process(handle, answers, output)


def _wait(started: list[Process], patience: float) -> None:
    """Return when all have ended, or one has failed or been silent for too long."""
    sizes = [-1] * len(started)
    heard = [time.monotonic()] * len(started)
    end: float | None = None
    while True:
        now = time.monotonic()
        running = [process for process in started if process.handle.poll() is None]
        for number, process in enumerate(started):
            size = process.answers.stat().st_size if process.answers.exists() else 0
            if size != sizes[number]:
                sizes[number], heard[number] = size, now
        if end is None and any(process.handle.returncode for process in started):
            end = now + GRACE
        silent = any(now - heard[started.index(process)] > patience for process in running)
        if not running or silent or (end is not None and now > end):
            return
        time.sleep(POLL)


def _in(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder)
