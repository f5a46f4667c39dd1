"""The checkpoints of a run: written whole or not at all, verified when they are read.

What is in a checkpoint, and when one is saved, is decided in train.py. Nothing here knows of other
processes: call the writing half on global rank 0 only.

A checkpoint is a file of `torch.save` with one more line at its end, `sha256 <of all before it>`.
A plain `torch.load(path, weights_only=True)` reads the file and does not look at that line.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from snapshot import Snapshot

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

TRAILER = re.compile(rb"\nsha256 ([0-9a-f]{64})\n")
TRAILER_BYTES = len("\nsha256 ") + 64 + len("\n")
EXIT_GRACE_SECONDS = 5.0  # a program that ends without `wait` goes on writing for so long


class DamagedCheckpoint(Exception):
    """A file is not the checkpoint that was written; the message names it and what is wrong."""


def write_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write `state` to `path`. It is on disk afterwards; after an error, `path` is as it was.

    Raises:
        OSError: the disk is full, or another error of the file system.
        TypeError: `state` holds what `torch.load(weights_only=True)` refuses.
    """
    temporary = path.with_name(path.name + ".tmp")  # beside it: a rename stays in one file system
    try:
        with _HashingFile(temporary) as file:
            _save(state, file)
            file.write(f"\nsha256 {file.sha256.hexdigest()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        _check_loadable(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _fsync_folder(path.parent)  # until then a power cut can undo the rename


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Verify a checkpoint and load it, its tensors on the CPU.

    Raises:
        DamagedCheckpoint: the file was cut short or changed. `torch.load` alone loads most of such
            files without a word.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        left = max(file.seek(0, os.SEEK_END) - TRAILER_BYTES, 0)
        file.seek(left)
        trailer = TRAILER.fullmatch(file.read())
        if trailer is None:
            raise DamagedCheckpoint(f"{path}: no checksum at its end, so not whole or not ours")
        file.seek(0)
        while chunk := file.read(min(left, 1 << 20)):
            digest.update(chunk)
            left -= len(chunk)
    if digest.hexdigest().encode() != trailer[1]:
        raise DamagedCheckpoint(f"{path}: its content does not fit its checksum")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


class Checkpoints:
    """The checkpoints of one run: the newest `keep` of them, and the best.

    Files: `step_0000000120.pt`, and `last.pt` and `best.pt` for people and scripts. These two are
    further names (hard links) of step files; the best stays when its step file is removed.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        """Any rank may create one, to load: the folder is made by the first `save`."""
        if keep < 1:
            raise ValueError(f"keep = {keep} checkpoints: at least 1 is needed to resume")
        self.folder = folder
        self.keep = keep
        self.last = folder / "last.pt"
        self.best = folder / "best.pt"
        self._snapshot = Snapshot()
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, state: dict[str, Any], step: int, *, best: bool = False) -> None:
        """Copy `state` to host memory and return; a thread writes the copy to disk.

        Waits for the save before. If that one failed, its error is raised here, after this save was
        started: a caller that catches it has missed one checkpoint and may go on.

        The newest file is the one to resume from. So files of later steps, which a run leaves that
        resumes from an older checkpoint, are renamed to `*.pt.old` once this one is on disk.
        """
        error = self._join()
        copy = self._snapshot.take(state)
        # Not daemon=True: Python ends daemon threads at exit, and inside torch.save that aborts.
        self._writer = threading.Thread(target=self._write, args=(copy, step, best))
        self._writer.start()
        if error is not None:
            raise error

    def wait(self) -> None:
        """Return when every `save` is on disk; raise the error of the last one, once.

        A program must call it before it ends well. After an exception there is no need to.
        """
        error = self._join()
        if error is not None:
            raise error

    def load_newest(
        self, report: Callable[[str], None] = warnings.warn
    ) -> tuple[Path, dict[str, Any]] | None:
        """Load the newest good checkpoint; None if there is none at all. Changes no file.

        `report` gets one message for each damaged file that is passed over.

        Raises:
            DamagedCheckpoint: there are checkpoints and all are damaged. Never a silent start from
                zero.
        """
        self.wait()
        named = [path for path in (self.last, self.best) if path.exists()]
        damaged: list[str] = []
        for path in self._step_files()[::-1] or named:
            try:
                return path, read_checkpoint(path)
            except DamagedCheckpoint as error:
                damaged.append(str(error))
                report(f"passed over a damaged checkpoint: {error}")
        if damaged:
            raise DamagedCheckpoint("every checkpoint is damaged:\n" + "\n".join(damaged))
        return None

    def _join(self) -> BaseException | None:
        """Wait for the writer and take its error."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        error, self._error = self._error, None
        return error

    def _write(self, state: dict[str, Any], step: int, best: bool) -> None:
        """What the thread does."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob("*.pt.tmp"):  # of a save that was killed
                leftover.unlink()
            path = self.folder / f"step_{step:010d}.pt"
            write_checkpoint(state, path)
            for name in [self.last, self.best] if best else [self.last]:
                _give_name(path, name)
            self._tidy(newest=path)
            _fsync_folder(self.folder)
        except BaseException as error:  # for the next save or wait
            self._error = error

    def _tidy(self, newest: Path) -> None:
        """Set the files of later steps aside and remove all but the last `keep`."""
        files = self._step_files()
        end = files.index(newest) + 1
        for path in files[end:]:
            path.replace(path.with_name(path.name + ".old"))
        for path in files[: max(end - self.keep, 0)]:
            path.unlink()

    def _step_files(self) -> list[Path]:
        """The step files, oldest step first; ten digits sort as text."""
        return sorted(self.folder.glob("step_" + "[0-9]" * 10 + ".pt"))


def _save(state: dict[str, Any], file: _HashingFile) -> None:
    try:
        torch.save(state, file)
    except RuntimeError:
        if file.error is not None:
            raise file.error from None  # torch would say "unexpected pos" for a full disk
        raise


def _check_loadable(path: Path) -> None:
    """Read all but the tensors' data, which takes milliseconds."""
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise TypeError(f"the state can be saved but not loaded again: {error}") from error


class _HashingFile(io.BufferedWriter):
    """A new file, and the SHA-256 of what was written to it; `torch.save` never seeks."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None
        self.deadline = float("inf")

    def write(self, data: ReadableBuffer) -> int:
        try:
            if not threading.main_thread().is_alive():  # the program ends, on an error
                self.deadline = min(self.deadline, time.monotonic() + EXIT_GRACE_SECONDS)
                if time.monotonic() >= self.deadline:
                    raise TimeoutError("the program ended before the checkpoint was written")
            self.sha256.update(data)
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def _give_name(path: Path, name: Path) -> None:
    """Let `name` be the same file as `path`, in one step for who looks; a copy without links."""
    temporary = name.with_name(name.name + ".tmp")
    try:
        os.link(path, temporary)
    except OSError:  # this file system has no hard links
        shutil.copyfile(path, temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
    os.replace(temporary, name)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
