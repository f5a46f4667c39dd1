"""One process of the trial training, with the project's own model, data and functions.

The doctor starts this file with the project's Python. It adds lines of JSON to a file: each stage
when it begins, then the result or the error. Nothing is written into the project.

Where torchrun would have set RANK, the process trains with the others and compares with what
the process without it has left in `alone.pt`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import math
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

STEPS = 20  # of the comparison
VALIDATED = 4  # global batches of the validation set
TIMED = 10  # steps and all-reduces that are timed, after a few that are not
WARM_UP = 3
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True)
class Order:
    """What the doctor asks for.

    Attributes:
        project: its folder.
        scratch: a folder for what the two trials leave each other.
        file: where the answers go.
        processes: how many train together, in the other trial or in this one.
        device: "auto", "cpu" or "cuda".
        patience: seconds without a new stage after which the process ends itself.
        doctor: the id of the process that started this one.
    """

    project: str
    scratch: str
    file: str
    processes: int
    device: str
    patience: float
    doctor: int


class Report:
    """Tells the doctor how far this process is, and ends it when it gets no further."""

    def __init__(self, order: Order) -> None:
        """Take the order; nothing is written yet."""
        self.order = order
        self.now = "start"
        self.stack = open(f"{order.file}.stack", "w", encoding="utf-8")  # noqa: SIM115  # until exit

    def stage(self, name: str) -> None:
        """Begin a stage; whoever is longer in it than the patience prints its stack and ends."""
        self.now = name
        self.tell(stage=name)
        faulthandler.dump_traceback_later(self.order.patience, exit=True, file=self.stack)

    def load(self, name: str) -> Any:
        """Import a module of the project."""
        self.stage(f"import of {name}.py")
        return import_module(name)

    def tell(self, **facts: Any) -> None:
        """Add a line to the answers."""
        with open(self.order.file, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **facts}) + "\n")

    def fail(self, problem: BaseException) -> None:
        """Tell what was raised, and where in the project."""
        where = [
            f"{Path(frame.filename).name}:{frame.lineno}"
            for frame in traceback.extract_tb(problem.__traceback__)
            if Path(frame.filename).parent == Path(self.order.project)
        ]
        if isinstance(problem, SyntaxError) and problem.filename:
            where.append(f"{Path(problem.filename).name}:{problem.lineno}")
        lines = str(problem).strip().splitlines() or [""]
        error = {"type": type(problem).__name__, "message": lines[0], "text": str(problem)[:4000]}
        self.tell(error={**error, "where": where[-1] if where else "", "stage": self.now})


class NoExchange:
    """Stands in for the project's Exchange: nobody asks a trial to stop."""

    stop = False

    def restart(self, step: int) -> None:
        """Take note of nothing."""

    def due(self, step: int) -> bool:
        """Say that the processes have nothing to tell each other."""
        return False


def main(order: Order) -> None:
    """Run one trial and end, without the interpreter's own shutdown: it can hang under gloo."""
    die_with(order.doctor)
    sys.path[0] = order.project  # not the folder of this file: a module of the project comes first
    os.chdir(order.project)
    report = Report(order)
    try:
        report.tell(result=together(report) if "RANK" in os.environ else alone(report))
    except BaseException as problem:
        traceback.print_exception(type(problem), problem, problem.__traceback__)
        report.fail(problem)
        os._exit(1)
    os._exit(0)


