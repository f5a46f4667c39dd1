"""When and where a run saves: its folder, claimed for this job, and what a full disk means."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkpoint import Checkpoints, DamagedCheckpoint, read_checkpoint
from config import Config, SettingsError
from distributed import World, gather_from_ranks, on_main_process
from run_folder import RunFolderInUse, claim_run_folder


class Saver:
    """The checkpoints of a run. Create and use it on every rank; global rank 0 alone writes."""

    def __init__(self, config: Config, world: World) -> None:
        """Claim the run folder and look for a checkpoint to go on from. A collective.

        Raises:
            SettingsError: Another job uses the folder, no checkpoint in it can be read, or some
                machine does not see it.
        """
        self._config = config
        self._world = world
        self.resume_from = on_main_process(world, self._open)
        self._see_that_it_is_shared()

    def _open(self) -> Path | None:
        folder, resume = self._config.run_folder, self._config.resume
        try:
            self._lock = claim_run_folder(folder)  # the kernel frees it when this process ends
        except RunFolderInUse as error:
            raise SettingsError(str(error)) from None
        self._checkpoints = Checkpoints(folder / "checkpoints", self._config.keep_checkpoints)
        if not self._config.eval_only:  # the settings of the training stay
            self._config.save(folder / "config.toml")
        if resume == "never":
            return None
        if resume != "auto":
            if not Path(resume).is_file():
                raise SettingsError(f"resume is auto, never or a file; there is no file {resume}")
            return Path(resume)
        try:
            newest = self._checkpoints.load_newest(report=self._world.print)
        except DamagedCheckpoint as error:
            raise SettingsError(f"{error}\nuse another --name, or --resume never") from None
        if self._config.eval_only and not newest:
            raise SettingsError(f"--eval-only: there is no checkpoint in {folder}")
        return newest[0] if newest else None

    def _see_that_it_is_shared(self) -> None:
        """Find out now, and not when the run goes on, that a machine has a folder of its own."""
        folder = self._config.run_folder
        mark = on_main_process(self._world, lambda: _new_file(folder))
        here = folder / mark.name  # the project may be at another path on this machine
        machines = gather_from_ranks("" if here.exists() else socket.gethostname())
        if self._world.is_main:
            mark.unlink()
        if apart := sorted({machine for machine in machines if machine}):
            raise SettingsError(
                f"{folder} is another folder on {', '.join(apart)}: all machines need one runs/, "
                "on a file system that they share, to go on from the same checkpoint"
            )

    def load(self) -> dict[str, Any] | None:
        """Read the checkpoint to go on from, or None for a new run. A collective.

        Raises:
            SettingsError: Some rank cannot read the file.
        """
        if self.resume_from is None:
            return None
        state, problem = None, ""
        try:
            state = read_checkpoint(self.resume_from)
        except (OSError, DamagedCheckpoint) as error:
            problem = f"rank {self._world.rank} cannot read the checkpoint: {error}"
        if problems := [text for text in gather_from_ranks(problem) if text]:
            raise SettingsError(problems[0])
        return state

    def save(self, state: dict[str, Any], step: int, *, best: bool = False) -> None:
        """Write a checkpoint while the training goes on."""
        if self._world.is_main:
            with self._errors():
                self._checkpoints.save(state, step, best=best)

    def close(self) -> None:
        """Wait until everything is on the disk."""
        if self._world.is_main:
            with self._errors():
                self._checkpoints.wait()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"a checkpoint could not be written: {error}"
            if self._config.on_save_error == "stop":
                raise OSError(f"{message}; make room, or --on-save-error continue") from error
            self._world.print(f"warning: {message}")


def _new_file(folder: Path) -> Path:
    """Create an empty file of a new name, which no machine can have seen missing."""
    descriptor, name = tempfile.mkstemp(prefix=".shared-", dir=folder)
    os.close(descriptor)
    return Path(name)
