"""What each choice in the training loop gives: the loop with it beside the loop without it.

    python benchmarks/choices.py [--seconds 45] [--only linear]

Two gloo processes, one thread each, that take every loop in turn for a short block of steps, again
and again. So the loops share one process and one moment of the machine, and small differences
show. Writes results/choices.json and results/choices.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from paired import Estimate, ratio
from results_folder import earlier_rounds, write

HERE = Path(__file__).resolve().parent
SIZES = {"linear": (32, 40), "cnn": (16, 4), "transformer": (8, 4)}  # batch, steps of a block
LOG_EVERY = 50
LR = 1e-3
ONE = torch.ones(())
Batch = list[Tensor]


@dataclass(frozen=True)
class Choices:
    """A loop; the defaults are what a generated project does."""

    optimizer: str = "fused"  # or "foreach", "for loop"
    fetch: str = "batch"  # or "samples", which are collated; "workers": two load the batches
    loss: str = "sometimes"  # when ranks exchange it: or "each step"; "item": it is read as well
    finite: str = "check"  # are the gradients? or by "foreach" norms, "get_total_norm"; "unasked"
    bucket_view: bool = True
    static_graph: bool = False
    find_unused: bool = False
    sync_buffers: bool = False  # BatchNorm's are broadcast in each forward pass
    forget: str = "by hand"  # the gradients: or by "zero_grad", "zeros" in their place
    accumulate: int = 1
    no_sync: str = "forward and backward"  # or "backward", "no"
    evaluate: str = ""  # no training: sums exchanged "at the end", or a mean at "each batch"


PLAIN = Choices()
# What is compared: its name, the loop with the choice, the loop without it.
COMPARISONS = {
    "fused AdamW, against the default": (PLAIN, replace(PLAIN, optimizer="for loop")),
    "fused AdamW, against foreach": (PLAIN, replace(PLAIN, optimizer="foreach")),
    "a TensorDataset indexed by batches": (PLAIN, replace(PLAIN, fetch="samples")),
    "no loader workers, against two": (PLAIN, replace(PLAIN, fetch="workers")),
    "loss exchanged in log steps only": (PLAIN, replace(PLAIN, loss="each step")),
    "and not read in each step": (PLAIN, replace(PLAIN, loss="item")),
    "check for finite, against foreach norms": (PLAIN, replace(PLAIN, finite="foreach")),
    "check for finite, against get_total_norm": (PLAIN, replace(PLAIN, finite="get_total_norm")),
    "no check for finite": (replace(PLAIN, finite="unasked"), PLAIN),
    "find_unused_parameters off": (PLAIN, replace(PLAIN, find_unused=True)),
    "buffers not broadcast in each pass": (PLAIN, replace(PLAIN, sync_buffers=True)),
    "gradient_as_bucket_view": (PLAIN, replace(PLAIN, bucket_view=False)),
    "static_graph": (replace(PLAIN, static_graph=True), PLAIN),
    "gradients forgotten, against zero_grad": (PLAIN, replace(PLAIN, forget="zero_grad")),
    "gradients forgotten, against zeros": (PLAIN, replace(PLAIN, forget="zeros")),
    "no_sync around both, 4 passes": (
        replace(PLAIN, accumulate=4),
        replace(PLAIN, accumulate=4, no_sync="no"),
    ),
    "no_sync around both, against backward only": (
        replace(PLAIN, accumulate=4),
        replace(PLAIN, accumulate=4, no_sync="backward"),
    ),
    "evaluation: one collective at its end": (
        replace(PLAIN, evaluate="at the end"),
        replace(PLAIN, evaluate="each batch"),
    ),
}
EVALUATED = 40  # batches of an evaluation


class Whole(Dataset[Any]):
    """A dataset that is asked for the samples of a batch at once."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        """Take the tensors, whose first dimension is the sample."""
        self.tensors = tensors

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return the batch."""
        return [tensor[indices] for tensor in self.tensors]


def batches(choices: Choices, dataset: Any, size: int) -> Iterator[Batch]:
    """Yield batches without end."""
    whole = choices.fetch == "batch"
    loader: DataLoader[Any] = DataLoader(
        Whole(dataset.tensors) if whole else dataset,
        size,
        sampler=DistributedSampler(dataset),
        num_workers=2 if choices.fetch == "workers" else 0,
        persistent_workers=choices.fetch == "workers",
        collate_fn=list if whole else default_collate,
    )
    while True:
        yield from loader


