"""Whatever is answered, every file of the project is well formed, and the same by every route."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import made_once
from matrix import Cell, pairs_of, pairwise
from support import ROOT, Tool, commit, git, snapshot

from ddpgen.template import SOURCE_KEYS, questions

CHOICES = {name: list(question.choices) for name, question in questions().items()}
CELLS = pairwise(
    {
        "gpus": [1, 8],
        "nodes": [1, 2],
        "preset": CHOICES["preset"],
        "tracker": CHOICES["tracker"],
        **{part: [False, True] for part in CHOICES["parts"]},
    }
)


def options_of(cell: Cell) -> list[str]:
    """Return the command line that gives the answers of a cell."""
    parts = [part for part in CHOICES["parts"] if cell[part]]
    single = ("gpus", "nodes", "preset", "tracker")
    typed = [word for name in single for word in (f"--{name}", str(cell[name]))]
    return [*typed, "--with", ",".join(parts)]


@pytest.fixture(scope="session")
def projects(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One project for each cell, made by the installed tool."""
    with made_once(tmp_path_factory, "matrix") as (folder, missing):
        made = [folder / f"cell{number}" / "myproj" for number in range(len(CELLS))]
        if missing:
            for cell, project in zip(CELLS, made, strict=True):
                command: list[str | Path] = [
                    executable,
                    "new",
                    project,
                    "--yes",
                    "--no-git",
                    *options_of(cell),
                ]
                subprocess.run(command, check=True, capture_output=True)
    return made


def distinct(projects: list[Path], *patterns: str) -> Iterator[Path]:
    """Return the files that match, one for each name and content."""
    seen = set()
    for project, pattern in itertools.product(projects, patterns):
        for path in sorted(project.rglob(pattern)):
            key = (path.relative_to(project), path.is_file() and path.read_bytes())
            if path.is_file() and key not in seen:
                seen.add(key)
                yield path


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a linter, and fail with what it says."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_matrix_has_every_pair_in_few_cells() -> None:
    met = set().union(*map(pairs_of, CELLS))
    for one, other in itertools.combinations(CELLS[0], 2):
        values = {name: {cell[name] for cell in CELLS} for name in (one, other)}
        for pair in itertools.product(values[one], values[other]):
            assert frozenset({(one, pair[0]), (other, pair[1])}) in met
    assert len(CELLS) <= 24  # two answers with many choices, presets and trackers, make 20


def test_a_part_is_there_only_when_asked_for(projects: list[Path]) -> None:
    """Protects the table of `_exclude` in template/copier.yml."""
    files = {
        "slurm": "slurm.sbatch",
        "docker": "Dockerfile",
        "kubernetes": "kubernetes",
        "ci": ".github",
    }
    assert set(files) == set(CHOICES["parts"])
    for cell, project in zip(CELLS, projects, strict=True):
        for part, name in files.items():
            assert (project / name).exists() is cell[part], (cell, name)


def test_no_cell_has_a_file_that_running_the_template_leaves(projects: list[Path]) -> None:
    for path in distinct(projects, "*"):
        assert not {"__pycache__", "runs"} & set(path.parts)
        assert path.suffix not in {".pyc", ".jinja", ".rej"}


def test_no_jinja_and_no_conflict_marker_is_left(projects: list[Path]) -> None:
    checked = 0
    for path in distinct(projects, "*"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"\$\{\{.*?\}\}", "x", text)  # GitHub's own expressions
        assert not re.search(r"\{\{|\{%|\{#|<<<<<<<|>>>>>>>", text), path
        assert "\r" not in text, path
        assert text.endswith("\n"), path
        assert not re.search(r"[ \t]$", text, re.MULTILINE), path
        checked += 1
    assert checked > 5


def test_python_compiles(projects: list[Path]) -> None:
    files = list(distinct(projects, "*.py"))
    assert {"model.py", "data.py", "train.py"} <= {path.name for path in files}
    for path in files:
        compile(path.read_text(encoding="utf-8"), path, "exec", dont_inherit=True)


