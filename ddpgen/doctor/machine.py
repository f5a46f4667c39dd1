"""What the machine gives to the processes: memory, shared memory, files, cores."""

import math
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from ddpgen.doctor.finding import Finding, error, ok, warning

MIB = 1 << 20
# Resident memory of a process that has imported torch and joined a group, before any model.
MEMORY_OF_A_PROCESS = 400 * MIB
SHARED_MEMORY = 256 * MIB  # for each process; a container of Docker has 64 MiB in all by default
FEWEST_FILES, USUAL_FILES = 256, 1024
CGROUP = Path("/sys/fs/cgroup")


def check_memory(processes: int) -> Finding:
    """Is there memory for so many processes, the model not counted?"""
    free, needed = available_memory(), processes * MEMORY_OF_A_PROCESS
    found = f"{in_bytes(free)} available"
    if free < needed:
        return error(
            "memory",
            f"{found}; {processes} processes need {in_bytes(needed)} before any model",
            "start fewer (NPROC=1 ./launch.sh), or give the machine or container more memory",
        )
    return ok("memory", f"{found}, {in_bytes(needed)} needed before any model")


def available_memory() -> int:
    """Return the bytes that new processes can have, within the limit of the container."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        table = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        free = 1024 * table["MemAvailable"]
    except (OSError, KeyError, IndexError, ValueError):  # no Linux
        pass
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    return free if limit is None or used is None else max(0, min(free, limit - used))


def check_shared_memory(processes: int, workers: int, gpus: int) -> Finding:
    """Is /dev/shm large enough for the loader workers and for NCCL, where there are any?"""
    place = Path("/dev/shm")
    needed = processes * SHARED_MEMORY
    remedy = "docker run --shm-size=8g, or mount -o remount,size=8G /dev/shm"
    if not place.is_dir():
        free = 0
    else:
        free = shutil.disk_usage(place).free if os.access(place, os.W_OK) else 0
    found = f"{in_bytes(free)} free in /dev/shm"
    if free >= needed:
        return ok("shared memory", found)
    if workers or gpus > 1:
        users = f"{workers} loader workers each" if workers else "NCCL"
        return error(
            "shared memory",
            f"{found}, too little for {processes} processes with {users}",
            f"{remedy}; or --num-workers 0" if workers else remedy,
        )
    return warning("shared memory", f"{found}; enough as long as num_workers is 0", remedy)


def check_open_files() -> Finding:
    """How many files may a process have open?"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= USUAL_FILES:
        shown = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
        return ok("open files", f"{shown} for each process")
    found = f"{soft} for each process; sockets and loader workers need more"
    remedy = "ulimit -n 4096 in the shell that starts the training"
    if hard != resource.RLIM_INFINITY and hard < USUAL_FILES:
        remedy = "raise nofile in /etc/security/limits.conf, or docker run --ulimit nofile=4096"
    status = error if soft < FEWEST_FILES else warning
    return status("open files", found, remedy)


def check_threads(processes: int) -> Finding:
    """Does every thread of every process have a core?"""
    cores, quota = usable_cores(), cpu_quota()
    text = os.environ.get("OMP_NUM_THREADS")
    usual = max(1, min(cores, math.ceil(quota or cores)) // processes)
    if text is not None and not (text.isdecimal() and int(text) > 0):
        return error(
            "threads",
            f"OMP_NUM_THREADS is {text!r}, which is no number of threads",
            f"unset OMP_NUM_THREADS: launch.sh sets {usual}",
        )
    threads = int(text) if text else max(1, cores // processes)
    found = f"{processes} processes x {threads} on {cores} cores"
    if text and threads > 1 and threads * processes > cores:
        return error(
            "threads",
            f"{found}: OMP_NUM_THREADS={threads} makes them wait for each other",
            f"unset OMP_NUM_THREADS: launch.sh then sets {usual}",
        )
    if quota is not None and threads > 1 and threads * processes > math.ceil(quota):
        return warning(
            "threads",
            f"{found}, but this container may use {quota:g} of them",
            f"OMP_NUM_THREADS={usual} ./launch.sh",
        )
    return ok("threads", found)


def usable_cores() -> int:
    """Return the cores that this job may use, as launch.py counts them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota() -> float | None:
    """Return how many cores' time a container may use; None when that is not limited."""
    try:
        share, period = (CGROUP / "cpu.max").read_text().split()
        return int(share) / int(period)
    except (OSError, ValueError):
        return None


def in_bytes(number: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB" if number < 1000 else f"{number / 1000:.3g} TB"


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def check_machine(processes: int, workers: int, gpus: int) -> Iterator[Finding]:
    """Look at the machine. Yields one finding for each limit."""
    yield check_memory(processes)
    yield check_shared_memory(processes, workers, gpus)
    yield check_open_files()
    yield check_threads(processes)
