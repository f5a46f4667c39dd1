"""Linear regression, 10 features in, 1 value out: a step is what the loop itself costs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import stopwatch
from job import BATCH_SIZE, SAMPLES, WORLD_SIZE


def build_model(config: object = None) -> nn.Module:
    """Return the model of the default preset."""
    return nn.Linear(10, 1)


def loss_fn(output: Tensor, batch: list[Tensor]) -> Tensor:
    """Return the mean squared error."""
    loss = nn.functional.mse_loss(output, batch[1])
    stopwatch.tick(loss)
    return loss


def update_metrics(output: Tensor, batch: list[Tensor]) -> dict[str, Tensor]:
    """Return sums over a batch, for the loop that validates."""
    error = (output - batch[1]).square().sum()
    return {"count": torch.tensor(len(output)), "error": error}


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Return the loss."""
    return {"loss": (sums["error"] / sums["count"]).item()}


def build_datasets(config: object = None) -> tuple[TensorDataset, TensorDataset]:
    """Return random rows of a noisy linear function; the validation set is one batch."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(SAMPLES, 10, generator=random)
    target = features.sum(1, keepdim=True) + torch.randn(SAMPLES, 1, generator=random)
    few = BATCH_SIZE * WORLD_SIZE
    return TensorDataset(features, target), TensorDataset(features[:few], target[:few])
