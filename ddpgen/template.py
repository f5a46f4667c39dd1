"""Where the template is, what it asks, and what a project remembers of where it came from."""

import difflib
import fnmatch
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

# Recorded in every project, the same text on every machine; Copier expands the ~ itself.
SOURCE = "~/.local/share/ddpgen/template.bundle"
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
        type: "str", "int", "float" or "bool"; in other templates also "yaml", "json" or "path".
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
        return _PARSERS.get(self.type, _parse_yaml)(value)

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


def _parse_yaml(value: object) -> Answer:
    answer: Any = yaml.load(value, Loader=Loader) if isinstance(value, str) else value
    return cast(Answer, answer)


_PARSERS: dict[str, Callable[[object], Answer]] = {
    "yaml": _parse_yaml,
    "json": _parse_yaml,
    "path": _parse_str,
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "str": _parse_str,
}


@functools.cache
def _config() -> dict[str, Any]:
    text = (template_dir() / "copier.yml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.load(text, Loader=Loader)
    return config


@functools.cache
def _junk() -> tuple[str, ...]:
    return tuple(pattern for pattern in _config()["_exclude"] if "{%" not in pattern)


def belongs(path: Path) -> bool:
    """Say whether a file is part of the template, and not what trying it has left there.

    Args:
        path: relative to the template's folder.
    """
    return not any(fnmatch.fnmatch(part, pattern) for part in path.parts for pattern in _junk())


@dataclass(frozen=True)
class Preset:
    """What a project's model and data can start from, as the preset.yml in its folder declares it.

    Attributes:
        name: of its folder in template/presets.
        description: what it is, in a few words.
        data: what it is trained on.
        dependencies: what pyproject.toml has to name for it, besides what every project needs.
    """

    name: str
    description: str
    data: str
    dependencies: tuple[str, ...]

    @property
    def label(self) -> str:
        """How it is offered where one is asked for; template/copier.yml says the same in Jinja."""
        return f"{self.name}: {self.description} ({self.data})"


def presets(template: Path) -> list[Preset]:
    """Return the presets of a template, sorted by name."""
    found = []
    for folder in ("presets", "template/presets"):  # the latter from the root of a repository
        for file in sorted(template.glob(f"{folder}/*/preset.yml")):
            declared: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=Loader)
            dependencies = tuple(declared["dependencies"])
            name, data = file.parent.name, declared["data"]
            found.append(Preset(name, declared["description"], data, dependencies))
    return found


@functools.cache
def questions() -> dict[str, Question]:
    """Return the template's questions by name, in the order in which they are asked."""
    config = _config()
    return {
        name: make_question(name, details, template_dir())
        for name, details in config.items()
        if not name.startswith("_")  # a leading underscore is a setting of Copier
    }


def make_question(name: str, details: Any, template: Path) -> Question:
    """Return the question that an entry of a copier.yml stands for; Copier has a short form too.

    Args:
        name: the key in copier.yml.
        details: what stands there.
        template: the folder of copier.yml.
    """
    if not isinstance(details, dict):
        details = {"default": details}
    choices = details.get("choices", {})
    if isinstance(choices, list):
        choices = {str(choice): choice for choice in choices}
    elif isinstance(choices, str) and name == "preset":  # Copier reads the same files in Jinja
        choices = {found.label: found.name for found in presets(template)}
    # Choices with conditions, or an expression of Jinja: only Copier can evaluate them.
    plain = isinstance(choices, dict) and all(isinstance(it, str) for it in choices.values())
    described = {value: label for label, value in choices.items()} if plain else {}
    several = details.get("multiselect", False)
    return Question(
        name=name,
        type=details.get("type", "yaml") if plain or not several else "yaml",
        help=details.get("help", ""),
        default=details.get("default", ""),
        choices=described,
        multiselect=bool(several and described),
    )
