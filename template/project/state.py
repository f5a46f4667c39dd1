"""The state of a run: how far it is, what a checkpoint holds, how it goes on from one."""

from __future__ import annotations

import math
import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from config import Config, SettingsError
from distributed import World, gather_from_ranks

if TYPE_CHECKING:
    from optim import Stepper

FIXED = ("seed", "optimizer")  # another value would not continue this run but mix two runs
PASSING = ("resume", "eval_only")  # of one start, not of the run
RANKING = ("best_metric", "best_mode")  # with another value the best so far is none


@dataclass
class Progress:
    """How far a run is."""

    epoch: int = 0  # epochs finished
    position: int = 0  # samples of the current epoch already used, by all ranks together
    step: int = 0  # optimizer steps
    best: float | None = None  # best value so far of config.best_metric
    epochs_without_better: int = 0

    def ended(self, config: Config) -> str:
        """Return the option by which there is nothing left to do, "" while there is."""
        if self.epoch >= config.epochs:
            return "--epochs"
        if config.limit_steps is not None and self.step >= config.limit_steps:
            return "--limit-steps"
        if config.patience is not None and self.epochs_without_better >= config.patience:
            return "--patience"
        return ""

    def end_epoch(self, config: Config, metrics: dict[str, float]) -> bool:
        """Go to the next epoch; return whether these exact metrics are the best so far.

        They are the same numbers on every rank, so every rank decides alike. What is not a number
        is never the best: nothing would be better than it afterwards.
        """
        value = pick_metric(config, metrics)
        better = not math.isnan(value) and (
            self.best is None
            or (value < self.best if config.best_mode == "min" else value > self.best)
        )
        self.best = value if better else self.best
        self.epochs_without_better = 0 if better else self.epochs_without_better + 1
        self.epoch, self.position = self.epoch + 1, 0
        return better

    def __str__(self) -> str:
        text = f"{self.epoch} epochs, {self.step} steps"
        return text if self.best is None else f"{text}, best {self.best:.6g}"


def pick_metric(config: Config, metrics: dict[str, float]) -> float:
    """Return the metric by which the best checkpoint is chosen.

    Raises:
        SettingsError: There is none of that name.
    """
    if config.best_metric not in metrics:
        known = ", ".join(metrics)
        raise SettingsError(f"best_metric {config.best_metric!r} is none of: {known}")
    return metrics[config.best_metric]


def collect_state(
    config: Config, model: nn.Module, stepper: Stepper, progress: Progress
) -> dict[str, Any]:
    """Return everything that a run goes on from. A collective: call on every rank."""
    return {
        "model": model.state_dict(),  # the bare model: DDP's keys would start with "module."
        **stepper.state_dict(),
        "progress": asdict(progress),
        "random": gather_random_states(),
        "config": config.plain(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of torch and of the template that this project was last updated to."""
    answers = Path(__file__).with_name(".copier-answers.yml")
    text = answers.read_text(encoding="utf-8") if answers.exists() else ""
    found = re.search(r"^_commit: *(\S+)", text, re.MULTILINE)
    return {"torch": str(torch.__version__), "ddpgen": found[1] if found else "unknown"}


def restore_state(
    state: dict[str, Any] | None,
    config: Config,
    world: World,
    model: nn.Module,
    stepper: Stepper,
    samples: int,
) -> Progress:
    """Go on from a saved state, if there is one; settings that are not what they were are printed.

    Call on every rank, before DDP wraps the model.

    Args:
        state: what collect_state returned, its tensors on the CPU; None to begin.
        config: the settings of now.
        world: of this process.
        model: not wrapped yet.
        stepper: of this model.
        samples: of the training set.

    Raises:
        SettingsError: The model, the optimizer or a setting that cannot change is another one, or
            the training set has become too small.
    """
    if state is None:
        return Progress()
    old, new = state["config"], config.plain()
    changed = [key for key in new if key in old and old[key] != new[key] and key not in PASSING]
    if fixed := [key for key in FIXED if key in changed]:
        what = ", ".join(f"{key} (was {old[key]!r}, now {new[key]!r})" for key in fixed)
        raise SettingsError(f"cannot change in the middle of a run: {what}; use another --name")
    if wrong := _differences(state["model"], model.state_dict()):
        raise SettingsError(
            f"the checkpoint is of another model: {'; '.join(wrong[:5])}; use another --name"
        )
    progress = Progress(**state["progress"])
    if progress.position > samples and not config.eval_only:
        raise SettingsError(
            f"the checkpoint is after {progress.position} samples of an epoch, but the training "
            f"set has only {samples} now; use another --name"
        )
    if any(key in changed for key in RANKING):
        progress.best, progress.epochs_without_better = None, 0
    model.load_state_dict(state["model"])
    try:
        stepper.load_state_dict(state)
    except ValueError as error:
        raise SettingsError(
            f"the checkpoint is of another optimizer: {error}; use another --name"
        ) from None
    if world.rank < len(state["random"]):
        set_random_state(state["random"][world.rank])
    old, new = old | state.get("versions", {}), new | versions()
    for key in new:
        if key in old and old[key] != new[key] and key not in PASSING:
            world.print(f"changed since the checkpoint: {key} {old[key]!r} -> {new[key]!r}")
    return progress


def _differences(saved: dict[str, Any], built: dict[str, Any]) -> list[str]:
    """Name each tensor that is not in both, or has another shape."""
    lines = []
    for name in sorted(saved.keys() | built.keys()):
        was, now = (_shape(side[name]) if name in side else "missing" for side in (saved, built))
        if was != now:
            lines.append(f"{name} was {was}, is {now}")
    return lines


def _shape(value: Any) -> str:
    """Describe a tensor, or what a module keeps besides by its get_extra_state."""
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else "no tensor"


def gather_random_states() -> list[dict[str, Any]]:
    """Return the random states of all ranks, by rank. A collective: call on every rank."""
    mine = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        "numpy": _numpy_state(),
        "python": random.getstate(),
    }
    return gather_from_ranks(mine)


def set_random_state(state: dict[str, Any]) -> None:
    """Put the random states of this process back."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def _numpy_state() -> tuple[Any, ...]:
    """Return numpy's state as torch.load(weights_only=True) takes it: a list, not an array."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return (name, np.asarray(keys).tolist(), *rest)
