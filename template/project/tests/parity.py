"""Compare N processes with one process on the full batch: `python tests/parity.py`.

Every case takes the same optimizer steps with SGD on the same global batches: Adam would hide a
wrong scale of the gradients. Dropout is off, since its draws differ between ranks on purpose.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from batches import plan_batches, windows
from config import Config, load_config
from data import build_datasets
from distributed import World, cleanup_ddp, setup_ddp, wrap_model
from helpers import torchrun
from loaders import build_train_loader
from model import build_model
from optim import Stepper
from seeding import seed_everything
from state import Progress
from train import train_step

WORLDS = (1, 2, 3)
PASSES = (1, 4)
PRECISIONS = ("fp32", "bf16", "fp16")
GLOBAL_BATCH = 24  # divisible by every world and number of passes
STEPS = 6

Case = tuple[int, str]  # passes, precision
Result = dict[str, Tensor]  # "gradient" of the first step and "weights" after the last, flat


def main() -> None:
    """Measure every case and print the table; exit 1 if fp32 is further off than 1e-6."""
    table = {(world, *case): off for world in WORLDS for case, off in measure(world).items()}
    print(f"largest difference from one process on the full batch of {GLOBAL_BATCH}, SGD:")
    print(f"{'processes':>9} {'passes':>6} {'precision':>9} {'gradients':>10} {'weights':>10}")
    for (world, passes, precision), (gradient, weights) in table.items():
        print(f"{world:>9} {passes:>6} {precision:>9} {gradient:>10.1e} {weights:>10.1e}")
    worst = max(max(value) for key, value in table.items() if key[2] == "fp32")
    sys.exit(0 if worst <= 1e-6 else 1)


def measure(world: int) -> dict[Case, tuple[float, float]]:
    """Return how far so many processes are off, at most: (gradients, weights) of each case."""
    table = {}
    for passes, precision in product(PASSES, PRECISIONS):
        one, this = run(1)[1, precision], run(world)[passes, precision]
        table[passes, precision] = (
            (this["gradient"] - one["gradient"]).abs().max().item(),
            (this["weights"] - one["weights"]).abs().max().item(),
        )
    return table


@cache
def run(world: int) -> dict[Case, Result]:
    """Run all cases on so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.pt")
        done = torchrun(__file__, str(file), processes=world)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        results: dict[Case, Result] = torch.load(file, weights_only=True)
        return results


def worker(file: str) -> None:
    """Run all cases as one rank of torchrun."""
    world = setup_ddp("cpu")
    results = {case: one_case(world, *case) for case in product(PASSES, PRECISIONS)}
    if world.is_main:
        torch.save(results, file)
    cleanup_ddp()


def one_case(world: World, passes: int, precision: str) -> Result:
    """Take the steps with the functions that train.py uses."""
    config: Config = replace(
        load_config(["--optimizer", "sgd", "--lr", "0.05", "--precision", precision]),
        batch_size=GLOBAL_BATCH // (passes * world.world_size),
        accumulate=passes,
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
    worker(sys.argv[1]) if len(sys.argv) > 1 else main()
