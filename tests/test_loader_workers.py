"""A DataLoader worker starts at the right moment, and does not outlive its process."""

import hashlib
import os
import subprocess
import sys
import threading

import pytest
import torch
from support import ROOT
from torch.utils.data import TensorDataset

import workers

# The parent is gone before its worker has run a line: torch's own watchdog then takes the process
# that adopts the worker for its parent, and waits for ever.
ORPHAN = """
import multiprocessing, os, sys, time
import workers

def worker(parent):
    while os.getppid() == parent:
        time.sleep(0.01)
    workers.obey_parent(0)
    os.write(int(sys.argv[1]), b"goes on")

multiprocessing.get_context("fork").Process(target=worker, args=(os.getpid(),)).start()
os._exit(0)
"""


def test_a_worker_whose_parent_died_before_it_started_ends() -> None:
    """Protects the check of the parent in `obey_parent` of workers.py."""
    read, write = os.pipe()
    path = f"{ROOT / 'template/project'}:{ROOT / 'template/presets/regression'}"
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", ORPHAN, str(write)]
    subprocess.run(command, env=environment, pass_fds=[write], check=True, timeout=120)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:  # ends when the last process that holds it has ended
        assert pipe.read() == b""


def test_workers_start_when_no_other_thread_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects `_wait_for_threads`: a fork beside a thread of gloo gives a worker that hangs."""
    monkeypatch.setattr(workers, "PATIENCE", 300.0)
    # A second in which the thread computes, without Python's global lock.
    work = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 2_000_000))
    loader = workers.Loader(TensorDataset(torch.arange(2.0)), num_workers=1)
    work.start()
    batches = iter(loader)
    work.join(0.2)  # it may have to get that lock to end
    assert not work.is_alive()
    assert len(list(batches)) == 2
