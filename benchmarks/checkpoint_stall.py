"""How long does a checkpoint of 400 MB hold up training? Ours beside torch's own ways.

    PYTHONPATH=template/project python benchmarks/checkpoint_stall.py [--rounds 9]

Two gloo processes, one thread each. All ways take turns in each round; figures are medians over the
rounds. The first round, in which memory is allocated and code is loaded, is told by itself.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver as dcp

from checkpoint import Checkpoints
from paired import ratio

RESULTS = Path(__file__).parent / "results"
TENSORS, FLOATS = 100, 1_000_000  # 400 MB
STEPS = 500  # longer than a save
State = dict[str, Any]
Finish = Callable[[], object]  # returns when the checkpoint is complete
Save = Callable[[State, Path], Finish]
COLUMNS = {
    "stalled": "time inside the call, of the slowest rank",
    "complete": "time until the checkpoint is complete, when nothing else runs",
    "loop": f"time of {STEPS} small training steps with a save at their beginning: what the call "
    "costs and what goes on behind it, on a machine whose cores are all busy",
}
BY_HAND = "buffers, and a thread"  # as a careful user would write it
OURS = "Checkpoints.save"
HAS = {
    "no save": "",
    OURS: "fsync, atomic, SHA-256",
    "Checkpoints.save, wait": "fsync, atomic, SHA-256",
    BY_HAND: "",
    "torch.save": "",
    "dcp.save": "fsync",
    "dcp.async_save": "fsync",
}


def ways(folder: Path, shapes: State) -> dict[str, Save]:
    """By name, what every rank calls; all states are of the same shapes."""
    own_group = dist.new_group(backend="gloo")  # on the default group async_save can hang
    checkpoints = Checkpoints(folder, keep=1)
    steps = itertools.count()
    buffers = {name: torch.empty_like(tensor) for name, tensor in shapes["model"].items()}

    def nothing(state: State, folder: Path) -> Finish:
        return lambda: None

    def save(state: State, folder: Path) -> Finish:
        if dist.get_rank() != 0:
            return lambda: None
        checkpoints.save(state, next(steps))
        return checkpoints.wait

    def save_and_wait(state: State, folder: Path) -> Finish:
        save(state, folder)()
        return lambda: None

    def save_by_hand(state: State, folder: Path) -> Finish:
        if dist.get_rank() != 0:
            return lambda: None
        for name, tensor in state["model"].items():
            buffers[name].copy_(tensor)
        thread = Thread(target=torch.save, args=({"model": buffers}, folder / "last.pt"))
        thread.start()
        return thread.join

    def torch_save(state: State, folder: Path) -> Finish:
        if dist.get_rank() == 0:
            torch.save(state, folder / "last.pt")
        return lambda: None

    def dcp_save(state: State, folder: Path) -> Finish:
        dcp.save(state, checkpoint_id=folder, process_group=own_group)
        return lambda: None

    def dcp_async_save(state: State, folder: Path) -> Finish:
        future: Any = dcp.async_save(state, checkpoint_id=folder, process_group=own_group)
        finish: Finish = future.result
        return finish

    every = [nothing, save, save_and_wait, save_by_hand, torch_save, dcp_save, dcp_async_save]
    return dict(zip(HAS, every, strict=True))


def measure(save: Save, state: State, folder: Path, steps: int) -> tuple[float, float]:
    """Save, train `steps` steps, finish: milliseconds of the call, and up to the end."""
    weight = torch.randn(400, 400)
    if dist.get_rank() == 0:
        folder.mkdir()
        os.sync()  # what the way before left in memory
    dist.barrier()
    start = time.perf_counter()
    finish = save(state, folder)
    stalled = time.perf_counter() - start
    for _ in range(steps):
        dist.all_reduce(weight @ weight)
    if steps == 0:
        finish()
    end = time.perf_counter() - start
    finish()
    times = torch.tensor([stalled, end], dtype=torch.float64) * 1e3
    dist.all_reduce(times, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    return times[0].item(), times[1].item()


def worker(rank: int, scratch: Path, rounds: int) -> None:
    """One of the two processes; rank 0 leaves what was measured in `scratch`."""
    warnings.filterwarnings("ignore", module="torch")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=rank, world_size=2)
    state = {"model": {f"layer{i}": torch.randn(FLOATS) for i in range(TENSORS)}}
    saves = ways(scratch / "ours", state)
    found: list[dict[str, dict[str, float]]] = []
    for _ in range(rounds + 1):
        found.append({})
        for name, save in saves.items():
            folder = scratch / "other"
            stalled, loop = measure(save, state, folder, STEPS)
            _, complete = measure(save, state, folder, 0)
            found[-1][name] = {"stalled": stalled, "complete": complete, "loop": loop}
    if rank == 0:
        (scratch / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def table(found: list[dict[str, dict[str, float]]]) -> str:
    """Markdown: what was measured, and how."""
    lines = [
        f"# A checkpoint of {TENSORS * FLOATS * 4 // 10**6} MB",
        "",
        f"Written by `benchmarks/checkpoint_stall.py`: torch {torch.__version__}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores, 2 gloo processes, medians of "
        f"{len(found) - 1} interleaved rounds, milliseconds.",
        "",
        "| | stalled | first time | complete | loop | has |",
        "|---|---|---|---|---|---|",
    ]
    for name, has in HAS.items():
        median = {
            column: statistics.median(round_[name][column] for round_ in found[1:])
            for column in COLUMNS
        }
        lines.append(
            f"| {name} | {median['stalled']:.0f} | {found[0][name]['stalled']:.0f} | "
            f"{median['complete']:.0f} | {median['loop']:.0f} | {has} |"
        )
    times = [[round_[name]["stalled"] for round_ in found[1:]] for name in (OURS, BY_HAND)]
    compared = ratio(*times)
    lines += [
        "",
        f"Stalled by {OURS} beside {BY_HAND}: {compared}; at most 1: {compared.verdict(1.0)}.",
    ]
    lines += ["", *(f"- {column}: {meaning}." for column, meaning in COLUMNS.items())]
    lines.append("- first time: stalled, at the first save of a run.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the results beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        spawn = multiprocessing.get_context("spawn")
        arguments = [(rank, Path(scratch), rounds) for rank in range(2)]
        ranks = [spawn.Process(target=worker, args=each) for each in arguments]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        found = json.loads((Path(scratch) / "found.json").read_text())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "checkpoint.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "checkpoint.md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
