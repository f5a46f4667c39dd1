"""YOURS: the settings of your model and data, beside those of a run in config.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each field is an option of launch.sh, a key of the TOML files, and an attribute of config."""

    images: str | None = None
    """Folder with train/CLASS/NAME.jpg and validation/CLASS/NAME.jpg; give --classes and
    --image-size with it. None: the handwritten digits of scikit-learn."""
    classes: int = 10
    """Number of classes."""
    image_size: int = 8
    """Images are scaled to squares of this many pixels."""
    mirror: bool = False
    """Mirror training images at random; not for digits or text."""
    label_smoothing: float = 0.0
    """Share of a training label that is spread evenly over all classes."""
    mixup: float = 0.0
    """Mix each training image with another one, in shares from Beta(mixup, mixup); 0: never."""
