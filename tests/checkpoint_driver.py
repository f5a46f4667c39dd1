"""What test_checkpoint_faults.py runs in processes of its own; prints one line of JSON.

Needs the template's project on PYTHONPATH.
"""

import errno
import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

import checkpoint
from checkpoint import Checkpoints


def state_at(step: int, megabytes: float = 2.0) -> dict[str, Any]:
    """A state that can be told from that of every other step, at each of its numbers."""
    return {"step": step, "weight": torch.full((int(megabytes * 250_000),), float(step))}


def is_whole(state: dict[str, Any]) -> bool:
    return torch.equal(state["weight"], state_at(state["step"])["weight"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def kills(folder: Path, times: int, seed: int) -> dict[str, int]:
    """Kill a saving process `times` times; each one goes on from what the one before left."""
    draw = random.Random(seed)
    counts = dict.fromkeys(
        ["kills", "during a save", "saves", "leftovers", "unloadable", "lost"], 0
    )
    acknowledged = -1
    seconds = time_of_a_save(folder / "trial")
    for _ in range(times):
        begun, ended = kill_one(folder, draw.randrange(3), draw.uniform(0.0, seconds))
        counts["saves"] += max(ended - acknowledged, 0)
        acknowledged = max(acknowledged, ended)
        counts["kills"] += 1
        counts["during a save"] += begun > ended
        counts["leftovers"] += bool(list(folder.glob("*.tmp")))
        damaged: list[str] = []
        found = Checkpoints(folder).load_newest(damaged.append)
        counts["unloadable"] += len(damaged)
        if found is not None:
            named = [p for p in (folder / "last.pt", folder / "best.pt") if p.exists()]
            loaded = [found[1], *(torch.load(p, weights_only=True) for p in named)]
            counts["unloadable"] += sum(not is_whole(state) for state in loaded)
        if acknowledged >= 0 and (found is None or found[1]["step"] < acknowledged):
            counts["lost"] += 1
    return counts


def time_of_a_save(folder: Path) -> float:
    """Seconds; the second save, because the first one also loads code."""
    checkpoints = Checkpoints(folder)
    for step in range(2):
        start = time.monotonic()
        checkpoints.save(state_at(step), step)
        checkpoints.wait()
    return time.monotonic() - start


def kill_one(folder: Path, saves: int, delay: float) -> tuple[int, int]:
    """Fork a saving process, kill it that many saves and seconds later.

    Return the last step that it began to save, and the last that it knew on disk.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(folder, writer)
    os.close(writer)
    with open(reader, encoding="utf-8") as told:
        lines = [told.readline() for _ in range(2 * saves + 1)]  # the next save has begun
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += told.readlines()
    begun = [int(line.split()[1]) for line in lines if line.startswith("begun")]
    ended = [int(line.split()[1]) for line in lines if line.startswith("ended")]
    return begun[-1], (ended or [-1])[-1]


def save_for_ever(folder: Path, told: int) -> NoReturn:
    try:
        checkpoints = Checkpoints(folder, keep=1)
        found = checkpoints.load_newest()
        step = found[1]["step"] if found else 0
        while True:
            step += 1
            os.write(told, f"begun {step}\n".encode())
            checkpoints.save(state_at(step), step, best=step % 3 == 0)
            checkpoints.wait()
            os.write(told, f"ended {step}\n".encode())
    finally:
        os._exit(1)


def full(folder: Path, limit: str) -> dict[str, Any]:
    """Save 2 MB, then 6 MB where they do not fit, then 2 MB again."""
    if limit == "file":
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save(state_at(1), 1)
    checkpoints.wait()
    before = names(folder)
    checkpoints.save(state_at(2, megabytes=6), 2)
    try:
        checkpoints.wait()
        error = "none"
    except OSError as caught:
        error = errno.errorcode[caught.errno or 0]
    found = checkpoints.load_newest()
    unchanged = names(folder) == before and found is not None and is_whole(found[1])
    checkpoints.save(state_at(3), 3)
    checkpoints.wait()
    return {"error": error, "unchanged": unchanged, "after": names(folder)}


def twice(folder: Path) -> dict[str, Any]:
    """Save steps 1 and 2, keep one, step 1 is the best."""
    checkpoints = Checkpoints(folder, keep=1)
    errors = []
    for step in (1, 2):
        checkpoints.save(state_at(step), step, best=step == 1)
        try:
            checkpoints.wait()
        except OSError as caught:
            errors.append(errno.errorcode[caught.errno or 0])
    return {"errors": errors, "names": names(folder)}


def fail(folder: Path, grace: float) -> NoReturn:
    """Raise while a checkpoint is being written."""
    checkpoint.EXIT_GRACE_SECONDS = grace
    checkpoints = Checkpoints(folder)
    checkpoints.save(state_at(1, megabytes=100), 1)
    raise RuntimeError("the loss is on fire")


if __name__ == "__main__":
    torch.set_num_threads(1)  # no thread pool, so that forking is safe
    run = {"kills": kills, "full": full, "twice": twice, "fail": fail}[sys.argv[1]]
    arguments = [json.loads(argument) for argument in sys.argv[3:]]
    print(json.dumps(run(Path(sys.argv[2]), *arguments)))  # type: ignore[operator]
