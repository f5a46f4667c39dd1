"""Each epoch has an order of its own, and the ranks share the set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch.distributed as dist
from torch.utils.data import IterableDataset

import train
from config import load_config
from data import build_datasets
from helpers import run_name, torchrun
from sampler import ShuffledBatchSampler


def test_an_epoch_is_shuffled_anew_and_each_sample_is_on_one_rank(tmp_path: Path) -> None:
    """Two epochs of the first samples, on two processes; each notes what its sampler yields.

    A stream has an order of its own; what holds for it is in test_streams.py.
    """
    if isinstance(build_datasets(load_config([]))[0], IterableDataset):
        return
    with run_name() as name:
        options = ["--name", name, "--device", "cpu", "--tracker", "none", "--epochs", "2"]
        options += ["--overfit-batches", "4", "--batch-size", "4"]
        done = torchrun(__file__, str(tmp_path), *options, processes=2)
        assert done.returncode == 0, done.stderr
    orders: list[list[list[int]]] = [[], []]  # by epoch and rank
    for rank in range(2):
        lines = (tmp_path / f"{rank}.jsonl").read_text().splitlines()
        assert len(lines) == 8
        for epoch in range(2):
            batches = map(json.loads, lines[4 * epoch : 4 * epoch + 4])
            orders[epoch].append([index for batch in batches for index in batch])
    for first, second in zip(*orders, strict=True):
        assert first != second
    for ranks in orders:
        assert sorted(ranks[0] + ranks[1]) == list(range(32))


def train_and_take_notes(folder: str) -> None:
    """Be train.py, and write the indices of each training batch of this rank."""
    original = ShuffledBatchSampler.__iter__

    def noted(sampler: ShuffledBatchSampler) -> Iterator[tuple[int, list[int]]]:
        with Path(folder, f"{dist.get_rank()}.jsonl").open("a", buffering=1) as file:
            for epoch, indices in original(sampler):
                file.write(json.dumps(indices) + "\n")
                yield epoch, indices

    with mock.patch.object(ShuffledBatchSampler, "__iter__", noted):
        train.main()


if __name__ == "__main__":
    train_and_take_notes(sys.argv.pop(1))
