"""N processes must train exactly as one process does on the same global batch."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
import torch

import extras
import parity
from batches import plan_batches
from cases import WORLDS
from config import load_config
from data import build_datasets
from distributed import World
from loaders import build_train_loader
from model import build_model
from optim import Stepper
from train import train_step
from worker import gradient_of


@pytest.mark.parametrize("world", WORLDS)
def test_processes_and_passes_change_nothing(world: int) -> None:
    """1, 2 and 3 processes, 1 and 4 passes: the same gradients and weights in fp32."""
    table = parity.measure(world)
    assert len(table) == 6
    for (passes, precision), (gradient, weights) in table.items():
        bound = 1e-6 if precision == "fp32" else 5e-2  # rounding of the activations
        assert gradient <= bound, f"{passes} passes, {precision}"
        assert weights <= bound, f"{passes} passes, {precision}"


def test_a_short_last_window_is_averaged_over_its_own_length() -> None:
    """Two passes where a step has four: the mean of their gradients, not half of it.

    Weighted by how many tokens or pixels each has, where model.py has a loss_weight.
    """
    config = replace(load_config([]), batch_size=2, accumulate=4)
    plan, world = plan_batches(config, 1), World(0, 0, 1, torch.device("cpu"))
    loader = build_train_loader(config, world, plan, build_datasets(config)[0])[1]
    model = build_model(config).eval()
    stepper = Stepper(config, plan, model, world.device, batches=len(loader))
    one, other = islice(loader, 2)
    gradients = []
    for window in ([one], [other], [one, other]):
        train_step(model, stepper, window, world.device)
        gradients.append(gradient_of(stepper))
        stepper.optimizer.zero_grad()
    first, second = extras.loss_weight(one), extras.loss_weight(other)
    mean = (gradients[0] * first + gradients[1] * second) / (first + second)
    torch.testing.assert_close(gradients[2], mean)
