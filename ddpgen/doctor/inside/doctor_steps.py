"""The steps of the trial training, by the functions that the project's train.py uses.

worker.py imports this file before any of the project; hence a name that no project has.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

STEPS = 20  # of the comparison
VALIDATED = 4  # global batches of the validation set
TIMED = 10  # steps and all-reduces that are timed, after a few that are not
WARM_UP = 3


class Report(Protocol):
    """What this file needs of worker.py's Report."""

    def stage(self, name: str) -> None:
        """Begin a stage."""

    def load(self, name: str) -> Any:
        """Import a module of the project."""


class NoExchange:
    """Stands in for the project's Exchange: nobody asks a trial to stop."""

    stop = False

    def restart(self, step: int) -> None:
        """Take note of nothing."""

    def due(self, step: int) -> bool:
        """Say that the processes have nothing to tell each other."""
        return False


def for_comparison(config: Any, batch_size: int) -> Any:
    """Return the settings of the comparison.

    SGD, because Adam hides a wrong scale of the gradients; clipped, so that no model diverges.
    """
    return replace(
        config,
        batch_size=batch_size,
        accumulate=1,
        global_batch_size=None,
        optimizer="sgd",
        scale_lr="none",
        schedule="constant",
        warmup_steps=0,
        clip_grad_norm=config.clip_grad_norm or 1.0,
        precision="fp32",
        ema_decay=None,
        sync_bn=False,
        bf16_gradients=False,
    )


def take_steps(
    report: Report, config: Any, world: Any, processes: int, steps: int
) -> dict[str, Any]:
    """Take optimizer steps on the same global batches, whatever the number of processes.

    The global batch is no larger than what one process is used to. Dropout is off, since its
    draws differ between ranks on purpose, and so are the statistics of a batch.

    Args:
        report: where the stages are told.
        config: the project's settings.
        world: this process among all that train with it.
        processes: how many train together when it is not one alone.
        steps: how many.
    """
    import torch

    data, model_file = report.load("data"), report.load("model")
    train, loaders, optim = report.load("train"), report.load("loaders"), report.load("optim")
    batches, seeding = import_module("batches"), import_module("seeding")
    progress = import_module("state").Progress()

    seeding.seed_everything(config.seed)
    report.stage("build_datasets in data.py")
    train_set, validation_set = data.build_datasets(config)
    share = min(config.batch_size, len(train_set)) // processes or 1
    config = for_comparison(config, share * processes // world.world_size)
    plan = batches.plan_batches(config, world.world_size)
    sampler, loader = loaders.build_train_loader(config, world, plan, train_set)
    report.stage("build_model in model.py")
    model = model_file.build_model(config).to(world.device)
    start = flat(model.parameters())
    stepper = optim.Stepper(config, plan, model, world.device, batches=len(loader))
    ddp = import_module("distributed").wrap_model(config, world, model).eval()

    run: dict[str, Any] = {"start": start, "losses": [], "train_set": train_set}
    report.stage("validation")
    few = min(len(validation_set), VALIDATED * plan.samples_per_step)
    few_samples = torch.utils.data.Subset(validation_set, range(few))
    shard, shard_loader = loaders.build_validation_loader(config, world, plan, few_samples)
    run["metrics"] = train.evaluate(world, stepper, shard, shard_loader, NoExchange())
    ddp.eval()
    for window in endless(sampler, loader, plan, batches.windows, report):
        if progress.step == 0:
            run["checksum"] = checksum(window)
        loss = train.train_step(ddp, stepper, window, world.device)
        if progress.step == 0:
            run["gradient"] = flat(w.grad for w in stepper.weights if w.grad is not None)
        stepper.step(progress)
        run["losses"].append(loss.item())
        progress.step += 1
        if progress.step == steps:
            break
    run["weights"] = flat(model.parameters())
    # What AdamW would save: the weights and two numbers for each of them.
    run["checkpoint_bytes"] = 3 * sum(p.numel() * p.element_size() for p in model.parameters())
    return run


def endless(
    sampler: Any, loader: Any, plan: Any, windows: Callable[..., Any], report: Report
) -> Iterator[Any]:
    """Yield the batches of each step, epoch after epoch."""
    step = 0
    for epoch in range(sys.maxsize):
        sampler.set_epoch(epoch)
        report.stage(f"step {step + 1}")
        for window in windows(loader, plan):
            yield window
            step += 1
            report.stage(f"step {step + 1}")


def measure(report: Report, config: Any, world: Any, train_set: Any) -> dict[str, float]:
    """Time steps with the project's own settings, with and without exchange, and all-reduces.

    Call on every rank.
    """
    import torch
    from torch import distributed

    batches, optim, train = map(import_module, ("batches", "optim", "train"))
    size = min(config.batch_size, len(train_set) // world.world_size)
    config = replace(config, batch_size=size, accumulate=1, global_batch_size=None)
    plan = batches.plan_batches(config, world.world_size)
    loaders = import_module("loaders")
    sampler, loader = loaders.build_train_loader(config, world, plan, train_set)
    model = import_module("model").build_model(config).to(world.device)
    stepper = optim.Stepper(config, plan, model, world.device, batches=len(loader))
    ddp = import_module("distributed").wrap_model(config, world, model).train()
    progress = import_module("state").Progress()

    stream = endless(sampler, loader, plan, batches.windows, report)

    def step() -> None:
        train.train_step(ddp, stepper, next(stream), world.device)
        stepper.step(progress)

    step_seconds = median_time(step, world)
    size = sum(weight.numel() * weight.element_size() for weight in stepper.weights)
    report.stage("timing of the all-reduce")
    whole = torch.zeros(max(1, size // 4), device=world.device)
    all_reduce_seconds = median_time(lambda: distributed.all_reduce(whole), world)
    latency_seconds = median_time(lambda: distributed.all_reduce(whole[:1]), world)
    with ddp.no_sync():  # the last of all: from here on the ranks' weights differ
        work_seconds = median_time(step, world)
    return {
        "gradient_bytes": size,
        "step_seconds": step_seconds,
        "work_seconds": work_seconds,
        "all_reduce_seconds": all_reduce_seconds,
        "latency_seconds": latency_seconds,
    }


def median_time(do: Callable[[], object], world: Any) -> float:
    """Return the seconds that something takes on this process, the device included."""
    seconds = []
    for _ in range(WARM_UP + TIMED):
        begun = time.perf_counter()
        do()
        wait_for_device(world)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[WARM_UP:])


def wait_for_device(world: Any) -> None:
    """Wait until a GPU has done what it was asked for."""
    import torch

    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def flat(tensors: Any) -> Any:
    """Put tensors in a row, in the memory of the host."""
    import torch

    return torch.cat([tensor.detach().float().flatten().cpu() for tensor in tensors])


def checksum(batch: Any) -> list[float]:
    """Return sums over all tensors of a batch; they add up over the ranks."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (tuple, list)):
        parts = [checksum(part) for part in batch]
        return [math.fsum(part[k] for part in parts) for k in range(2)]
    if not hasattr(batch, "double"):
        return [0.0, 0.0]
    values = batch.detach().double()
    return [values.sum().item(), values.square().sum().item()]


def same_sum(one: list[float], other: list[float]) -> bool:
    """Say whether checksums are equal but for rounding; the second is a sum of squares."""
    scale = math.sqrt(one[1]) + one[1] + 1e-30
    return all(abs(a - b) <= 1e-6 * scale for a, b in zip(one, other))  # noqa: B905  # old Python


def relative(difference: Any, value: Any) -> float:
    """Return how long a vector is beside another one."""
    return float(difference.norm().item() / max(value.norm().item(), 1e-30))