def test_python_is_formatted_and_linted_by_the_rules_of_the_project(projects: list[Path]) -> None:
    for project in projects:
        run(sys.executable, "-m", "ruff", "check", "--no-cache", ".", cwd=project)
        run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".", cwd=project)


@pytest.mark.parametrize("preset", ["regression"])
def test_python_is_typed(projects: list[Path], preset: str) -> None:
    """By the settings of the project; `make lint` looks at the other presets."""
    project = next(
        project for cell, project in zip(CELLS, projects, strict=True) if cell["preset"] == preset
    )
    cache = ROOT / ".mypy_cache" / "projects"  # what `make lint` knows of torch already
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["mypy"]["strict"] is True
    run(sys.executable, "-m", "mypy", "--cache-dir", cache, ".", cwd=project)


def test_toml_and_yaml_parse(projects: list[Path]) -> None:
    parsed = set()
    for path in distinct(projects, "*.toml"):
        assert tomllib.loads(path.read_text(encoding="utf-8"))
        parsed.add(path.name)
    for path in distinct(projects, "*.yml", "*.yaml"):
        assert list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        parsed.add(path.name)
    assert {"pyproject.toml", ".copier-answers.yml"} <= parsed


def test_shell_scripts_are_clean(projects: list[Path]) -> None:
    scripts = list(distinct(projects, "*.sh", "*.sbatch"))
    assert {"launch.sh", "slurm.sbatch"} <= {path.name for path in scripts}
    for path in scripts:
        run("bash", "-n", path)
    run("shellcheck", *scripts)


def test_the_launcher_of_every_cell_may_be_executed(projects: list[Path]) -> None:
    for project in projects:
        assert os.access(project / "launch.sh", os.X_OK)


def without_source(project: Path) -> dict[str, object]:
    """Return the files of a project, but not where it says that it came from."""
    found = snapshot(project)
    answers = str(found[".copier-answers.yml"])
    assert all(f"{key}:" in answers for key in SOURCE_KEYS[1:])
    text = (project / ".copier-answers.yml").read_text()
    kept = re.sub(r"^_(?:commit|src_path):.*\n(?:[ \t]+.*\n)*", "", text, flags=re.MULTILINE)
    return {**found, ".copier-answers.yml": kept}


@pytest.fixture
def template_repository(tmp_path: Path) -> Path:
    """This repository as Copier would clone it."""
    repository = tmp_path / "a rather long name so that Copier wraps the line" / "ddpgen"
    junk = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(ROOT / "template", repository / "template", ignore=junk)
    shutil.copy2(ROOT / "copier.yml", repository)
    git(repository, "init", "--quiet")
    commit(repository)
    return repository


@pytest.mark.parametrize("source", ["", "template"])
@pytest.mark.parametrize("answered", [False, True])
def test_copier_copy_makes_the_same_project(
    tool: Tool, template_repository: Path, source: str, answered: bool
) -> None:
    """Protects the shim copier.yml, `record_source`, and the defaults of `ddpgen new`."""
    words = ["--data", "gpus=4", "--data", f"parts={CHOICES['parts']}", "--data", "preset=vision"]
    copier = [sys.executable, "-m", "copier", "copy", "--quiet", "--defaults"]
    destination = tool.cwd / "copier" / "myproj"
    run(*copier, *(words if answered else []), template_repository / source, destination)
    options = ["--gpus", "4", "--with", ",".join(CHOICES["parts"]), "--preset", "vision"]
    done = tool("new", "ours/myproj", "--yes", "--no-git", *(options if answered else []))
    assert done.code == 0, done.err
    ours = tool.cwd / "ours/myproj"
    assert without_source(ours) == without_source(destination)
    assert {path.name: os.access(path, os.X_OK) for path in ours.iterdir()} == {
        path.name: os.access(path, os.X_OK) for path in destination.iterdir()
    }
