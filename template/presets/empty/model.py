"""YOURS: the model, its loss and its metrics. The other files use only the four functions below."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from config import Config, SettingsError


def build_model(config: Config) -> nn.Module:
    """Return the whole model on the CPU; it is moved and wrapped for you."""
    # layers = [nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)]  # 10 features, 1 value
    # return nn.Sequential(*layers)
    raise SettingsError("model.py: build_model has to return your torch.nn.Module")


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss over the samples of this batch: the scalar that backward() is called on.

    Args:
        output: what the model returned for batch[0].
        batch: what the DataLoader gave, on the right device.
    """
    # _, target = batch
    # return nn.functional.mse_loss(output, target)
    raise SettingsError("model.py: loss_fn has to return the mean loss of a batch, a scalar")


def update_metrics(output: Tensor, batch: Any) -> dict[str, Tensor]:
    """Return SUMS over the samples of this batch, tensors of any shape.

    They are added over all batches and all processes. Means do not add up, sums do.
    """
    # error = (output - batch[1]).double().square().sum()
    # return {"error": error, "count": error.new_tensor(len(output))}
    raise SettingsError("model.py: update_metrics has to return sums over a batch, as tensors")


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Turn the sums over the whole validation set into the metrics to report; one is "loss"."""
    # error, count = sums["error"], sums["count"]
    # return {"loss": (error / count).item()}
    raise SettingsError("model.py: compute_metrics has to return the metrics by name")
