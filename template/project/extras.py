"""What model.py may define besides its four functions. Each of these is optional, and this is all.

loss_weight(batch) -> Tensor
    How many items (tokens, pixels) the mean in loss_fn is over, a scalar. Where the batches of a
    step differ in it, each then counts for as many items as it has, over all passes and ranks.

speed(config, model, samples_per_second, world_size) -> dict[str, float]
    More numbers for each log line, from the samples per second of all ranks together.

show(config, model, validation_set) -> dict[str, str | Tensor]
    What to look at after each evaluation: texts, and images as float tensors of shape
    (3, height, width) in [0, 1]. Only rank 0 calls it, so no collective may be in it. The model is
    in evaluation mode on its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import model as yours
from config import Config
from distributed import World, reduce_tensor
from loaders import Batch
from seeding import kept_random_state
from tracker import Tracker


def loss_weight(batch: Batch) -> Tensor:
    """Return how much the mean loss of this batch counts among others; 1 where nobody says."""
    weigh = getattr(yours, "loss_weight", None)
    weight: Tensor = weigh(batch) if weigh else torch.ones(())
    return weight


def loss_shares(window: list[Batch], device: torch.device) -> Sequence[float | Tensor]:
    """Return what the mean loss of each pass is multiplied by, so that the step's loss is a mean.

    Empty for a single pass, which there is nothing to weigh against. Where model.py has a
    loss_weight it is a collective: call on every rank. Summed over all ranks the shares then make
    world_size, because DDP divides by that.
    """
    if not hasattr(yours, "loss_weight"):
        passes = len(window)  # the true length of the last window
        return [1 / passes] * passes if passes > 1 else []
    weights = torch.stack([loss_weight(batch) for batch in window]).float()
    weights = weights.to(device, non_blocking=True)
    return list(weights / reduce_tensor(weights.sum()))


def speed(
    config: Config, model: nn.Module, world: World, line: dict[str, float]
) -> dict[str, float]:
    """Return a log line, with what model.py knows of the speed."""
    more = getattr(yours, "speed", None)
    if more is None:
        return line
    return {**line, **more(config, model, line["samples_per_second"], world.world_size)}


@torch.inference_mode()
def show(
    config: Config, model: nn.Module, validation_set: Dataset[Any], tracker: Tracker, step: int
) -> None:
    """Show what model.py wants to be seen, on the rank whose tracker writes. No collective."""
    look = getattr(yours, "show", None)
    if look is None or not tracker.enabled:
        return
    with kept_random_state():  # or the draws of a text would change the dropout of this rank
        for name, shown in look(config, model.eval(), validation_set).items():
            tracker.show(name, shown, step)
