"""What a few noisy rounds allow to say of a ratio: a median, and an interval around it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import comb

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median over rounds, and where the true median lies.

    Attributes:
        median: of the rounds.
        low: and `high`: the interval has the true median with a probability of CONFIDENCE, or as
            near to it as so few rounds come.
        rounds: how many there were.
    """

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        """Write the median with its interval."""
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"

    def verdict(self, bound: float) -> str:
        """Say whether it is at most the bound."""
        if 2 * 0.5**self.rounds > 1 - CONFIDENCE:
            return "too few rounds to tell"
        if self.high <= bound:
            return "yes"
        if self.low > bound:
            return "no"
        return "too noisy to tell"


def estimate(values: Iterable[float]) -> Estimate:
    """Return the median of one value for each round."""
    ordered = sorted(values)
    cut = _left_out(len(ordered))
    return Estimate(statistics.median(ordered), ordered[cut], ordered[-1 - cut], len(ordered))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Divide round by round: what disturbed a whole round cancels out."""
    return estimate(a / b for a, b in zip(ours, theirs, strict=True))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Subtract round by round."""
    return estimate(a - b for a, b in zip(ours, theirs, strict=True))


def _left_out(count: int) -> int:
    """Return how many values at each end the interval may leave out.

    The true median is outside when at most so many of the values are on one of its sides, which is
    as likely as so few heads of a coin. Rounds need to be independent, and nothing else.
    """
    tails = accumulate(comb(count, heads) * 0.5**count for heads in range(count // 2))
    return max(0, sum(2 * tail <= 1 - CONFIDENCE for tail in tails) - 1)
