"""One rank of parity.py: all cases, with the functions that train.py uses."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from batches import plan_batches, windows
from config import Config, load_config
from data import build_datasets
from distributed import World, cleanup_ddp, setup_ddp, wrap_model
from loaders import build_train_loader
from model import build_model
from optim import Stepper
from parity import GLOBAL_BATCH, PASSES, PRECISIONS, Result
from seeding import seed_everything
from state import Progress
from train import train_step

STEPS = 6
SETTINGS = ["--optimizer", "sgd", "--lr", "0.05", "--schedule", "constant", "--warmup-steps", "0"]


def worker(file: str) -> None:
    """Run all cases as one rank of torchrun."""
    world = setup_ddp("cpu")
    results = {case: one_case(world, *case) for case in product(PASSES, PRECISIONS)}
    if world.is_main:
        torch.save(results, file)
    cleanup_ddp()


def one_case(world: World, passes: int, precision: str) -> Result:
    """Take the steps; dropout is off, since its draws differ between ranks on purpose."""
    config: Config = replace(
        load_config([*SETTINGS, "--precision", precision]),
        batch_size=GLOBAL_BATCH // (passes * world.world_size),
        accumulate=1,
        global_batch_size=GLOBAL_BATCH,  # whole steps only, also where an epoch is short
    )
    plan = plan_batches(config, world.world_size)
    seed_everything(config.seed)
    sampler, loader = build_train_loader(config, world, plan, build_datasets(config)[0])
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


def gradient_of(stepper: Stepper) -> Tensor:
    """Return the gradients that backward() has left, flat."""
    return flat([weight.grad for weight in stepper.weights if weight.grad is not None])


def flat(tensors: list[Tensor]) -> Tensor:
    """Put tensors in a row."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


if __name__ == "__main__":
    worker(sys.argv[1])
