"""The wheel and the sdist have everything that they need, and nothing else."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from support import ROOT

from ddpgen import __version__

# What trying the template, or opening its folder, leaves in it.
JUNK = (
    "template/project/__pycache__/train.pyc",
    "template/project/train.pyc",
    "template/project/runs/default/metrics.jsonl",
    "template/project/.mypy_cache/cache.json",
    "template/presets/vision/__pycache__/model.pyc",
)


def build(kind: str, source: Path, destination: Path) -> Path:
    """Build the wheel or the sdist of a folder and return it."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir"]
    subprocess.run([*command, destination], cwd=source, check=True, capture_output=True)
    (built,) = destination.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def names_in(wheel: Path) -> set[str]:
    """Return the files in a wheel, but not its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.startswith("ddpgen-")}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that belong to this checkout, as a fresh clone has them: no junk among them."""
    folder = tmp_path_factory.mktemp("sources") / "ddpgen"
    junk = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "*.pyc", ".*_cache", "runs", "dist", "build", ".hypothesis"
    )
    shutil.copytree(ROOT, folder, ignore=junk)
    return folder


def test_the_wheel_has_the_tool_and_its_template_and_no_junk(sources: Path, tmp_path: Path) -> None:
    """Protects the choice of `include` over force-include in pyproject.toml."""
    tool, template = (
        {path.relative_to(sources).as_posix() for path in folder.rglob("*") if path.is_file()}
        for folder in (sources / "ddpgen", sources / "template")
    )
    for name in JUNK:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text("junk")
    packed = names_in(build("wheel", sources, tmp_path))
    assert packed == tool | {f"ddpgen/_{name}" for name in template}


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


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an archive; tarfile's extractall has no safe form that Python 3.11.2 and 3.14 know."""
    subprocess.run(["tar", "-xzf", sdist, "-C", folder], check=True)
    return folder / f"ddpgen-{__version__}"


def test_a_wheel_can_be_built_from_the_sdist(sources: Path, wheel: Path, tmp_path: Path) -> None:
    unpacked = unpack(build("sdist", sources, tmp_path), tmp_path)
    assert (unpacked / "tests/conftest.py").is_file()
    assert (unpacked / "copier.yml").is_file()
    assert names_in(build("wheel", unpacked, tmp_path)) == names_in(wheel)


def test_the_links_of_the_readme_work_in_the_sdist_too(sources: Path, tmp_path: Path) -> None:
    """Protects the list of folders in the sdist: its README has the pictures of docs/."""
    unpacked = unpack(build("sdist", sources, tmp_path), tmp_path)
    targets = re.findall(r"\]\(([^):]+)\)", (unpacked / "README.md").read_text())
    assert "docs/segmentation-tensorboard.png" in targets
    for target in targets:
        assert (unpacked / target).exists(), target


def test_the_version_is_declared_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project
