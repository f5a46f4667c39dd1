"""Settings: a mistake is named once and nothing has happened; what is given is what is used."""

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from generated import ENVIRONMENT, generate, imported, launch
from hypothesis import given, settings
from hypothesis import strategies as st

TRAIN = ["--device", "cpu", "--tracker", "none", "--epochs", "1", "--batch-size", "8"]
NOTE_TYRO = """
import sys

_build_datasets = build_datasets


def build_datasets(config):
    # At once with its newline: the lines of two processes must not mix.
    print(f"imported tyro: {'tyro' in sys.modules}\\n", end="")
    return _build_datasets(config)
"""
BOX = re.compile(r"╭.*?╯\n", re.DOTALL)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that no test changes."""
    return generate(tmp_path_factory.mktemp("settings") / "original")


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Path:
    """A project of one test."""
    return shutil.copytree(original, tmp_path / "p")


@pytest.fixture(scope="module")
def config_py(original: Path) -> Iterator[ModuleType]:
    """The module config.py."""
    with imported(original, "config") as [module]:
        yield module


def error_of(project: Path, *options: str, file: Path | None = None) -> str:
    """Return the one message of a run that must not start: the box of tyro, or a line of ours."""
    result = launch(project, *options)
    assert result.code == 2
    assert result.out == ""
    assert not (project / "runs").exists()
    boxes, rest = BOX.findall(result.err), BOX.sub("", result.err)
    if not boxes:
        assert re.fullmatch(r"error: .*\n", rest), result.err
        return rest
    assert len(boxes) == 1, result.err
    assert rest == (f"error: the above is in {file}\n" if file else ""), result.err
    return " ".join(re.sub("[╭╮╰╯│─]", " ", boxes[0]).split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--lrr=1", "Unrecognized options: --lrr"),
        ("--lrr 1", "Perhaps you meant: --lr"),
        ("extra", "extra"),
        ("--lr=fast", "--lr: could not convert string to float: 'fast'"),
        ("--epochs=2.5", "--epochs: invalid literal for int() with base 10: '2.5'"),
        ("--lr", "Missing value for argument '--lr'"),
        ("--optimizer=adam", "Expected one of ('adamw', 'sgd')"),
        ("--epochs=0", "epochs must be at least 1, got 0"),
        ("--lr=0", "lr must be a positive number, got 0.0"),
        ("--lr=nan", "lr must be a finite number, got nan"),
        ("--weight-decay=inf", "weight_decay must be a finite number, got inf"),
        ("--collective-timeout=1e12", "collective_timeout must be at most 1000000000"),
        ("--seed=4294967296", "seed must be at most 4294967295, got 4294967296"),
        ("--ema-decay=1", "ema_decay must be between 0 and 1, got 1.0"),
        ("--accumulate=2 --global-batch-size=8", "give global_batch_size or accumulate"),
        ("--name=../up", "name must be the name of a folder in runs/, got '../up'"),
        ("--name=two\nlines", r"got 'two\nlines'"),
        (f"--name={'long' * 64}", "name must be the name of a folder in runs/"),
        ("--name=", "name must be the name of a folder in runs/, got ''"),
        ("--config", "--config needs a TOML file"),
        ("--config=", "--config needs a TOML file"),
        ("--config=missing.toml", "/p/missing.toml: No such file or directory"),
        ("--config=configs", "/p/configs: Is a directory"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_once(
    project: Path, options: str, said: str
) -> None:
    """Protects the check in launch.py before any process starts, and the bounds of Config."""
    assert said in error_of(project, *options.split(" "))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch = 3", "there is no setting 'epoch'; did you mean epochs?"),
        ("batch-size = 3", "there is no setting 'batch-size'; did you mean batch_size?"),
        ("zzz = 3", "there is no setting 'zzz'; ./launch.sh --help lists them"),
        ("[train]\nlr = 1", "there is no setting 'train'"),
        ("lr = ", "is not valid TOML: Invalid value"),
        ("lr = 1\nlr = 2", "is not valid TOML: Cannot overwrite a value"),
        ("name = '\udcff'", "is not valid TOML: 'utf-8' codec can't decode byte 0xff"),
        ("epochs = 'three'", "--epochs: invalid literal for int() with base 10: 'three'"),
        ("epochs = 2.5", "--epochs: invalid literal for int() with base 10: '2.5'"),
        ("lr = true", "--lr: could not convert string to float: 'True'"),
        ("lr = [1, 2]", "--lr: could not convert string to float: '[1, 2]'"),
        ("[optimizer]\nlr = 1", "invalid choice '{'lr': 1}' for argument '--optimizer'"),
        ("compile = 'yes'", "invalid choice 'yes' for argument '--compile'"),
        ("compile = 1", "invalid choice '1' for argument '--compile'"),
        ("epochs = 0", "epochs must be at least 1, got 0"),
        ("name = '--help'\nepochs = 0", "epochs must be at least 1, got 0"),
        ('name = "a\\u0000b"', r"got 'a\x00b'"),
        ('name = "a\\u001b[31m"', r"got 'a\x1b[31m'"),
    ],
)
def test_a_mistake_in_a_file_is_named_once_with_the_file(
    project: Path, text: str, said: str
) -> None:
    """Protects `_as_arguments`, and the line that names the file."""
    file = project / "mine.toml"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    error = error_of(project, "--config", str(file), file=file)
    assert said in error
    assert str(file) in error or "error:" not in error  # error_of has seen it below the box


def test_a_broken_default_file_is_named(project: Path) -> None:
    """Also by --help: its defaults would not be those of a run."""
    file = project / "configs" / "default.toml"
    file.write_text("lrr = 1\n")
    assert f"{file}: there is no setting 'lrr'; did you mean lr?" in error_of(project, "--help")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--global-batch-size", "7"], "global_batch_size 7 cannot be shared by 2 processes"),
        (["--batch-size", "25"], "the training set has 48 samples, but one step needs 50"),
        (["--best-metric", "f1"], "best_metric 'f1' is none of: loss, rmse, r2"),
    ],
)
def test_what_only_the_training_can_know_is_named_once(
    project: Path, options: list[str], said: str
) -> None:
    """One line for two processes, without a traceback or a word of torchrun.

    Red when `is_main` before the message in train.py goes, or `leave(WRONG_SETTINGS)`; and when a
    metric is looked for only after the first epoch.
    """
    result = launch(project, *TRAIN, *options, "--log-every", "1")
    assert result.code == 2
    assert re.fullmatch(r"error: .*\n", result.err), result.err
    assert said in result.err
    assert "train" not in result.out  # no step was taken


def test_cuda_without_a_gpu_is_named_once(project: Path) -> None:
    """Protects the check in launch.py; without it each process has a traceback."""
    options = ["--device", "cuda", "--name", "x"]
    result = launch(project, *options, env={"CUDA_VISIBLE_DEVICES": ""})
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"error: --device cuda, but no GPU is visible .*\n", result.err)
    assert not (project / "runs").exists()


def test_cuda_without_a_gpu_is_named_without_launch_sh_too(project: Path) -> None:
    """Protects the check in `_pick_device`; without it there is a traceback."""
    command = [sys.executable, "train.py", "--device", "cuda"]
    environment = {**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: device is cuda, but no GPU is visible .*\n", done.stderr)


def test_help_is_printed_once_and_lists_every_setting(project: Path) -> None:
    """With the defaults of configs/default.toml and of the files that are given."""
    with (project / "configs" / "default.toml").open("a") as file:
        file.write("\nbatch_size = 57\nmomentum = 0.8\n")
    (project / "mine.toml").write_text("momentum = 0.7\n")
    result = launch(project, "--config", "mine.toml", "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("usage: launch.sh") == 1
    assert result.out.count("--config FILE") == 1
    text = " ".join(re.sub("[╭╮╰╯│─]", " ", result.out).split())
    with imported(project, "config") as [config_py]:
        given_values = {"batch_size": 57, "momentum": 0.7, "tracker": "tensorboard"}
        listed = 0
        for field in dataclasses.fields(config_py.Config):
            default = given_values.get(field.name, field.default)
            flag = f"--{field.name.replace('_', '-')}"
            [entry] = re.findall(rf"{flag}[ ,].*?\(default: (.*?)\)", text)
            assert entry == str(default), field.name
            listed += 1
    assert listed > 30
    assert not (project / "runs").exists()


def test_the_command_line_wins_over_files_and_the_last_file_over_the_others(
    config_py: ModuleType, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text("epochs = 2\nlr = 0.2\nseed = 2\ncompile = true\nclip_grad_norm = 2\n")
    other.write_text("epochs = 3\nlr = 0.3\nprofile = true\n")
    words = ["--config", str(one), "--epochs", "4", f"--config={other}", "--no-compile"]
    config = config_py.load_config([*words, "--clip-grad-norm", "None"])
    assert (config.epochs, config.lr, config.seed) == (4, 0.3, 2)
    assert (config.compile, config.profile, config.clip_grad_norm) == (False, True, None)
    swapped = config_py.load_config([f"--config={other}", f"--config={one}"])
    assert (swapped.epochs, swapped.lr, swapped.compile) == (2, 0.2, True)
    assert swapped.clip_grad_norm == 2.0


def test_launch_py_reads_the_settings_once_for_all_processes(project: Path) -> None:
    """Red without SETTINGS_FILE in launch.py, or where load_config does not look for it."""
    with (project / "data.py").open("a") as file:
        file.write(NOTE_TYRO)
    done = launch(project, *TRAIN, "--lr", "0.3")
    assert done.code == 0, done.err
    assert done.out.count("imported tyro: False\n") == 2
    assert "lr = 0.3\n" in (project / "runs/default/config.toml").read_text()


SETTINGS = """
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

