"""What a few noisy rounds allow to say of a ratio: a median, and an interval around it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """The median of ratios that were taken in the same round, and where the true median lies.

    Attributes:
        median: of the rounds.
        low: and `high`: the interval has the true median with a probability of CONFIDENCE, or as
            near to it as so few rounds come.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"

    def verdict(self, bound: float) -> str:
        """Say whether it is at most the bound."""
        if self.high <= bound:
            return "yes"
        if self.low > bound:
            return "no"
        return "too noisy to tell"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Compare round by round: what disturbed a whole round cancels out."""
    values = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    cut = _outside(len(values))
    return Ratio(statistics.median(values), values[cut], values[-1 - cut])


def _outside(count: int) -> int:
    """Return how many values at each end an interval for the median may leave out.

    The true median is below the k-th of n values with the probability that a fair coin shows fewer
    than k heads in n throws; nothing is assumed about the noise but that rounds are independent.
    """
    cut, below = 0, 1 / 2**count
    while cut < (count - 1) // 2 and 2 * (below + comb(count, cut + 1) / 2**count) <= 1 - CONFIDENCE:
        cut += 1
        below += comb(count, cut) / 2**count
    return cut
