"""How many samples go into one optimizer step, on how many processes, in how many passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from config import Config, SettingsError

T = TypeVar("T")


@dataclass(frozen=True)
class BatchPlan:
    """One optimizer step: `accumulate` forward passes of `batch_size` samples on each process.

    At the end of an epoch the passes may be too few for a whole step. With `whole_steps` they are
    left out; otherwise they make a smaller step.
    """

    batch_size: int
    accumulate: int
    world_size: int
    whole_steps: bool = False

    @property
    def samples_per_pass(self) -> int:
        """Samples of one forward pass on all processes."""
        return self.batch_size * self.world_size

    @property
    def samples_per_step(self) -> int:
        """Samples of one optimizer step on all processes: the global batch."""
        return self.samples_per_pass * self.accumulate

    def steps(self, batches: int) -> int:
        """Return the optimizer steps in an epoch of so many batches on each process."""
        return batches // self.accumulate if self.whole_steps else -(-batches // self.accumulate)

    def __str__(self) -> str:
        text = f"global batch {self.samples_per_step} = {self.batch_size} on each of "
        text += f"{self.world_size} process{'es' * (self.world_size > 1)}"
        return text + f" x {self.accumulate} passes" * (self.accumulate > 1)


def plan_batches(config: Config, world_size: int) -> BatchPlan:
    """Find the batch of each process and the number of passes.

    With global_batch_size the passes are the fewest that divide a process's share evenly with no
    more than batch_size samples each. All steps are whole then: how many passes are too few for
    one depends on the number of processes, and that shall change nothing.

    Raises:
        SettingsError: global_batch_size is no multiple of the number of processes.
    """
    total = config.global_batch_size
    if total is None:
        return BatchPlan(config.batch_size, config.accumulate, world_size)
    share, rest = divmod(total, world_size)
    if rest:
        near = [size for size in (total - rest, total - rest + world_size) if size > 0]
        raise SettingsError(
            f"global_batch_size {total} cannot be shared by {world_size} processes; "
            f"use {' or '.join(map(str, near))}"
        )
    passes = -(-share // config.batch_size)
    while share % passes:
        passes += 1
    return BatchPlan(share // passes, passes, world_size, whole_steps=True)


def windows(batches: Iterable[T], plan: BatchPlan) -> Iterator[list[T]]:
    """Group the batches of one optimizer step; the last window of an epoch may be shorter."""
    window: list[T] = []
    for batch in batches:
        window.append(batch)
        if len(window) == plan.accumulate:
            yield window
            window = []
    if window and not plan.whole_steps:
        yield window
