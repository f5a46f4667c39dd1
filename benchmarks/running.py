"""Starts one loop on one workload, as a user would, and reads what its stopwatch noted."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WARM_UP, BLOCKS = 1, 10  # blocks of steps that are not timed, and that are
PEERS = {
    "accelerate": "with_accelerate.py",
    "fabric": "with_fabric.py",
    "lightning": "with_lightning.py",
    "ignite": "with_ignite.py",
}
LOOPS = {"bare": "bare.py", "bare fused": "bare.py", "note": "note.py", **PEERS}
LOOPS |= {"ours": "launch.sh"}
# As users have it: Python compiles the modules of a project once, not at every start.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Task:
    """What a loop is to do.

    Attributes:
        workload: a file of workloads/.
        batch_size: samples on each process.
        block: steps between two notes of the stopwatch.
        steps: of all epochs together.
        epochs: how often the samples are used.
        variables: of the environment, besides.
    """

    workload: str
    batch_size: int
    block: int
    steps: int = 0
    epochs: int = 1
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def all_steps(self) -> int:
        """Return `steps`, or as many as the blocks need."""
        return self.steps or (WARM_UP + BLOCKS) * self.block + 1


@dataclass(frozen=True)
class Run:
    """What came of it; in seconds.

    Attributes:
        first_step: from the start of the command to the end of the first step.
        blocks: the mean time of a step in each block, on rank 0, which logs.
        cpu_blocks: the same in CPU time, of all its threads, without those of loader workers.
        loss: of the last step, averaged over the processes.
    """

    first_step: float
    blocks: list[float]
    cpu_blocks: list[float]
    loss: float

    @property
    def step(self) -> float:
        """Return the time of a step: the median over the blocks."""
        return statistics.median(self.blocks)


def run(loop: str, task: Task, project: Path, processes: int = 2) -> Run:
    """Run a loop to its end.

    Args:
        loop: one of LOOPS.
        task: what it is to do.
        project: a generated project, for "ours".
        processes: how many train together.
    """
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as scratch:
        command, folder = _command(loop, task, project, processes), Path(scratch)
        environment = {
            **ENVIRONMENT,
            "PYTHONPATH": str(HERE / "workloads"),
            "PYTHON": sys.executable,
            "NPROC": str(processes),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "BENCH_WORKLOAD": task.workload,
            "BENCH_BATCH_SIZE": str(task.batch_size),
            "BENCH_STEPS": str(task.all_steps),
            "BENCH_EPOCHS": str(task.epochs),
            "BENCH_BLOCK": str(task.block),
            "BENCH_FUSED": str(int(loop == "bare fused")),
            "BENCH_FOLDER": scratch,
            **task.variables,
        }
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, text=True, check=False
        )
        files = [folder / f"rank{rank}.json" for rank in range(processes)]
        # Not the exit code: a loop without our clean-up can abort in gloo after its last step.
        if not all(file.exists() for file in files):
            sys.exit(f"{loop} on {task.workload} failed:\n{done.stdout}\n{done.stderr}")
        return _read([json.loads(file.read_text()) for file in files], task, began)


def _command(loop: str, task: Task, project: Path, processes: int) -> list[str]:
    if loop != "ours":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*torchrun, f"--nproc-per-node={processes}", str(HERE / "loops" / LOOPS[loop])]
    take_over(task.workload, project)
    shutil.rmtree(project / "runs", ignore_errors=True)
    settings = {"epochs": task.epochs, "batch-size": task.batch_size, "lr": "1e-3"}
    if task.variables.get("BENCH_BF16") == "1":
        settings["precision"] = "bf16"
    options = [f"--{name}={value}" for name, value in settings.items()]
    return [str(project / "launch.sh"), *options]


def _read(found: list[dict[str, Any]], task: Task, began: float) -> Run:
    notes = {int(call): when for call, when in found[0]["times"].items()}
    calls = range(WARM_UP * task.block, task.all_steps - task.block, task.block)
    clock, cpu = (
        [(notes[call + task.block][kind] - notes[call][kind]) / task.block for call in calls]
        for kind in (0, 1)
    )
    loss = statistics.mean(rank["loss"] for rank in found)
    return Run(notes[1][0] - began, clock, cpu, loss)


def generate(folder: Path) -> Path:
    """Return a new project in this folder, made by ddpgen with all defaults."""
    project = folder / "project"
    command = [sys.executable, "-m", "ddpgen", "new", str(project), "--yes", "--no-git"]
    subprocess.run(command, check=True, capture_output=True)
    return project


def take_over(workload: str, project: Path) -> None:
    """Give a project the workload in the place of its own model.py and data.py."""
    shutil.copy(HERE / "workloads" / f"{workload}.py", project / "model.py")
    (project / "data.py").write_text("from model import build_datasets\n")


def setting() -> dict[str, str | int | None]:
    """Return what the figures were measured on."""
    packages = ("torch", "accelerate", "lightning", "pytorch-ignite")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        **{name: version(name) for name in packages},
    }
