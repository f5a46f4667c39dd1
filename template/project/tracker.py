"""Where the numbers of a run go: runs/NAME/metrics.jsonl always, and a tracker if you like."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING

from torch import Tensor
from tqdm import tqdm

from config import PROJECT, Config

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Write = Callable[[Mapping[str, float], int], None]
Show = Callable[[str, str | Tensor, int], None]


class Tracker:
    """Write metrics on the main process; on the others it does nothing, so no caller asks.

    Every tracker works offline: W&B and MLflow write into runs/ unless WANDB_MODE or
    MLFLOW_TRACKING_URI say otherwise.
    """

    def __init__(self, config: Config, *, enabled: bool, step: int = 0) -> None:
        """Open what config.tracker says; lines after `step`, the one resumed from, are dropped."""
        self.enabled = enabled
        self._writers: list[Write] = []
        self._shows: list[Show] = []
        self._closers: list[Callable[[], None]] = []
        if enabled:
            _open_jsonl(self, config, step)
            if config.tracker != "none":
                _OPENERS[config.tracker](self, config, step)

    def add(self, write: Write, close: Callable[[], None]) -> None:
        """Register one more place to write to."""
        self._writers.append(write)
        self._closers.append(close)

    def log(self, group: str, metrics: Mapping[str, float], step: int) -> None:
        """Print named numbers that belong to this optimizer step, and write them as group/name."""
        text = "  ".join(f"{name} {value:.6g}" for name, value in metrics.items())
        self.print(f"step {step:>6}  {group:<10}  {text}")
        named = {f"{group}/{name}": value for name, value in metrics.items()}
        for write in self._writers:
            with self._training_goes_on():
                write(named, step)

    def add_show(self, show: Show) -> None:
        """Register a place that takes texts and images."""
        self._shows.append(show)

    def show(self, name: str, shown: str | Tensor, step: int) -> None:
        """Print a text, and give it or an image to TensorBoard.

        Args:
            name: what it is called there.
            shown: a text, or a float image of shape (3, height, width) in [0, 1].
            step: the optimizer step it belongs to.
        """
        if isinstance(shown, str):
            self.print(f"step {step:>6}  {name}: {shown}")
        for show in self._shows:
            with self._training_goes_on():
                show(name, shown, step)

    def print(self, line: str) -> None:
        """Print a line above the progress bar."""
        if self._writers:
            with tqdm.external_write_mode():
                print(line, flush=True)

    def close(self) -> None:
        """Flush and close; the last call of a run."""
        for close in self._closers:
            with self._training_goes_on():
                close()

    @contextmanager
    def _training_goes_on(self) -> Iterator[None]:
        """Say that the disk is full; a curve is not worth a run."""
        try:
            yield
        except OSError as error:
            self.print(f"warning: metrics could not be written: {error}")


def _open_jsonl(tracker: Tracker, config: Config, step: int) -> None:
    path = config.run_folder / "metrics.jsonl"
    if path.is_file():  # a killed run wrote lines that this one will write again
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [f"{line}\n" for line in lines if _step_of(line) <= step]
        shorter = path.with_suffix(".tmp")
        shorter.write_text("".join(kept), encoding="utf-8")
        shorter.replace(path)  # whole or not at all: this run may be killed as well
    file = path.open("a", encoding="utf-8", buffering=1)

    def write(metrics: Mapping[str, float], step: int) -> None:
        # JSON has no nan: it would be read by Python and by hardly anything else.
        numbers = {name: value if isfinite(value) else None for name, value in metrics.items()}
        line = {"step": step, "time": round(time.time(), 3), **numbers}
        file.write(json.dumps(line) + "\n")

    tracker.add(write, file.close)


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except ValueError:  # cut short by a kill or a full disk
        return float("inf")


def _open_tensorboard(tracker: Tracker, config: Config, step: int) -> None:
    @cache
    def writer() -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter  # slow: only when it is used

        # Its thread writes once a second; to wait for it here would cost more than the scalars.
        return SummaryWriter(str(config.run_folder), purge_step=step + 1, flush_secs=1)

    def write(metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            writer().add_scalar(name, value, step)

    def show(name: str, shown: str | Tensor, step: int) -> None:
        if isinstance(shown, str):
            writer().add_text(name, shown, step)
        else:
            writer().add_image(name, shown.cpu(), step)

    def close() -> None:
        if writer.cache_info().currsize:
            writer().close()

    tracker.add(write, close)
    tracker.add_show(show)


def _open_wandb(tracker: Tracker, config: Config, step: int) -> None:
    import wandb

    run = wandb.init(
        project=PROJECT.name,
        name=config.name,
        dir=config.run_folder,
        config=config.plain(),
        mode=os.environ.get("WANDB_MODE", "offline"),
    )
    tracker.add(lambda metrics, step: run.log(dict(metrics), step=step), run.finish)


def _open_mlflow(tracker: Tracker, config: Config, step: int) -> None:
    import mlflow

    mlflow.set_tracking_uri(
        os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{PROJECT / 'runs' / 'mlflow.db'}")
    )
    mlflow.set_experiment(PROJECT.name)
    mlflow.start_run(run_name=config.name)
    mlflow.log_params(config.plain())
    tracker.add(lambda metrics, step: mlflow.log_metrics(dict(metrics), step), mlflow.end_run)


_OPENERS: dict[str, Callable[[Tracker, Config, int], None]] = {
    "tensorboard": _open_tensorboard,
    "wandb": _open_wandb,
    "mlflow": _open_mlflow,
}
