"""A short training of the project: as one process, then as several, which must not matter."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpgen.doctor import processes
from ddpgen.doctor.failure import explain
from ddpgen.doctor.finding import Finding, error, ok, skipped, warning
from ddpgen.doctor.interview import environment
from ddpgen.doctor.machine import in_bytes, usable_cores
from ddpgen.doctor.patient import Patient
from ddpgen.doctor.processes import Process
from ddpgen.doctor.scaling import Link, efficiency

# Relative differences that rounding makes in fp32: 1e-7 to 1e-5. The mistakes that this is for
# (a wrong scale, other samples, a loss that mixes samples) are larger than 1e-2.
SAME_GRADIENT = 1e-4
SAME_WEIGHTS = 1e-3  # of the way that they have gone, or
ROUNDING = 2e-6  # of their own length, when they have hardly moved
SAME_METRIC = 1e-4
SAME_RUN = 1e-5  # on a GPU the same sum twice may be rounded differently
FORESEEN = (8, 64, 512)  # processes
BUSY_EXCHANGE, LARGE_GRADIENT = 0.5, 1_000_000  # share of a step; bytes

ROWS = ("one process", "repeatable", "all-reduce", "parity", "validation", "communication")


@dataclass(frozen=True)
class Figures:
    """What the trials have measured.

    Attributes:
        gradient_difference: of the first step, beside the length of the gradient.
        weight_difference: after the last step, beside how far the weights have gone.
        gradient_bytes: exchanged in a step.
        all_reduce_seconds: for as many bytes, with nothing else going on.
        latency_seconds: of an all-reduce of one number.
        step_seconds: of the project's own step, with the exchange.
        work_seconds: of the same without the exchange.
        predicted_efficiency: the least share of a step that is work, for some numbers of processes
            that are connected as these are; {} after a trial with one process.
    """

    gradient_difference: float
    weight_difference: float
    gradient_bytes: int
    all_reduce_seconds: float
    latency_seconds: float
    step_seconds: float
    work_seconds: float
    predicted_efficiency: dict[int, float]


class Trial:
    """The two trainings.

    Attributes:
        figures: None until they have been measured.
        checkpoint_bytes: of one checkpoint; None until it is known.
    """

    def __init__(self, patient: Patient, count: int, scratch: Path, patience: float) -> None:
        """Prepare them.

        Args:
            patient: the project.
            count: how many processes train together.
            scratch: for temporary files.
            patience: seconds without progress after which a process hangs.
        """
        self.patient = patient
        self.count = count
        self.scratch = scratch
        self.patience = patience
        self.figures: Figures | None = None
        self.checkpoint_bytes: int | None = None

    def findings(self) -> Iterator[Finding]:
        """Train, and say what came of it: one finding for each of ROWS."""
        rows = iter(self._rows())
        for name in ROWS:
            finding = next(rows, None)
            yield finding or skipped(name, "needs the above")

    def _rows(self) -> Iterator[Finding]:
        yield (finding := self._alone())
        if finding.status != "ok":
            return
        yield (finding := self._repeatable())
        if finding.status != "ok":  # the comparison would be red as well, and mislead
            return
        yield from self._together()

    def _alone(self) -> Finding:
        (process,) = self._run(1)
        self.result = process.fact("result")
        if self.result is None:
            return self._failure("one process", [process])
        self.checkpoint_bytes = self.result["checkpoint_bytes"]
        first, last = self.result["losses"][0], self.result["losses"][-1]
        found = f"{len(self.result['losses'])} steps on {self.result['device']}: loss {first:.4g}"
        if not self.result["finite"]:
            return error(
                "one process",
                f"{found}, and the first gradient or a metric is not finite",
                "look for a division or logarithm of zero in model.py, and for such data",
            )
        return ok("one process", f"{found} to {last:.4g}")

    def _repeatable(self) -> Finding:
        if self.result["data_differ"]:
            return error(
                "repeatable",
                "data.py gives other samples when it is asked again",
                "let everything random in build_datasets follow from config.seed",
            )
        if self.result["weights_differ"]:
            return error(
                "repeatable",
                "build_model gives other weights when it is called again",
                "leave the seed to seed_everything: no generator of its own in model.py",
            )
        if not self.result["gradient_differs"] <= SAME_RUN:
            return error(
                "repeatable",
                f"the same step gives another gradient ({self.result['gradient_differs']:.1e} off)",
                "no random draws in model.py but dropout's, which eval() switches off, and no "
                "state kept between calls",
            )
        return ok("repeatable", "the same samples, weights and gradients when begun again")

    def _together(self) -> Iterator[Finding]:
        group = self._run(self.count)
        met = [process.fact("met") for process in group]
        if None in met:
            yield self._failure("all-reduce", group)
            return
        yield self._all_reduce(met[0])
        result = group[0].fact("result")
        if result is None or any(process.code for process in group):
            yield self._failure("parity", group)
            return
        self.figures = Figures(
            result["gradient"],
            result["weights"],
            result["gradient_bytes"],
            result["all_reduce_seconds"],
            result["latency_seconds"],
            result["step_seconds"],
            result["work_seconds"],
            predict(self.count, result),
        )
        yield self._parity(result)
        yield self._validation(result["metrics"])
        yield communication(self.figures)

    def _all_reduce(self, met: dict[str, Any]) -> Finding:
        expected = self.count * (self.count + 1) / 2
        found = f"{met['backend']}, {self.count} process{'es' * (self.count > 1)}"
        if met["sum"] != expected:
            return error(
                "all-reduce",
                f"{found}: the sum is {met['sum']:g} instead of {expected:g}",
                "compare distributed.py with the template's: ddpgen diff",
            )
        return ok("all-reduce", f"{found}: the sum is right")

    def _parity(self, result: dict[str, Any]) -> Finding:
        gradient, weights = result["gradient"], result["weights"]
        found = f"gradients differ by {gradient:.1e}, weights after 20 steps by {weights:.1e}"
        same_weights = weights <= SAME_WEIGHTS or result["rounding"] <= ROUNDING
        if gradient <= SAME_GRADIENT and same_weights:
            if self.count == 1:
                return warning(
                    "parity",
                    f"one process alone and in a group: {found}",
                    "ddpgen doctor --processes 2 --device cpu compares two with one",
                )
            return ok("parity", f"{self.count} processes train as one does: {found}")
        found = f"{self.count} processes train otherwise than one: {found}"
        if not result["same_data"]:
            remedy = "build_datasets must give every process the same samples, from config.seed"
        elif abs(result["length"] * self.count - 1) < 0.01 and self.count > 1:
            found += f"; the gradient is {self.count} times too small"
            remedy = "loss_fn must return the mean over the batch, not the sum"
        elif gradient > SAME_GRADIENT:
            remedy = (
                "in model.py a sample's output and loss must not depend on the rank or on the "
                "other samples of its batch"
            )
        else:
            remedy = "the first step agrees: look for state that model.py keeps from step to step"
        return error("parity", found, remedy)

    def _validation(self, metrics: dict[str, float]) -> Finding:
        alone: dict[str, float] = self.result["metrics"]
        shown = ", ".join(f"{name} {value:.4g}" for name, value in alone.items())
        wrong = [
            f"{name} {metrics[name]:.4g} instead of {value:.4g}"
            for name, value in alone.items()
            if not math.isclose(metrics[name], value, rel_tol=SAME_METRIC, abs_tol=SAME_METRIC)
        ]
        if wrong:
            return error(
                "validation",
                f"{self.count} processes measure {', '.join(wrong)}",
                "update_metrics must return sums over the samples and their number, which "
                "compute_metrics divides; means do not add up",
            )
        return ok("validation", f"the same metrics as of one process: {shown}")

    def _run(self, count: int) -> list[Process]:
        """Run worker.py: count 1 is the process alone, without a process group."""
        alone = not (self.scratch / "alone.pt").exists()
        variables = environment(self.scratch)
        variables.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // self.count)))
        order = {
            "project": str(self.patient.folder),
            "scratch": str(self.scratch),
            "file": "FILE",
            "processes": self.count,
            "device": self.patient.device,
            "patience": self.patience,
            "doctor": os.getpid(),
        }
        assert self.patient.python is not None
        command = [self.patient.python, str(processes.INSIDE / "worker.py"), json.dumps(order)]
        environments = [variables if alone else self._rank(variables, k) for k in range(count)]
        return processes.run([command] * count, self.scratch, self.patience, environments)

    def _rank(self, variables: dict[str, str], rank: int) -> dict[str, str]:
        """Return the environment of a rank, as launch.py and torchrun set it on one machine."""
        return {
            "GLOO_SOCKET_IFNAME": "lo" if os.uname().sysname == "Linux" else "lo0",
            **variables,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.count),
            "LOCAL_WORLD_SIZE": str(self.count),
            "STORE_FILE": str(self.scratch / "store"),
            "TORCHELASTIC_RESTART_COUNT": "0",
        }

    def _failure(self, check: str, group: list[Process]) -> Finding:
        return explain(check, group, self.patient, self.patience)


def predict(processes: int, result: dict[str, Any]) -> dict[int, float]:
    """Return the least efficiency of each number of processes in FORESEEN.

    Args:
        processes: how many have measured.
        result: what they have measured.
    """
    if processes == 1:  # there was no exchange
        return {}
    size, work = result["gradient_bytes"], result["work_seconds"]
    link = Link.measured(processes, result["latency_seconds"], size, result["all_reduce_seconds"])
    return {count: efficiency(work, link.exchange(count, size))[0] for count in FORESEEN}


def communication(figures: Figures) -> Finding:
    """Say what the exchange of the gradients costs beside a step."""
    share = figures.all_reduce_seconds / figures.step_seconds
    found = (
        f"{in_bytes(figures.gradient_bytes)} of gradients; their all-reduce alone takes "
        f"{1000 * figures.all_reduce_seconds:.2f} ms, a step {1000 * figures.step_seconds:.2f} ms"
    )
    if figures.predicted_efficiency:
        counts = ", ".join(map(str, figures.predicted_efficiency))
        shares = ", ".join(f"{100 * share:.0f}" for share in figures.predicted_efficiency.values())
        found += f"; efficiency of {counts} processes so connected: at least {shares} %"
    if share > BUSY_EXCHANGE and figures.gradient_bytes > LARGE_GRADIENT:
        return warning(
            "communication",
            f"{found}: more processes would hardly be faster",
            "larger batches or accumulate; between machines, a faster network",
        )
    return ok("communication", found)
