"""YOURS: the data. The other files use only build_datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

if TYPE_CHECKING:
    from config import Config

Sample = tuple[Tensor, ...]  # the first element is the model's input


def build_datasets(config: Config) -> tuple[Dataset[Sample], Dataset[Sample]]:
    """Return the training and the validation set: anything with __len__ and __getitem__.

    Every process calls this, so whatever is random here must follow from config.seed: all
    processes need the same split. Here: the diabetes table of scikit-learn, 442 patients with
    10 measurements each and how far the disease had gone a year later.
    """
    table = load_diabetes(scaled=False)
    features = torch.tensor(table.data, dtype=torch.float32)
    target = torch.tensor(table.target, dtype=torch.float32).unsqueeze(1)

    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(config.seed))
    validation, train = order[:89], order[89:]

    # Scaled by the training rows only: the validation rows stay unseen.
    features = (features - features[train].mean(0)) / features[train].std(0)
    target = (target - target[train].mean()) / target[train].std()
    return (
        TensorDataset(features[train], target[train]),
        TensorDataset(features[validation], target[validation]),
    )
