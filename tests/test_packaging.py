"""The wheel and the sdist have everything that they need, and nothing else."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from support import ROOT

from ddpgen import __version__

JUNK = ("__pycache__", ".pyc", "_cache/", ".DS_Store")


def files_below(folder: Path) -> set[str]:
    """Return the files of a folder of the checkout that belong to it, relative to the checkout."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not any(part in f"{path}" for part in JUNK)
    }


def test_the_wheel_has_the_template_and_nothing_that_running_it_leaves(wheel: Path) -> None:
    expected = {
        name.replace("template/", "ddpgen/_template/", 1) for name in files_below(ROOT / "template")
    } | files_below(ROOT / "ddpgen")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith("ddpgen-")}
    assert packed == expected


def test_the_wheel_needs_no_torch(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"ddpgen-{__version__}.dist-info/METADATA").decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    always = {line.split()[1].split(">")[0] for line in needed if "extra ==" not in line}
    assert always == {"click", "copier", "plumbum", "pyyaml"}


def test_what_runs_is_executable_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        mode = archive.getinfo("ddpgen/_template/project/launch.sh.jinja").external_attr >> 16
    assert mode & 0o100


def test_a_wheel_can_be_built_from_the_sdist(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, "--sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / f"ddpgen-{__version__}"
    assert (source / "tests/conftest.py").is_file()
    assert (source / "copier.yml").is_file()
    subprocess.run([*build, "--wheel"], cwd=source, check=True, capture_output=True)
    (rebuilt,) = folder.glob("*.whl")
    with zipfile.ZipFile(rebuilt) as again, zipfile.ZipFile(wheel) as first:
        assert again.namelist() == first.namelist()


def test_the_version_is_declared_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project
