"""The options of `ddpgen new` that answer the template's questions, made from their declaration."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ddpgen.template import Answer, Question

if TYPE_CHECKING:
    _ParamType = click.ParamType[Answer]
else:
    _ParamType = click.ParamType  # generic only from click 8.4 on

Function = TypeVar("Function", bound=Callable[..., Any])


def question_options(questions: Mapping[str, Question]) -> Callable[[Function], Function]:
    """Return a decorator that gives a command one option for each question, in the same order.

    The project's name has no option: it comes from the path.
    """

    def decorate(function: Function) -> Function:
        for question in reversed(list(questions.values())):  # decorators apply from the bottom up
            if question.name != "project_name":
                function = _option(question)(function)
        return function

    return decorate


def _option(question: Question) -> Callable[[Function], Function]:
    help_text = question.help
    if question.choices:
        help_text = f"{help_text}: {', '.join(question.choices)}"
    return click.option(
        question.option,
        question.name,
        type=AnswerType(question),
        metavar=_metavar(question),
        help=f"{help_text}. [default: {_default(question)}]",
    )


def _metavar(question: Question) -> str:
    if question.multiselect:
        return "A,B,..."
    if question.choices:
        return "NAME"
    return {"int": "N", "float": "X", "bool": "true|false"}.get(question.type, "TEXT")


def _default(question: Question) -> str:
    if question.computed:
        return "computed"
    if isinstance(question.default, list):
        return ",".join(question.default) or "none of them"
    return str(question.default).lower() if question.type == "bool" else str(question.default)


class AnswerType(_ParamType):
    """What an option takes: the words that its question takes."""

    def __init__(self, question: Question) -> None:
        """Remember the question."""
        self.question = question
        self.name = question.type

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Answer:
        """Return the answer that a word stands for, or end with what is allowed."""
        try:
            return self.question.parse(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete a choice; in a list, the one behind the last comma."""
        before, comma, last = "", "", incomplete
        if self.question.multiselect:
            before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{choice}", help=label)
            for choice, label in self.question.choices.items()
            if choice.startswith(last) and choice not in before.split(",")
        ]
