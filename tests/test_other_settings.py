"""A run goes on with other settings than it was begun with: those of now count."""

import math
from collections.abc import Iterator
from types import ModuleType

import pytest
from faults import Project
from generated import generate, imported

# What a layer of quantized or scaled weights keeps besides its tensors.
EXTRA_STATE = """
SmallCNN.get_extra_state = lambda self: {"scale": 0.5}
SmallCNN.set_extra_state = lambda self, state: None
"""
TWO_GROUPS = """
def build_optimizer(config, model):
    weights = list(model.parameters())
    groups = [{"params": weights[:1]}, {"params": weights[1:]}]
    return SGD(groups, config.lr, momentum=config.momentum, fused=True)
"""
SGD = ("--optimizer", "sgd", "--lr", "0.1")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The modules of a project that know of settings and progress."""
    names = ["config", "state"]
    with imported(generate(tmp_path_factory.mktemp("other") / "p"), *names) as found:
        yield dict(zip(names, found, strict=True))


def test_the_optimizer_and_the_precision_are_those_of_now(project: Project) -> None:
    """Protects the two loops and the condition of `load_state_dict` in optim.py.

    The optimizer of torch takes its settings from the checkpoint, and its scaler fails on that of a
    run without one. `_shape` in state.py, too: an extra state is no tensor.
    """
    project.append("model.py", EXTRA_STATE)
    assert project.run_alone(*SGD, "--limit-steps", "2").code == 0
    more = ("--weight-decay", "0.5", "--momentum", "0.3", "--precision", "fp16")
    again = project.run_alone(*SGD, "--limit-steps", "4", *more)
    assert again.code == 0, again.output
    state = project.state()
    (group,) = state["optimizer"]["param_groups"]
    assert (group["weight_decay"], group["momentum"]) == (0.5, 0.3)
    assert state["scaler"]
    assert state["model"]["_extra_state"] == {"scale": 0.5}


def test_the_best_is_forgotten_when_another_metric_chooses_it(project: Project) -> None:
    """Protects RANKING in state.py: a loss of 2 would stay the best accuracy for ever."""
    assert project.run_alone("--epochs", "1").code == 0
    assert project.state()["progress"]["best"] > 1
    other = ("--best-metric", "accuracy", "--best-mode", "max")
    assert project.run_alone("--epochs", "2", *other).code == 0
    progress = project.state()["progress"]
    assert progress["best"] == project.metrics("validation/accuracy")[progress["step"]] <= 1


def test_what_cannot_go_on_is_one_clear_error(project: Project) -> None:
    """Protects the SettingsErrors of `restore_state`: a smaller data set, another optimizer."""
    assert project.run_alone(*SGD, "--limit-steps", "5").code == 0
    small = project.run(*SGD, "--overfit-batches", "2")
    assert "after 160 samples of an epoch, but the training set has only 128 now" in small.output
    project.append("optim.py", TWO_GROUPS)
    groups = project.run(*SGD)
    assert "the checkpoint is of another optimizer: loaded state dict has a different" in (
        groups.output
    )
    for job in (small, groups):
        assert job.code == 2
        assert job.output.count("error:") == 1
        assert "Traceback" not in job.output


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_a_number_is_never_the_best(modules: dict[str, ModuleType], mode: str) -> None:
    """Protects `isnan` in `end_epoch`: nothing is smaller or larger than nan."""
    config = modules["config"].Config(best_mode=mode)
    progress = modules["state"].Progress()
    values = [math.nan, 0.5, math.nan, 0.4, 0.6]
    better = [progress.end_epoch(config, {"loss": value}) for value in values]
    assert better == [False, True, False, mode == "min", mode == "max"]
    assert progress.best == (0.4 if mode == "min" else 0.6)
