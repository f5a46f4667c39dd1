"""Compare N processes with one process on the full batch: `python tests/parity.py`.

Every case takes the same optimizer steps with SGD on the same global batches: Adam would hide a
wrong scale of the gradients. What a process does is in worker.py.
"""

from __future__ import annotations

import sys
from itertools import product

from cases import GLOBAL_BATCH, PASSES, PRECISIONS, WORLDS, run

Case = tuple[int, str]  # passes, precision


def main() -> None:
    """Measure every case and print the table; exit 1 if fp32 is further off than 1e-6."""
    table = {(world, *case): off for world in WORLDS for case, off in measure(world).items()}
    print(f"largest difference from one process on the full batch of {GLOBAL_BATCH}, SGD:")
    print(f"{'processes':>9} {'passes':>6} {'precision':>9} {'gradients':>10} {'weights':>10}")
    for (world, passes, precision), (gradient, weights) in table.items():
        print(f"{world:>9} {passes:>6} {precision:>9} {gradient:>10.1e} {weights:>10.1e}")
    worst = max(max(value) for key, value in table.items() if key[2] == "fp32")
    sys.exit(0 if worst <= 1e-6 else 1)


def measure(world: int) -> dict[Case, tuple[float, float]]:
    """Return how far so many processes are off, at most: (gradients, weights) of each case."""
    table = {}
    for passes, precision in product(PASSES, PRECISIONS):
        one, this = run(1)["trained"][1, precision], run(world)["trained"][passes, precision]
        table[passes, precision] = (
            (this["gradient"] - one["gradient"]).abs().max().item(),
            (this["weights"] - one["weights"]).abs().max().item(),
        )
    return table


if __name__ == "__main__":
    main()
