"""Data is downloaded once, whoever comes first and however it ends."""

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from once import prepare_once


def download(folder: Path) -> None:
    """Write two files slowly, and take note of it outside of the folder."""
    with (folder.parent / "downloads").open("a") as log:
        log.write("started\n")
    (folder / "first").write_text("1")
    time.sleep(0.3)
    (folder / "second").write_text("2")


def die(folder: Path) -> None:
    """Write one file and be killed."""
    (folder / "half").touch()
    os._exit(9)


def fail(folder: Path) -> None:
    """Write one file and fail."""
    (folder / "half").touch()
    raise OSError("no route to host")


def see_all(folder: Path, prepare: Callable[[Path], None]) -> None:
    """End well when the folder is complete as soon as it is there."""
    names = sorted(path.name for path in prepare_once(folder, prepare).iterdir())
    assert names == ["first", "second"], names


def run(count: int, folder: Path, prepare: Callable[[Path], None]) -> list[int | None]:
    """Let so many processes ask for the folder at once; return their exit codes."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=see_all, args=(folder, prepare)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def test_one_process_downloads_and_the_others_wait(tmp_path: Path) -> None:
    """Protects the lock in once.py, and the second look at the folder."""
    assert run(4, tmp_path / "new" / "data", download) == [0] * 4
    assert (tmp_path / "new" / "downloads").read_text() == "started\n"


def test_what_is_half_done_is_never_seen(tmp_path: Path) -> None:
    """Protects the other folder with its renaming, and `rmtree`: a killed and a failed process."""
    data = tmp_path / "data"
    assert run(1, data, die) == [9]
    with pytest.raises(OSError, match="no route"):
        prepare_once(data, fail)
    assert not data.exists()
    see_all(data, download)
    assert prepare_once(data, fail) == data
