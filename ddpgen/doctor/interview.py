"""What the project's own Python says of itself, asked by inside/probe.py."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpgen.doctor import processes
from ddpgen.doctor.patient import Patient

# Of a run that the doctor may be started from: they would make its processes part of that run.
FOREIGN = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "STORE_FILE",
    "EXIT_CODE_FILE",
    "LAUNCHER_PID",
    "SETTINGS_FILE",
)


@dataclass(frozen=True)
class Inside:
    """What probe.py has told; a dictionary is empty when it did not come so far.

    Attributes:
        python: the version; "" when that Python does not start.
        packages: the version of each installed package.
        torch: its version and GPUs, or an "error".
        settings: those of the project, or an "error".
        last_words: the last line that was printed.
    """

    python: str
    packages: dict[str, str]
    torch: dict[str, Any]
    settings: dict[str, Any]
    last_words: str

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs that torch sees."""
        found: list[dict[str, Any]] = self.torch.get("gpus", [])
        return found

    @property
    def can_train(self) -> bool:
        """Whether torch and the settings are there."""
        return all(facts and "error" not in facts for facts in (self.torch, self.settings))


def ask(patient: Patient, scratch: Path, patience: float) -> Inside:
    """Ask the project's Python.

    Args:
        patient: the project.
        scratch: for temporary files.
        patience: seconds after which it hangs.
    """
    if patient.python is None:
        return Inside("", {}, {}, {}, "")
    probe = str(processes.INSIDE / "probe.py")
    command = [patient.python, probe, "FILE", str(patient.folder)]
    try:
        (asked,) = processes.run([command], scratch, patience, [environment(scratch)])
    except OSError as problem:  # no program, or not for this machine
        return Inside("", {}, {}, {}, problem.strerror or str(problem))
    return Inside(
        python=asked.fact("python") or "",
        packages=asked.fact("packages") or {},
        torch=asked.fact("torch") or {},
        settings=asked.fact("settings") or {},
        last_words=asked.last_words(),
    )


def environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which the project's Python leaves nothing in the project."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(scratch)}
