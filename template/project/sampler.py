"""The order of the training samples: shuffled anew in each epoch, computed instead of stored.

The order of an epoch is a permutation keyed by (seed, epoch), of which any position can be asked
directly. So nothing as long as the dataset is kept in memory, the first batch is there at once,
and a run resumes anywhere in an epoch, with any number of processes, without a replay.

How it works: lay the samples out on a grid, row by row. Rotate each column by a pseudo-random
amount of its own, then each row, then each column again. A rotation moves cells one to one, and so
do eight of them. This is a Feistel network on the pair (row, column). The grid has a few cells more
than there are samples: whoever lands on one goes on until it lands on a sample ("cycle walking").
Both are in Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002 (methods 2 and 3).
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray
from torch.utils.data import Sampler

# A change of these, or of any formula below, changes the order in which every run sees its data.
ROTATIONS = 8
MIN_SIDE = 8  # on a smaller grid eight rotations do not reach all orders about equally often

CHUNK = 8192  # positions computed in one go: long enough for NumPy to be fast, short enough to wait


class ShuffledBatchSampler(Sampler[tuple[int, list[int]]]):
    """The batches of one rank, as `(epoch, indices)`; loaders.py gives it to the DataLoader.

    The ranks deal out one permutation as torch's DistributedSampler does: sample j of batch m of
    rank r is at position `start + m * batch_size * world_size + j * world_size + r`. So a step of
    n processes with batches of b uses the same samples as a step of one process with n * b.

    The last samples of an epoch, too few for one more batch on every rank, are left out (others
    in each epoch): all ranks take equally many steps, and BatchNorm never meets a batch of one.
    """

    def __init__(
        self, size: int, batch_size: int, *, rank: int, world_size: int, seed: int
    ) -> None:
        """Start at the beginning of epoch 0.

        Args:
            size: Number of samples in the dataset.
            batch_size: Samples in a batch of this process, not of all together.
            rank: Global rank of this process.
            world_size: Number of processes.
            seed: The same on all ranks, or they would draw from different permutations.

        Raises:
            ValueError: A value is out of range, or the dataset is smaller than one global batch.
        """
        if batch_size < 1 or not 0 <= rank < world_size or seed < 0:
            raise ValueError(
                "need batch_size >= 1, 0 <= rank < world_size and seed >= 0, got "
                f"batch_size {batch_size}, rank {rank}, world_size {world_size}, seed {seed}"
            )
        if size < batch_size * world_size:
            fewer = f"at most {size} processes" if size else "a dataset that is not empty"
            smaller = f"a batch_size of at most {size // world_size}, or fewer processes"
            raise ValueError(
                f"the training set has {size} samples, but one step needs {batch_size * world_size}"
                f" (batch_size {batch_size} x {world_size} processes): use "
                f"{smaller if size >= world_size else fewer}"
            )
        self.size, self.batch_size = size, batch_size
        self.rank, self.world_size = rank, world_size
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose what the next iteration yields; call it before each epoch, on all ranks alike.

        Args:
            epoch: Epoch, from 0.
            start: Samples of this epoch that all ranks together have used already, with this or
                another number of processes. Not 0 only when a run resumes within an epoch.

        Raises:
            ValueError: `epoch` is negative, or `start` is not in 0..size.
        """
        if epoch < 0 or not 0 <= start <= self.size:
            raise ValueError(
                f"need epoch >= 0 and 0 <= start <= {self.size}, got epoch {epoch}, start {start}"
            )
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        """Batches from `start` to the end of the epoch, the same number on every rank."""
        return (self.size - self.start) // (self.batch_size * self.world_size)

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Yield `(epoch, indices)`, `len(self)` times, with `batch_size` indices each."""
        epoch, first, stop = self.epoch, self.start + self.rank, len(self) * self.batch_size
        chunk = max(1, CHUNK // self.batch_size) * self.batch_size  # whole batches
        for done in range(0, stop, chunk):
            positions = first + self.world_size * np.arange(done, min(done + chunk, stop))
            indices = permute(positions, self.size, self.seed, epoch).tolist()
            for i in range(0, len(indices), self.batch_size):
                yield epoch, indices[i : i + self.batch_size]


def permute(positions: NDArray[np.int64], size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return which samples are at these positions of an epoch's order.

    Over all positions each sample appears once. The answer for a position does not depend on what
    else is asked; memory and time are those of `positions`, not of `size`.

    Args:
        positions: Each in 0..size-1, shape [n].
        size: Number of samples in the dataset.
        seed: Seed of the run, at least 0.
        epoch: Epoch, from 0.

    Returns:
        Indices of samples, each in 0..size-1, shape [n].

    Raises:
        ValueError: A position is not in 0..size-1, or `seed` or `epoch` is negative.
    """
    if positions.size and not (positions.min() >= 0 and positions.max() < size):
        raise ValueError(f"positions must be in 0..{size - 1}")  # another could walk for ever
    columns = max(MIN_SIDE, math.isqrt(size - 1) + 1)
    rows = max(MIN_SIDE, -(-size // columns))
    rows += rows % 2  # rotations of odd length alone would reach only half of all orders
    keys = SeedSequence(seed, spawn_key=(epoch,)).generate_state(ROTATIONS, np.uint64).tolist()

    cells = _mix(positions.astype(np.uint64), rows, columns, keys)
    while (outside := cells >= size).any():
        cells[outside] = _mix(cells[outside], rows, columns, keys)
    return cells.astype(np.int64)


def _mix(cells: NDArray[np.uint64], rows: int, columns: int, keys: list[int]) -> NDArray[np.uint64]:
    """Send each cell of the grid to another one, by rotating columns and rows in turn."""
    row, column = np.divmod(cells, np.uint64(columns))
    for column_key, row_key in zip(keys[::2], keys[1::2], strict=True):
        row = _rotate(row, rows, _splitmix64(column_key, column))
        column = _rotate(column, columns, _splitmix64(row_key, row))
    return row * np.uint64(columns) + column


def _rotate(
    place: NDArray[np.uint64], length: int, random: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return `(place + amount) % length`: an amount in 0..length-1 from each random number.

    Without divisions, which would take half of the time: `length` is below 2**32, so the upper 32
    random bits times `length` over 2**32 is the amount, and one subtraction is the remainder.
    """
    moved = place + (((random >> np.uint64(32)) * np.uint64(length)) >> np.uint64(32))
    wrapped: NDArray[np.uint64] = np.minimum(moved, moved - np.uint64(length))
    return wrapped  # the minimum, as an unsigned number below zero is a huge one


def _splitmix64(seed: int, steps: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output of the generator splitmix64 after so many steps from `seed`.

    Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014;
    https://prng.di.unimi.it/splitmix64.c. Unsigned 64-bit numbers wrap here as they do there.
    """
    z = steps * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(seed)
    z ^= z >> 30
    z *= 0xBF58476D1CE4E5B9
    z ^= z >> 27
    z *= 0x94D049BB133111EB
    z ^= z >> 31
    return z
