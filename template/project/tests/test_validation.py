"""Validation must count each sample once, whatever the number of processes."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from torch.utils.data import Subset

from batches import plan_batches
from config import load_config
from data import build_datasets
from distributed import cleanup_ddp, setup_ddp
from exchange import Exchange
from helpers import torchrun
from loaders import build_validation_loader
from model import build_model
from optim import Stepper
from seeding import seed_everything
from train import evaluate

# Number of samples, batch size, how close. A batch of one makes the forward pass the same to the
# bit; in larger batches the sums inside the model are rounded in another order.
CASES = [(11, 1, 1e-9), (7, 1, 1e-9), (2, 1, 1e-9), (11, 4, 1e-5)]


@cache
def measure(world: int) -> list[dict[str, float]]:
    """Evaluate every case on so many processes; return the metrics of each case."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "metrics.json")
        done = torchrun(__file__, str(file), processes=world)
        assert done.returncode == 0, done.stderr
        result: list[dict[str, float]] = json.loads(file.read_text())
    assert len(result) == len(CASES)
    return result


@pytest.mark.parametrize("world", [2, 3])
def test_metrics_equal_one_process(world: int) -> None:
    """Also when the set is not divisible by the processes, or smaller than their number."""
    for case, one, this in zip(CASES, measure(1), measure(world), strict=True):
        assert this == pytest.approx(one, rel=case[2], nan_ok=True), case


def worker(file: str) -> None:
    """Evaluate every case as one rank of torchrun."""
    world = setup_ddp("cpu")
    config = load_config([])
    seed_everything(config.seed)
    model = build_model(config)
    _, validation = build_datasets(config)
    results = []
    for size, batch_size, _ in CASES:
        config = replace(config, batch_size=batch_size)
        plan = plan_batches(config, world.world_size)
        few = Subset(validation, range(size))
        shard, loader = build_validation_loader(config, world, plan, few)
        stepper = Stepper(config, plan, model, world.device, batches=1)
        exchange = Exchange(config, world)
        results.append(evaluate(world, stepper, shard, loader, exchange))
    if world.is_main:
        Path(file).write_text(json.dumps(results))
    cleanup_ddp()


if __name__ == "__main__":
    worker(sys.argv[1])
