"""Every setting of a run, once: command line, TOML files and help text come from here.

Those of your own model and data are in settings.py.
"""

# ruff: noqa: UP045 - for `int | None` tyro would import typeguard, in 0.05 s of each start.
from __future__ import annotations

import os
import pickle
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Optional

import tomli_w

from settings import Settings

PROJECT = Path(__file__).resolve().parent
DEFAULT_FILE = PROJECT / "configs" / "default.toml"


class SettingsError(ValueError):
    """A setting cannot work here. The message says what to do; every rank raises it."""


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Settings of one run. --config FILE reads them from a TOML file; the command line wins."""

    # The run
    name: str = "default"
    """Name of the run; its files are in runs/NAME."""
    resume: str = "auto"
    """auto: go on from the run's newest checkpoint; never: start again; or a checkpoint file."""
    seed: int = 0
    """Seed of weights, splits, order, dropout and augmentation."""
    deterministic: bool = False
    """Use deterministic kernels only: slower on a GPU, and the same result to the bit."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA with NCCL where a GPU is visible, else the CPU with gloo."""

    # Batches
    epochs: int = 30
    """Passes over the training set."""
    batch_size: int = 32
    """Samples on EACH process in one forward pass."""
    accumulate: int = 1
    """Forward passes for one optimizer step."""
    global_batch_size: Optional[int] = None
    """Samples of one optimizer step on all processes together. When given, `accumulate` follows
    from it and batch_size is the most that fits: the number of processes then changes nothing."""
    num_workers: int = 0
    """DataLoader workers on each process; 0 is fastest for data that is in memory."""

    # The optimizer
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or SGD with momentum."""
    lr: float = 1e-2
    """Peak learning rate."""
    scale_lr: Literal["none", "linear", "sqrt"] = "none"
    """Multiply lr by (global batch / batch_size), or by its square root."""
    schedule: Literal["constant", "cosine", "linear", "one-cycle"] = "constant"
    """How the learning rate goes on after the warm-up; all but constant end at zero."""
    warmup_steps: int = 0
    """Optimizer steps in which the learning rate rises from zero."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 0.01
    """Weight decay."""
    clip_grad_norm: Optional[float] = None
    """Scale gradients down to this norm."""
    max_skipped_steps: int = 20
    """Steps with a gradient that is not finite are skipped; so many in a row end the run."""

    # How it is computed
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the forward pass (autocast); the weights stay in fp32."""
    ema_decay: Optional[float] = None
    """Keep an exponential moving average of the weights; it is what is evaluated then."""
    compile: bool = False
    """Compile the model with torch.compile."""
    activation_checkpointing: bool = False
    """Compute activations again in the backward pass to save memory, where model.py offers it."""
    sync_bn: bool = False
    """BatchNorm over all processes (CUDA only)."""
    find_unused_parameters: bool = False
    """DDP: some parameters get no gradient in some steps."""
    static_graph: bool = False
    """DDP: every step uses the same parameters in the same way."""
    bf16_gradients: bool = False
    """DDP: exchange the gradients in bf16 (CUDA only)."""

    # Validation, logging
    best_metric: str = "loss"
    """The validation metric that chooses best.pt."""
    best_mode: Literal["min", "max"] = "min"
    """Whether a smaller or a larger best_metric is better."""
    patience: Optional[int] = None
    """Stop after so many epochs in which best_metric did not get better."""
    log_every: int = 50
    """Optimizer steps between two log lines; only these steps wait for the device."""
    tracker: Literal["tensorboard", "wandb", "mlflow", "none"] = "tensorboard"
    """Where curves go besides runs/NAME/metrics.jsonl."""

    # Checkpoints and faults
    save_every_steps: Optional[int] = None
    """Save a checkpoint every so many optimizer steps, besides the one of each epoch."""
    save_every_minutes: Optional[float] = None
    """Save a checkpoint every so many minutes, besides the one of each epoch."""
    keep_checkpoints: int = 3
    """Checkpoints that are kept, besides the best."""
    on_save_error: Literal["stop", "continue"] = "stop"
    """What to do when a checkpoint cannot be written (disk full)."""
    step_timeout: float = 600.0
    """Seconds without a step after which a process prints where it hangs and ends the run; more
    than the longest save."""
    collective_timeout: float = 600.0
    """Seconds after which a process that waits for the others in a collective gives up."""

    # For debugging
    limit_steps: Optional[int] = None
    """Stop after so many optimizer steps."""
    overfit_batches: Optional[int] = None
    """Train on the first so many batches only, again and again."""
    eval_only: bool = False
    """Evaluate the newest checkpoint and stop."""
    profile: bool = False
    """Write a trace of a few steps to runs/NAME/trace-rank*.json (open it in ui.perfetto.dev)."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, naming the value and the bound."""
        if yours := getattr(super(), "__post_init__", None):  # settings.py may have one as well
            yours()
        for name, value in asdict(self).items():
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        for name, lowest in LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ValueError(f"{name} must be at least {lowest}, got {value}")
        for name, highest in HIGHEST.items():
            value = getattr(self, name)
            if value > highest:
                raise ValueError(f"{name} must be at most {highest}, got {value}")
        for name in ("lr", "clip_grad_norm", "save_every_minutes", "step_timeout"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be a positive number, got {value}")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay must be between 0 and 1, got {self.ema_decay}")
        if self.global_batch_size is not None and self.accumulate != 1:
            raise ValueError("give global_batch_size or accumulate: one follows from the other")
        if not _names_a_folder(self.name):
            raise ValueError(f"name must be the name of a folder in runs/, got {self.name!r}")

    @property
    def run_folder(self) -> Path:
        """Where everything that the run writes goes."""
        return PROJECT / "runs" / self.name

    def plain(self) -> dict[str, Any]:
        """Return the settings by name, as a checkpoint can hold them: a path as text."""
        return {key: _plain(value) for key, value in asdict(self).items()}

    def save(self, path: Path) -> None:
        """Write the settings as TOML, ready for --config.

        TOML has no null, so None is the word "None", as on the command line. If it were left out,
        the value of another file would come back.
        """
        given = {key: "None" if value is None else value for key, value in self.plain().items()}
        path.write_text(tomli_w.dumps(given), encoding="utf-8")


