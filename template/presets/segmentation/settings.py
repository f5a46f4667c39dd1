"""YOURS: the settings of your model and data, beside those of a run in config.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each field is an option of launch.sh, a key of the TOML files, and an attribute of config."""

    backbone: str | None = None
    """Checkpoint of a DINOv3 ViT, such as facebook/dinov3-vits16-pretrain-lvd1689m, or a folder
    with one. None: a very small one with random weights."""
    freeze: bool = False
    """Train the decode head alone: the backbone keeps its weights."""
    pictures: str | None = None
    """Folder with images/NAME.jpg and masks/NAME.png; data.py has the classes. None: the sample
    pictures of scikit-image."""
    validation_share: float = 0.2
    """Share of the pictures that is kept for validation, chosen by the seed."""
    image_size: int = 64
    """Pictures are scaled to squares of this many pixels; a multiple of the patch size, 16."""
