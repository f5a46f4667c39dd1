"""What test_collectives.py runs in place of train.py: it trains, and notes who waits for whom.

Needs a project on PYTHONPATH. Each rank writes events-RANK.json: a list of "pass", "ddp" (one
all-reduce of gradients), "step LOSS", and the names of the collectives outside DDP.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

COLLECTIVES = [
    *("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "barrier"),
    *("broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier"),
    "_broadcast_coalesced",  # DDP, of parameters at its start and of buffers in a forward pass
    *("reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list"),
]
EVENTS: list[str] = []


def note(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that notes this name and does the same."""

    def noted(*arguments: Any, **options: Any) -> Any:
        EVENTS.append(name)
        return function(*arguments, **options)

    return noted


def reduce_gradients(bucket: Any) -> Any:
    """Do what DDP does without a hook, and note that alone: torch's own calls all_reduce."""
    EVENTS.append("ddp")
    before = len(EVENTS)
    future = allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]
    del EVENTS[before:]
    return future


def main(folder: Path) -> None:
    """Train with the rest of the command line."""
    for name in COLLECTIVES:
        setattr(dist, name, note(name, getattr(dist, name)))
    train: Any = importlib.import_module("train")
    exchange: Any = importlib.import_module("exchange")
    exchange.LONGEST_WAIT = 3600.0  # on a slow machine ranks talk more often, to stop in time
    wrap_model, train_step, leave = train.wrap_model, train.train_step, train.leave

    def wrap_and_hook(*arguments: Any) -> Any:
        ddp = wrap_model(*arguments)
        ddp.register_comm_hook(None, lambda state, bucket: reduce_gradients(bucket))
        return ddp

    def step(*arguments: Any) -> torch.Tensor:
        loss: torch.Tensor = train_step(*arguments)
        EVENTS.append(f"step {loss.item()}")
        return loss

    def write_and_leave(*arguments: Any) -> None:
        file = folder / f"events-{os.environ['RANK']}.json"
        file.write_text(json.dumps(EVENTS))
        leave(*arguments)

    train.wrap_model, train.train_step, train.leave = wrap_and_hook, step, write_and_leave
    train.loss_fn = note("pass", train.loss_fn)
    train.main()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