def loop(choices: Choices, workload: Any, size: int) -> Iterator[None]:
    """Train for ever; each `next` is one optimizer step."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        workload.build_model(),
        gradient_as_bucket_view=choices.bucket_view,
        static_graph=choices.static_graph,
        find_unused_parameters=choices.find_unused,
        forward_sync_buffers=choices.sync_buffers,
    )
    weights = list(model.parameters())
    kernel = {choices.optimizer: True} if choices.optimizer != "for loop" else {}
    optimizer = AdamW(weights, LR, **kernel)  # type: ignore[arg-type]
    source = batches(choices, workload.build_datasets()[0], size)
    total = torch.zeros(())
    for step in range(1, sys.maxsize):
        for number in range(1, choices.accumulate + 1):
            batch = next(source)
            local = choices.no_sync != "no" and number < choices.accumulate
            both = local and choices.no_sync != "backward"
            with model.no_sync() if both else nullcontext():
                loss = workload.loss_fn(model(batch[0]), batch) / choices.accumulate
                with model.no_sync() if local and not both else nullcontext():
                    loss.backward()
            total = total + loss.detach()
        look_for_infinity(choices.finite, model)
        optimizer.step()
        if choices.forget == "by hand":
            for weight in weights:
                weight.grad = None
        else:
            optimizer.zero_grad(set_to_none=choices.forget == "zero_grad")
        if choices.loss != "sometimes" or step % LOG_EVERY == 0:
            mean = total.clone()
            distributed.all_reduce(mean)
            if choices.loss != "each step" or step % LOG_EVERY == 0:
                mean.item()
            total = torch.zeros(())
        yield


@torch.inference_mode()
def evaluation(choices: Choices, workload: Any, size: int) -> Iterator[None]:
    """Evaluate for ever; each `next` is one batch."""
    model = workload.build_model().eval()
    source = batches(choices, workload.build_datasets()[0], size)
    total = torch.zeros(())
    for number in range(1, sys.maxsize):
        batch = next(source)
        loss = workload.loss_fn(model(batch[0]), batch)
        if choices.evaluate == "each batch":
            distributed.all_reduce(loss)
        total = total + loss
        if number % EVALUATED == 0:
            distributed.all_reduce(total)
            total.item()
            total = torch.zeros(())
        yield


def look_for_infinity(how: str, model: nn.Module) -> None:
    """Compute a number that says whether every gradient is finite."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    if how == "check":
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, torch.zeros(()), ONE)
    elif how == "foreach":
        torch.stack(torch._foreach_norm(gradients)).sum()
    elif how == "get_total_norm":
        nn.utils.get_total_norm(gradients)


def worker(seconds: float, file: Path) -> None:
    """One of the two processes: take all loops in turn until the time is over."""
    distributed.init_process_group("gloo")
    name, found = os.environ["BENCH_WORKLOAD"], []
    size, block = SIZES[name]
    workload = import_module(name)
    every = {each for pair in COMPARISONS.values() for each in pair}
    loops = {
        each: (evaluation if each.evaluate else loop)(each, workload, size)
        for each in sorted(every, key=repr)
    }
    order = random.Random(0)  # the same on both
    end = time.monotonic() + seconds
    while agree(time.monotonic() < end):
        times: dict[str, float] = {}
        for each in order.sample(list(loops), len(loops)):
            next(loops[each])
            distributed.barrier()
            begun = time.perf_counter()
            for _ in islice(loops[each], block):
                pass
            times[repr(each)] = (time.perf_counter() - begun) / block
        found.append(times)
    if distributed.get_rank() == 0:
        file.write_text(json.dumps(found[1:]))
    distributed.barrier()
    os._exit(0)  # loader workers and gloo need not be waited for


def agree(wish: bool) -> bool:
    """Return what rank 0 wishes, on both."""
    said = torch.tensor(int(wish))
    distributed.broadcast(said, 0)
    return bool(said.item())


def measure(name: str, seconds: float) -> list[dict[str, float]]:
    """Return the time of a step of each loop in each round."""
    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as scratch:
        file = Path(scratch) / "found.json"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        variables = {
            "PYTHONPATH": str(HERE / "workloads"),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "BENCH_WORKLOAD": name,
            "BENCH_BATCH_SIZE": str(SIZES[name][0]),
            "BENCH_STEPS": "100",
            "BENCH_FOLDER": scratch,
        }
        subprocess.run(
            [*torchrun, "--nproc-per-node=2", __file__, f"--seconds={seconds}", f"--worker={file}"],
            env={**os.environ, **variables},
            check=True,
        )
        rounds: list[dict[str, float]] = json.loads(file.read_text())
    return rounds


def table(report: dict[str, Any]) -> str:
    """Write the results as Markdown."""
    rounds = report["rounds"]
    counts = ", ".join(f"{len(rounds[name])} of {name}" for name in rounds)
    lines = [
        f"Written by `benchmarks/choices.py`: torch {report['torch']}, Python {report['python']}, "
        f"{report['cpus']} cores, 2 gloo processes, one thread each; rounds: {counts}.",
        "",
        "Time of a step with the choice beside that without it: the median of the rounds, and the "
        "interval that has the true median with 95 %. An interval with 1 in it shows no effect.",
        "",
        "| choice | " + " | ".join(rounds) + " |",
        "|---|" + "---:|" * len(rounds),
    ]
    for choice, (ours, other) in COMPARISONS.items():
        cells = [str(compare(rounds[name], ours, other)) for name in rounds]
        lines.append(f"| {choice} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def compare(rounds: list[dict[str, float]], ours: Choices, other: Choices) -> Estimate:
    """Compare two loops."""
    times = [[each[repr(one)] for each in rounds] for one in (ours, other)]
    return ratio(*times)


def main() -> None:
    """Measure, write the results and print the table; torchrun starts this again as a worker."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=45, help="for each workload")
    parser.add_argument("--only", choices=SIZES, help="one workload; the others stay as they are")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.seconds, options.worker)
    rounds = earlier_rounds("choices")
    for name in [options.only] if options.only else SIZES:
        rounds[name] = measure(name, options.seconds)
    where = {"torch": torch.__version__, "python": platform.python_version()}
    report = {**where, "cpus": os.cpu_count(), "rounds": rounds}
    write("choices", report, table(report))
    print(table(report), end="")


if __name__ == "__main__":
    main()
