"""What a project may be called.

The template's own validator says which characters a name has. This file says why a name is refused
and what to call the project instead, and it refuses names that would break the project later.
"""

import keyword
import re
import sys
import unicodedata
from collections.abc import Callable

from ddpgen.console import UsageFailure

MAX_LENGTH = 64
_ALLOWED = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_WINDOWS = {"con", "prn", "aux", "nul"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10)}

# What a generated project installs: `pip install -e .` of a project with one of these names would
# take the package's place. A test compares this with the template's pyproject.toml.
DEPENDENCIES = frozenset(
    {
        "copier", "ddpgen", "mlflow", "mypy", "numpy", "pip", "pytest", "ruff", "scikit-learn",
        "scipy", "setuptools", "sklearn", "tensorboard", "tomli-w", "torch", "torchvision", "tqdm",
        "tyro", "wandb",
    }
)  # fmt: skip


def check(name: str, retry: Callable[[str], str]) -> str | None:
    """Refuse a name that a project cannot have.

    Args:
        name: the name of the project.
        retry: returns what to type for another name.

    Returns:
        A warning about a name that works but will surprise, or None.

    Raises:
        Failure: says what is wrong with the name and suggests one that is allowed.
    """
    problem = _problem(name)
    if problem:
        message = f"{_shown(name)} cannot be a project's name: {problem}"
        raise UsageFailure(message, retry(suggest(name)))
    if keyword.issoftkeyword(name):
        return f"{name} is a word of Python's grammar in some places; another name reads better"
    return None


def suggest(name: str) -> str:
    """Return an allowed name that looks like the one given."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", plain)
    plain = re.sub(r"^[^A-Za-z]+", "", plain)[:MAX_LENGTH].rstrip("_-")
    if not plain:
        return "myproj"
    return plain if _problem(plain) is None else f"my_{plain}"[:MAX_LENGTH].rstrip("_-")


def _problem(name: str) -> str | None:
    return _bad_spelling(name) or _bad_meaning(name)


def _bad_spelling(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in {".", ".."}:
        return "it stands for a folder that exists"
    if name.startswith("-"):
        return "it starts with - like an option"
    if "/" in name or "\\" in name:
        return "it has a path separator"
    if any(unicodedata.category(character).startswith("C") for character in name):
        return "it has a character that cannot be printed"
    if len(name) > MAX_LENGTH:
        return f"it has {len(name)} characters, and {MAX_LENGTH} is the most"
    if not name.isascii():
        return "it has a letter outside of a-z and A-Z"
    if not name[0].isalpha():
        return "it does not start with a letter"
    if not _ALLOWED.fullmatch(name):
        return "it has more than letters, digits, - and _, or it ends with - or _"
    return None


def _bad_meaning(name: str) -> str | None:
    folded = name.lower()
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if folded in sys.stdlib_module_names or folded in {"test", "tests"}:
        return "it would hide a module of Python's standard library"
    if folded.replace("_", "-") in DEPENDENCIES:
        return "it would take the place of a package that the project needs"
    if folded in _WINDOWS:
        return "it is reserved on Windows"
    return None


def _shown(name: str) -> str:
    return repr(name) if len(name) <= MAX_LENGTH else repr(name[:24] + "...")