Pooling = Enum("Pooling", ["MEAN", "MAX"])

@dataclass(frozen=True, kw_only=True)
class Settings:
    folder: Path = Path("data")
    widths: tuple[int, ...] = (64, 32)
    names: list[Path] = field(default_factory=list)
    pooling: Pooling = Pooling.MEAN

    def __post_init__(self):
        if len(self.widths) > 2:
            raise ValueError("at most two widths")
"""


PRINT_SETTINGS = """
_build_datasets = build_datasets

def build_datasets(config):
    print(config)
    return _build_datasets(config)
"""


def test_settings_of_ones_own_may_be_paths_and_sequences(project: Path) -> None:
    """Protects `_plain` and the list in `_as_arguments`: config.toml brings the same run back.

    And the call of their own `__post_init__`.
    """
    (project / "settings.py").write_text(SETTINGS)
    assert "at most two widths" in error_of(project, "--widths", "1", "2", "3")
    with (project / "data.py").open("a") as file:
        file.write(PRINT_SETTINGS)
    options = ["--folder", "a b", "--widths", "3", "-1", "--names", "x y", "z", "--pooling", "MAX"]
    first = launch(project, *TRAIN, *options, env={"NPROC": "1"})
    assert first.code == 0, first.err
    written = project / "runs/default/config.toml"
    again = launch(project, f"--config={written}", "--limit-steps=9", env={"NPROC": "1"})
    assert again.code == 0, again.err
    for run in (first, again):
        assert "folder=PosixPath('a b'), widths=(3, -1)" in run.out
        assert "names=[PosixPath('x y'), PosixPath('z')], pooling=<Pooling.MAX" in run.out
    changes = [line for line in again.out.splitlines() if line.startswith("changed since")]
    assert len(changes) == 1
    assert "limit_steps" in changes[0]


@pytest.mark.parametrize("value", [True, False])
def test_a_switch_is_set_and_unset_from_both_sides(
    config_py: ModuleType, tmp_path: Path, value: bool
) -> None:
    file = tmp_path / "switch.toml"
    file.write_text(f"eval_only = {str(value).lower()}\n")
    assert config_py.load_config([f"--config={file}"]).eval_only is value
    assert config_py.load_config([f"--config={file}", "--eval-only"]).eval_only is True
    assert config_py.load_config([f"--config={file}", "--no-eval-only"]).eval_only is False


def values_of(kind: Any, name: str, lowest: dict[str, float]) -> st.SearchStrategy[Any]:
    """Return values for a setting of this type, as wild as its bounds allow."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if type(None) in get_args(kind):
        [other] = set(get_args(kind)) - {type(None)}
        return st.none() | values_of(other, name, lowest)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(int(lowest.get(name, 0)), 2**32 - 1)
    if kind is float:
        top = 1.0 if name == "ema_decay" else 1e9
        return st.floats(lowest.get(name, 1e-12), top, exclude_max=True)
    assert kind is str
    return st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
        ["--help", "-x", "None", "null", "true", "3", "=", "a=b", '"', "'", "\\", "#", "\n", "@x"]
    )


