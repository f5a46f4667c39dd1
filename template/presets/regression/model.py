"""YOURS: the model, its loss and its metrics. The other files use only the four functions below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from config import Config


class MyModel(nn.Module):
    """Linear regression: 10 features in, 1 value out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map float features of shape (batch, 10) to predictions of shape (batch, 1)."""
        predictions: Tensor = self.linear(features)
        return predictions


def build_model(config: Config) -> nn.Module:
    """Return the whole model on the CPU; it is moved and wrapped for you."""
    return MyModel()


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss over the samples of this batch: the scalar that backward() is called on.

    Args:
        output: what the model returned for batch[0].
        batch: what the DataLoader gave, on the right device.
    """
    _, target = batch
    return nn.functional.mse_loss(output, target)


def update_metrics(output: Tensor, batch: Any) -> dict[str, Tensor]:
    """Return SUMS over the samples of this batch, tensors of any shape.

    They are added over all batches and all processes. Means do not add up, sums do.
    """
    _, target = batch
    output, target = output.double(), target.double()
    return {
        "count": torch.tensor(len(target)),
        "squared_error": (output - target).square().sum(),
        "target": target.sum(),
        "target_squared": target.square().sum(),
    }


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Turn the sums over the whole validation set into the metrics to report."""
    count, error = sums["count"], sums["squared_error"]
    variation = sums["target_squared"] - sums["target"].square() / count
    return {
        "loss": (error / count).item(),
        "rmse": (error / count).sqrt().item(),
        "r2": (1 - error / variation).item(),
    }
