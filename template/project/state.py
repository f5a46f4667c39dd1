"""The state of a run: how far it is, what a checkpoint holds, how it goes on from one."""

from __future__ import annotations

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


@dataclass
class Progress:
    """How far a run is."""

    epoch: int = 0  # epochs finished
    position: int = 0  # samples of the current epoch already used, by all ranks together
    step: int = 0  # optimizer steps
    best: float | None = None  # best value so far of config.best_metric
    epochs_without_better: int = 0

    def ended(self, config: Config) -> bool:
        """Say whether there is nothing left to do."""
        return (
            self.epoch >= config.epochs
            or (config.limit_steps is not None and self.step >= config.limit_steps)
            or (config.patience is not None and self.epochs_without_better >= config.patience)
        )

    def end_epoch(self, config: Config, metrics: dict[str, float]) -> bool:
        """Go to the next epoch; return whether these exact metrics are the best so far.

        They are the same numbers on every rank, so every rank decides alike.
        """
        value = pick_metric(config, metrics)
        better = self.best is None or (
            value < self.best if config.best_mode == "min" else value > self.best
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
        "config": asdict(config),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of torch and of the template that this project was last updated to."""
    answers = Path(__file__).with_name(".copier-answers.yml")
    text = answers.read_text(encoding="utf-8") if answers.exists() else ""
    found = re.search(r"^_commit: *(\S+)", text, re.MULTILINE)
    return {"torch": str(torch.__version__), "ddpgen": found[1] if found else "unknown"}


def restore_state(
    state: dict[str, Any],
    config: Config,
    world: World,
    model: nn.Module,
    stepper: Stepper,
) -> Progress:
    """Go on from a saved state; settings that are not what they were are printed.

    Call on every rank, before DDP wraps the model.

    Raises:
        SettingsError: The model or a setting that cannot change is another one.
    """
    old, new = state["config"], asdict(config)
    changed = [key for key in new if key in old and old[key] != new[key] and key not in PASSING]
    if fixed := [key for key in FIXED if key in changed]:
        what = ", ".join(f"{key} (was {old[key]!r}, now {new[key]!r})" for key in fixed)
        raise SettingsError(f"cannot change in the middle of a run: {what}; use another --name")
    if wrong := _differences(state["model"], model.state_dict()):
        raise SettingsError(
            f"the checkpoint is of another model: {'; '.join(wrong[:5])}; use another --name"
        )
    model.load_state_dict(state["model"])
    stepper.load_state_dict(state)
    if world.rank < len(state["random"]):
        set_random_state(state["random"][world.rank])
    old, new = old | state.get("versions", {}), new | versions()
    for key in new:
        if key in old and old[key] != new[key] and key not in PASSING:
            world.print(f"changed since the checkpoint: {key} {old[key]!r} -> {new[key]!r}")
    return Progress(**state["progress"])


def _differences(saved: dict[str, Any], built: dict[str, Any]) -> list[str]:
    """Name each tensor that is not in both, or has another shape."""
    lines = []
    for name in sorted(saved.keys() | built.keys()):
        shapes = [tuple(side[name].shape) if name in side else "missing" for side in (saved, built)]
        if shapes[0] != shapes[1]:
            lines.append(f"{name} was {shapes[0]}, is {shapes[1]}")
    return lines


def gather_random_states() -> list[dict[str, Any]]:
    """Return the random states of all ranks, by rank. A collective: call on every rank."""
    mine = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
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
