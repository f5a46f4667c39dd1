"""A small CNN on images of 3 x 32 x 32: convolutions, BatchNorm, a linear head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import stopwatch
from job import BATCH_SIZE, LARGE, SAMPLES, WORLD_SIZE

WIDTH = 256 if LARGE else 16
CLASSES = 10


def build_model(config: object = None) -> nn.Module:
    """Return three blocks, each twice as wide and half as high as the one before."""
    layers: list[nn.Module] = []
    before = 3
    for width in (WIDTH, 2 * WIDTH, 4 * WIDTH):
        layers += [
            nn.Conv2d(before, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


def loss_fn(output: Tensor, batch: list[Tensor]) -> Tensor:
    """Return the mean cross-entropy."""
    loss = nn.functional.cross_entropy(output, batch[1])
    stopwatch.tick(loss)
    return loss


def update_metrics(output: Tensor, batch: list[Tensor]) -> dict[str, Tensor]:
    """Return sums over a batch, for the loop that validates."""
    error = nn.functional.cross_entropy(output, batch[1], reduction="sum")
    return {"count": torch.tensor(len(output)), "error": error}


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Return the loss."""
    return {"loss": (sums["error"] / sums["count"]).item()}


def build_datasets(config: object = None) -> tuple[TensorDataset, TensorDataset]:
    """Return random images, whose values do not matter here; the validation set is one batch."""
    random = torch.Generator().manual_seed(0)
    images = torch.randn(SAMPLES, 3, 32, 32, generator=random)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=random)
    few = BATCH_SIZE * WORLD_SIZE
    return TensorDataset(images, labels), TensorDataset(images[:few], labels[:few])
