"""What this machine suggests for the questions that depend on it."""

import os
import subprocess

# One machine has rarely more; whoever has more says so.
_MOST = 8


def suggested_gpus() -> int:
    """Return how many processes this machine is good for: its GPUs, or else its CPUs, 8 at most."""
    return max(1, min(_visible_gpus() or len(os.sched_getaffinity(0)), _MOST))


def _visible_gpus() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,  # a driver that hangs must not keep anybody from starting
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    count = sum(line.startswith("GPU ") for line in listed.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    chosen = visible.split(",")
    # CUDA reads the list up to the first entry that is no device; -1 is how people say "none".
    valid = [word.strip() for word in chosen]
    cut = next((i for i, word in enumerate(valid) if word in {"", "-1"}), len(valid))
    return min(count, cut)
