"""Where the template is, what it asks, and what a project remembers of where it came from."""

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ddpgen import __version__

# Recorded in every project, the same text on every machine; Copier expands the ~ itself.
SOURCE = "~/.local/share/ddpgen/template.bundle"
REVISION = f"v{__version__}"
SOURCE_KEYS = ("_commit", "_src_path")
ANSWERS_FILE = ".copier-answers.yml"

# A question is the option of the same name, except where English wants another word, and except
# for the project's name, which comes from the path.
_OPTION_NAMES = {"parts": "--with", "project_name": "--set project_name"}

Answer = str | int | float | bool | list[str]

# The C parser is five times as fast; it is missing only where PyYAML was built without libyaml.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def template_dir() -> Path:
    """Return the template's folder: inside an installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "_template"
    return packaged if packaged.is_dir() else here.parent / "template"


@dataclass(frozen=True)
class Question:
    """One question of template/copier.yml.

    Attributes:
        name: the key in copier.yml and in the project's answers file.
        type: "str", "int", "float" or "bool".
        help: what is asked, in one line.
        default: the answer when nobody is asked; a str may be a Jinja expression.
        choices: the allowed values, each with its description; empty when any is allowed.
        multiselect: whether the answer is a list of choices.
    """

    name: str
    type: str
    help: str
    default: Answer
    choices: Mapping[str, str]
    multiselect: bool

    @property
    def option(self) -> str:
        """What to type to answer this question."""
        return _OPTION_NAMES.get(self.name, "--" + self.name.replace("_", "-"))

    @property
    def computed(self) -> bool:
        """Whether the default is a Jinja expression, and so not known before rendering."""
        return isinstance(self.default, str) and "{{" in self.default

    def parse(self, value: object) -> Answer:
        """Return the answer that a word of the command line or a YAML value stands for.

        Raises:
            ValueError: it is of the wrong type or not one of the choices; says what is allowed.
        """
        if self.multiselect:
            return self._parse_list(value)
        if self.choices:
            return self._choice(value)
        return _PARSERS[self.type](value)

    def _parse_list(self, value: object) -> list[str]:
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",") if word.strip()]
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is not a list; choose from {', '.join(self.choices)}")
        given = [self._choice(item) for item in value]
        return [choice for choice in self.choices if choice in given]

    def _choice(self, value: object) -> str:
        if isinstance(value, str) and value in self.choices:
            return value
        guess = closest(str(value), self.choices)
        mean = f"did you mean {guess}? " if guess else ""
        raise ValueError(f"{value!r} is not a choice; {mean}choose from {', '.join(self.choices)}")


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, if there is one."""
    found = difflib.get_close_matches(word, list(words), n=1)
    return found[0] if found else None


def _parse_int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.removeprefix("-") if isinstance(value, str) else ""
    if isinstance(value, str) and text.isascii() and text.isdigit() and len(text) <= 18:
        return int(value)
    raise ValueError(f"{value!r} is not a whole number")


def _parse_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None


def _parse_bool(value: object) -> bool:
    words = {"true": True, "yes": True, "false": False, "no": False}
    answer = value if isinstance(value, bool) else words.get(str(value).lower())
    if answer is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return answer


def _parse_str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text; put it in quotes")
    return value


_PARSERS: dict[str, Callable[[object], Answer]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "str": _parse_str,
}


@functools.cache
def questions() -> dict[str, Question]:
    """Return the template's questions by name, in the order in which they are asked."""
    text = (template_dir() / "copier.yml").read_text(encoding="utf-8")
    config = yaml.load(text, Loader=Loader)
    return {
        name: _question(name, details)
        for name, details in config.items()
        if not name.startswith("_")  # a leading underscore is a setting of Copier
    }


def _question(name: str, details: Mapping[str, Any]) -> Question:
    choices = details.get("choices", {})
    if isinstance(choices, list):
        described = {choice: choice for choice in choices}
    else:
        described = {value: label for label, value in choices.items()}
    return Question(
        name=name,
        type=details["type"],
        help=details.get("help", ""),
        default=details["default"],
        choices=described,
        multiselect=details.get("multiselect", False),
    )
