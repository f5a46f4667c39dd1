"""The tool as people have it, a wheel installed into an environment, and projects that it made."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Project
from filelock import FileLock
from hypothesis import HealthCheck, settings
from patients import Patient, make_project
from releases import NEWEST, OLD, at, make_releases
from support import ROOT, Tool, git
from updates import make_original
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# The same examples in every run, and no limit on time: a slow machine is no bug.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_configure() -> None:
    """Let the programs under test get every signal: a shell ignores some for what it starts with &.

    A program inherits what is ignored, and no trap of bash can change that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first: at the end, one of them would be alone at work."""
    items.sort(key=lambda item: "passes_its_own_tests" not in item.name)


class Spread(LoadScopeScheduling):  # type: ignore[misc]  # has no types
    """Each test goes to any process, but the tests of some files stay together."""

    # One set of daemons and one project. A mark would be the place to say so, but the scheduler
    # sees names only, and the marks of pytest-xdist 3.8 have no effect with pytest 9.2.
    together = frozenset({"test_slurm.py"})

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0].rsplit("/")[-1]
        return file if file in self.together else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spread:
    """Schedule for `pytest -n`."""
    return Spread(config, log)


@contextlib.contextmanager
def made_once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """Give a folder that all workers of pytest-xdist share, and whether to fill it now."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    with FileLock(shared / f"{name}.lock"):
        yield folder, not folder.exists()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    with made_once(tmp_path_factory, "dist") as (folder, missing):
        if missing:
            subprocess.run(
                [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder],
                cwd=ROOT,
                check=True,
                capture_output=True,
            )
        (found,) = folder.glob("ddpgen-*.whl")
    return found


@pytest.fixture(scope="session")
def executable(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `ddpgen` of an environment where the wheel is installed, not the checkout.

    The environment borrows the dependencies of the one that runs the tests: that takes no network.
    """
    with made_once(tmp_path_factory, "environment") as (folder, missing):
        if missing:
            venv.create(folder, with_pip=False, symlinks=True)
            (site,) = folder.glob("lib/python*/site-packages")
            borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
            (site / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
            subprocess.run(
                [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet",
                 "--no-deps", "--no-index", "--force-reinstall", wheel],
                check=True,
                capture_output=True,
            )  # fmt: skip
    return folder / "bin" / "ddpgen"


def make_tool(executable: Path, folder: Path) -> Tool:
    """Return the installed tool in an empty folder, with an empty home and a git of nobody."""
    home, box = folder / "home", folder / "box"
    home.mkdir()
    box.mkdir()
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "PYTHON", "XDG_", "COPIER_", "CLICK_", "LC_"))
    }
    git = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": str(folder)}
    return Tool(executable, box, {**inherited, **git, "HOME": str(home), "LANG": "C.UTF-8"})


@pytest.fixture
def tool(executable: Path, tmp_path: Path) -> Tool:
    """The installed tool in an empty folder, with an empty home and a git that knows nobody."""
    return make_tool(executable, tmp_path)


@pytest.fixture(scope="session")
def committed(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the project of `patients.py` in it, to be copied."""
    with made_once(tmp_path_factory, "committed") as (folder, missing):
        if missing:
            folder.mkdir()
            make_project(make_tool(executable, folder))
    return folder / "box"


@pytest.fixture
def patient(committed: Path, tool: Tool) -> Patient:
    """A generated project, committed, that may be made ill."""
    shutil.copytree(committed, tool.cwd, dirs_exist_ok=True)
    return Patient(tool, tool.cwd / "proj")


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one checkout for each release of `releases.py`."""
    with made_once(tmp_path_factory, "shelf") as (folder, missing):
        if missing:
            make_releases(folder)
    return folder


@pytest.fixture
def old(tool: Tool, shelf: Path) -> Tool:
    """The tool of the oldest release."""
    return at(tool, shelf, OLD)


@pytest.fixture
def newest(tool: Tool, shelf: Path) -> Tool:
    """The tool of the newest release."""
    return at(tool, shelf, NEWEST)


@pytest.fixture(scope="session")
def original(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of `updates.py`, to be copied."""
    with made_once(tmp_path_factory, "original") as (folder, missing):
        if missing:
            home = folder / "home"
            home.mkdir(parents=True)
            env = {"HOME": str(home), "PATH": "/usr/bin:/bin:/usr/local/bin", "LANG": "C.UTF-8"}
            make_original(shelf, folder, env)
    return folder / "proj"


@pytest.fixture
def proj(original: Path, tool: Tool) -> Path:
    """A copy of that project, below the folder that the tool is started in."""
    project = tool.cwd / "proj"
    shutil.copytree(original, project)
    git(project, "status")  # the copies have other times: let git look at them once
    return project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A generated project; whatever was started in it is ended."""
    made = Project(tmp_path / "project")
    yield made
    for job in made.jobs:
        job.end()
