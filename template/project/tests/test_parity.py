"""N processes must train exactly as one process does on the same global batch."""

from __future__ import annotations

import parity


def test_processes_and_passes_change_nothing() -> None:
    """1, 2 and 3 processes, 1 and 4 passes: the same gradients and weights in fp32."""
    table = parity.measure()
    assert len(table) == 18
    for (world, passes, precision), (gradient, weights) in table.items():
        bound = 1e-6 if precision == "fp32" else 5e-2  # rounding of the activations
        case = f"{world} processes, {passes} passes, {precision}"
        assert gradient <= bound, case
        assert weights <= bound, case
