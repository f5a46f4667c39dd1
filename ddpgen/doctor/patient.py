"""The project that is examined, and how launch.sh would start it."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddpgen.console import Failure, UsageFailure
from ddpgen.project import Origin, read_origin


@dataclass(frozen=True)
class Patient:
    """The project that is examined.

    Attributes:
        folder: where it is, absolute.
        origin: what it was made from.
        python: the Python that launch.sh would use; None when there is none of that name.
        device: "auto", "cpu" or "cuda".
        machines: how many train together, at most.
        asked: how many processes were asked for; None when nobody said.
        usual: how many processes launch.sh would start on this machine.
    """

    folder: Path
    origin: Origin
    python: str | None
    device: str
    machines: int
    asked: int | None
    usual: int

    @property
    def venv(self) -> str | None:
        """A Python in the project's folder that launch.sh does not use by itself."""
        python = self.folder / ".venv" / "bin" / "python"
        used = self.python and Path(self.python).parent.resolve()
        return str(python) if python.exists() and python.parent.resolve() != used else None

    def processes(self, gpus: int, cores: int) -> int:
        """Return how many processes to try: as asked, or what is sensible here.

        On a CPU at least two, or nothing could be compared, and no more than it has cores.
        """
        if self.asked is not None:
            return self.asked
        if gpus:
            return min(self.usual, gpus)
        return max(2, min(self.usual, cores))


def admit(path: Path, asked: int | None, device: str) -> Patient:
    """Look at what a project says of itself.

    Raises:
        Failure: it is no project, or the environment has a number that is none.
    """
    try:
        origin = read_origin(path)
    except Failure as problem:
        raise UsageFailure(problem.message, problem.hint) from None
    folder = path.resolve()
    return Patient(
        folder=folder,
        origin=origin,
        python=find_python(folder, os.environ),
        device=device,
        machines=_machines(origin.answers.get("nodes")),
        asked=asked,
        usual=_number("NPROC", origin.answers.get("gpus")),
    )


def find_python(folder: Path, environment: Mapping[str, str]) -> str | None:
    """Return the Python that launch.sh would start: $PYTHON, or else `python`, on the PATH.

    A path in it starts from the project's folder, as in launch.sh.
    """
    name = environment.get("PYTHON") or "python"
    if os.sep not in name:
        return shutil.which(name)
    path = os.path.join(folder, name)
    return path if os.access(path, os.X_OK) and os.path.isfile(path) else None


def _machines(answer: object) -> int:
    """Return how many machines there are at most: NNODES may be a range such as 1:4."""
    text = os.environ.get("NNODES") or str(answer or 1)
    lowest, _, most = text.partition(":")
    return max(_whole("NNODES", lowest), _whole("NNODES", most or lowest))


def _number(name: str, answer: object) -> int:
    """Return what the environment says, or else the project's answer."""
    return _whole(name, os.environ.get(name) or str(answer or 1))


def _whole(name: str, text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageFailure(f"{name} must be a whole number of at least 1, got {text!r}")
    return int(text)
