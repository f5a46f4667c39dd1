"""YOURS: the data. The other files use only build_datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from config import Config

Sample = tuple[Tensor, Tensor]  # the first element is the model's input


class Digits(Dataset[Sample]):
    """Images of 1 x 8 x 8 in [0, 1] with their digit; `augment` moves them by up to one pixel."""

    def __init__(self, images: Tensor, labels: Tensor, *, augment: bool) -> None:
        self.images = images
        self.labels = labels
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        image = self.images[index]
        if self.augment:
            # Draw from torch, numpy or random as you like: loaders.py sets their states for each
            # sample from (seed, epoch, index).
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll((down, right), dims=(1, 2))
        return image, self.labels[index]


def build_datasets(config: Config) -> tuple[Dataset[Sample], Dataset[Sample]]:
    """Return the training and the validation set: anything with __len__ and __getitem__.

    Every process calls this, so whatever is random here must follow from config.seed: all
    processes need the same split. Here: 1797 handwritten digits of scikit-learn, 8 x 8 pixels.
    """
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)

    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(config.seed))
    validation, train = order[:359], order[359:]
    return (
        Digits(images[train], labels[train], augment=True),
        Digits(images[validation], labels[validation], augment=False),
    )
