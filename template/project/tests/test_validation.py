"""Validation must count each sample once, whatever the number of processes."""

from __future__ import annotations

import pytest

from cases import EVALUATED, run


@pytest.mark.parametrize("processes", [2, 3])
def test_metrics_equal_one_process(processes: int) -> None:
    """Also when the set is not divisible by the processes, or smaller than their number.

    A batch of one makes the forward pass the same to the bit; in larger batches the sums inside
    the model are rounded in another order.
    """
    together = run(processes)["evaluated"]
    for (size, batch), one, this in zip(EVALUATED, run(1)["evaluated"], together, strict=True):
        bound = 1e-9 if batch == 1 else 1e-5
        assert this == pytest.approx(one, rel=bound, nan_ok=True), (size, batch)
