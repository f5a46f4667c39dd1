"""YOURS: the model, its loss and its metrics. The other files use only the four functions below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from config import Config


class SmallCNN(nn.Module):
    """Two convolutions and a linear layer, for images of 1 x 8 x 8."""

    def __init__(self, width: int = 32, dropout: float = 0.1, checkpointing: bool = False) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.features = nn.Sequential(
            nn.Conv2d(1, width, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(2 * width * 2 * 2, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map float images of shape (batch, 1, 8, 8) to logits of shape (batch, 10)."""
        if self.checkpointing and self.training:
            features = checkpoint(self.features, images, use_reentrant=False)
        else:
            features = self.features(images)
        logits: Tensor = self.classifier(features)
        return logits


def build_model(config: Config) -> nn.Module:
    """Return the whole model on the CPU; it is moved and wrapped for you."""
    return SmallCNN(checkpointing=config.activation_checkpointing)


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss over the samples of this batch: the scalar that backward() is called on.

    Args:
        output: what the model returned for batch[0].
        batch: what the DataLoader gave, on the right device.
    """
    _, label = batch
    return nn.functional.cross_entropy(output, label)


def update_metrics(output: Tensor, batch: Any) -> dict[str, Tensor]:
    """Return SUMS over the samples of this batch, tensors of any shape.

    They are added over all batches and all processes. Means do not add up, sums do.
    """
    _, label = batch
    return {
        "count": torch.tensor(len(label)),
        "loss": nn.functional.cross_entropy(output.double(), label, reduction="sum"),
        "correct": (output.argmax(dim=1) == label).sum(),
    }


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Turn the sums over the whole validation set into the metrics to report."""
    count = sums["count"]
    return {
        "loss": (sums["loss"] / count).item(),
        "accuracy": (sums["correct"] / count).item(),
    }
