"""Link a project that has lost its answers file to the release that is closest to it."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddpgen import config, render, store
from ddpgen.console import Failure
from ddpgen.source import Template
from ddpgen.template import ANSWERS_FILE, Answer, Question

# A number and a word that no template has, to see where an answer goes.
_NUMBER, _WORD = 97, "Zq7sentinel"
# Of the files of a release, how many a project of ddpgen has at least.
_ENOUGH = 0.5


@dataclass(frozen=True)
class Candidate:
    """A release that a project may have been made from.

    Attributes:
        revision: its tag.
        answers: with which it was probably made.
        lines: how many lines differ.
        files: the files that differ.
        pristine: a folder with what the release makes of the answers.
    """

    revision: str
    answers: dict[str, Answer]
    lines: int
    files: tuple[str, ...]
    pristine: Path


class Guesser:
    """Finds out of a project how a release would have been asked for it.

    Args:
        project: the project's folder.
        template: the template.
        place: an empty folder for the work.
    """

    def __init__(self, project: Path, template: Template, place: Path) -> None:
        """Remember them."""
        self._project = project
        self._template = template
        self._place = place
        self._rendered: dict[str, Path] = {}

    def best(self, given: Mapping[str, Answer]) -> Candidate:
        """Return the release with the smallest difference; the latest of those that are equal.

        Args:
            given: the answers that are known.

        Raises:
            Failure: the project is not shaped like one of ddpgen.
        """
        tags = store.known()
        answers = self._guess(tags[-1], given)
        candidates = [self._candidate(tag, answers) for tag in tags if self._takes(tag, answers)]
        made = {name for it in candidates for name in render.files_in(it.pristine)}
        best = min(
            reversed(candidates), key=lambda it: it.lines + self._unexplained(made, it.pristine)
        )
        names = render.files_in(best.pristine)
        here = [name for name in names if (self._project / name).is_file()]
        if len(here) < _ENOUGH * len(names):
            raise Failure(
                f"{self._project} is no project of ddpgen: it has {len(here)} of the {len(names)} "
                f"files of {best.revision}",
                "ddpgen new makes a project",
            )
        return best

    def _questions(self, tag: str) -> dict[str, Question]:
        return config.questions_in(self._template.checkout_once(tag, self._place))

    def _takes(self, tag: str, answers: Mapping[str, Answer]) -> bool:
        """Say whether a release knows these choices; an earlier one may not."""
        try:
            for name, question in self._questions(tag).items():
                if name in answers:
                    question.parse(answers[name])
        except ValueError:
            return False
        return True

    def _candidate(self, tag: str, answers: Mapping[str, Answer]) -> Candidate:
        asked = self._questions(tag)
        known = {name: answer for name, answer in answers.items() if name in asked}
        pristine = self._render(tag, known)
        counts = {name: self._distance(pristine, name) for name in render.files_in(pristine)}
        files = tuple(name for name, count in counts.items() if count)
        return Candidate(tag, known, sum(counts.values()), files, pristine)

    def _guess(self, tag: str, given: Mapping[str, Answer]) -> dict[str, Answer]:
        questions = self._questions(tag)
        answers: dict[str, Answer] = {"project_name": self._project.name, **given}
        for name, question in questions.items():
            if name not in given and not question.choices:
                found = self._read_out(tag, question, answers)
                answers |= {name: found} if found is not None else {}
        for name, question in questions.items():
            if name not in given and question.choices:
                answers[name] = self._choose(tag, question, answers)
        return answers

    def _choose(self, tag: str, question: Question, answers: Mapping[str, Answer]) -> Answer:
        """Return the choice that is closest; of parts, each that brings it closer."""
        if not question.multiselect:
            return min(question.choices, key=lambda it: self._total(tag, answers, question, it))
        chosen: list[str] = []
        least = self._total(tag, answers, question, [])
        for choice in question.choices:
            total = self._total(tag, answers, question, [*chosen, choice])
            if total < least:
                chosen, least = [*chosen, choice], total
        return chosen

    def _total(
        self, tag: str, answers: Mapping[str, Answer], question: Question, answer: Answer
    ) -> int:
        pristine = self._render(tag, {**answers, question.name: answer})
        lines = sum(self._distance(pristine, name) for name in render.files_in(pristine))
        return lines + self._unexplained(self._files_of_all(tag, answers), pristine)

    def _unexplained(self, names: set[str], pristine: Path) -> int:
        """Count the lines of the project's files that only another choice or release makes."""
        return sum(
            _count_lines(self._project / name)
            for name in names - set(render.files_in(pristine))
            if (self._project / name).is_file()
        )

    def _files_of_all(self, tag: str, answers: Mapping[str, Answer]) -> set[str]:
        """Return the files of a project that has every part."""
        questions = self._questions(tag).values()
        every: dict[str, Answer] = {it.name: list(it.choices) for it in questions if it.multiselect}
        return set(render.files_in(self._render(tag, {**answers, **every})))

    def _read_out(
        self, tag: str, question: Question, answers: Mapping[str, Answer]
    ) -> Answer | None:
        """Find where an answer goes by a value that stands nowhere else, and read what is there."""
        value: Answer = _NUMBER if question.type == "int" else _WORD
        pattern = r"(\d+)" if question.type == "int" else r"([A-Za-z][A-Za-z0-9_-]*)"
        marked = self._render(tag, {**answers, question.name: value})
        for name in render.files_in(marked):
            mine = self._project / name
            if name == ANSWERS_FILE or not mine.is_file():
                continue
            for line in _lines(marked / name):
                if line.count(str(value)) == 1:
                    before, after = map(re.escape, line.split(str(value)))
                    whole = re.compile(f"{before}{pattern}{after}")
                    for found in filter(None, map(whole.fullmatch, _lines(mine))):
                        return int(found[1]) if question.type == "int" else found[1]
        return None

    def _render(self, tag: str, answers: Mapping[str, Answer]) -> Path:
        """Return a folder with what a release makes of answers; one for the same answers."""
        key = f"{tag} {sorted(answers.items())}"
        if key not in self._rendered:
            made = self._place / "guess" / str(len(self._rendered)) / self._project.name
            render.copy(self._template.checkout_once(tag, self._place), made, answers)
            self._rendered[key] = made
        return self._rendered[key]

    def _distance(self, pristine: Path, name: str) -> int:
        """Return how many lines of a file differ; all of them where there is none."""
        if name == ANSWERS_FILE:
            return 0
        theirs, mine = pristine / name, self._project / name
        if not mine.is_file():
            return _count_lines(theirs)
        if mine.read_bytes() == theirs.read_bytes():
            return 0
        matcher = difflib.SequenceMatcher(None, _lines(theirs), _lines(mine), autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
        return len(_lines(theirs)) + len(_lines(mine)) - 2 * same


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines()


def _count_lines(file: Path) -> int:
    return len(_lines(file)) + 1
