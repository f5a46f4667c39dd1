"""The helpers that reduce over ranks leave what they are given alone."""

from __future__ import annotations

import sys

import pytest
import torch

from distributed import (
    cleanup_ddp,
    on_main_process,
    reduce_loss,
    reduce_tensor,
    setup_ddp,
    sum_over_ranks,
)
from helpers import torchrun


def test_reductions_on_three_processes() -> None:
    """Run the checks below on every rank."""
    done = torchrun(__file__, "check", processes=3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("checked") == 3


def test_reductions_without_a_process_group() -> None:
    """The same for `python train.py`, where this process is all there is."""
    check()


def check() -> None:
    """Check as one rank; an assertion that fails ends the job."""
    world = setup_ddp("cpu")
    n, last = world.world_size, world.world_size - 1

    weight = torch.tensor([float(world.rank), 1.0], requires_grad=True)
    loss = (weight * weight).sum()
    mean = reduce_tensor(loss)
    assert not mean.requires_grad
    assert loss.item() == world.rank**2 + 1  # not reduced in place
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2 * world.rank, 2]  # nor between the loss and backward()
    assert mean.item() == pytest.approx(sum(rank**2 for rank in range(n)) / n + 1)
    assert reduce_loss(loss) == mean.item()

    counts = torch.tensor([world.rank, 2**24 + 1])  # float32 cannot count that far
    assert reduce_tensor(counts).tolist() == [last / 2, 2**24 + 1]
    assert counts.tolist() == [world.rank, 2**24 + 1]

    sums = sum_over_ranks({"count": counts, "matrix": torch.ones(2, 3)})
    assert sums["count"].tolist() == [n * last / 2, n * (2**24 + 1)]
    assert sums["matrix"].tolist() == [[n] * 3] * 2

    assert on_main_process(world, lambda: world.rank + 40) == 40
    with pytest.raises(ZeroDivisionError):  # on every rank, though only rank 0 divides
        on_main_process(world, lambda: 1 // world.rank)
    print("checked\n", end="", flush=True)
    cleanup_ddp()


if __name__ == "__main__" and sys.argv[1:] == ["check"]:
    check()
