"""A project made by the installed tool trains for real, and passes its own tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import made_once

PRESETS = ("regression", "vision")
OWNER = Path(__file__).parent / "owner"  # a model and data that share nothing with the presets


@pytest.fixture(scope="session")
def projects(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One project for each preset, and one whose model.py and data.py were replaced."""
    with made_once(tmp_path_factory, "trained") as (folder, missing):
        made = {name: folder / name for name in (*PRESETS, "owner")}
        if missing:
            for name, project in made.items():
                preset = name if name in PRESETS else "regression"
                command = [executable, "new", project, "--preset", preset, "--yes", "--no-git"]
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


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_launch_trains_without_a_warning(
    projects: dict[str, Path], preset: str, processes: int
) -> None:
    """The default settings, fewer epochs: the loss falls, and stderr stays empty."""
    name = f"p{processes}"
    command = ["./launch.sh", "--name", name, "--epochs", "6", "--global-batch-size", "24"]
    done = run(projects[preset], *command, processes=processes, PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = (projects[preset] / "runs" / name / "metrics.jsonl").read_text().splitlines()
    losses = [
        line["validation/loss"] for line in map(json.loads, lines) if "validation/loss" in line
    ]
    assert len(losses) == 6
    assert losses[-1] < 0.8 * losses[0]
    assert list((projects[preset] / "runs" / name).glob("events.out.tfevents.*"))


def test_the_number_of_processes_changes_nothing(projects: dict[str, Path]) -> None:
    """With a global batch: the exact metrics after two epochs of SGD agree to 1e-6."""
    results = []
    for processes in (1, 2, 3):
        name = f"same{processes}"
        options = ["--epochs", "2", "--global-batch-size", "24", "--optimizer", "sgd"]
        command = ["./launch.sh", "--name", name, "--tracker", "none", *options]
        done = run(projects["regression"], *command, processes=processes)
        assert done.returncode == 0, done.stderr
        text = (projects["regression"] / "runs" / name / "metrics.jsonl").read_text()
        line = [json.loads(line) for line in text.splitlines() if "validation/loss" in line][-1]
        results.append({key: value for key, value in line.items() if key.startswith("validation/")})
    assert results[0] == pytest.approx(results[1], rel=1e-6)
    assert results[0] == pytest.approx(results[2], rel=1e-6)


@pytest.mark.parametrize("name", [*PRESETS, "owner"])
def test_a_project_passes_its_own_tests(projects: dict[str, Path], name: str) -> None:
    """Also after its owner has replaced the model and the data."""
    done = run(projects[name], sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
