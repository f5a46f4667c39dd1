"""YOURS: the settings of your model and data, beside those of a run in config.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each field is an option of launch.sh, a key of the TOML files, and an attribute of config."""

    # For example:
    # width: int = 64
    # """Width of the hidden layer; --help shows this line."""
