"""On one machine nothing listens to the outside; and the project starts without launch.sh too."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from faults import Project

LISTEN = "0A"
LOOPBACK = {"0100007F", "0" * 24 + "01000000"}  # 127.0.0.1 and ::1, as /proc/net writes them


def listeners(pids: Iterable[int]) -> list[str]:
    """Return the addresses at which these processes accept connections, in hexadecimal."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):
            sockets |= {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTEN and f"socket:[{inode}]" in sockets:
                found.append(local.partition(":")[0])
    return found


def test_only_this_machine_can_connect_to_a_run(project: Project) -> None:
    """Protects `meet_here` in machines.py: the rendezvous alone.py and GLOO_SOCKET_IFNAME."""
    job = project.start("--epochs", "100000", "--log-every", "5")
    job.until_step(5)
    found = listeners(job.pids())
    assert len(found) >= 2  # gloo's, one for each process
    assert set(found) <= LOOPBACK
    # gloo would listen where the name of this machine leads; here that may be 127.0.0.1 anyway.
    assert {each["GLOO_SOCKET_IFNAME"] for each in job.pids().values() if "RANK" in each} == {"lo"}


def test_it_starts_without_launch_sh(project: Project) -> None:
    """Protects "env://" in distributed.py; and shows that the test above would see an open port."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    job = project.start("train.py", "--epochs", "100000", "--log-every", "5", command=torchrun)
    job.until_step(5)
    assert not set(listeners(job.pids())) <= LOOPBACK
    job.end()
    alone = project.start("train.py", "--limit-steps", "99", command=[sys.executable])
    assert alone.wait() == 0, alone.output
