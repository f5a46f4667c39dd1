"""One job at a time in a run folder."""

import errno
import fcntl
import os
import socket
import warnings
from pathlib import Path
from typing import TextIO

NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}  # Lustre without -o flock, some NFS


class RunFolderInUse(Exception):
    """Another job works in this run folder; the message says which, and what to do."""


def claim_run_folder(folder: Path) -> TextIO:
    """Create `folder` and lock it for this process; call it on global rank 0 only.

    The kernel drops the lock when the process ends, also by kill -9: nothing is left to clean up.
    Closing the returned file gives the folder back earlier.

    It is flock, which a forked child shares, so that a DataLoader worker would keep the folder
    locked after its parent was killed: hence the child closes its copy at once. A lock of
    fcntl.lockf is not shared, but is lost as soon as anything in this process opens and closes the
    file (a backup of the folder, say).

    Raises:
        RunFolderInUse: another process holds the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115  # closed at the end of the run
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise RunFolderInUse(
            f"{folder} is in use by {holder}: wait until that run has ended, stop it, "
            "or give this run another name"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        warnings.warn(
            f"the file system of {folder} has no locks: a second job there will not be noticed",
            stacklevel=2,
        )
    os.register_at_fork(after_in_child=lock.close)
    lock.truncate(0)
    lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    lock.flush()
    return lock
