"""Random states: set them, keep them, and derive one for each sample."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed torch (every device), numpy and Python. The same call gives the same draws."""
    torch.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def use_deterministic_kernels() -> None:
    """Let torch use kernels that give the same bits each time, or fail where there is none."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def seed_sample(seed: int, epoch: int, index: int) -> None:
    """Seed the CPU generators for one sample, from (seed, epoch, index) alone.

    An augmentation that draws from any of them then gives the same picture whatever the number of
    workers, of processes or of restarts.
    """
    mixed = _mix(_mix(_mix(seed) + epoch) + index)
    torch.default_generator.manual_seed(mixed)  # not torch.manual_seed: it looks for GPUs each time
    np.random.seed(mixed & 0xFFFFFFFF)
    random.seed(mixed)


def _mix(value: int) -> int:
    """Scatter the bits of an integer over 64 bits (splitmix64, Steele, Lea, Flood 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (value ^ value >> 31) >> 1  # 63 bits: torch takes a signed seed


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Run a block that may seed and draw on the CPU, and leave no trace in this process."""
    state = (torch.get_rng_state(), np.random.get_state(), random.getstate())
    try:
        yield
    finally:
        torch.set_rng_state(state[0])
        np.random.set_state(state[1])
        random.setstate(state[2])
