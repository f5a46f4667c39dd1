"""YOURS: the model, its loss and its metrics. The other files use only the four functions below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from config import Config


class SmallCNN(nn.Module):
    """Convolutions that halve the image until it is 2 or 3 pixels wide, and a linear layer."""

    def __init__(
        self,
        channels: int = 1,
        size: int = 8,
        classes: int = 10,
        width: int = 32,
        dropout: float = 0.1,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        layers: list[nn.Module] = []
        while size >= 4:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels, width, size = width, min(2 * width, 256), size // 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels * size * size, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map float images of shape (batch, channels, size, size) to logits (batch, classes)."""
        if self.checkpointing and self.training:
            features = checkpoint(self.features, images, use_reentrant=False)
        else:
            features = self.features(images)
        logits: Tensor = self.classifier(features)
        return logits


def build_model(config: Config) -> nn.Module:
    """Return the whole model on the CPU; it is moved and wrapped for you."""
    return SmallCNN(
        channels=1 if config.images is None else 3,
        size=config.image_size,
        classes=config.classes,
        checkpointing=config.activation_checkpointing,
    )


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss over the samples of this batch: the scalar that backward() is called on.

    Args:
        output: what the model returned for batch[0].
        batch: what the DataLoader gave, on the right device.
    """
    _, label = batch  # classes, or shares of all classes where they are smoothed or mixed
    return nn.functional.cross_entropy(output, label)


def update_metrics(output: Tensor, batch: Any) -> dict[str, Tensor]:
    """Return SUMS over the samples of this batch, tensors of any shape.

    They are added over all batches and all processes. Means do not add up, sums do.
    """
    _, label = batch
    best_five = output.topk(min(5, output.shape[1])).indices
    return {
        "count": torch.tensor(len(label)),
        "loss": nn.functional.cross_entropy(output.double(), label, reduction="sum"),
        "correct": (output.argmax(dim=1) == label).sum(),
        "among_five": (best_five == label.unsqueeze(1)).sum(),
    }


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Turn the sums over the whole validation set into the metrics to report."""
    count = sums["count"]
    return {
        "loss": (sums["loss"] / count).item(),
        "accuracy": (sums["correct"] / count).item(),
        "top5_accuracy": (sums["among_five"] / count).item(),
    }
