"""Compare the generated project's sampler with torch's DistributedSampler, side by side.

    PYTHONPATH=template/project python benchmarks/samplers.py

For one rank of two and batches of 32. Each measurement is a process of its own, so that no memory
is left from another one. Times are CPU time: both samplers compute in one thread and wait for
nothing, so on an idle machine that is the time on the clock, and on a busy one it still holds.
Needs Linux (memory is read from /proc) and 6 GB for torch at 1e8.
Writes results/sampler.json and results/sampler.md beside this file.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, DistributedSampler

from sampler import ShuffledBatchSampler

HERE = Path(__file__).resolve().parent
BATCH_SIZE, WORLD_SIZE = 32, 2
TIMED_BATCHES = 10_000
OURS, TORCH = "ShuffledBatchSampler", "DistributedSampler"
SIZES = {TORCH: [10**6, 10**7, 10**8], OURS: [10**6, 10**7, 10**8, 10**9, 10**12]}


def batches_of_epoch(name: str, size: int, start: int) -> Iterator[Any]:
    """Return the batches of epoch 1 on rank 0, when all ranks have used `start` samples of it."""
    if name == OURS:
        ours = ShuffledBatchSampler(size, BATCH_SIZE, rank=0, world_size=WORLD_SIZE, seed=0)
        ours.set_epoch(1, start)
        return iter(ours)
    dataset = cast("Dataset[int]", range(size))  # the sampler asks it for its length only
    theirs: DistributedSampler[int] = DistributedSampler(
        dataset, num_replicas=WORLD_SIZE, rank=0, seed=0, drop_last=True
    )
    theirs.set_epoch(1)
    replayed = start // (BATCH_SIZE * WORLD_SIZE)  # there is no other way to resume it
    return itertools.islice(BatchSampler(theirs, BATCH_SIZE, drop_last=True), replayed, None)


def memory(field: str) -> int:
    """Return VmRSS (memory in use) or VmHWM (its peak) of this process, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def measure(name: str, size: int, start: int) -> dict[str, float]:
    """Measure, in this process: CPU seconds to the first batch and per batch, bytes added."""
    Path("/proc/self/clear_refs").write_text("5")  # lets the peak begin at what is used now
    before = memory("VmRSS")
    began = time.process_time()
    batches = batches_of_epoch(name, size, start)
    next(batches)
    first = time.process_time() - began
    added = memory("VmHWM") - before

    began = time.process_time()
    count = sum(1 for _ in itertools.islice(batches, TIMED_BATCHES))
    each = (time.process_time() - began) / count
    return {"first_batch_s": first, "memory_added_bytes": added, "batch_s": each}


def least_disturbed(name: str, size: int, start: int) -> dict[str, float]:
    """Return the least of each measurement over five processes; one where a run takes long.

    The least, as timeit's documentation advises: what else the machine does only adds to it.
    """
    processes = 1 if name == TORCH and size >= 10**8 else 5
    command = [sys.executable, __file__, "--measure", name, str(size), str(start)]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(processes)
    ]
    return {key: min(run[key] for run in runs) for key in runs[0]} | {"processes": processes}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| samples | sampler | first batch | memory added | a batch of 32 | resume at 90 % |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["size"], row["sampler"])):
        epoch, resume = row["epoch"], row["resume"]
        lines.append(
            f"| 1e{len(str(row['size'])) - 1} | {row['sampler']} "
            f"| {epoch['first_batch_s'] * 1e3:,.1f} ms "
            f"| {epoch['memory_added_bytes'] / 1e6:,.1f} MB "
            f"| {epoch['batch_s'] * 1e6:.1f} us "
            f"| {resume['first_batch_s'] * 1e3:,.1f} ms |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything and write the two result files."""
    rows = []
    for name, sizes in SIZES.items():
        for size in sizes:
            resumed_at = size * 9 // 10
            row = {
                "sampler": name,
                "size": size,
                "epoch": least_disturbed(name, size, 0),
                "resume": least_disturbed(name, size, resumed_at),
            }
            print(json.dumps(row), flush=True)
            rows.append(row)
    setting = {
        "batch_size": BATCH_SIZE,
        "world_size": WORLD_SIZE,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "machine": platform.machine(),
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    text = json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n"
    (results / "sampler.json").write_text(text)
    (results / "sampler.md").write_text(table(rows))
    print(table(rows), end="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", nargs=3, metavar=("SAMPLER", "SIZE", "START"))
    measured = parser.parse_args().measure
    if measured:
        print(json.dumps(measure(measured[0], int(measured[1]), int(measured[2]))))
    else:
        main()
