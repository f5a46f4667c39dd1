"""A project made by the installed tool trains for real, and passes its own tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import made_once
from generated import metrics
from support import ROOT

# What is enough for each preset's loss to fall. AdamW would hide a wrong scale from a comparison.
PRESETS = {
    "regression": ["--epochs", "6", "--optimizer", "sgd", "--lr", "0.05"],
    "vision": ["--epochs", "6"],
    "language-model": ["--epochs", "2", "--overfit-batches", "12"],
    "segmentation": ["--epochs", "3"],
}

# What looks at model.py and data.py: one process and two.
VALIDATION = "tests/test_validation.py::test_metrics_equal_one_process[2]"
PARITY = ["tests/test_parity.py::test_processes_and_passes_change_nothing[2]", VALIDATION]
RESUME = "tests/test_resume.py::test_a_killed_run_goes_on_to_the_same_weights"
OWN_TESTS: dict[str, list[str]] = {
    "regression": [],  # all of them
    "owner": [*PARITY, RESUME, "tests/test_run.py::test_a_run_trains_logs_once_and_saves"],
    "vision": [VALIDATION],  # and the table of parity; its model is that of ddpgen's test_resume.py
    "language-model": PARITY,
    "segmentation": PARITY,
}
OWNER = Path(__file__).parent / "owner"  # a model and data that share nothing with the presets


@pytest.fixture(scope="session")
def projects(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One project for each preset, and an empty one that its owner has filled in."""
    with made_once(tmp_path_factory, "trained") as (folder, missing):
        made = {name: folder / name for name in OWN_TESTS}
        if missing:
            for name, project in made.items():
                preset = name if name in PRESETS else "empty"
                command = [str(executable), "new", str(project), "--preset", preset]
                command += ["--yes", "--no-git"]
                subprocess.run(command, check=True, capture_output=True)
            for file in ("model.py", "data.py"):
                shutil.copy(OWNER / file, made["owner"] / file)
    return made


def run(
    project: Path, *command: str, processes: int = 2, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in the project, with a Python that treats every warning as an error."""
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "NPROC": str(processes),
        "OMP_NUM_THREADS": "1",
        **more,
    }
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=600
    )


def trained(project: Path, preset: str, processes: int) -> dict[str, float]:
    """Train without a warning, see the loss fall, and return the last exact metrics."""
    name = f"p{processes}"
    command = ["./launch.sh", "--name", name, "--global-batch-size", "24", "--log-every", "1"]
    command += PRESETS[preset]
    done = run(project, *command, processes=processes, PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = metrics(project, name)
    losses = [line["validation/loss"] for line in lines if "validation/loss" in line]
    assert len(losses) == int(PRESETS[preset][1])
    assert losses[-1] < 0.8 * lines[0]["train/loss"]  # before the first step
    assert list((project / "runs" / name).glob("events.out.tfevents.*"))
    last = [line for line in lines if "validation/loss" in line][-1]
    return {key: value for key, value in last.items() if key.startswith("validation/")}


@pytest.mark.parametrize("preset", PRESETS)
def test_launch_trains_without_a_warning(projects: dict[str, Path], preset: str) -> None:
    """A few steps: the loss falls, and stderr stays empty."""
    one, two = (trained(projects[preset], preset, processes) for processes in (1, 2))
    if preset == "regression":  # without dropout, the number of processes changes nothing
        three = trained(projects[preset], preset, 3)
        assert one == pytest.approx(two, rel=1e-6)
        assert one == pytest.approx(three, rel=1e-6)


def test_an_empty_project_says_what_to_fill_in(executable: Path, tmp_path: Path) -> None:
    """One name after the other; every rank ends, and one says why."""
    command = [str(executable), "new", "p", "--preset", "empty", "--yes", "--no-git"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    project = tmp_path / "p"
    done = run(project, "./launch.sh", "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr.count("error: data.py: build_datasets has to return") == 1
    shutil.copy(OWNER / "data.py", project)
    done = run(project, sys.executable, "train.py", "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr == "error: model.py: build_model has to return your torch.nn.Module\n"


def test_the_examples_in_an_empty_project_train(executable: Path, tmp_path: Path) -> None:
    """The newcomer's path of README.md: the comments in the five functions become code."""
    command = [str(executable), "new", "p", "--preset", "empty", "--yes", "--no-git"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    project = tmp_path / "p"
    edited = 0
    for name in ("model.py", "data.py"):
        text, removed = re.subn(r"    raise .*\n", "", (project / name).read_text())
        text, changed = re.subn(r"(?m)^    # ", "    ", text)
        (project / name).write_text(text)
        assert changed == 2 * removed
        edited += changed
    assert f"{edited} lines" in " ".join((ROOT / "README.md").read_text().split())
    features = torch.randn(300, 10, generator=torch.Generator().manual_seed(0))
    target = features.sum(1, keepdim=True)
    parts = [(features[part], target[part]) for part in (slice(240), slice(240, None))]
    torch.save(parts, project / "mine.pt")
    done = run(project, "./launch.sh", "--device", "cpu", "--epochs", "3", PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    losses = [
        line["validation/loss"] for line in metrics(project, "default") if "validation/loss" in line
    ]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", OWN_TESTS)
def test_a_project_passes_its_own_tests(projects: dict[str, Path], name: str) -> None:
    """Also after its owner has replaced the model and the data."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OWN_TESTS[name]]
    done = run(projects[name], *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_the_table_of_parity_is_one_command(projects: dict[str, Path]) -> None:
    """Without pytest, which would find the modules of the project by itself."""
    done = run(projects["vision"], sys.executable, "tests/parity.py")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 18
    for _, _, precision, *differences in rows:
        assert precision != "fp32" or max(map(float, differences)) <= 1e-6
