"""The project's Python and what is installed for it, against what the project asks for."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpgen.doctor.finding import Finding, error, ok, skipped
from ddpgen.doctor.interview import Inside
from ddpgen.doctor.patient import Patient

INSTALL = "-m pip install -e ."


@dataclass(frozen=True)
class Bounds:
    """What the project's pyproject.toml asks for.

    Attributes:
        python: such as ">=3.11"; "" when it does not say.
        packages: each as written, such as "torch>=2.13".
        problem: why it could not be read; "" when it could.
    """

    python: str = ""
    packages: tuple[str, ...] = ()
    problem: str = ""


def read_bounds(folder: Path) -> Bounds:
    """Read what the project asks for."""
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        table = tomllib.loads(text)["project"]
        return Bounds(table.get("requires-python", ""), tuple(table.get("dependencies", ())))
    except OSError as problem:
        return Bounds(problem=problem.strerror or str(problem))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        return Bounds(problem=f"no valid table [project]: {problem}")


def check_software(patient: Patient, bounds: Bounds, inside: Inside) -> Iterator[Finding]:
    """Compare what is installed with what is asked for. Yields one finding for each subject."""
    yield check_python(patient, bounds, inside)
    yield check_packages(patient, bounds, inside)
    yield check_torch(patient, bounds, inside)
    yield check_settings(inside)


def check_python(patient: Patient, bounds: Bounds, inside: Inside) -> Finding:
    """Is it the Python that launch.sh starts, and new enough?"""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if patient.python is None:
        use = f"PYTHON={patient.venv}" if patient.venv else "PYTHON=/path/to/python"
        return error("python", "launch.sh would find no `python`", f"export {use}")
    if not inside.python:
        return error(
            "python",
            f"{patient.python} does not start: {inside.last_words or 'it says nothing'}",
            "export PYTHON=/path/to/another/python, or make the environment again",
        )
    found = f"{inside.python} ({patient.python})"
    try:
        fits = SpecifierSet(bounds.python).contains(inside.python, prereleases=True)
    except InvalidSpecifier as problem:
        return error("python", f"pyproject.toml: {problem}", 'requires-python = ">=3.11"')
    if not fits:
        return error(
            "python",
            f"{found}, but the project needs {bounds.python}",
            "export PYTHON=/path/to/a/python of that version, with the project installed in it",
        )
    return ok("python", f"{found}, needs {bounds.python or 'any'}")


def check_packages(patient: Patient, bounds: Bounds, inside: Inside) -> Finding:
    """Is every dependency but torch there, in a version within its bounds?"""
    if bounds.problem:
        return error("packages", f"pyproject.toml: {bounds.problem}", "git checkout pyproject.toml")
    if not inside.python:
        return skipped("packages", "needs a Python that starts")
    try:
        wrong, number = _wrong(bounds, inside)
    except ValueError as problem:  # InvalidRequirement is one
        return error("packages", f"pyproject.toml: {problem}", "correct that line of dependencies")
    if wrong:
        return error("packages", ", ".join(wrong), _install(patient))
    return ok("packages", f"all {number} are there, within the project's bounds")


def _wrong(bounds: Bounds, inside: Inside) -> tuple[list[str], int]:
    """Return what is missing or out of bounds, torch left out, and how many were looked at."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    wrong, number = [], 0
    here = {"python_version": ".".join(inside.python.split(".")[:2])}
    for text in bounds.packages:
        asked = Requirement(text)
        name = canonicalize_name(asked.name)
        applies = asked.marker is None or asked.marker.evaluate(here)
        if name == "torch" or not applies:
            continue
        number += 1
        version = inside.packages.get(name)
        if version is None:
            wrong.append(f"{name} is not installed")
        elif not asked.specifier.contains(version, prereleases=True):
            wrong.append(f"{name} {version} is not {asked.specifier}")
    return wrong, number


def check_torch(patient: Patient, bounds: Bounds, inside: Inside) -> Finding:
    """Can torch be imported, does it have torch.distributed, is it within the bounds?"""
    from packaging.requirements import InvalidRequirement, Requirement

    if not inside.python:
        return skipped("torch", "needs a Python that starts")
    if not inside.torch:
        return error("torch", f"the import ends Python: {inside.last_words}", "install torch again")
    if "error" in inside.torch:
        return error("torch", f"cannot be imported: {inside.torch['error']}", _install(patient))
    version = inside.torch["version"]
    if not inside.torch["distributed"]:
        return error(
            "torch", f"{version} was built without torch.distributed", "install torch from PyPI"
        )
    for text in bounds.packages:
        try:
            asked = Requirement(text)
        except InvalidRequirement:  # the line above this one says so
            continue
        if asked.name == "torch" and not asked.specifier.contains(version, prereleases=True):
            return error("torch", f"{version}, but the project needs {text}", _install(patient))
    return ok("torch", f"{version}, within the project's bounds")


def check_settings(inside: Inside) -> Finding:
    """Can the project read its own settings?"""
    if not inside.settings:
        return skipped("settings", "needs a Python that starts")
    if "error" in inside.settings:
        return error(
            "settings",
            inside.settings["error"],
            "correct it; `./launch.sh --help` lists them",
        )
    return ok("settings", "config.py and configs/default.toml can be read")


def _install(patient: Patient) -> str:
    if patient.venv:
        return f"export PYTHON={patient.venv}, which launch.sh then uses"
    return f"cd {patient.folder} && {patient.python} {INSTALL}"
