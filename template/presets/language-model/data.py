"""YOURS: the data. The other files use only build_datasets.

Make token files of your own text, with bytes as tokens:

    python data.py FOLDER train.txt validation.txt     and then  ./launch.sh --corpus FOLDER

Or write FOLDER/train.npy and FOLDER/validation.npy with numpy.save, from any tokenizer, and give
its --vocabulary. They are mapped into memory, not read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from config import Config, SettingsError

NOTHING = -100  # as a target: there is no token here; cross_entropy leaves it out
LOOK = 10_000_000  # tokens that are looked at before a run: all would take minutes

Sample = tuple[Tensor, Tensor]  # the first element is the model's input


class Windows(Dataset[Sample]):
    """Windows of block_size tokens with the tokens that follow each; no window spans two documents.

    Each token but the first of a document is predicted once. The last window of a document is
    shorter: it is filled up with NOTHING.
    """

    def __init__(self, tokens: NDArray[Any], lengths: Sequence[int], block_size: int) -> None:
        """Take documents of these lengths, one behind the other."""
        self.tokens, self.block_size = tokens, block_size
        self.ends = np.cumsum(lengths)
        windows = [-(-(length - 1) // block_size) for length in lengths]
        self.first = np.concatenate([[0], np.cumsum(windows)])  # window of each document

    def __len__(self) -> int:
        return int(self.first[-1])

    def __getitem__(self, index: int) -> Sample:
        """Return the inputs and the targets, integers of shape (block_size,)."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        document = int(np.searchsorted(self.first, index, side="right")) - 1
        start = int(self.ends[document - 1]) if document else 0
        start += (index - int(self.first[document])) * self.block_size
        end = min(start + self.block_size + 1, int(self.ends[document]))
        tokens = torch.from_numpy(self.tokens[start:end].astype(np.int64))
        inputs = torch.zeros(self.block_size, dtype=torch.int64)
        targets = torch.full((self.block_size,), NOTHING)
        inputs[: len(tokens) - 1], targets[: len(tokens) - 1] = tokens[:-1], tokens[1:]
        return inputs, targets


def build_datasets(config: Config) -> tuple[Dataset[Sample], Dataset[Sample]]:
    """Return the training and the validation set: anything with __len__ and __getitem__.

    Every process calls this. Here: your corpus, or what `help("if")` and the like show in Python;
    every tenth topic is for validation.
    """
    if config.corpus is not None:
        train, validation = (
            map_tokens(Path(config.corpus, f"{part}.npy"), config)
            for part in ("train", "validation")
        )
        return train, validation
    documents = [topics[name].encode() for name in sorted(topics)]
    rest = [text for number, text in enumerate(documents) if number % 10]
    return of_texts(rest, config), of_texts(documents[::10], config)


def of_texts(texts: list[bytes], config: Config) -> Windows:
    """Return the windows of some texts, with bytes as tokens."""
    tokens = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return Windows(tokens, [len(text) for text in texts], config.block_size)


def map_tokens(file: Path, config: Config) -> Windows:
    """Return the windows of a token file, which may be larger than the memory."""
    if not file.is_file():
        raise SettingsError(f"--corpus: there is no {file}; `python data.py` makes one of text")
    tokens = np.load(file, mmap_mode="r")
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or len(tokens) < 2:
        what = f"{tokens.dtype} of shape {tokens.shape}"
        raise SettingsError(f"{file} has {what}; token files have one row of integers")
    highest = int(tokens[:LOOK].max())
    if highest >= config.vocabulary:  # on a GPU it would be an assertion deep in a kernel
        raise SettingsError(f"{file} has token {highest}: give --vocabulary, {highest + 1} or more")
    return Windows(tokens, [len(tokens)], config.block_size)


def write_tokens(folder: Path, train: Path, validation: Path) -> None:
    """Write the bytes of two texts as token files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("train", train), ("validation", validation)):
        np.save(folder / f"{name}.npy", np.fromfile(text, dtype=np.uint8))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python data.py FOLDER train.txt validation.txt")
    write_tokens(*map(Path, sys.argv[1:]))
