"""The processes that load data: the moment at which they start, and that they end in time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from stopping import die_with_parent, stop_signals

PATIENCE = 1.0  # seconds that workers wait for other threads at most, before they start


class Loader(DataLoader[Any]):
    """A DataLoader that starts its workers while no other thread of this process is at work.

    A worker is a fork. When a thread holds a lock of Python's at that moment, the lock stays locked
    in the worker, which then never comes to its first line: python/cpython#112275, mended in 3.12
    and in late releases of 3.11. The threads of gloo hold it for a moment after each collective.
    """

    def __iter__(self) -> Any:
        """Start the workers, or go on with those of the epoch before."""
        if self.num_workers > 0:
            _wait_for_threads()
        return super().__iter__()


def _wait_for_threads() -> None:
    """Return when all other threads of this process sleep, or when `PATIENCE` is at its end."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.001)  # meanwhile a thread that waits for Python's global lock gets it
        if not any(_is_at_work(thread) for thread in Path("/proc/self/task").glob("*")):
            return


def _is_at_work(thread: Path) -> bool:
    if thread.name == str(threading.get_native_id()):
        return False
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return False
    return state in {"R", "D"}


def obey_parent(worker: int) -> None:
    """Let only the training process answer a signal; it ends its workers when it is done."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:  # it has died already, just after the fork
        os._exit(1)
