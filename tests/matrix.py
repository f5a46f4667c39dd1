"""Few sets of answers in which every two answers meet: the bugs of templates are between two."""

import itertools
from collections.abc import Mapping, Sequence

Cell = dict[str, object]


def pairwise(values: Mapping[str, Sequence[object]]) -> list[Cell]:
    """Return cells so that any two values of any two keys are together in one of them.

    Greedy: each next cell is, of all that there are, the one with the most pairs that are not met
    yet. The number of all cells is the product of the lengths, so keep it in the thousands.
    """
    cells = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    missing = set().union(*map(pairs_of, cells))
    chosen = []
    while missing:
        best = max(cells, key=lambda cell: len(pairs_of(cell) & missing))
        missing -= pairs_of(best)
        chosen.append(best)
    return chosen


def pairs_of(cell: Cell) -> set[frozenset[tuple[str, object]]]:
    """Return the pairs of values that meet in a cell."""
    return {frozenset(pair) for pair in itertools.combinations(cell.items(), 2)}
