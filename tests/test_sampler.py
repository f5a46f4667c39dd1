"""The generated project's sampler draws orders that no statistic tells from random ones."""

import math
from collections import Counter
from itertools import chain, permutations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

import sampler


def order_of(size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the whole order of an epoch."""
    return sampler.permute(np.arange(size), size, seed, epoch)


def p_value(counts: NDArray[np.int64]) -> float:
    """Return the probability of a chi-square this large if all counts had one expectation."""
    observed = torch.as_tensor(counts, dtype=torch.float64)
    chi_square = ((observed - observed.mean()) ** 2 / observed.mean()).sum()
    return float(torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2), chi_square / 2))


# Random sizes below are fixed by this; every test is the same in each run.
RANDOM = np.random.default_rng(20240229)


@pytest.mark.parametrize("first", range(1, 3001, 500))
def test_every_size_up_to_3000_gets_a_permutation(first: int) -> None:
    """Protects the rotations (one to one) and the walk (no answer beyond the samples)."""
    for size in range(first, first + 500):
        order = order_of(size, seed=size, epoch=2)
        assert np.array_equal(np.bincount(order, minlength=size), np.ones(size)), size


@pytest.mark.parametrize(
    "size", [*map(int, RANDOM.integers(3000, 1_000_000, 6)), 2**16 + 1, 999**2, 1000**2]
)
def test_larger_sizes_get_a_permutation(size: int) -> None:
    """Protects the same lines where the grid has two different sides, or no spare cell."""
    assert np.array_equal(np.bincount(order_of(size, 1, 1), minlength=size), np.ones(size))


@pytest.mark.parametrize("size", [10**9, 10**12, 2**40 + 1, 2**63 - 1])
def test_sizes_beyond_memory_give_distinct_indices_in_range(size: int) -> None:
    """Protects the 64-bit arithmetic against wrapping."""
    ends = np.concatenate([np.arange(100_000), np.arange(size - 100_000, size)])
    indices = sampler.permute(ends, size, 0, 0)
    assert indices.min() >= 0
    assert indices.max() < size
    assert len(np.unique(indices)) == len(ends)


@pytest.mark.parametrize("size", [10**9, 10**12])
def test_the_first_two_million_indices_fall_evenly_into_a_thousand_bins(size: int) -> None:
    """Protects the amounts of `_rotate`: they must cover 0..length-1 evenly."""
    for epoch in range(3):
        indices = sampler.permute(np.arange(2_000_000), size, 7, epoch)
        assert 1e-3 < p_value(np.bincount(indices * 1000 // size, minlength=1000)) < 1 - 1e-3


@pytest.mark.parametrize("size", [3, 4, 5])
def test_all_orders_of_a_tiny_dataset_are_equally_likely(size: int) -> None:
    """Protects MIN_SIDE: on the smallest grid for 5 samples some orders are twice as frequent."""
    drawn = 30 * math.factorial(size)
    frequency = Counter(tuple(order_of(size, i % 97, i // 97)) for i in range(drawn))
    counts = np.array([frequency[order] for order in permutations(range(size))])
    assert counts.sum() == drawn
    assert 1e-3 < p_value(counts) < 1 - 1e-3


@pytest.mark.parametrize("size", [9, 81, 225])
def test_even_and_odd_permutations_are_equally_likely(size: int) -> None:
    """Protects `rows += rows % 2`: a 9 by 9 grid has only even permutations."""
    inversions = [
        sum(int((order[i + 1 :] < order[i]).sum()) for i in range(size))
        for order in (order_of(size, 3, epoch) for epoch in range(400))
    ]
    odd = sum(count % 2 for count in inversions)
    assert abs(odd - 200) < 4 * math.sqrt(400 / 4)


@pytest.mark.parametrize("size", [1000, 4096, 50_021])
def test_orders_of_epochs_and_seeds_are_unrelated(size: int) -> None:
    """Protects both entries of the key: with one of them left out, orders repeat.

    Two unrelated orders have one position in common on average (Poisson) and rank correlation 0.
    """
    orders = [order_of(size, seed, epoch) for seed in range(8) for epoch in range(8)]
    orders.append(np.arange(size))
    pairs = [(a, b) for i, a in enumerate(orders) for b in orders[:i]]
    common = np.array([np.sum(a == b) for a, b in pairs])
    correlations = np.array([np.corrcoef(a, b)[0, 1] for a, b in pairs])
    assert abs(common.mean() - 1) < 4 / math.sqrt(len(pairs))
    assert common.max() < 9
    assert abs((correlations**2).mean() * (size - 1) - 1) < 4 * math.sqrt(2 / len(pairs))


def test_a_large_seed_is_not_another_seeds_later_epoch() -> None:
    """Protects `spawn_key`: SeedSequence([1 + (5 << 32), 0]) would be SeedSequence([1, 5])."""
    assert not np.array_equal(order_of(1000, 1 + (5 << 32), 0), order_of(1000, 1, 5))


@pytest.mark.parametrize(
    ("size", "distance"),
    [(10**8, 1), (10**8, 10**4), (10**9, 1), (10**9, 31_623), (10**12, 1), (10**12, 10**6)],
)
def test_neighbours_in_the_order_are_unrelated(size: int, distance: int) -> None:
    """Protects ROTATIONS: neighbours along a row or column of the grid fall into any two bins."""
    here = np.arange(400_000)
    bins = [sampler.permute(p, size, 2, 4) * 20 // size for p in (here, here + distance)]
    assert 1e-3 < p_value(np.bincount(bins[0] * 20 + bins[1], minlength=400)) < 1 - 1e-3


def test_a_column_of_a_small_grid_does_not_stay_together() -> None:
    """Protects ROTATIONS: where a trace of the grid is left, it is in small ones.

    A pair of samples in one column, k rows apart, is again so with the probability of any other
    outcome, 1 / (size - 1). With 6 rotations it is so in 11 % more cases.
    """
    size, side, epochs, kept = 64, 8, 3000, 0
    for epoch in range(epochs):
        row, column = np.divmod(order_of(size, 11, epoch).reshape(side, side), side)
        for k in range(1, side):
            same_column = np.roll(column, -k, axis=0) == column
            same_distance = (np.roll(row, -k, axis=0) - row) % side == k
            kept += int((same_column & same_distance).sum())
    expected = epochs * size * (side - 1) / 2 / (size - 1)
    assert abs(kept / 2 - expected) < 4 * math.sqrt(expected)  # k and side - k find the same pairs


def test_random_numbers_are_those_published_for_splitmix64() -> None:
    """Protects the mixing function: the first outputs for seed 1234567 of the reference code."""
    assert sampler._splitmix64(1234567, np.arange(1, 4, dtype=np.uint64)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize("batch_size", [1, 7, 32, 1000, 5000])
def test_batches_do_not_depend_on_the_chunks_they_are_computed_in(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the bounds of the chunks: batches are whole, and none is lost between two."""
    size, rank, world_size, start = 20_003, 1, 2, 123
    expected = sampler.permute(np.arange(start + rank, size, world_size), size, 1, 6)
    for chunk in (1, 100, 4096, 10**6):
        monkeypatch.setattr(sampler, "CHUNK", chunk)
        batches = sampler.ShuffledBatchSampler(
            size, batch_size, rank=rank, world_size=world_size, seed=1
        )
        batches.set_epoch(6, start)
        drawn = list(batches)
        assert len(drawn) == len(batches) == (size - start) // (2 * batch_size)
        assert {(epoch, len(indices)) for epoch, indices in drawn} == {(6, batch_size)}
        flat = [index for _, indices in drawn for index in indices]
        assert flat == expected[: len(flat)].tolist()
        assert all(type(index) is int for index in flat)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [64, 100, 1009])
