"""The rendezvous of a run on one machine: there is no other machine to look for."""

from __future__ import annotations

from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

BACKEND = "alone"


class Alone(RendezvousHandler):
    """Goes on at once, without a port and without a thread.

    torchrun's own way, --standalone, opens two ports to the whole network without any password,
    one in two of its restarts fails on them, and it waits for up to 0.3 s in case that others come.
    """

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id

    def get_backend(self) -> str:
        """Return the name that it is registered by."""
        return BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        """Return a new store for torchrun itself; the processes meet in STORE_FILE."""
        store = HashStore()
        where = RendezvousStoreInfo.build(0, store, "127.0.0.1")
        return RendezvousInfo(store, rank=0, world_size=1, bootstrap_store_info=where)

    def is_closed(self) -> bool:
        """Return whether nobody may come any more."""
        return False

    def set_closed(self) -> None:
        """Nobody comes anyway."""

    def num_nodes_waiting(self) -> int:
        """Return how many machines want to join."""
        return 0

    def get_run_id(self) -> str:
        """Return what torchrun calls this run."""
        return self._run_id

    def shutdown(self) -> bool:
        """Return that all is closed: there is nothing open."""
        return True


rendezvous_handler_registry.register(BACKEND, Alone)
