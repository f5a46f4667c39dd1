"""YOURS: the data. The other files use only build_datasets."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from config import Config, SettingsError


def build_datasets(config: Config) -> tuple[Dataset[Any], Dataset[Any]]:
    """Return the training and the validation set: anything with __len__ and __getitem__.

    A sample is a tuple, and its first element is the model's input. Every process calls this, so
    whatever is random here must follow from config.seed: all processes need the same split.
    """
    # features, target = torch.load("mine.pt")
    # train, validation = slice(1000, None), slice(1000)  # then TensorDataset(features[train], ...)
    raise SettingsError("data.py: build_datasets has to return your training and validation set")
