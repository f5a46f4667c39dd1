"""A generated project that trains with the real launch.sh, and ways to disturb it from outside."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from generated import ENVIRONMENT, PATIENCE, generate

# No test asserts that anything is quick: the machine may be busy. A job that stands still for
# PATIENCE seconds is stuck; what must not happen is 600, the timeout of collectives and of steps.
MARK = "JOB_MARK"
LINGER = 15.0  # so long a process may still be there when launch.sh has ended

# The owner's data.py of the tests. It does not import scikit-learn, which takes a second, and its
# augmentation draws from every random state that there is.
DATA = """
import random

import numpy as np
import torch
from torch.utils.data import Dataset


class Pictures(Dataset):
    def __init__(self, size, seed, augment):
        draw = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(10, (size,), generator=draw)
        kinds = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        self.images = kinds[self.labels] + 0.3 * torch.randn(size, 1, 8, 8, generator=draw)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            image = image.roll((random.randint(-1, 1), np.random.randint(-1, 2)), dims=(1, 2))
            image = image + 0.1 * torch.randn(image.shape)
        return image, self.labels[index]


def build_datasets(config):
    return Pictures({train}, 1, augment=True), Pictures({validation}, 2, augment=False)
"""


NOTE = """
import os, time
from pathlib import Path

rank = int(os.environ.get("RANK", "0"))

def note(value):
    with open(Path(__file__).with_name(f"notes-{rank}.txt"), "a") as file:
        file.write(f"{value}\\n")
