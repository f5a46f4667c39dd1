"""The ranks wait for each other once in each optimizer step, and once more where it is logged."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest
from conftest import made_once
from generated import ENVIRONMENT, PATIENCE, generate, metrics
from support import edit

DRIVER = Path(__file__).with_name("counting_driver.py")
EPOCHS, PASSES, LOG_EVERY = 2, 4, 5
STEPS = 13  # of an epoch: 202 samples are 50 passes of 2 samples on 2 processes


class Step(NamedTuple):
    """One optimizer step of one rank."""

    passes: int
    reductions: int  # of gradients, by DDP
    loss: float
    then: list[str]  # collectives outside DDP after it and before the next step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """A project in which two processes have trained, and the events of each rank."""
    with made_once(tmp_path_factory, "collectives") as (folder, missing):
        project = folder / "p"
        if missing:
            generate(project, samples=202)
            layers = "nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 1))"
            edit(project / "model.py", "nn.Linear(10, 1)", layers)
            options = ["--device=cpu", "--tracker=none", f"--epochs={EPOCHS}", "--batch-size=2"]
            options += [f"--accumulate={PASSES}", f"--log-every={LOG_EVERY}"]
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            done = subprocess.run(
                [*command, "--nproc-per-node=2", DRIVER, folder, *options],
                cwd=project,
                env={**ENVIRONMENT, "PYTHONPATH": str(project), "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    return project, [json.loads((folder / f"events-{rank}.json").read_text()) for rank in range(2)]


def steps_of(events: list[str]) -> list[Step]:
    """Return the optimizer steps of a rank."""
    steps: list[Step] = []
    passes = reductions = 0
    for event in events:
        if event == "pass":
            passes += 1
        elif event == "ddp":
            reductions += 1
        elif event.startswith("step "):
            steps.append(Step(passes, reductions, float(event.removeprefix("step ")), []))
            passes = reductions = 0
        elif steps:
            steps[-1].then.append(event)
    return steps


def test_gradients_are_reduced_once_in_each_step(run: tuple[Path, list[list[str]]]) -> None:
    """However many passes it has. Red without `no_sync`, or with it around backward() alone."""
    for events in run[1]:
        steps = steps_of(events)
        assert [step.passes for step in steps] == [*[PASSES] * (STEPS - 1), 2] * EPOCHS
        assert [step.reductions for step in steps] == [1] * STEPS * EPOCHS


def test_a_step_that_does_not_log_waits_for_nobody(run: tuple[Path, list[list[str]]]) -> None:
    """Nothing outside DDP, and one all-reduce where a line is logged or an epoch has begun.

    Red with reduce_loss or a barrier in each step, and without `forward_sync_buffers`: the model
    has BatchNorm, whose statistics DDP would broadcast.
    """
    silent = 0
    for number, step in enumerate(steps_of(run[1][0]), start=1):
        if number % STEPS == 0:
            continue  # the end of an epoch
        logs = number % LOG_EVERY == 0 or number % STEPS == 1
        assert step.then == (["all_reduce"] if logs else []), number
        silent += not logs
    assert silent > STEPS


def test_all_collectives_are_few_and_the_same_on_all_ranks(
    run: tuple[Path, list[list[str]]],
) -> None:
    """At most one for each log line, 6 and the 3 of BatchNorm for an epoch, and 5 for the run."""
    ranks = [[event for event in events if not event.startswith("step")] for events in run[1]]
    assert ranks[0] == ranks[1]
    outside = [event for event in ranks[0] if event not in {"pass", "ddp"}]
    assert "barrier" in outside
    assert len(outside) <= STEPS * EPOCHS // LOG_EVERY + (6 + 3) * EPOCHS + 5


def test_the_logged_loss_is_the_mean_of_all_ranks(run: tuple[Path, list[list[str]]]) -> None:
    """Over the steps since the line before. Red when rank 0 logs what it alone has seen."""
    project, events = run
    ranks = [[step.loss for step in steps_of(events)] for events in events]
    assert ranks[0] != pytest.approx(ranks[1])
    losses = [fmean(pair) for pair in zip(*ranks, strict=True)]
    lines = metrics(project)
    logged = {line["step"]: line["train/loss"] for line in lines if "train/loss" in line}
    assert list(logged) == [5, 10, 15, 20, 25]
    for last, loss in logged.items():
        first = max(last - LOG_EVERY, STEPS if last > STEPS else 0)
        assert loss == pytest.approx(fmean(losses[first:last]), rel=1e-5), last
    means = [line["epoch/loss"] for line in lines if "epoch/loss" in line]
    assert means == pytest.approx([fmean(losses[:STEPS]), fmean(losses[STEPS:])], rel=1e-5)
