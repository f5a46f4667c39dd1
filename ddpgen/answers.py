"""The answers that were given: an option wins over --set, and --set over --answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ddpgen.console import UsageFailure
from ddpgen.template import SOURCE_KEYS, Answer, Loader, Question, closest

# Enough for any file of answers; a device such as /dev/zero does not end.
_MOST_BYTES = 1 << 20


def collect(
    questions: Mapping[str, Question],
    options: Mapping[str, Answer],
    assignments: Sequence[str],
    file: Path | None,
) -> dict[str, Answer]:
    """Return the answers that were given, by the name of their question.

    Args:
        questions: what the template asks.
        options: answers that were given by an option of their own.
        assignments: the values of --set, each "KEY=VALUE".
        file: the value of --answers; the name in another project's answers file is that project's.

    Raises:
        Failure: names the key and, for a file, the line.
    """
    assigned_here = assigned(questions, assignments)
    for name in options.keys() & assigned_here.keys():
        if options[name] != assigned_here[name]:
            raise UsageFailure(
                f"{questions[name].option} and --set {name}=... give different answers",
                f"give {name} once",
            )
    from_file, of_a_project = _read(questions, file) if file else ({}, False)
    if of_a_project:
        from_file.pop("project_name", None)
    return {**from_file, **assigned_here, **options}


def assigned(questions: Mapping[str, Question], assignments: Sequence[str]) -> dict[str, Answer]:
    """Return the answers that the values of --set, each "KEY=VALUE", stand for.

    Raises:
        Failure: names the key.
    """
    answers: dict[str, Answer] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageFailure(
                f"--set {assignment!r} has no =", "--set KEY=VALUE, such as --set gpus=4"
            )
        question = _known(questions, name, "--set")
        if name in answers:
            raise UsageFailure(f"--set {name}=... is given twice", f"give {name} once")
        answers[name] = _parsed(question, value, f"--set {name}")
    return answers


def read_file(questions: Mapping[str, Question], file: Path) -> dict[str, Answer]:
    """Return the answers in a YAML file; the answers file of another project will do.

    Raises:
        Failure: the file cannot be read, is not a mapping, or has a key or value that is wrong.
    """
    answers, _ = _read(questions, file)
    return answers


def _read(questions: Mapping[str, Question], file: Path) -> tuple[dict[str, Answer], bool]:
    """Return the answers in a YAML file, and whether it is the answers file of a project."""
    root = compose(file)
    if not isinstance(root, yaml.MappingNode):
        raise UsageFailure(f"{file} holds no answers", "write lines such as `gpus: 4` into it")
    answers: dict[str, Answer] = {}
    seen: set[str] = set()
    for key, value in root.value:
        where = f"{file}, line {key.start_mark.line + 1}"
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        if name in seen:
            raise UsageFailure(f"{where}: {name} is given twice", f"give {name} once")
        seen.add(name)
        if name in SOURCE_KEYS:  # where another project came from is no answer
            continue
        question = _known(questions, name, where)
        answers[name] = _parsed(question, _value(value), f"{where}: {name}")
    return answers, not seen.isdisjoint(SOURCE_KEYS)


def compose(file: Path) -> yaml.Node | None:
    """Read a file of answers, with the line of everything in it.

    Raises:
        Failure: it cannot be read, or is no YAML.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise UsageFailure(f"{file} is too large to be a file of answers")
        node: yaml.Node | None = yaml.compose(text.decode("utf-8"), Loader=Loader)
    except OSError as problem:
        raise UsageFailure(f"cannot read {file}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise UsageFailure(f"{file} is not a text file", "write lines such as `gpus: 4`") from None
    except (yaml.YAMLError, RecursionError) as problem:
        raise UsageFailure(
            f"{file}{_line_of(problem)} is not valid YAML{_reason_of(problem)}"
        ) from None
    return node


def _line_of(problem: Exception) -> str:
    mark = getattr(problem, "problem_mark", None)
    return f", line {mark.line + 1}," if mark else ""


def _reason_of(problem: Exception) -> str:
    reason = getattr(problem, "problem", None) or getattr(problem, "reason", None)
    return f": {reason}" if reason else ""


class _Unreadable:
    """A value that answers no question: each of them refuses its type."""

    def __repr__(self) -> str:
        return "a nested or malformed value"


def _value(node: yaml.Node) -> object:
    """Return a scalar or a list of scalars; no answer is nested deeper."""
    if isinstance(node, yaml.SequenceNode):
        return [_scalar(item) for item in node.value]
    return _scalar(node)


def _scalar(node: yaml.Node) -> object:
    if not isinstance(node, yaml.ScalarNode):
        return _Unreadable()
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError):
        return _Unreadable()


def _known(questions: Mapping[str, Question], name: str, where: str) -> Question:
    if name in questions:
        return questions[name]
    guess = closest(name, questions)
    hint = f"did you mean {guess}?" if guess else f"one of {', '.join(questions)}"
    raise UsageFailure(f"{where}: there is no question {name!r}", hint)


def _parsed(question: Question, value: object, where: str) -> Answer:
    try:
        return question.parse(value)
    except ValueError as problem:
        raise UsageFailure(f"{where}: {problem}", "ddpgen new --help") from None