def die_with(doctor: int) -> None:
    """Let Linux kill this process when the doctor is killed and cannot do it any more."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.kill(doctor, 0)
    except ProcessLookupError:  # it has died already
        os._exit(1)


def alone(report: Report) -> dict[str, Any]:
    """Train as one process, and begin once more: does the same come out?"""
    import torch

    config = load_settings(report)
    batches = report.load("batches")
    batches.plan_batches(config, report.order.processes)  # raises what launch.sh would refuse
    world = report.load("distributed").setup_ddp(report.order.device)
    run = take_steps(report, config, world, STEPS)
    again = take_steps(report, config, world, 1)
    values = list(run["metrics"].values())
    torch.save(
        {"gradient": run["gradient"], "weights": run["weights"], "checksum": run["checksum"]},
        Path(report.order.scratch, "alone.pt"),
    )
    return {
        "device": world.device.type,
        "losses": run["losses"],
        "finite": bool(run["gradient"].isfinite().all()) and all(map(math.isfinite, values)),
        "metrics": run["metrics"],
        "data_differ": not same_sum(run["checksum"], again["checksum"]),
        "weights_differ": not torch.equal(run["start"], again["start"]),
        "gradient_differs": relative(again["gradient"] - run["gradient"], run["gradient"]),
        "checkpoint_bytes": run["checkpoint_bytes"],
    }


def together(report: Report) -> dict[str, Any]:
    """Train as one of several processes, compare with one process, and measure the exchange."""
    import torch
    from torch import distributed

    config = load_settings(report)
    report.stage("setup_ddp: the processes meet")
    world = import_module("distributed").setup_ddp(report.order.device, 10 * report.order.patience)
    report.stage("all-reduce")
    total = torch.tensor([world.rank + 1.0], device=world.device)
    distributed.all_reduce(total)
    report.tell(met={"backend": distributed.get_backend(), "sum": total.item()})
    run = take_steps(report, config, world, STEPS)
    report.stage("comparison with one process")
    checksum = torch.tensor(run["checksum"], dtype=torch.float64, device=world.device)
    distributed.all_reduce(checksum)
    reference = torch.load(Path(report.order.scratch, "alone.pt"), weights_only=True)
    moved = (reference["weights"] - run["start"]).norm().item()
    off = run["weights"] - reference["weights"]
    wrong = run["gradient"] - reference["gradient"]
    figures = measure(report, config, world, run["train_set"])
    return {
        "same_data": same_sum(reference["checksum"], checksum.tolist()),
        "gradient": relative(wrong, reference["gradient"]),
        "length": relative(run["gradient"], reference["gradient"]),
        "weights": off.norm().item() / max(moved, 1e-30),
        "rounding": relative(off, reference["weights"]),
        "metrics": run["metrics"],
        **figures,
    }


def load_settings(report: Report) -> Any:
    """Return the project's settings."""
    config = report.load("config").load_config([])
    return replace(config, device=report.order.device, compile=False)


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


def take_steps(report: Report, config: Any, world: Any, steps: int) -> dict[str, Any]:
    """Take optimizer steps on the same global batches, whatever the number of processes.

    The global batch is no larger than what one process is used to. Dropout is off, since its
    draws differ between ranks on purpose, and so are the statistics of a batch.
    """
    import torch

    data, model_file = report.load("data"), report.load("model")
    train, loaders, optim = report.load("train"), report.load("loaders"), report.load("optim")
    batches, seeding = import_module("batches"), import_module("seeding")
    progress = import_module("state").Progress()

    seeding.seed_everything(config.seed)
    report.stage("build_datasets in data.py")
    train_set, validation_set = data.build_datasets(config)
    share = min(config.batch_size, len(train_set)) // report.order.processes or 1
    config = for_comparison(config, share * report.order.processes // world.world_size)
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
    """Time steps with the project's own settings, and the all-reduce of as many bytes.

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

    seconds = []
    window_stream = endless(sampler, loader, plan, batches.windows, report)
    for _ in range(WARM_UP + TIMED):
        begun = time.perf_counter()
        train.train_step(ddp, stepper, next(window_stream), world.device)
        gradients = [w.grad for w in stepper.weights if w.grad is not None]
        stepper.step(progress)
        wait_for_device(world)
        seconds.append(time.perf_counter() - begun)
    report.stage("timing of the all-reduce")
    size = sum(gradient.numel() * gradient.element_size() for gradient in gradients)
    buffer = torch.zeros(max(1, size // 4), device=world.device)
    exchange = []
    for _ in range(WARM_UP + TIMED):
        begun = time.perf_counter()
        distributed.all_reduce(buffer)
        wait_for_device(world)
        exchange.append(time.perf_counter() - begun)
    return {
        "gradient_bytes": size,
        "step_seconds": statistics.median(seconds[WARM_UP:]),
        "all_reduce_seconds": statistics.median(exchange[WARM_UP:]),
    }


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


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
