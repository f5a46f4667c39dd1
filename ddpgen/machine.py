"""What this machine suggests for the questions that depend on it."""

import os
import subprocess
import sys

# One machine has rarely more; whoever has more says so.
_MOST = 8


def suggested_gpus() -> int:
    """Return how many processes this machine is good for: its GPUs, or else its CPUs, 8 at most."""
    return min(_visible_gpus() or _usable_cpus(), _MOST)


def _usable_cpus() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))  # a container or a batch job may have fewer than all
    return os.cpu_count() or 1


def _visible_gpus() -> int:
    installed = _installed_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return installed
    count = 0
    for device in visible.split(","):
        if device.strip() in {"", "-1"}:  # CUDA reads the list up to the first that is no device
            break
        count += 1
    return min(count, installed)


def _installed_gpus() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,  # a driver that hangs must not keep anybody from starting
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
