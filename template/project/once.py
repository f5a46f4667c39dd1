"""Download or prepare data once, and not in every process."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def prepare_once(folder: Path, prepare: Callable[[Path], None]) -> Path:
    """Fill `folder` in the first process that comes; the others wait and find it filled.

    On a disk of each machine that is one process per machine; on a file system that the machines
    share, one in all (it needs locks: NFS has them, Lustre with `-o flock`). For build_datasets:

        folder = prepare_once(Path("~/.cache/mydata").expanduser(), download)

    `prepare` gets an empty folder beside it, which is renamed when it has returned: what it leaves
    half done when it fails or is killed is removed, and the next process begins again. It may take
    as long as it likes, as no collective waits for it.

    Returns:
        folder.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    with open(folder.with_name(f"{folder.name}.lock"), "a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel drops it when this process ends
        if not folder.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            prepare(unfinished)
            os.replace(unfinished, folder)
    return folder
