"""One rank of cases.py: all cases, with the functions that train.py uses."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from batches import plan_batches, windows
from cases import EVALUATED, GLOBAL_BATCH, PASSES, PRECISIONS, Results
from config import Config, load_config
from data import build_datasets
from distributed import World, cleanup_ddp, setup_ddp, state_buffers, wrap_model
from exchange import Exchange
from loaders import build_train_loader, build_validation_loader
from model import build_model
from optim import Stepper
from seeding import seed_everything
from state import Progress
from train import evaluate, train_step

STEPS = 4
SETTINGS = ["--optimizer", "sgd", "--lr", "0.05", "--schedule", "constant", "--warmup-steps", "0"]


def work(file: str) -> None:
    """Compute every case as one rank; rank 0 writes the results."""
    world = setup_ddp("cpu")
    config = load_config([])
    seed_everything(config.seed)
    train_set, validation_set = build_datasets(config)
    cases = product(PASSES, PRECISIONS)
    trained = {case: train_case(world, train_set, *case) for case in cases}
    evaluated = [evaluate_case(world, validation_set, *case) for case in EVALUATED]
    if world.is_main:
        results: Results = {"trained": trained, "evaluated": evaluated}
        torch.save(results, file)
    cleanup_ddp()


def train_case(
    world: World, dataset: Dataset[Any], passes: int, precision: str
) -> dict[str, Tensor]:
    """Take the steps; dropout is off, since its draws differ between ranks on purpose.

    Returns the "gradient" of the first step and the "weights" after the last one, flat.
    """
    config: Config = replace(
        load_config([*SETTINGS, "--precision", precision]),
        batch_size=GLOBAL_BATCH // (passes * world.world_size),
        accumulate=1,
        global_batch_size=GLOBAL_BATCH,  # whole steps only, also where an epoch is short
    )
    plan = plan_batches(config, world.world_size)
    seed_everything(config.seed)
    sampler, loader = build_train_loader(config, world, plan, dataset)
    model = build_model(config)
    stepper = Stepper(config, plan, model, world.device, batches=len(loader))
    # The usual first scale overflows, and then the first steps are skipped.
    stepper.scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=precision == "fp16")
    ddp = wrap_model(config, world, model).eval()  # no dropout, no batch statistics
    progress = Progress()
    gradient = torch.zeros(0)
    while progress.step < STEPS:
        sampler.set_epoch(progress.epoch)
        for window in windows(loader, plan):
            train_step(ddp, stepper, window, world.device)
            if progress.step == 0:
                gradient = gradient_of(stepper) / stepper.scaler.get_scale()
            stepper.step(progress)
            progress.step += 1
            if progress.step == STEPS:
                break
        progress.epoch += 1
    return {"gradient": gradient, "weights": flat(list(model.parameters()))}


def evaluate_case(
    world: World, dataset: Dataset[Any], size: int, batch_size: int
) -> dict[str, float]:
    """Return the metrics of the first samples, so many."""
    config = replace(load_config([]), batch_size=batch_size)
    seed_everything(config.seed)
    model = build_model(config)
    for buffer in state_buffers(model).values():
        if buffer.is_floating_point():  # as training does: BatchNorm differs between ranks
            buffer += world.rank
    plan = plan_batches(config, world.world_size)
    few = Subset(dataset, range(size))
    shard, loader = build_validation_loader(config, world, plan, few)
    stepper = Stepper(config, plan, model, world.device, batches=1)
    return evaluate(world, stepper, shard, loader, Exchange(config, world))


def gradient_of(stepper: Stepper) -> Tensor:
    """Return the gradients that backward() has left, flat."""
    return flat([weight.grad for weight in stepper.weights if weight.grad is not None])


def flat(tensors: list[Tensor]) -> Tensor:
    """Put tensors in a row."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


if __name__ == "__main__":
    work(sys.argv[1])
