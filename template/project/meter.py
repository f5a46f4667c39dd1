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
        self._zeros = torch.zeros(2, dtype=torch.float64, device=world.device)
        self.start_epoch()

    def start_epoch(self) -> None:
        """Forget everything: no average spans two epochs or the evaluation between them."""
        self._losses: list[Tensor] = []  # that are not in the sums yet
        self._sums = self._earlier_sums = self._zeros  # of losses, and of 1 for each; on the device
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
        """Count one optimizer step: this rank's loss (detached) and the samples of all ranks.

        A loss that is not finite is left out: its step is skipped.
        """
        self._losses.append(loss)  # to add it now would take some kernels in each step
        self.steps += 1
        self._samples += samples

    def _add_up(self) -> None:
        """Bring the sums up to date, in float64: no matter when this is done, they are the same."""
        if self._losses:
            losses = torch.stack(self._losses).double()
            finite = losses.isfinite()
            both = torch.stack((torch.where(finite, losses, 0.0), finite.double()))
            self._sums = self._sums + both.sum(1)
            self._losses = []

    @property
    def loss(self) -> Tensor:
        """The mean loss of this rank since the last reading, still on the device."""
        self._add_up()
        return (self._sums[0] / self._sums[1]).float()

    @property
    def epoch_loss(self) -> Tensor:
        """The mean loss of this rank in this epoch, still on the device."""
        self._add_up()
        sums = self._earlier_sums + self._sums
        return (sums[0] / sums[1]).float()

    def read(self, loss: float, lr: float, skipped: float) -> dict[str, float]:
        """Return what a log line says, with the loss averaged over ranks, and start again."""
        now = time.perf_counter()
        speed = self._samples / (now - self._start)
        self._add_up()
        self._earlier_sums = self._earlier_sums + self._sums
        self._sums, self._samples, self._start = self._zeros, 0, now
        line = {"loss": loss, "lr": lr, "samples_per_second": speed}
        return {**line, "skipped_steps": skipped} if skipped else line

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
