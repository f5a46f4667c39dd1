"""A name that is accepted works everywhere; a refusal suggests one that is accepted."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import snapshot

from ddpgen import names, target
from ddpgen.console import UsageFailure
from ddpgen.render import ours, render
from ddpgen.template import Answer, questions

# Names of every kind: of letters that are allowed, of any text, and of words that mean something.
any_name = st.one_of(
    st.from_regex(r"\A[A-Za-z][A-Za-z0-9_-]{0,70}\Z"),
    st.text(max_size=80),
    st.sampled_from(["class", "torch", "test", "con", "match", "my proj", "-rf", "a" * 65]),
)


def refused(name: str) -> UsageFailure | None:
    """Return the refusal of a name, or None when it is accepted."""
    try:
        names.check(name, "ddpgen new {}".format)
    except UsageFailure as failure:
        return failure
    return None


@given(name=any_name)
@example(name="ok\n")
@example(name="\u212aelvin")  # a Kelvin sign, which lower() turns into an ordinary k
def test_what_is_accepted_is_plain(name: str) -> None:
    """Protects fullmatch in `_bad_spelling`: `$` would accept a newline at the end."""
    if refused(name) is None:
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?", name)


@given(name=any_name)
@example(name="class-")
@example(name="-" * 70 + "x" * 70)
@example(name="torch!")
@example(name="c" * 60 + "____con")
def test_what_is_suggested_is_accepted(name: str) -> None:
    failure = refused(name)
    if failure is not None:
        assert refused(names.suggest(name)) is None
        assert failure.hint == f"ddpgen new {names.suggest(name)}"
        assert "\n" not in failure.message


@settings(max_examples=25)
@given(name=any_name)
def test_what_is_accepted_renders_and_comes_back(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The template's own validator agrees with `names.check`."""
    if refused(name) is not None:
        return
    project = tmp_path_factory.mktemp("names") / name
    files = render(ours(), project, {"project_name": name})
    assert Path("model.py") in files
    recorded = yaml.safe_load((project / ".copier-answers.yml").read_text())
    assert recorded["project_name"] == name


@settings(max_examples=15)
@given(data=st.data())
def test_any_answers_render_and_come_back(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = {name: list(question.choices) for name, question in questions().items()}
    answers: dict[str, Answer] = {
        "project_name": "myproj",
        "gpus": data.draw(st.integers(1, 128)),
        "nodes": data.draw(st.integers(1, 4096)),
        "preset": data.draw(st.sampled_from(words["preset"])),
        "tracker": data.draw(st.sampled_from(words["tracker"])),
        "parts": [part for part in words["parts"] if data.draw(st.booleans())],
    }
    project = tmp_path_factory.mktemp("answers") / "myproj"
    render(ours(), project, answers)
    recorded = yaml.safe_load((project / ".copier-answers.yml").read_text())
    assert {name: recorded[name] for name in answers} == answers


@settings(max_examples=15)
@given(gpus=st.integers().filter(lambda number: not 1 <= number <= 128))
def test_a_number_out_of_bounds_writes_nothing(
    gpus: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bounds")
    with pytest.raises(UsageFailure, match="--gpus: must be a whole number from 1 to 128"):
        render(ours(), folder / "myproj", {"project_name": "myproj", "gpus": gpus})
    assert snapshot(folder) == {}


@settings(max_examples=200)
@given(value=st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.lists(st.text())))
def test_a_value_is_taken_as_meant_or_refused(value: object) -> None:
    """No value of another type slips through: Copier takes True for 1 and 4.7 for 4."""
    for question in questions().values():
        try:
            answer = question.parse(value)
        except ValueError:
            continue
        if question.type == "int":
            assert isinstance(value, str)
            assert int(value) == answer
        elif question.multiselect:
            assert isinstance(answer, list)
            assert set(answer) <= set(question.choices)
        else:
            assert answer == value


@given(typed=st.text(max_size=40))
def test_the_last_part_of_any_path_is_one_name(typed: str) -> None:
    try:
        name = target.name_of(typed)
    except UsageFailure:
        return
    assert name
    assert "/" not in name
    assert typed.rstrip("/").endswith(name)


@pytest.mark.parametrize("name", ["a", "Z9", "my-proj_2", "matching", "classy", "con2x"])
def test_ordinary_names_are_accepted(name: str) -> None:
    assert refused(name) is None


def test_names_of_what_a_project_installs_are_refused(tmp_path: Path) -> None:
    """The list in `names` has every dependency of the template's pyproject.toml."""
    render(ours(), tmp_path / "myproj", {"project_name": "myproj", "parts": ["ci"]})
    project = tomllib.loads((tmp_path / "myproj/pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0] for requirement in needed}
    assert "torch" in found
    assert all(refused(name) for name in found), found
