"""YOURS: the data. The other files use only build_datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset

from config import Config, SettingsError

# What the numbers in the masks mean. Change all three for pictures of your own.
CLASSES = ("background", "coin", "ink", "stain")
CLASS_WEIGHTS = (0.5, 1.0, 2.0, 1.0)  # how much a pixel of each class counts in the loss
IGNORE = 255  # pixels that count nowhere, such as those that nobody could label

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
TILE = 64

Picture = Path | NDArray[np.uint8]
Sample = tuple[Tensor, Tensor]  # the first element is the model's input


class Pictures(Dataset[Sample]):
    """Pictures and their masks, as files or arrays, scaled to squares; `augment` for training."""

    def __init__(self, pairs: Sequence[tuple[Picture, Picture]], size: int, *, augment: bool):
        self.pairs, self.size, self.augment = pairs, size, augment

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        """Return a float image (3, size, size) in [0, 1] and an integer mask (size, size).

        Raises:
            ValueError: The two do not fit together, or the mask has a class that is not there.
        """
        image, mask = read(*self.pairs[index])
        if self.augment:
            image, mask = augment(image, mask)
        size = (self.size, self.size)
        scaled = interpolate(image[None], size, mode="bilinear", antialias=True)[0]
        labels = interpolate(mask[None, None].float(), size, mode="nearest-exact")[0, 0]
        return scaled, labels.long()


def read(image: Picture, mask: Picture) -> tuple[Tensor, Tensor]:
    """Return an image of shape (3, height, width) in [0, 1] and its mask (height, width)."""
    pixels = np.array(Image.open(image).convert("RGB") if isinstance(image, Path) else image)
    labels = np.array(Image.open(mask) if isinstance(mask, Path) else mask)
    if labels.shape != pixels.shape[:2]:
        raise ValueError(f"{mask} has shape {labels.shape}, its image {pixels.shape[:2]}")
    unknown = set(np.unique(labels).tolist()) - {*range(len(CLASSES)), IGNORE}
    if unknown:
        known = f"data.py has 0 to {len(CLASSES) - 1}, and {IGNORE} for IGNORE"
        raise ValueError(f"{mask} has classes {sorted(unknown)}; {known}")
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255, torch.from_numpy(labels)


def augment(image: Tensor, mask: Tensor) -> Sample:
    """Cut out the same part of both, mirror both or none, and change the light of the image.

    Draw from torch, numpy or random as you like: loaders.py sets their states for each sample from
    (seed, epoch, index).
    """
    height, width = mask.shape
    share = 0.6 + 0.4 * torch.rand(()).item()
    rows, columns = max(1, round(height * share)), max(1, round(width * share))
    top = int(torch.randint(height - rows + 1, ()))
    left = int(torch.randint(width - columns + 1, ()))
    part = (slice(top, top + rows), slice(left, left + columns))
    image, mask = image[:, *part], mask[part]
    if torch.rand(()) < 0.5:
        image, mask = image.flip(-1), mask.flip(-1)
    contrast, light = 0.8 + 0.4 * torch.rand(()), 0.2 * (torch.rand(()) - 0.5)
    return (image * contrast + light).clamp(0, 1), mask


def build_datasets(config: Config) -> tuple[Dataset[Sample], Dataset[Sample]]:
    """Return the training and the validation set: anything with __len__ and __getitem__.

    Every process calls this, so whatever is random here must follow from config.seed: all
    processes need the same split. Here: your folder, or tiles of four real pictures.
    """
    pairs = tiles() if config.pictures is None else find_pairs(Path(config.pictures))
    held_out = round(len(pairs) * config.validation_share)
    if not 0 < held_out < len(pairs):
        share = f"validation_share {config.validation_share} of {len(pairs)} pictures"
        raise SettingsError(f"{share} is {held_out}; both sets need some")
    draw = torch.Generator().manual_seed(config.seed)
    order = torch.randperm(len(pairs), generator=draw).tolist()
    train, validation = order[held_out:], order[:held_out]
    return (
        Pictures([pairs[index] for index in train], config.image_size, augment=True),
        Pictures([pairs[index] for index in validation], config.image_size, augment=False),
    )


def find_pairs(folder: Path) -> list[tuple[Picture, Picture]]:
    """Return the images and masks of a folder, sorted by name.

    Raises:
        SettingsError: Some image has no mask or the other way round; names them.
    """
    images = {
        path.stem: path
        for path in sorted((folder / "images").glob("*"))
        if path.suffix.lower() in IMAGE_SUFFIXES
    }
    masks = {path.stem: path for path in sorted((folder / "masks").glob("*.png"))}
    lonely = [f"{images[name]} has no mask" for name in images if name not in masks]
    lonely += [f"{masks[name]} has no image" for name in masks if name not in images]
    if lonely:
        more = f"\n  and {len(lonely) - 20} more" if len(lonely) > 20 else ""
        raise SettingsError("images and masks do not match:\n  " + "\n  ".join(lonely[:20]) + more)
    if not images:
        raise SettingsError(f"no pictures in {folder / 'images'} with masks in {folder / 'masks'}")
    return [(images[name], masks[name]) for name in sorted(images)]


def tiles() -> list[tuple[Picture, Picture]]:
    """Return tiles of four pictures of scikit-image, with masks from its own gallery's recipes.

    The coins are found by watershed from their edges, ink by a local threshold, the brown stain
    by colour deconvolution. Where a class begins or ends nobody is sure: those pixels are IGNORE.
    """
    from skimage import color, data, filters, segmentation

    coins = data.coins()
    markers = np.select([coins < 30, coins > 150], [1, 2], default=0)
    found = [(coins, 1, segmentation.watershed(filters.sobel(coins), markers) == 2)]
    for printed in (data.page(), data.text()):
        found.append((printed, 2, printed < filters.threshold_local(printed, 35, offset=15)))
    tissue = data.immunohistochemistry()
    stain = color.rgb2hed(tissue)[..., 2]
    found.append((tissue, 3, stain > filters.threshold_otsu(stain)))
    cut: list[tuple[Picture, Picture]] = []
    for picture, number, inside in found:
        mask = np.where(inside, number, 0).astype(np.uint8)
        if number != 2:  # the strokes of letters would be all border
            mask[segmentation.find_boundaries(inside)] = IGNORE
        rgb = picture if picture.ndim == 3 else color.gray2rgb(picture)
        cut += zip(_cut(rgb), _cut(mask), strict=True)
    return cut


def _cut(picture: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the whole tiles of a picture."""
    rows, columns = (length // TILE for length in picture.shape[:2])
    return [
        picture[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        for row in range(rows)
        for column in range(columns)
    ]
