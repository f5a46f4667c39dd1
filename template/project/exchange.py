"""What the ranks tell each other while they train: one small collective, now and then."""

from __future__ import annotations

import time
from itertools import islice

import torch
from torch import Tensor

from config import Config
from distributed import World, reduce_tensor
from stopping import StopRequest, watch

LONGEST_WAIT = 1.0  # seconds until a request to stop is seen by all ranks
REWIND = 1.0  # seconds by which the watch may be late, never early


class Exchange:
    """Averages over ranks, and the agreement to stop or to save.

    It happens in every log step, and about once a second when steps are slow. Which steps these
    are follows from numbers that are the same on every rank. As long as it is there, a signal does
    not end this process: it becomes a request to stop.
    """

    def __init__(self, config: Config, world: World) -> None:
        self.config = config
        self.world = world
        self.request = StopRequest()
        self.stop = False  # some rank was asked to stop: all do, after this step
        self.save = False  # it is time for a checkpoint
        self._saved_at = time.monotonic()
        self._watched_at = float("-inf")
        self.restart(0)

    def restart(self, step: int) -> None:
        """Start to measure steps from here, where all ranks are: a new epoch, an evaluation."""
        self._step, self._time = step, time.monotonic()
        self._next = step + 1
        if self._time - self._watched_at >= REWIND:  # it is a thread: not a new one each time
            watch(self.config.step_timeout + REWIND)
            self._watched_at = self._time

    def saved(self) -> None:
        """Take note of a checkpoint: the minutes to the next one count from here."""
        self.save, self._saved_at = False, time.monotonic()

    def due(self, step: int) -> bool:
        """Say whether all ranks exchange after this step."""
        return step >= self._next

    def run(self, step: int, *groups: list[Tensor]) -> list[list[float]]:
        """Return the means of scalars over ranks. A collective: call where `due`, on every rank.

        It also sets `stop` and `save`, waits for the device and feeds the watchdog.
        """
        now = time.monotonic()
        minutes = self.config.save_every_minutes
        wishes = (
            (now - self._time) / (step - self._step),
            float(self.request.signal != 0),
            float(minutes is not None and now - self._saved_at > 60 * minutes),
        )
        numbers = torch.tensor(wishes, dtype=torch.float64, device=self.world.device)
        if scalars := [scalar for group in groups for scalar in group]:
            numbers = torch.cat((torch.stack(scalars), numbers))
        *means, seconds, stop, save = reduce_tensor(numbers).tolist()
        self.stop, self.save = stop > 0, save > 0
        wait = max(1, int(LONGEST_WAIT / seconds)) if seconds > 0 else self.config.log_every
        self.restart(step)
        self._next = min(step + wait, (step // self.config.log_every + 1) * self.config.log_every)
        rest = iter(means)
        return [list(islice(rest, len(group))) for group in groups]
