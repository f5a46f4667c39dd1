"""A run that was stopped or killed must go on to the same weights, to the bit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from helpers import PROJECT, launch, run_name, start

OPTIONS = ["--epochs", "4", "--overfit-batches", "8", "--log-every", "1", "--save-every-steps", "3"]


def weights(name: str) -> dict[str, torch.Tensor]:
    """Return the weights that a run ended with."""
    path = PROJECT / "runs" / name / "checkpoints" / "last.pt"
    model: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["model"]
    return model


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, torch.Tensor]:
    """The weights of a run that nothing happened to."""
    with run_name() as name:
        done = launch("--name", name, *OPTIONS)
        assert done.returncode == 0, done.stderr
        return weights(name)


def wait_for_checkpoint(name: str, job: subprocess.Popen[str]) -> None:
    """Wait until the first checkpoint is written."""
    last = PROJECT / "runs" / name / "checkpoints" / "last.pt"
    while not last.exists() and job.poll() is None:
        time.sleep(0.01)


def workers_of(job: subprocess.Popen[str]) -> list[int]:
    """Return the processes that launch.sh started."""
    text = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def test_a_stopped_run_goes_on_to_the_same_weights(undisturbed: dict[str, torch.Tensor]) -> None:
    """SIGTERM to launch.sh: one checkpoint, exit code 75, and the same command goes on."""
    with run_name() as name:
        job = start("--name", name, *OPTIONS)
        wait_for_checkpoint(name, job)
        job.terminate()
        _, err = job.communicate(timeout=120)
        assert job.returncode in {75, 0}, err  # 0: it was at its end already
        assert launch("--name", name, *OPTIONS).returncode == 0
        assert_equal(weights(name), undisturbed)


def test_a_killed_run_goes_on_to_the_same_weights(undisturbed: dict[str, torch.Tensor]) -> None:
    """kill -9 of one process: the others end, and the run goes on from its last checkpoint."""
    with run_name() as name:
        job = start("--name", name, *OPTIONS)
        wait_for_checkpoint(name, job)
        os.kill(workers_of(job)[-1], signal.SIGKILL)
        job.communicate(timeout=120)
        assert launch("--name", name, *OPTIONS).returncode == 0
        assert_equal(weights(name), undisturbed)


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Compare weights to the bit."""
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key