def config_of(config_py: ModuleType, draw: st.DataObject) -> Any:
    """Return settings in which nothing is left at its default if it can be helped."""
    hints = get_type_hints(config_py.Config)
    drawn = {
        name: draw.draw(values_of(kind, name, config_py.LOWEST), label=name)
        for name, kind in hints.items()
    }
    if drawn["global_batch_size"] is not None:
        drawn["accumulate"] = 1
    try:
        return config_py.Config(**drawn)
    except ValueError:  # a name that no folder can have
        return config_py.Config(**{**drawn, "name": "x"})


@given(draw=st.data())
@settings(max_examples=60)
def test_the_settings_in_a_run_folder_are_those_of_the_run(
    config_py: ModuleType, tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    """runs/NAME/config.toml given to --config is the same run, whatever default.toml says.

    Red when `save` leaves out what is None, and when a value is a word of its own (-x, --help).
    """
    config = config_of(config_py, draw)
    file = tmp_path_factory.mktemp("saved") / "config.toml"
    config.save(file)
    with pytest.MonkeyPatch.context() as patch:
        default = file.with_name("default.toml")
        default.write_text("clip_grad_norm = 3.0\npatience = 2\nlimit_steps = 5\nprofile = true\n")
        patch.setattr(config_py, "DEFAULT_FILE", default)
        assert config_py.load_config(["--config", str(file)]) == config
