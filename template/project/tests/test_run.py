"""./launch.sh trains, says each thing once, and leaves files that plain torch reads."""

from __future__ import annotations

import re
import subprocess
import sys
from unittest import mock

import torch

import train
from config import load_config
from helpers import ENVIRONMENT, PROJECT, launch, metrics, run_name, torchrun
from loaders import Batch, to_device
from model import build_model


def test_a_run_trains_logs_once_and_saves() -> None:
    """Two processes: one line for each event, and checkpoints that load into the bare model."""
    with run_name() as name:
        options = ["--name", name, "--epochs", "2", "--log-every", "1", "--overfit-batches", "3"]
        done = launch(*options)
        assert done.returncode == 0, done.stderr
        lines = metrics(name)
        assert [line["step"] for line in lines if "train/loss" in line] == [1, 2, 3, 4, 5, 6]
        assert [line["step"] for line in lines if "validation/loss" in line] == [3, 6]
        assert len(re.findall(r"step +\d+ +validation", done.stdout)) == 2
        for file in ("last.pt", "best.pt"):
            path = PROJECT / "runs" / name / "checkpoints" / file
            state = torch.load(path, weights_only=True, map_location="cpu")
            build_model(load_config([])).load_state_dict(state["model"], strict=True)

        again = launch(*options)
        assert again.returncode == 0, again.stderr
        assert "has ended" in again.stdout
        assert metrics(name) == lines


def test_one_process_needs_no_launcher() -> None:
    """`python train.py` trains without a process group, and as launch.sh does with one process."""
    with run_name() as plain, run_name() as launched:
        options = ["--limit-steps", "3", "--log-every", "1"]
        command = [sys.executable, "train.py", "--name", plain, "--device", "cpu", *options]
        subprocess.run(command, cwd=PROJECT, env=ENVIRONMENT, check=True, capture_output=True)
        assert launch("--name", launched, *options, processes=1).returncode == 0
        losses = [[line.get("train/loss") for line in metrics(name)] for name in (plain, launched)]
        assert losses[0] == losses[1]


def test_a_failing_rank_ends_the_job_and_is_named() -> None:
    """Rank 1 raises in its second step; the collective timeout of 10 minutes is not waited for."""
    with run_name() as name:
        done = torchrun(__file__, "--name", name, "--device", "cpu", processes=2)
        assert done.returncode != 0
        assert "ValueError: a bad sample" in done.stderr
        assert "[rank1]" in done.stderr


def fail_on_rank_1() -> None:
    """Be train.py with a bug that shows on one rank only."""
    calls = [0]

    def fail(batch: Batch, device: torch.device) -> Batch:
        calls[0] += 1
        if torch.distributed.get_rank() == 1 and calls[0] == 2:
            raise ValueError("a bad sample")
        return to_device(batch, device)

    with mock.patch.object(train, "to_device", fail):
        train.main()


if __name__ == "__main__":
    fail_on_rank_1()
