"""Each run setting does what its help says, in a generated project that trains for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import made_once
from faults import DATA
from generated import render
from support import edit


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision project: its model has dropout and BatchNorm, its data an augmentation."""
    with made_once(tmp_path_factory, "features") as (folder, missing):
        if missing:
            render(folder, project_name="features", preset="vision", tracker="none")
            (folder / "data.py").write_text(DATA.format(train=400, validation=100))
            edit(folder / "model.py", "padding=1), ", "padding=1), nn.BatchNorm2d(width), ")
    return folder


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A run name for this test."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


class Run:
    """A run that has ended: what it printed, its metrics and its checkpoints."""

    def __init__(self, project: Path, name: str, done: subprocess.CompletedProcess[str]) -> None:
        self.folder = project / "runs" / name
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def values(self, key: str) -> list[float]:
        """Return one metric, in the order of its lines."""
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return [line[key] for line in lines if key in line]

    def state(self, file: str = "last.pt") -> dict[str, Any]:
        """Return a checkpoint, as a user reads it."""
        loaded: dict[str, Any] = torch.load(self.folder / "checkpoints" / file, weights_only=True)
        return loaded


def train(
    project: Path,
    name: str,
    *options: str,
    processes: int = 1,
    code: int = 0,
    warnings: str = "error",
) -> Run:
    """Train on so many processes; one process runs without a process group."""
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "NPROC": str(processes),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": warnings,
    }
    command = [sys.executable, "train.py"] if processes == 1 else ["./launch.sh"]
    done = subprocess.run(
        [*command, "--name", name, "--log-every", "1", "--device", "cpu", *options],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return Run(project, name, done)


def test_workers_change_no_bit(project: Path, name: str) -> None:
    """Augmentation follows (seed, epoch, index) and leaves dropout's random state alone.

    Protects `seed_sample` and `kept_random_state` in loaders.py, and the loader's own generator.
    """
    options = ["--limit-steps", "6", "--overfit-batches", "3", "--batch-size", "16"]
    weights = [
        train(project, f"{name}{n}", *options, "--num-workers", str(n)).state()["model"]
        for n in (0, 2)
    ]
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key]), key


def test_dropout_differs_between_ranks_and_weights_do_not(project: Path, name: str) -> None:
    """Protects `seed_everything(config.seed + 1 + world.rank)` in train.py."""
    run = train(project, name, "--limit-steps", "2", processes=2)
    states = run.state()["random"]
    assert len(states) == 2
    assert not torch.equal(states[0]["torch"], states[1]["torch"])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_trains_and_keeps_weights_in_fp32(
    project: Path, name: str, precision: str
) -> None:
    """The scaler's state is saved with fp16 only: elsewhere there is none."""
    run = train(project, name, "--precision", precision, "--epochs", "2", "--clip-grad-norm", "1")
    losses = run.values("validation/loss")
    assert losses[-1] < losses[0]
    state = run.state()
    dtypes = {key: weight.dtype for key, weight in state["model"].items()}
    assert {dtypes[key] for key in dtypes if "num_batches" not in key} == {torch.float32}
    assert bool(state["scaler"]) is (precision == "fp16")


def test_the_average_of_the_weights_is_what_is_evaluated(project: Path, name: str) -> None:
    """A slow average is close to the first weights, so it scores far worse than the model."""
    run = train(project, name, "--ema-decay", "0.999", "--epochs", "8")
    plain = train(project, f"{name}-plain", "--epochs", "8")
    assert run.values("train/loss") == plain.values("train/loss")
    assert run.values("validation/loss")[-1] > plain.values("validation/loss")[-1] + 0.5
    state = run.state()
    assert state["ema"].keys() == state["model"].keys()
    assert state["ema_updates"] == len(run.values("train/loss"))


def test_the_schedule_is_followed_to_its_end(project: Path, name: str) -> None:
    """Warm-up to the peak, then down; the scaled peak is printed. 2 processes, 4 passes a step."""
    options = ["--epochs", "4", "--overfit-batches", "10", "--batch-size", "16"]
    options += ["--accumulate", "4", "--schedule", "linear", "--warmup-steps", "4"]
    options += ["--lr", "0.001", "--scale-lr", "sqrt"]
    run = train(project, name, *options, processes=2)
    rates = run.values("train/lr")
    peak = 0.001 * 8**0.5
    assert len(rates) == 4 * 3  # windows of 4, 4 and 2 passes
    assert rates[:4] == pytest.approx([peak / 4, peak / 2, peak * 3 / 4, peak])
    assert rates[4:] == pytest.approx([peak * (1 - n / 8) for n in range(8)])
    assert f"lr {peak:g}" in run.out
    assert "global batch 128 = 16 on each of 2 processes x 4 passes" in run.out


