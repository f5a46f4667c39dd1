"""One line of the report: what was looked at, what was found, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes:
        check: what was looked at.
        status: "error" when the project cannot train as it is, or trains wrongly; "warning" when
            it trains, but something should be known; "skipped" when something else has to be
            repaired first.
        found: what is there, in one line.
        remedy: what to do, in one line; "" when there is nothing to do.
    """

    check: str
    status: Status
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(check, "ok", found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that does not keep the project from training."""
    return Finding(check, "warning", found, remedy)


def error(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that has to be repaired."""
    return Finding(check, "error", found, remedy)


def skipped(check: str, why: str) -> Finding:
    """Return a finding of what could not be looked at yet."""
    return Finding(check, "skipped", why)
