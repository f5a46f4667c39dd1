"""A generated project in a folder of its own, its launch.sh run to the end, and its modules."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import copier
from support import ROOT, Result

TEMPLATE = ROOT / "template"
PATIENCE = 300.0  # seconds after which a job is stuck; no test asserts that anything is quick

# Nothing but this is inherited: the tests may themselves be started by torchrun, or under NPROC=8.
ENVIRONMENT = {
    **{
        name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR", "LANG", "COLLECT_LESS")  # the last: see Makefile
        if name in os.environ
    },
    "PYTHON": sys.executable,
}

# The owner's data.py of these tests, without the second that it takes to import scikit-learn.
DATA = '''"""Random numbers."""

import torch
from torch.utils.data import TensorDataset


def build_datasets(config):
    """Return the training and the validation set."""
    draw = torch.Generator().manual_seed(config.seed)
    features = torch.randn(SAMPLES + 11, 10, generator=draw)
    target = features.sum(1, keepdim=True) + torch.randn(SAMPLES + 11, 1, generator=draw)
    train, validation = slice(SAMPLES), slice(SAMPLES, None)
    return (
        TensorDataset(features[train], target[train]),
        TensorDataset(features[validation], target[validation]),
    )
'''


def render(folder: Path, template: Path = TEMPLATE, **answers: object) -> Path:
    """Render a template with plain Copier, and return the folder."""
    copier.run_copy(
        str(template),
        folder,
        data=answers,
        defaults=True,
        quiet=True,
        settings=copier.Settings(),
    )
    return folder


def copy_preset(folder: Path, preset: str, **answers: object) -> Path:
    """Render the template for two GPUs, as far as the answers say nothing else."""
    chosen = {"project_name": "myproj", "gpus": 2, "preset": preset, **answers}
    return render(folder, TEMPLATE, **chosen)


def generate(
    folder: Path, samples: int = 48, preset: str = "regression", **answers: object
) -> Path:
    """Render the template, and give the project so many samples of the data above."""
    copy_preset(folder, preset, **answers)
    (folder / "data.py").write_text(DATA.replace("SAMPLES", str(samples)), encoding="utf-8")
    return folder


def start(
    project: Path,
    *options: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> "subprocess.Popen[str]":
    """Start ./launch.sh with these options."""
    return subprocess.Popen(
        [project / "launch.sh", *options],
        cwd=cwd or project,
        env={**ENVIRONMENT, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job: "subprocess.Popen[str]") -> Result:
    """Wait for the end of a started ./launch.sh."""
    with job:
        try:
            out, err = job.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            job.kill()  # its processes die with it
            raise
    return Result(job.returncode, out, err)


def launch(
    project: Path,
    *options: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Result:
    """Run ./launch.sh with these options to its end."""
    return finish(start(project, *options, cwd=cwd, env=env))


def metrics(project: Path, name: str = "default") -> list[dict[str, Any]]:
    """Read the lines of runs/NAME/metrics.jsonl."""
    text = (project / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _modules_in(folder: Path) -> dict[str, ModuleType]:
    """Return the modules that were imported from a folder."""
    return {
        name: module
        for name, module in sys.modules.items()
        if (file := getattr(module, "__file__", None)) and Path(file).is_relative_to(folder)
    }


@contextmanager
def imported(folder: Path, *names: str) -> Iterator[list[ModuleType]]:
    """Import modules of a project, and forget all of its modules afterwards.

    Those of the template itself, which a few tests import, have the same names.
    """
    others = _modules_in(TEMPLATE)
    for name in others:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(folder))
        for name in _modules_in(folder):
            del sys.modules[name]
        sys.modules.update(others)
