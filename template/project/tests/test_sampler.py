"""The order of the samples: each one once, the same for any number of processes, resumable."""

import tracemalloc
from itertools import chain

import numpy as np
import pytest

from sampler import ShuffledBatchSampler, permute


def used_by(
    world_size: int, *, size: int, batch_size: int, start: int = 0, steps: int | None = None
) -> list[list[int]]:
    """Return what all ranks together use in each step, a list of `steps` lists (None: all)."""
    ranks = []
    for rank in range(world_size):
        sampler = ShuffledBatchSampler(size, batch_size, rank=rank, world_size=world_size, seed=5)
        sampler.set_epoch(3, start)
        ranks.append([indices for _, indices in sampler][:steps])
        assert steps is not None or len(ranks[-1]) == len(sampler)
    return [list(chain(*batches)) for batches in zip(*ranks, strict=True)]


@pytest.mark.parametrize("size", [*range(1, 130), 1000, 4097, 65536, 100_003])
def test_an_epoch_has_each_sample_once(size: int) -> None:
    """Protects the rotations and the walk: a cell beyond the samples must not be an answer."""
    order = permute(np.arange(size), size, seed=0, epoch=1)
    assert np.array_equal(np.sort(order), np.arange(size))


def test_each_epoch_and_each_seed_has_an_order_of_its_own() -> None:
    """Protects the keys. Unrelated orders agree at about one position, whatever the size."""
    size = 10_000
    orders = [permute(np.arange(size), size, seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    for i, order in enumerate([np.arange(size), *orders]):
        for other in orders[i:]:
            assert np.sum(order == other) < 10
            assert abs(np.corrcoef(order, other)[0, 1]) < 0.05


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    """Protects old checkpoints: they say how many samples were used, not which."""
    assert permute(np.arange(6), 1000, seed=0, epoch=0).tolist() == [609, 962, 433, 415, 180, 765]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_more_processes_use_the_same_samples_in_each_step(world_size: int) -> None:
    """Protects the stride: n processes with batches of b are one process with n * b."""
    one = used_by(1, size=1000, batch_size=24)
    many = used_by(world_size, size=1000, batch_size=24 // world_size)
    assert len(one) == 1000 // 24
    assert [sorted(step) for step in many] == [sorted(step) for step in one]


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 3), (1, 3)])
def test_resume_with_another_number_of_processes_loses_and_repeats_nothing(
    before: int, after: int
) -> None:
    """Protects `start`: only the samples too few for one more step are left out."""
    size, batch_size, steps = 1003, 8, 17
    used = list(chain(*used_by(before, size=size, batch_size=batch_size, steps=steps)))
    assert len(used) == steps * batch_size * before
    rest = list(chain(*used_by(after, size=size, batch_size=batch_size, start=len(used))))
    order = permute(np.arange(size), size, seed=5, epoch=3)
    assert 0 <= size - len(used + rest) < batch_size * after
    assert sorted(used + rest) == sorted(order[: len(used + rest)].tolist())


def test_a_trillion_samples_need_no_memory() -> None:
    """Protects the chunks: nothing that is stored grows with the dataset."""
    size = 10**12
    sampler = ShuffledBatchSampler(size, 32, rank=1, world_size=2, seed=0)
    tracemalloc.start()
    try:
        for start in (0, size * 9 // 10):
            sampler.set_epoch(1, start)
            epoch, indices = next(iter(sampler))
            assert epoch == 1
            assert len(set(indices)) == 32
        assert tracemalloc.get_traced_memory()[1] < 5_000_000  # bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("size", "batch_size", "world_size", "remedy"),
    [
        (10, 8, 2, "use a batch_size of at most 5, or fewer processes"),
        (3, 1, 4, "use at most 3 processes"),
        (0, 1, 1, "use a dataset that is not empty"),
    ],
)
def test_a_dataset_smaller_than_one_step_is_refused_with_the_remedy(
    size: int, batch_size: int, world_size: int, remedy: str
) -> None:
    """Protects the check: an epoch without a single batch would train nothing, silently."""
    with pytest.raises(ValueError, match=f"{size} samples.*{remedy}"):
        ShuffledBatchSampler(size, batch_size, rank=0, world_size=world_size, seed=0)
