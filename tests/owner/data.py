"""An owner's data: words of different lengths, a collate_fn of its own, a random augmentation."""

from __future__ import annotations

import builtins
import keyword
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from config import Config

WORDS = sorted({*dir(builtins), *dir(torch), *keyword.kwlist})[:601]


class Words(Dataset[Any]):
    """Names of Python and torch, some letters in upper case at random."""

    def __init__(self, words: list[str], augment: bool) -> None:
        self.words = words
        self.augment = augment

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        word = self.words[index]
        if self.augment and random.random() < 0.5:
            flips = np.random.random(len(word)) < 0.3
            word = "".join(c.upper() if flip else c for c, flip in zip(word, flips, strict=True))
        vowels = min(7, sum(c in "aeiou" for c in word.lower()))
        return torch.tensor([ord(c) for c in word]), vowels

    def collate_fn(self, samples: list[tuple[Tensor, int]]) -> tuple[Tensor, dict[str, Tensor]]:
        """Pad the words of a batch to one length."""
        words, vowels = zip(*samples, strict=True)
        return pad_sequence(list(words), batch_first=True), {"vowels": torch.tensor(vowels)}


def build_datasets(config: Config) -> tuple[Dataset[Any], Dataset[Any]]:
    """Return the training and the validation set."""
    words = list(WORDS)
    random.Random(config.seed).shuffle(words)
    return Words(words[101:], augment=True), Words(words[:101], augment=False)
