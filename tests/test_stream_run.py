"""A training set that is a stream goes through launch.sh, evaluation and resume like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated import generate, launch, metrics

STREAM = '''"""Rows that come one after the other."""

import torch
from torch.utils.data import IterableDataset, TensorDataset


class Rows(IterableDataset):
    def __init__(self, features, target):
        self.rows = list(zip(features, target))

    def __len__(self):
        return len(self.rows) + 5  # an estimate

    def __iter__(self):
        for features, target in self.rows:
            yield features + 0.1 * torch.randn(10), target


def build_datasets(config):
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(115, 10, generator=draw)
    target = features.sum(1, keepdim=True)
    return Rows(features[:96], target[:96]), TensorDataset(features[96:], target[96:])
'''


def test_a_stream_trains_alike_on_any_number_of_processes_and_goes_on(tmp_path: Path) -> None:
    """Three epochs: at once on one process, and on two, with workers and a stop in the second."""
    project = generate(tmp_path / "p")
    (project / "data.py").write_text(STREAM)
    same = ["--device=cpu", "--optimizer=sgd", "--lr=0.01", "--global-batch-size=8", "--epochs=3"]
    assert launch(project, *same, "--name=one", env={"NPROC": "1"}).code == 0
    two = [*same, "--name=two", "--num-workers=2"]
    stopped = launch(project, *two, "--limit-steps=17", env={"NPROC": "2"})
    assert stopped.code == 0, stopped.err
    assert launch(project, *two, env={"NPROC": "2"}).code == 0
    ends = []
    for name in ("one", "two"):
        last = [line for line in metrics(project, name) if "validation/loss" in line][-1]
        assert last["step"] == 36
        ends.append(last["validation/loss"])
    assert ends[0] == pytest.approx(ends[1], rel=1e-5)
