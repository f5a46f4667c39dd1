"""Notes when steps happen, in every loop at the same place, without a change to any loop.

Each loop computes its loss by the workload's loss_fn, which calls `tick`. From one call to the next
is one whole step: backward, optimizer, logging if it is due, next batch, forward.
"""

import json
import os
import time

import torch
from torch import Tensor

from job import FOLDER, RANK, STEPS

BLOCK = int(os.environ.get("BENCH_BLOCK", "1"))  # steps between two notes

_calls = 0
_notes: dict[int, tuple[float, float]] = {}


def tick(loss: Tensor) -> None:
    """Count a step; leave `rank<R>.json` at the last one.

    It has the time of the first two calls and of every block, in seconds: of a clock that all
    processes of the machine share, and of the CPU, in all threads of this process. And this rank's
    last loss.
    """
    global _calls
    if _calls <= 1 or _calls % BLOCK == 0:
        if loss.is_cuda:
            torch.cuda.synchronize()
        _notes[_calls] = time.monotonic(), time.process_time()
    _calls += 1
    if _calls == STEPS:
        found = {"times": _notes, "loss": loss.item()}
        (FOLDER / f"rank{RANK}.json").write_text(json.dumps(found))