"""


class Project:
    """A project of the vision preset, a CNN with dropout, on the data above.

    model.py and data.py belong to its owner: tests write their faults there, or send signals.
    """

    def __init__(
        self, folder: Path, train: int = 400, validation: int = 50, **answers: Any
    ) -> None:
        """Generate it in `folder`, with so many samples."""
        self.folder = folder
        self.jobs: list[Job] = []
        generate(folder, preset="vision", tracker="none", **answers)
        self.write_data(train, validation)

    def write_data(self, train: int, validation: int) -> None:
        """Write data.py for so many samples."""
        text = DATA.format(train=train, validation=validation)
        (self.folder / "data.py").write_text(text, encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        """Add code to model.py or data.py, as their owner may."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{text}\n")

    def before(self, name: str, function: str, code: str) -> None:
        """Let a function of model.py or data.py run this code first.

        The code may use `rank`, `calls` (how often the function was called here, from 1), `args`,
        and `note(value)`, which adds a line to notes-RANK.txt.
        """
        body = "\n".join(f"    {line}" for line in code.strip().splitlines())
        self.append(
            name,
            f"""
{NOTE}
_{function}, _{function}_calls = {function}, []

def {function}(*args):
    _{function}_calls.append(None)
    calls = len(_{function}_calls)
{body}
    return _{function}(*args)
""",
        )

    def notes(self, rank: int) -> list[str]:
        """Return the lines that `note` wrote on a rank."""
        path = self.folder / f"notes-{rank}.txt"
        return path.read_text().splitlines() if path.exists() else []

    def take_notes(self, processes: int = 2) -> list[list[str]]:
        """Return these lines of each rank, and remove them."""
        taken = [self.notes(rank) for rank in range(processes)]
        for path in self.folder.glob("notes-*.txt"):
            path.unlink()
        return taken

    def start(
        self,
        *options: str,
        processes: int = 2,
        command: Sequence[str] = ("./launch.sh",),
        **environment: str,
    ) -> "Job":
        """Start ./launch.sh, or another command, in a session of its own."""
        job = Job(self, [*command, *options], processes, environment)
        self.jobs.append(job)
        return job

    def run(self, *options: str, processes: int = 2, **environment: str) -> "Job":
        """Run ./launch.sh to its end."""
        job = self.start(*options, processes=processes, **environment)
        job.wait()
        return job

    def run_alone(self, *options: str) -> "Job":
        """Run train.py to its end as one process without a launcher: that starts sooner."""
        job = self.start(*options, command=[sys.executable, "train.py"])
        job.wait()
        return job

    def run_folder(self, name: str = "default") -> Path:
        """Where a run writes."""
        return self.folder / "runs" / name

    def steps(self, name: str = "default") -> list[int]:
        """Return the steps of the checkpoints, the oldest first."""
        files = self.run_folder(name).glob("checkpoints/step_*.pt")
        return sorted(int(path.stem.removeprefix("step_")) for path in files)

    def metrics(self, key: str, name: str = "default") -> dict[int, float]:
        """Return a metric by step, from metrics.jsonl."""
        text = (self.run_folder(name) / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return {line["step"]: line[key] for line in lines if key in line}

    def state(self, name: str = "default") -> dict[str, Any]:
        """Return the content of the newest checkpoint."""
        path = self.run_folder(name) / "checkpoints" / "last.pt"
        state: dict[str, Any] = torch.load(path, weights_only=True)
        return state

    def weights(self, name: str = "default") -> str:
        """Return a hash of the newest weights: equal to the bit or not."""
        digest = hashlib.sha256()
        for key, tensor in sorted(self.state(name)["model"].items()):
            digest.update(key.encode() + tensor.numpy().tobytes())
        return digest.hexdigest()


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment of a process; {} when it has ended or belongs to somebody else."""
    try:
        items = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return {}
    return {key: value for key, _, value in (item.partition("=") for item in items)}


class Job:
    """One launch.sh, the processes that it started, and what they printed."""

    def __init__(
        self,
        project: Project,
        command: Sequence[str],
        processes: int,
        environment: dict[str, str],
    ) -> None:
        """Start it; /proc finds its processes by a mark in their environment, orphans as well."""
        self.project = project
        self.mark = uuid.uuid4().hex
        self._output = project.folder / f"output-{self.mark[-8:]}.txt"
        settings = {"NPROC": str(processes), "OMP_NUM_THREADS": "1"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--device=cpu"],
                cwd=project.folder,
                env={**ENVIRONMENT, **settings, **environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # despite nohup
            )

    @property
    def output(self) -> str:
        """All that was printed so far, both streams."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def code(self) -> int:
        """The exit code, after `wait`."""
        assert self.process.returncode is not None
        return self.process.returncode

    def pids(self) -> dict[int, dict[str, str]]:
        """Return the environment of each process of this job that is alive, by its id."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        environments = {pid: environment_of(pid) for pid in pids}
        return {pid: each for pid, each in environments.items() if each.get(MARK) == self.mark}

    def workers(self) -> dict[int, int]:
        """Return the id of the training process of each rank that has been started."""
        launcher = self.process.pid
        ranks = {}
        with suppress(OSError):
            for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
                environment = environment_of(int(child))
                if "RANK" in environment:
                    ranks[int(environment["RANK"])] = int(child)
        return ranks

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is true."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"still not {what}:\n{self.output}"
            assert self.process.poll() is None, f"ended before {what}:\n{self.output}"
            time.sleep(0.01)

    def until_step(self, step: int, name: str = "default") -> None:
        """Wait until a log line of this step or a later one is there."""
        path = self.project.run_folder(name) / "metrics.jsonl"

        def reached() -> bool:
            lines = path.read_text().splitlines() if path.exists() else []
            return any(json.loads(line)["step"] >= step for line in lines if line.endswith("}"))

        self.until(reached, f"at step {step}")

    def until_workers(self, count: int = 2) -> None:
        """Wait until all training processes exist; they are far from their first step."""
        self.until(lambda: len(self.workers()) == count, "starting")

    def send(self, number: signal.Signals, rank: int | None = None) -> None:
        """Send a signal to launch.sh, or to the training process of a rank."""
        os.kill(self.process.pid if rank is None else self.workers()[rank], number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to every process, as SLURM does; DataLoader workers too."""
        for pid in self.pids():
            os.kill(pid, number)

    def wait(self) -> int:
        """Wait for the end, see that no process is left, and return the exit code."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            tail = self.output[-3000:]
            raise AssertionError(f"stuck:\n{tail}\n{self.end()}") from None
        self.wait_for_processes()
        return self.code

    def wait_for_processes(self) -> None:
        """Wait until no process is left; also those that have lost their parent."""
        end = time.monotonic() + LINGER
        while left := self.pids():
            assert time.monotonic() < end, f"{len(left)} processes are left:\n{self.output}"
            time.sleep(0.05)

    def end(self) -> str:
        """Kill what is left, so that a failed test leaves nothing behind; say what that was."""
        lines = []
        for pid in self.pids():
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                lines.append(f"killed {pid}: {command}")
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        return "\n".join(lines)
