"""Training sets that can only be read from start to end (IterableDataset), for all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from batches import BatchPlan
from config import SettingsError
from seeding import kept_random_state, seed_sample

END = object()


class StreamBatches(IterableDataset[Any]):
    """The batches of one rank, of a stream that every rank and every worker reads from its start.

    They are dealt out as ShuffledBatchSampler does it: of each `samples_per_pass` samples rank r
    takes those at r, r + world_size, ... So a step of n processes has the samples of a step of
    one, whatever the number of workers: worker w of n makes the batches w, w + n, ... of its rank.
    The last samples, too few for one more batch on every rank, are left out: all ranks end
    together, without having to ask each other, and no sample comes twice.

    Everybody reads over what the others use. So let the stream yield what is cheap to read (a
    line, a file's name) and make samples of it in `collate_fn`, which gets this rank's alone.
    """

    def __init__(
        self,
        stream: IterableDataset[Any],
        plan: BatchPlan,
        collate: Callable[[list[Any]], Any],
        *,
        rank: int,
        seed: int,
        limit: int | None = None,
    ) -> None:
        """Start at the beginning of epoch 0.

        Args:
            stream: the same samples on every rank; its __len__ says how many make an epoch, which
                ends earlier where the stream does. With a `set_epoch` it is told the epoch.
            plan: how many samples go into a batch, on how many processes.
            collate: makes a batch of this rank's samples.
            rank: global rank of this process.
            seed: of what is drawn while the stream is read: from (seed, epoch, position).
            limit: passes of an epoch, if there shall be fewer than in the stream.

        Raises:
            SettingsError: The stream has no __len__.
        """
        try:
            size = len(stream)  # type: ignore[arg-type]
        except TypeError:
            raise SettingsError(
                "the training set is a stream without __len__; let it return how many samples make "
                "an epoch. An estimate will do: it sets the learning rate and where an epoch ends"
            ) from None
        self.size = size if limit is None else min(size, limit * plan.samples_per_pass)
        self.stream, self.plan, self.collate = stream, plan, collate
        self.rank, self.seed = rank, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose what the next iteration yields, as ShuffledBatchSampler.set_epoch does."""
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        """Batches from `start` to the end of the epoch, at most; the same number on every rank."""
        return (self.size - self.start) // self.plan.samples_per_pass

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of this rank, or of this worker."""
        worker = get_worker_info()
        mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if hasattr(self.stream, "set_epoch"):
            self.stream.set_epoch(self.epoch)
        with kept_random_state():
            seed_sample(self.seed, self.epoch, 0)
            stream = iter(self.stream)
            for position in range(self.start):  # used before the run was stopped
                self._read(stream, position)
        for number in range(len(self)):
            with kept_random_state():
                samples = self._read_pass(stream, number)
                if samples is None:
                    return
                batch = self.collate(samples) if number % workers == mine else None
            if batch is not None:
                yield batch

    def _read_pass(self, stream: Iterator[Any], number: int) -> list[Any] | None:
        """Return this rank's samples of a pass, or None where the stream ends within it."""
        start = self.start + number * self.plan.samples_per_pass
        samples = []
        for place in range(self.plan.samples_per_pass):
            sample = self._read(stream, start + place)
            if sample is END:
                return None
            if place % self.plan.world_size == self.rank:
                samples.append(sample)
        return samples

    def _read(self, stream: Iterator[Any], position: int) -> Any:
        seed_sample(self.seed, self.epoch, position)
        return next(stream, END)
