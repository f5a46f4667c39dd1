"""A DataLoader worker does not outlive the process that it loads for."""

import os
import subprocess
import sys

from support import ROOT

# The parent is gone before its worker has run a line: torch's own watchdog then takes the process
# that adopts the worker for its parent, and waits for ever.
ORPHAN = """
import multiprocessing, os, sys, time
import loaders

def worker(parent):
    while os.getppid() == parent:
        time.sleep(0.01)
    loaders._obey_parent(0)
    os.write(int(sys.argv[1]), b"goes on")

multiprocessing.get_context("fork").Process(target=worker, args=(os.getpid(),)).start()
os._exit(0)
"""


def test_a_worker_whose_parent_died_before_it_started_ends() -> None:
    """Protects the check of the parent in `_obey_parent` of loaders.py."""
    read, write = os.pipe()
    path = f"{ROOT / 'template/project'}:{ROOT / 'template/presets/regression'}"
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", ORPHAN, str(write)]
    subprocess.run(command, env=environment, pass_fds=[write], check=True, timeout=120)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:  # ends when the last process that holds it has ended
        assert pipe.read() == b""
