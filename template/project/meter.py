"""What a run measures of itself: averages kept on the device, time per step, a trace."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.profiler import profile, schedule

from config import Config
from distributed import World, gather_from_ranks
from loaders import Batch


@dataclass
class Mean:
    """The mean of numbers; those that are not finite are left out: their steps are skipped."""

    total: float = 0.0
    count: int = 0

    def add(self, number: float) -> None:
        """Take one more."""
        if math.isfinite(number):
            self.total += number
            self.count += 1

    @property
    def value(self) -> float:
        """The mean of what was added."""
        return self.total / self.count if self.count else math.nan


class Meter:
    """Loss, speed, and time spent waiting for data. Adding to it waits for nothing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forget everything: no average spans two epochs or the evaluation between them."""
        self.losses: list[Tensor] = []  # this rank's, of the steps that are not counted yet
        self._line, self._epoch = Mean(), Mean()
        self.steps = self._samples = 0
        self._waited = self._worked = 0.0
        self._start = time.perf_counter()

    def timed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Pass the batches on, and measure how long each takes to come and to be used."""
        before = time.perf_counter()
        for batch in batches:
            after = time.perf_counter()
            self._waited += after - before
            yield batch
            before = time.perf_counter()
            self._worked += before - after

    def add(self, loss: Tensor, samples: int) -> None:
        """Take one optimizer step: this rank's loss (detached) and the samples of all ranks."""
        self.losses.append(loss)  # to read it now would wait for the device
        self.steps += 1
        self._samples += samples

    def count(self, losses: list[float]) -> None:
        """Count the steps of `losses`, which exchange.run has averaged over ranks."""
        self.losses = []
        for loss in losses:
            self._line.add(loss)
            self._epoch.add(loss)

    def read(self, lr: float, skipped: int) -> dict[str, float]:
        """Return what a log line says, and start again."""
        now = time.perf_counter()
        speed = self._samples / (now - self._start)
        line = {"loss": self._line.value, "lr": lr, "samples_per_second": speed}
        self._line, self._samples, self._start = Mean(), 0, now
        return {**line, "skipped_steps": skipped} if skipped else line

    @property
    def epoch_loss(self) -> Tensor:
        """The mean loss of this epoch; the last steps, not counted yet, are those of this rank."""
        mean = replace(self._epoch)
        for loss in torch.stack(self.losses).tolist() if self.losses else []:
            mean.add(loss)
        return torch.tensor(mean.value, dtype=torch.float64, device=self.world.device)

    def compare_ranks(self) -> dict[str, float]:
        """Return milliseconds per step, and which rank waits longest for data. A collective."""
        steps = max(1, self.steps) / 1000
        ranks = gather_from_ranks((self._worked / steps, self._waited / steps))
        slowest = max(range(len(ranks)), key=lambda rank: ranks[rank][1])
        return {
            "work_ms": sum(work for work, _ in ranks) / len(ranks),
            "data_wait_ms": sum(wait for _, wait in ranks) / len(ranks),
            "data_wait_ms_slowest": ranks[slowest][1],
            "slowest_rank": slowest,
        }


class StepProfiler:
    """Traces three steps after two to warm up; without --profile it does nothing."""

    def __init__(self, config: Config, world: World) -> None:
        self._path = config.run_folder / f"trace-rank{world.rank}.json"
        self._profile: profile | None = None
        if config.profile:
            plan = schedule(wait=1, warmup=1, active=3, repeat=1)
            self._profile = profile(schedule=plan, on_trace_ready=self._write)
            self._profile.start()

    def _write(self, trace: profile) -> None:
        trace.export_chrome_trace(str(self._path))

    def step(self) -> None:
        """Tell it that a step has ended."""
        if self._profile is not None:
            self._profile.step()
