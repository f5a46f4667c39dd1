"""What a run measures of itself: averages kept on the device, time per step, a trace."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.profiler import profile, schedule

from config import Config
from distributed import World, gather_from_ranks
from loaders import Batch


class Meter:
    """Loss, speed, and time spent waiting for data. Adding to it waits for nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loss = self._zero = torch.zeros((), device=world.device)
        self._steps = self._samples = 0
        self._start = time.perf_counter()
        self._epoch_steps, self._waited, self._worked = 0, 0.0, 0.0

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
        """Count one optimizer step: this rank's loss (detached) and the samples of all ranks."""
        self._loss = self._loss + loss
        self._steps += 1
        self._epoch_steps += 1
        self._samples += samples

    @property
    def loss(self) -> Tensor:
        """The mean loss of this rank since the last reading, still on the device."""
        return self._loss / max(1, self._steps)

    def read(self, loss: float, lr: float) -> dict[str, float]:
        """Return what a log line says, with the loss averaged over ranks, and start again."""
        now = time.perf_counter()
        speed = self._samples / (now - self._start)
        self._loss, self._steps, self._samples, self._start = self._zero, 0, 0, now
        return {"loss": loss, "lr": lr, "samples_per_second": speed}

    def compare_ranks(self) -> str:
        """Say which rank is the slowest in this epoch, and why. A collective, on every rank."""
        steps = max(1, self._epoch_steps)
        mine = (1000 * self._worked / steps, 1000 * self._waited / steps)
        self._epoch_steps, self._waited, self._worked = 0, 0.0, 0.0
        ranks = gather_from_ranks(mine)
        slowest = max(range(len(ranks)), key=lambda rank: ranks[rank][1])
        work, wait = ranks[slowest]
        average = sum(wait for _, wait in ranks) / len(ranks)
        return (
            f"per step: {work:.3g} ms of work, {average:.3g} ms waiting for data "
            f"(longest on rank {slowest}: {wait:.3g} ms)"
        )


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
