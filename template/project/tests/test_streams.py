"""A stream is read by every rank and every worker, and yet each sample is used once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from batches import plan_batches
from config import SettingsError, load_config
from distributed import World
from loaders import build_train_loader, build_validation_loader


class Numbers(IterableDataset[Any]):
    """The numbers from 0, each with one drawn by numpy; it yields fewer than it promises."""

    def __init__(self, promised: int, true: int) -> None:
        self.promised, self.true = promised, true

    def __len__(self) -> int:
        return self.promised

    def __iter__(self) -> Iterator[tuple[int, float]]:
        for number in range(self.true):
            yield number, float(np.random.random())


class OfEpochs(Numbers):
    """The same numbers, from another one in each epoch."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[int, float]]:
        for number, drawn in super().__iter__():
            yield 100 * self.epoch + number, drawn


class Endless(IterableDataset[Any]):
    """The numbers from 0, without a length."""

    def __iter__(self) -> Iterator[int]:
        yield from count()


def read(
    stream: IterableDataset[Any],
    world_size: int,
    *,
    batch_size: int,
    workers: int = 0,
    epoch: int = 0,
    start: int = 0,
    overfit: int | None = None,
) -> list[list[Tensor]]:
    """Return the batches of each rank: each of shape (batch_size, 2)."""
    config = replace(load_config([]), batch_size=batch_size, num_workers=workers)
    config = replace(config, overfit_batches=overfit)
    ranks = []
    for rank in range(world_size):
        world = World(rank, rank, world_size, torch.device("cpu"))
        plan = plan_batches(config, world_size)
        sampler, loader = build_train_loader(config, world, plan, stream)
        sampler.set_epoch(epoch, start)
        ranks.append([torch.stack([field.double() for field in batch], dim=1) for batch in loader])
    return ranks


@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (2, 0), (3, 0), (1, 2), (2, 2)])
@pytest.mark.parametrize(("promised", "true"), [(50, 50), (50, 1000), (1000, 53)])
def test_each_sample_is_used_once_and_all_ranks_end_together(
    world_size: int, workers: int, promised: int, true: int
) -> None:
    """Whether the epoch is as long as __len__ says, or the stream goes on or ends earlier."""
    ranks = read(Numbers(promised, true), world_size, batch_size=4, workers=workers)
    whole = min(promised, true) // (4 * world_size)
    assert [len(batches) for batches in ranks] == [whole] * world_size
    used = torch.cat([batch for batches in ranks for batch in batches])[:, 0]
    assert sorted(used.tolist()) == list(range(whole * 4 * world_size))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_has_the_same_samples_on_any_number_of_processes(workers: int) -> None:
    """Also what was drawn for them; another epoch draws anew."""
    one = read(Numbers(48, 48), 1, batch_size=12)[0]
    for world_size in (2, 3):
        ranks = read(Numbers(48, 48), world_size, batch_size=12 // world_size, workers=workers)
        for batch, parts in zip(one, zip(*ranks, strict=True), strict=True):
            assert sorted(batch.tolist()) == sorted(torch.cat(parts).tolist())
    assert not torch.equal(one[0], read(Numbers(48, 48), 1, batch_size=12, epoch=1)[0][0])


def test_overfitting_takes_the_first_batches() -> None:
    """Protects `limit`: the same few samples in each epoch, for all ranks together."""
    ranks = read(Numbers(50, 50), 2, batch_size=4, overfit=2)
    assert [len(batches) for batches in ranks] == [2, 2]
    used = torch.cat([batch for batches in ranks for batch in batches])[:, 0]
    assert sorted(used.tolist()) == list(range(16))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_told_the_epoch(workers: int) -> None:
    """In each worker, which has a copy of it."""
    for epoch in (0, 3):
        stream = OfEpochs(16, 16)
        batches = read(stream, 1, batch_size=4, workers=workers, epoch=epoch)[0]
        assert {int(number) // 100 for number in torch.cat(batches)[:, 0]} == {epoch}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_goes_on_where_it_was(workers: int) -> None:
    """Within an epoch, with another number of processes: nothing is lost or repeated."""
    before = read(Numbers(60, 60), 2, batch_size=5)
    after = read(Numbers(60, 60), 1, batch_size=5, workers=workers, start=20)
    used = [batch for batches in (*(rank[:2] for rank in before), after[0]) for batch in batches]
    rows = sorted(chain.from_iterable(batch.tolist() for batch in used))
    assert rows == sorted(chain.from_iterable(batch.tolist() for batch in chain(*before)))


def test_what_cannot_be_is_refused_with_the_remedy() -> None:
    """A stream without a length, or too short for a step; and one for validation."""
    config = replace(load_config([]), batch_size=4)
    world, plan = World(0, 0, 1, torch.device("cpu")), plan_batches(config, 1)
    with pytest.raises(SettingsError, match="how many samples make an epoch"):
        build_train_loader(config, world, plan, Endless())
    with pytest.raises(SettingsError, match="only 1"):
        build_train_loader(config, world, plan, Numbers(1, 1))
    with pytest.raises(SettingsError, match=r"list\(stream\)"):
        build_validation_loader(config, world, plan, Numbers(9, 9))
