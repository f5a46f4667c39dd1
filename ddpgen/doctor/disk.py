"""Whether checkpoints fit on the disk of the run folder, and how fast it is."""

import errno
import os
import shutil
import tempfile
import time
from pathlib import Path

from ddpgen.doctor.finding import Finding, error, ok, warning
from ddpgen.doctor.machine import in_bytes

TRIED = 32 << 20  # bytes that are written
SLOW = 20e6  # bytes in a second
# Of a run without its checkpoints: logs, curves, a trace.
BESIDES = 64 << 20


def check_disk(run_folder: Path, checkpoint: int | None, kept: int) -> Finding:
    """Write to the disk of the run folder, and count how many checkpoints it takes.

    The file that is written has no name, so nothing is left even when the doctor is killed.

    Args:
        run_folder: where a run writes; it need not exist.
        checkpoint: bytes of one checkpoint, if known.
        kept: checkpoints that are kept, besides the best and the one that is being written.
    """
    place = existing(run_folder)
    try:
        speed = write_speed(place)
    except OSError as problem:
        full = problem.errno in {errno.ENOSPC, errno.EDQUOT}
        return error(
            "disk",
            f"cannot write to {place}: {problem.strerror}",
            f"make room on that disk, or make {run_folder.parent} a link to another one"
            if full
            else f"make {place} writable, or make {run_folder.parent} a link to another disk",
        )
    free = shutil.disk_usage(place).free
    needed = BESIDES + (checkpoint or 0) * (kept + 2)
    found = f"{in_bytes(free)} free, written at {in_bytes(speed)}/s"
    if free < needed:
        return error(
            "disk",
            f"{found}; {kept + 2} checkpoints and the logs need {in_bytes(needed)}",
            f"make room, lower keep_checkpoints, or link {run_folder.parent} to another disk",
        )
    if speed < SLOW:
        return warning(
            "disk",
            f"{found}: each checkpoint holds the training up",
            f"make {run_folder.parent} a link to a faster disk, or save less often",
        )
    size = f"; a checkpoint has about {in_bytes(checkpoint)}" if checkpoint else ""
    return ok("disk", found + size)


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def write_speed(folder: Path) -> float:
    """Write a file without a name and return the bytes in a second.

    Raises:
        OSError: it cannot be written.
    """
    block = os.urandom(1 << 20)  # a disk that compresses would look too fast
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        begun = time.perf_counter()
        for _ in range(TRIED // len(block)):
            file.write(block)
        os.fsync(file.fileno())
        return TRIED / (time.perf_counter() - begun)
