"""Start the project as you would: launch.sh, or torchrun on a script of these tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

PROJECT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {
    **os.environ,
    "PYTHON": sys.executable,
    "PYTHONPATH": str(PROJECT),
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def run_name() -> Iterator[str]:
    """Give a name for a run and remove its folder afterwards."""
    name = f"test-{uuid4().hex[:8]}"
    try:
        yield name
    finally:
        shutil.rmtree(PROJECT / "runs" / name, ignore_errors=True)


def start(*options: str, processes: int = 2) -> subprocess.Popen[str]:
    """Start ./launch.sh with these options, in a process group of its own, on the CPU."""
    return subprocess.Popen(
        [str(PROJECT / "launch.sh"), "--device", "cpu", "--tracker", "none", *options],
        env={**ENVIRONMENT, "NPROC": str(processes), "NNODES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def launch(*options: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Run ./launch.sh to its end."""
    job = start(*options, processes=processes)
    out, err = job.communicate(timeout=300)
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def torchrun(script: str, *arguments: str, processes: int) -> subprocess.CompletedProcess[str]:
    """Run a script of these tests on so many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, f"--nproc-per-node={processes}", script, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def metrics(name: str) -> list[dict[str, Any]]:
    """Read the lines of runs/NAME/metrics.jsonl."""
    text = (PROJECT / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