def test_ranks_partition_the_epoch_and_take_equally_many_steps(size: int, world_size: int) -> None:
    """Protects the layout: ranks overlap nowhere, and only an incomplete step is left out."""
    ranks = [
        sampler.ShuffledBatchSampler(size, 4, rank=rank, world_size=world_size, seed=2)
        for rank in range(world_size)
    ]
    drawn = [[index for _, indices in rank for index in indices] for rank in ranks]
    assert {len(indices) for indices in drawn} == {size // (4 * world_size) * 4}
    used = list(chain(*drawn))
    assert len(set(used)) == len(used) > size - 4 * world_size


class Echo(Dataset[Any]):
    """A dataset whose batch is what it was asked for."""

    def __getitem__(self, batch: tuple[int, list[int]]) -> tuple[int, list[int]]:
        """Return the batch's epoch and indices."""
        return batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_hands_out_these_batches_in_this_order(workers: int) -> None:
    """Protects the type of a batch, and that an epoch set between two iterations is used."""
    batches = sampler.ShuffledBatchSampler(100, 8, rank=0, world_size=2, seed=3)
    loader = DataLoader(
        Echo(), sampler=batches, batch_size=None, num_workers=workers, collate_fn=lambda b: b
    )
    for epoch, start in ((0, 32), (1, 0)):
        batches.set_epoch(epoch, start)
        assert list(loader) == list(batches)
        assert len(loader) == (100 - start) // 16


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"rank": 2}, {"rank": -1}, {"world_size": 0}, {"seed": -1}]
)
def test_values_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    """Protects the first check: a rank beyond the others would repeat their samples."""
    values = {"size": 100, "batch_size": 4, "rank": 1, "world_size": 2, "seed": 0} | wrong
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"{name} {value}"):
        sampler.ShuffledBatchSampler(**values)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1), (0, 101)])
def test_an_epoch_or_start_out_of_range_is_refused(epoch: int, start: int) -> None:
    """Protects the check of `set_epoch`."""
    batches = sampler.ShuffledBatchSampler(100, 4, rank=0, world_size=2, seed=0)
    with pytest.raises(ValueError, match=f"epoch {epoch}, start {start}"):
        batches.set_epoch(epoch, start)


@pytest.mark.parametrize("position", [-1, 100, 110])
def test_a_position_out_of_range_is_refused(position: int) -> None:
    """Protects the check of `permute`: a cell outside could walk for ever."""
    with pytest.raises(ValueError, match=r"0\.\.99"):
        sampler.permute(np.array([position]), 100, 0, 0)
