"""What the tests of parity and validation compare: the same cases on 1, 2 and 3 processes.

All of them in one start of the processes, which takes longer than to compute; see worker.py.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from helpers import torchrun

WORLDS = (1, 2, 3)
PASSES = (1, 4)
PRECISIONS = ("fp32", "bf16", "fp16")
GLOBAL_BATCH = 24  # divisible by every world and number of passes
EVALUATED = [(11, 1), (7, 1), (2, 1), (11, 4)]  # number of validation samples, batch size
WORKER = Path(__file__).with_name("worker.py")


class Results(TypedDict):
    """What so many processes have computed."""

    trained: dict[tuple[int, str], dict[str, Tensor]]  # by passes and precision
    evaluated: list[dict[str, float]]  # the metrics of each case of EVALUATED


@cache
def run(world: int) -> Results:
    """Compute every case on so many processes.

    Raises:
        RuntimeError: One of them failed; the message has its traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.pt")
        done = torchrun(str(WORKER), str(file), processes=world)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        results: Results = torch.load(file, weights_only=True)
        return results
