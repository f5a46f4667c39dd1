"""YOURS: the data. The other files use only build_datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import interpolate, one_hot, pad
from torch.utils.data import Dataset

from config import SettingsError

if TYPE_CHECKING:
    from config import Config

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

Sample = tuple[Tensor, Tensor]  # the first element is the model's input


class Images(Dataset[Sample]):
    """Images, as files or tensors, with their classes."""

    def __init__(self, images: Sequence[Path] | Tensor, labels: Tensor, config: Config) -> None:
        self.images, self.labels, self.config = images, labels, config

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        """Return a float image (channels, size, size) in [0, 1] and its class."""
        return self.image(index), self.labels[index]

    def image(self, index: int) -> Tensor:
        """Return an image, scaled to a square."""
        image = self.images[index]
        if isinstance(image, Tensor):
            return image
        pixels = torch.from_numpy(np.array(Image.open(image).convert("RGB"))).permute(2, 0, 1) / 255
        size = (self.config.image_size, self.config.image_size)
        return interpolate(pixels[None], size, mode="bilinear", antialias=True)[0]


class TrainingImages(Images):
    """The same, augmented; a label is the share of each class where it is smoothed or mixed.

    Draw from torch, numpy or random as you like: loaders.py sets their states for each sample from
    (seed, epoch, index).
    """

    def __getitem__(self, index: int) -> Sample:
        """Return a float image (channels, size, size) in [0, 1] and its class, or float shares."""
        image, label = self.image(index), self.labels[index]
        mixup, smoothing = self.config.mixup, self.config.label_smoothing
        if not mixup and not smoothing:
            return self.augmented(image), label
        shares = one_hot(label, self.config.classes).float()
        if mixup:  # Zhang et al., "mixup", 2018; the partner is any image, not one of the batch
            other = int(torch.randint(len(self), ()))
            part = float(np.random.beta(mixup, mixup))
            image = self.augmented(image).lerp(self.augmented(self.image(other)), part)
            shares = shares.lerp(one_hot(self.labels[other], self.config.classes).float(), part)
        else:
            image = self.augmented(image)
        return image, shares * (1 - smoothing) + smoothing / self.config.classes

    def augmented(self, image: Tensor) -> Tensor:
        """Move it by up to an eighth of its size, and mirror it if asked to."""
        size = image.shape[-1]
        margin = size // 8
        down, right = torch.randint(2 * margin + 1, (2,)).tolist()
        wider = pad(image, [margin] * 4)
        image = wider[:, down : down + size, right : right + size]
        return image.flip(-1) if self.config.mirror and torch.rand(()) < 0.5 else image


def build_datasets(config: Config) -> tuple[Dataset[Sample], Dataset[Sample]]:
    """Return the training and the validation set: anything with __len__ and __getitem__.

    Every process calls this, so whatever is random here must follow from config.seed: all
    processes need the same split. Here: your folder, or 1797 handwritten digits of scikit-learn.
    """
    if config.images is not None:
        train_files, train_labels = find_images(Path(config.images, "train"), config)
        files, labels = find_images(Path(config.images, "validation"), config)
        return TrainingImages(train_files, train_labels, config), Images(files, labels, config)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)

    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(config.seed))
    validation, train = order[:359], order[359:]
    return (
        TrainingImages(images[train], labels[train], config),
        Images(images[validation], labels[validation], config),
    )


def find_images(folder: Path, config: Config) -> tuple[list[Path], Tensor]:
    """Return the images in the folders of a folder, one folder for each class, and their classes.

    Raises:
        SettingsError: There are no such folders, not as many as classes, or one has no images.
    """
    classes = sorted(path for path in folder.glob("*") if path.is_dir())
    if not classes:
        raise SettingsError(f"--images: there are no folders with images in {folder}")
    if len(classes) != config.classes:
        raise SettingsError(f"{folder} has {len(classes)} folders: --classes {len(classes)}")
    files: list[Path] = []
    labels: list[int] = []
    for label, of_class in enumerate(classes):
        found = [path for path in sorted(of_class.rglob("*")) if path.suffix.lower() in SUFFIXES]
        if not found:
            raise SettingsError(f"{of_class} has no images ({', '.join(SUFFIXES)})")
        files += found
        labels += [label] * len(found)
    return files, torch.tensor(labels)
