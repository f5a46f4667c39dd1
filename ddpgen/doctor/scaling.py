"""What more processes would cost: the exchange of the gradients beside the work of a step.

A ring all-reduce among n processes sends 2 (n - 1) messages one after the other, each with an n-th
of the bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). DDP exchanges
the gradients in buckets, each by such a ring, while the backward pass still computes the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUCKET = 25 * 2**20  # bytes; the default of DistributedDataParallel
BACKWARD = 2 / 3  # of the work of a step: twice as many operations as the forward pass


@dataclass(frozen=True)
class Link:
    """What connects two neighbours of the ring.

    Attributes:
        latency: seconds for a message of no length.
        seconds_per_byte: for each byte more.
    """

    latency: float
    seconds_per_byte: float

    @classmethod
    def measured(
        cls, processes: int, short_seconds: float, long_bytes: int, long_seconds: float
    ) -> Link:
        """Find what explains two measured all-reduces, a short one and a long one.

        Args:
            processes: how many took part, at least 2.
            short_seconds: the time for a few bytes.
            long_bytes: the length of the long one.
            long_seconds: its time.
        """
        messages = 2 * (processes - 1)
        per_byte = max(0.0, long_seconds - short_seconds) * processes / (messages * long_bytes)
        return cls(short_seconds / messages, per_byte)

    def exchange(self, processes: int, gradient_bytes: int) -> float:
        """Return the seconds in which so many processes exchange their gradients."""
        messages = 2 * (processes - 1)
        buckets = math.ceil(gradient_bytes / BUCKET)
        return messages * (
            buckets * self.latency + gradient_bytes / processes * self.seconds_per_byte
        )


def efficiency(work_seconds: float, exchange_seconds: float) -> tuple[float, float]:
    """Return the share of its work in the time of a step, at worst and at best.

    At worst nothing is exchanged during the backward pass; at best all that there is time for.

    Args:
        work_seconds: forward, backward and optimizer, with no exchange.
        exchange_seconds: that of the gradients alone.
    """
    at_best = max(0.0, exchange_seconds - BACKWARD * work_seconds)
    return work_seconds / (work_seconds + exchange_seconds), work_seconds / (work_seconds + at_best)