def test_early_stopping_is_decided_for_all_ranks(project: Path, name: str) -> None:
    """With a tiny learning rate nothing gets better by accuracy: both ranks stop after 2 epochs."""
    options = ["--patience", "2", "--best-metric", "accuracy", "--best-mode", "max"]
    options += ["--lr", "1e-9", "--overfit-batches", "1", "--epochs", "50"]
    run = train(project, name, *options, processes=2)
    assert len(run.values("validation/accuracy")) == 3
    again = train(project, name, *options, processes=2)
    assert "has ended" in again.out
    assert "give more --patience to go on" in again.out


def test_checkpoints_by_steps_and_by_minutes(project: Path, name: str) -> None:
    """Protects the condition before `save()` in train.py, and `keep_checkpoints`."""
    options = ["--limit-steps", "7", "--save-every-steps", "2", "--keep-checkpoints", "2"]
    run = train(project, name, *options)
    files = sorted(path.name for path in (run.folder / "checkpoints").glob("step_*.pt"))
    assert files == ["step_0000000006.pt", "step_0000000007.pt"]
    options = ["--limit-steps", "7", "--save-every-minutes", "0.000001", "--keep-checkpoints", "9"]
    run = train(project, f"{name}-minutes", *options, processes=2)
    assert len(list((run.folder / "checkpoints").glob("step_*.pt"))) == 7


def test_the_settings_for_debugging(project: Path, name: str) -> None:
    """Traces of each rank, the same few samples again and again, and evaluation alone.

    Which gives the metric of before, to the bit: protects `share_buffers` in train.py.
    """
    options = ["--profile", "--overfit-batches", "1", "--epochs", "30", "--batch-size", "8"]
    run = train(project, name, *options, processes=2)
    losses = run.values("train/loss")
    assert losses[-1] < 0.3 * losses[0]
    for rank in range(2):
        trace = json.loads((run.folder / f"trace-rank{rank}.json").read_text())
        assert any("allreduce" in event.get("name", "") for event in trace["traceEvents"])
    before = run.values("validation/loss")[-1]
    settings = (run.folder / "config.toml").read_text()
    alone = train(project, name, *options, "--eval-only", processes=2)
    assert (run.folder / "config.toml").read_text() == settings  # ready for --config, to train
    assert "changed since" not in alone.out
    assert alone.values("validation/loss")[-1] == before
    assert len(alone.values("train/loss")) == len(losses)
    none = train(project, f"{name}-none", "--eval-only", code=2)
    assert "--eval-only: there is no checkpoint in" in none.err


SHORT = ["--limit-steps", "3", "--accumulate", "2", "--optimizer", "sgd", "--lr", "0.1"]


@pytest.fixture(scope="module")
def plain(project: Path) -> Run:
    """A short run of two processes without any of the options."""
    return train(project, f"plain-{uuid.uuid4().hex}", *SHORT, processes=2)


def test_ddp_options_train_as_well(project: Path, name: str, plain: Run) -> None:
    """Recomputed activations in a static graph, unused parameters: the weights as without.

    With two passes a step: protects `no_sync`, which a static graph must not have in its first.
    """
    expected = plain.state()["model"]
    for number, more in enumerate(
        (["--static-graph", "--activation-checkpointing"], ["--find-unused-parameters"])
    ):
        weights = train(project, f"{name}{number}", *SHORT, *more, processes=2).state()["model"]
        for key in expected:
            if key.endswith(("running_mean", "running_var", "num_batches_tracked")):
                continue  # BatchNorm counts a batch twice that is computed twice
            torch.testing.assert_close(expected[key], weights[key], rtol=0, atol=1e-6)


def test_compile_keeps_the_names_of_the_weights(project: Path, name: str, plain: Run) -> None:
    """Protects `model.compile()`, in place: torch.compile(model) would add `_orig_mod.`."""
    compiled = train(
        project,
        name,
        *SHORT,
        "--compile",
        processes=2,
        warnings="ignore",  # torch's own
    )
    assert compiled.state()["model"].keys() == plain.state()["model"].keys()
    # Compiled dropout draws other numbers, so the losses are close and not equal.
    losses = [run.values("train/loss") for run in (plain, compiled)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_what_needs_a_gpu_says_so(project: Path, name: str) -> None:
    """On a CPU these two would fail deep inside torch."""
    for option in ("--sync-bn", "--bf16-gradients"):
        run = train(project, name, option, code=2)
        assert "error: sync_bn and bf16_gradients need GPUs" in run.err


def test_deterministic_runs_are_equal(project: Path, name: str) -> None:
    """Two runs with the switch give the same bits."""
    weights = [
        train(project, f"{name}{n}", "--limit-steps", "4", "--deterministic").state()["model"]
        for n in range(2)
    ]
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key])
