"""Protects what is done seldom so that a step stays cheap: adding up losses, setting the watch."""

from types import SimpleNamespace

import pytest
import torch

import exchange
from config import Config
from distributed import World
from exchange import Exchange
from meter import Meter

ALONE = World(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
LOSSES = [2.0**24, 1.0, float("nan"), 1.0, float("inf")]  # float32 knows no 2**24 + 1
MEAN = (2**24 + 2) / 3


def take(meter: Meter, losses: list[float]) -> None:
    """Take a step for each loss."""
    for loss in losses:
        meter.add(torch.tensor(loss), samples=32)


def exchange_losses(meter: Meter) -> None:
    """Count the steps as the training loop does, for one process."""
    meter.count([loss.item() for loss in meter.losses])


@pytest.mark.parametrize("asked_after", [{5}, {1, 2, 3, 4, 5}, {2, 5}])
def test_the_mean_loss_does_not_depend_on_when_ranks_exchange(asked_after: set[int]) -> None:
    """A run that exchanges more often, because its steps are slow, logs the same."""
    meter = Meter(ALONE)
    for number, loss in enumerate(LOSSES, start=1):
        take(meter, [loss])
        if number in asked_after:
            exchange_losses(meter)
    assert meter.epoch_loss.item() == meter.read(lr=0.1, skipped=0)["loss"] == MEAN


def test_a_log_line_starts_a_new_mean_and_the_epoch_keeps_all() -> None:
    meter = Meter(ALONE)
    take(meter, [1.0, 3.0])
    exchange_losses(meter)
    assert meter.read(lr=0.1, skipped=0)["loss"] == 2.0
    take(meter, [8.0])
    exchange_losses(meter)
    take(meter, [12.0])  # the last step of the epoch is not counted yet
    assert (meter.epoch_loss.item(), meter.steps) == (6.0, 4)
    assert meter.read(lr=0.1, skipped=0)["loss"] == 8.0
    meter.start_epoch()
    take(meter, [5.0])
    assert (meter.epoch_loss.item(), meter.steps) == (5.0, 1)


def test_the_watch_is_set_anew_while_steps_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after every step, as it is a thread; and it never ends a run that took its steps."""
    now, ends = 100.0, list[float]()
    monkeypatch.setattr(exchange, "StopRequest", SimpleNamespace)
    monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(exchange, "watch", lambda seconds: ends.append(now + seconds))
    talks = Exchange(Config(step_timeout=20.0), ALONE)
    for step in range(100):
        talks.restart(step)
        assert 20.0 <= ends[-1] - now <= 21.0
        now += 0.3
    assert len(ends) == 25  # in 30 seconds