LOWEST = {
    "seed": 0,
    "epochs": 1,
    "batch_size": 1,
    "accumulate": 1,
    "global_batch_size": 1,
    "num_workers": 0,
    "warmup_steps": 0,
    "momentum": 0,
    "weight_decay": 0,
    "max_skipped_steps": 0,
    "patience": 1,
    "log_every": 1,
    "save_every_steps": 1,
    "keep_checkpoints": 1,
    "collective_timeout": 1,
    "limit_steps": 1,
    "overfit_batches": 1,
}
HIGHEST = {
    "seed": 2**32 - 1,  # NumPy takes no larger one
    "step_timeout": 10**9,  # seconds; the timers count nanoseconds in 64 bits
    "collective_timeout": 10**9,
}


def _plain(value: Any) -> Any:
    """Turn what a setting in settings.py may be into what TOML has."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def _names_a_folder(name: str) -> bool:
    """Say whether a folder can have this name; a line break or an escape would garble messages."""
    if not name.isprintable() or "/" in name or name.startswith("."):
        return False
    return 0 < len(name.encode()) <= 255


def load_config(arguments: Sequence[str] | None = None, *, quiet: bool = False) -> Config:
    """Read configs/default.toml, the files given by --config, then the command line; the last wins.

    A process that launch.py has started gets what launch.py has read.

    Args:
        arguments: The command line; sys.argv[1:] when None.
        quiet: Print nothing (for all ranks but one); the exit code is the same.

    Raises:
        SystemExit: With code 2 after a message about a wrong setting, 0 after --help.
    """
    if arguments is None and "SETTINGS_FILE" in os.environ:
        handed_over: Config = pickle.loads(Path(os.environ["SETTINGS_FILE"]).read_bytes())
        return handed_over
    words = list(sys.argv[1:] if arguments is None else arguments)
    config = Config()
    try:
        files, words = _split(words)
        for file in [DEFAULT_FILE, *files]:
            config = _parse(_as_arguments(file), config, quiet, file)
    except ValueError as error:
        if not quiet:
            print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    return _parse(words, config, quiet)


def _parse(words: list[str], default: Config, quiet: bool, file: Path | None = None) -> Config:
    import tyro  # slow: not in a process that does not parse

    try:
        return tyro.cli(
            Config,
            args=words,
            default=default,
            prog="launch.sh",
            description=Config.__doc__,
            console_outputs=not quiet,
            config=(tyro.conf.FlagConversionOff,) if file else (),  # a file says true or false
        )
    except SystemExit:
        if file is None:
            raise
        raise ValueError(f"the above is in {file}") from None


def _split(arguments: list[str]) -> tuple[list[Path], list[str]]:
    """Take `--config FILE` and `--config=FILE` out of the command line."""
    files: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--config":
            files.append(next(words, ""))
        elif word.startswith("--config="):
            files.append(word.removeprefix("--config="))
        else:
            rest.append(word)
    if "" in files:
        raise ValueError("--config needs a TOML file")
    return [Path(file) for file in files], rest


def _as_arguments(file: Path) -> list[str]:
    """Turn a TOML file into command-line words: both are then checked by the same code."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {file.absolute()}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from None
    known = [field.name for field in fields(Config)]
    default = Config()
    words = []
    for key, value in values.items():
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "./launch.sh --help lists them"
            raise ValueError(f"{file}: there is no setting {key!r}; {hint}")
        if isinstance(value, list) and isinstance(getattr(default, key), (tuple, list, NoneType)):
            words += [f"--{key}", *map(str, value)]
        else:
            words.append(f"--{key}={value}")  # one word: a value may start with a dash
    return words
