"""YOURS: the settings of your model and data, beside those of a run in config.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each field is an option of launch.sh, a key of the TOML files, and an attribute of config."""

    corpus: str | None = None
    """Folder with train.npy and validation.npy: integers, one for each token. `python data.py`
    makes them of text. None: Python's language reference."""
    vocabulary: int = 256
    """Number of different tokens; 256 for bytes."""
    block_size: int = 64
    """Tokens that the model sees at once."""
    layers: int = 2
    """Transformer blocks."""
    heads: int = 2
    """Attention heads; they share out the width."""
    width: int = 64
    """Length of the vector of a token."""
    dropout: float = 0.0
    """Share of the activations that are dropped in training."""
    peak_tflops: float | None = None
    """What one device can do at most, in 1e12 operations per second at this precision: mfu is the
    part of it that is used. None: known for some GPUs in bf16 and fp16."""
