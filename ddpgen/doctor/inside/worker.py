"""One process of the trial training, with the project's own model, data and functions.

The doctor starts this file with the project's Python. It adds lines of JSON to a file: each stage
when it begins, then the result or the error. Nothing is written into the project.

Where torchrun would have set RANK, the process trains with the others and compares with what
the process without it has left in `alone.pt`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import math
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpgen.doctor.inside.doctor_steps import STEPS, measure, relative, same_sum, take_steps
else:
    from doctor_steps import STEPS, measure, relative, same_sum, take_steps  # beside this file

PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True)
class Order:
    """What the doctor asks for.

    Attributes:
        project: its folder.
        scratch: a folder for what the two trials leave each other.
        file: where the answers go.
        processes: how many train together, in the other trial or in this one.
        device: "auto", "cpu" or "cuda".
        patience: seconds without a new stage after which the process ends itself.
        doctor: the id of the process that started this one.
    """

    project: str
    scratch: str
    file: str
    processes: int
    device: str
    patience: float
    doctor: int


class Report:
    """Tells the doctor how far this process is, and ends it when it gets no further."""

    def __init__(self, order: Order) -> None:
        """Take the order; nothing is written yet."""
        self.order = order
        self.now = "start"
        self.stack = open(f"{order.file}.stack", "w", encoding="utf-8")  # noqa: SIM115  # until exit

    def stage(self, name: str) -> None:
        """Begin a stage; whoever is longer in it than the patience prints its stack and ends."""
        self.now = name
        self.tell(stage=name)
        faulthandler.dump_traceback_later(self.order.patience, exit=True, file=self.stack)

    def load(self, name: str) -> Any:
        """Import a module of the project."""
        self.stage(f"import of {name}.py")
        return import_module(name)

    def tell(self, **facts: Any) -> None:
        """Add a line to the answers."""
        with open(self.order.file, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **facts}) + "\n")

    def fail(self, problem: BaseException) -> None:
        """Tell what was raised, and where in the project."""
        where = [
            f"{Path(frame.filename).name}:{frame.lineno}"
            for frame in traceback.extract_tb(problem.__traceback__)
            if Path(frame.filename).parent == Path(self.order.project)
        ]
        if isinstance(problem, SyntaxError) and problem.filename:
            where.append(f"{Path(problem.filename).name}:{problem.lineno}")
        lines = str(problem).strip().splitlines() or [""]
        error = {"type": type(problem).__name__, "message": lines[0], "text": str(problem)[:4000]}
        self.tell(error={**error, "where": where[-1] if where else "", "stage": self.now})


def main(order: Order) -> None:
    """Run one trial and end, without the interpreter's own shutdown: it can hang under gloo."""
    die_with(order.doctor)
    sys.path[0] = order.project  # not the folder of this file: a module of the project comes first
    os.chdir(order.project)
    report = Report(order)
    try:
        report.tell(result=together(report) if "RANK" in os.environ else alone(report))
    except BaseException as problem:
        traceback.print_exception(type(problem), problem, problem.__traceback__)
        report.fail(problem)
        os._exit(1)
    os._exit(0)


def die_with(doctor: int) -> None:
    """Let Linux kill this process when the doctor is killed and cannot do it any more."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.kill(doctor, 0)
    except ProcessLookupError:  # it has died already
        os._exit(1)


def alone(report: Report) -> dict[str, Any]:
    """Train as one process, and begin once more: does the same come out?"""
    import torch

    config = load_settings(report)
    batches = report.load("batches")
    batches.plan_batches(config, report.order.processes)  # raises what launch.sh would refuse
    world = report.load("distributed").setup_ddp(report.order.device)
    run = take_steps(report, config, world, report.order.processes, STEPS)
    again = take_steps(report, config, world, report.order.processes, 1)
    values = list(run["metrics"].values())
    torch.save(
        {"gradient": run["gradient"], "weights": run["weights"], "checksum": run["checksum"]},
        Path(report.order.scratch, "alone.pt"),
    )
    return {
        "device": world.device.type,
        "losses": run["losses"],
        "finite": bool(run["gradient"].isfinite().all()) and all(map(math.isfinite, values)),
        "metrics": run["metrics"],
        "data_differ": not same_sum(run["checksum"], again["checksum"]),
        "weights_differ": not torch.equal(run["start"], again["start"]),
        "gradient_differs": relative(again["gradient"] - run["gradient"], run["gradient"]),
        "checkpoint_bytes": run["checkpoint_bytes"],
    }


def together(report: Report) -> dict[str, Any]:
    """Train as one of several processes, compare with one process, and measure the exchange."""
    import torch
    from torch import distributed

    config = load_settings(report)
    report.stage("setup_ddp: the processes meet")
    world = import_module("distributed").setup_ddp(report.order.device, 10 * report.order.patience)
    report.stage("all-reduce")
    total = torch.tensor([world.rank + 1.0], device=world.device)
    distributed.all_reduce(total)
    report.tell(met={"backend": distributed.get_backend(), "sum": total.item()})
    run = take_steps(report, config, world, report.order.processes, STEPS)
    report.stage("comparison with one process")
    checksum = torch.tensor(run["checksum"], dtype=torch.float64, device=world.device)
    distributed.all_reduce(checksum)
    reference = torch.load(Path(report.order.scratch, "alone.pt"), weights_only=True)
    moved = (reference["weights"] - run["start"]).norm().item()
    off = run["weights"] - reference["weights"]
    wrong = run["gradient"] - reference["gradient"]
    figures = measure(report, config, world, run["train_set"])
    return {
        "same_data": same_sum(reference["checksum"], checksum.tolist()),
        "gradient": relative(wrong, reference["gradient"]),
        "length": relative(run["gradient"], reference["gradient"]),
        "weights": off.norm().item() / max(moved, 1e-30),
        "rounding": relative(off, reference["weights"]),
        "metrics": run["metrics"],
        **figures,
    }


def load_settings(report: Report) -> Any:
    """Return the project's settings."""
    config = report.load("config").load_config([])
    return replace(config, device=report.order.device, compile=False)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
