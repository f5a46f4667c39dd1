"""A project that is being worked on: its template is at hand, and there is a place for the work."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpgen import config, project, render, scratch, staging, store
from ddpgen.console import Failure
from ddpgen.project import Origin, Repository
from ddpgen.source import Template, open_template
from ddpgen.template import ANSWERS_FILE, Question


@dataclass(frozen=True)
class Work:
    """A project, its repository and its template.

    Attributes:
        folder: the project, as an absolute path.
        repository: where git keeps it.
        origin: what its answers file says.
        template: the template that it was made from.
        place: an empty folder for the work, in the git folder.
        trust: whether the template may run its tasks, migrations and extensions.
    """

    folder: Path
    repository: Repository
    origin: Origin
    template: Template
    place: Path
    trust: bool = False

    def files_of(self, revision: str) -> Path:
        """Return a folder with the template at a revision."""
        return self.template.checkout_once(revision, self.place)

    def questions(self, revision: str) -> dict[str, Question]:
        """Return what the template asks at a revision."""
        return config.questions_in(self.files_of(revision))

    def pristine(
        self, revision: str, answers: Mapping[str, object], only: Sequence[str] = ()
    ) -> Path:
        """Return a folder with what the template makes of answers, untouched.

        Args:
            revision: of the template.
            answers: to its questions; those that it does not ask are left out.
            only: the files that are wanted; all when there are none.
        """
        number = len(list(self.place.glob("pristine-*")))
        made = self.place / f"pristine-{number}" / self.folder.name
        asked = self.questions(revision)
        known = {name: value for name, value in answers.items() if name in asked}
        exclude = ["*", *(f"!{name}" for name in only)] if only else []
        render.copy(self.files_of(revision), made, known, exclude=exclude, trust=self.trust)
        if (made / ANSWERS_FILE).exists():
            render.record_source(made / ANSWERS_FILE, self.origin.source, self.origin.commit)
        return made


@contextlib.contextmanager
def begin(folder: Path, *, trust: bool = False) -> Iterator[Work]:
    """Read a project, put right what a killed command has left, and get its template.

    Signals are held back inside, but for what is in `staging.interruptible`.

    Raises:
        Failure: it is no project, is in no git repository, or its template cannot be had.
    """
    folder = Path(os.path.realpath(folder))
    origin = project.read_origin(folder)
    repository = project.locate(folder)
    with scratch.folder(repository) as place:
        origin = project.read_origin(folder)  # once more: it may just have been put right
        with staging.interruptible():
            template = open_template(origin.source, place / "template")
            _refuse_unknown(origin, template)
        yield Work(folder, repository, origin, template, place, trust)


def _refuse_unknown(origin: Origin, template: Template) -> None:
    file = f"{ANSWERS_FILE}, line {origin.lines['_commit']}"
    if not template.ours:
        if template.commit_of(origin.commit) is None:
            raise Failure(f"{file}: the template {origin.source} has no revision {origin.commit!r}")
        return
    if origin.commit in {*store.known(), *store.tags()}:
        return
    project.refuse_newer(origin)
    raise Failure(
        f"{origin.commit} is a template that was being worked on, on another machine",
        f"delete {ANSWERS_FILE}, commit, and ddpgen adopt finds the release that is closest",
    )
