"""A generated project's own tests see the known bugs of data-parallel training.

Each bug is put into a fresh project, with others for which other tests are there: each of these
tests must fail, by its own bug. That they pass without is seen in test_training.py. Rank 0's view
is right in most of them, so nobody would see them in a curve.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from generated import ENVIRONMENT, PATIENCE, generate

PARITY = "test_parity.py::test_processes_and_passes_change_nothing[2]"
SHORT_WINDOW = "test_parity.py::test_a_short_last_window_is_averaged_over_its_own_length"
VALIDATION = "test_validation.py::test_metrics_equal_one_process[2]"
ORDER = "test_order.py::test_an_epoch_is_shuffled_anew_and_each_sample_is_on_one_rank"
RUN = "test_run.py::test_a_run_trains_logs_once_and_saves"
REDUCTIONS = "test_distributed.py::test_reductions_on_three_processes"


class Bug(NamedTuple):
    """A line of the template, what people write in its place, and how a test must fail."""

    file: str
    right: str
    wrong: str
    test: str
    words: str  # in the failing line or the error: it must not fail for another reason


BUGS = {
    "the loss is averaged over ranks before backward()": Bug(
        "train.py",
        "stepper.backward(loss)  #",
        "torch.distributed.all_reduce(loss)\n"
        "            stepper.backward(loss / torch.distributed.get_world_size())  #",
        PARITY,
        "1 passes, fp32",
    ),
    "the forward pass goes around DDP": Bug(
        "train.py",
        "output = ddp(batch[0])",
        "output = stepper.model(batch[0])",
        PARITY,
        "1 passes, fp32",
    ),
    "no pass of a step is averaged": Bug(
        "train.py", "when=number < len(window)", "when=True", PARITY, "1 passes, fp32"
    ),
    "the loss of a short last window is divided by the usual number of passes": Bug(
        "extras.py", "[1 / passes] *", "[1 / 4] *", SHORT_WINDOW, "not close"
    ),
    "the sampler is not told the epoch": Bug(
        "train.py",
        "train_sampler.set_epoch(progress.epoch, progress.position)",
        "train_sampler.set_epoch(0, progress.position)",
        ORDER,
        "assert first != second",
    ),
    "each rank shuffles with a seed of its own": Bug(
        "loaders.py",
        "world_size=world.world_size,\n            seed=config.seed,",
        "world_size=world.world_size,\n            seed=config.seed + world.rank,",
        ORDER,
        "assert sorted(ranks[0] + ranks[1])",
    ),
    "the validation set is padded": Bug(
        "loaders.py",
        "self.indices = range(rank, size, world_size)",
        "self.indices = [i % size for i in range(rank, size + world_size - 1, world_size)]",
        VALIDATION,
        "assert this == pytest.approx(one",
    ),
    "the metrics of the ranks are averaged": Bug(
        "train.py",
        "metrics = compute_metrics(sum_over_ranks(totals))",
        "means = compute_metrics(totals)\n"
        "    metrics = {name: reduce_loss(torch.tensor(mean)) for name, mean in means.items()}",
        VALIDATION,
        "assert this == pytest.approx(one",
    ),
    "the state of DDP is saved, not that of the model": Bug(
        "train.py",
        "collect_state(config, model, stepper, progress)",
        "collect_state(config, ddp, stepper, progress)",
        RUN,
        "Error(s) in loading state_dict",
    ),
    "every rank prints what it measures": Bug(
        "tracker.py", "        if self._writers:\n", "        if True:\n", RUN, "assert 4 == 2"
    ),
    "a reduction changes what it is given": Bug(
        "distributed.py",
        "mean = tensor.detach().clone()",
        "mean = tensor.detach()",
        REDUCTIONS,
        "assert loss.item() == world.rank**2 + 1",
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project without a bug."""
    return generate(tmp_path_factory.mktemp("mutations") / "right", samples=400)


def run_tests(project: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a project as its owner would."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + [f"tests/{test}" for test in tests],
        cwd=project,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


# No two of a row concern the same test or the same lines.
TOGETHER = [
    ("the loss is averaged over ranks before backward()", "the validation set is padded"),
    ("the forward pass goes around DDP", "the metrics of the ranks are averaged"),
    ("no pass of a step is averaged", "a reduction changes what it is given"),
    (
        "the loss of a short last window is divided by the usual number of passes",
        "the sampler is not told the epoch",
        "every rank prints what it measures",
    ),
    (
        "each rank shuffles with a seed of its own",
        "the state of DDP is saved, not that of the model",
    ),
]


def test_every_bug_has_its_place() -> None:
    assert sorted(what for together in TOGETHER for what in together) == sorted(BUGS)


@pytest.mark.parametrize("together", TOGETHER, ids=", ".join)
def test_the_tests_see_that(together: tuple[str, ...], project: Path, tmp_path: Path) -> None:
    """The line is there once, so that this table follows the template."""
    broken = shutil.copytree(project, tmp_path / "broken", ignore=shutil.ignore_patterns("runs"))
    bugs = [BUGS[what] for what in together]
    for bug in bugs:
        text = (broken / bug.file).read_text()
        assert text.count(bug.right) == 1
        (broken / bug.file).write_text(text.replace(bug.right, bug.wrong))
    done = run_tests(broken, *(bug.test for bug in bugs))
    assert done.returncode == 1, done.stdout + done.stderr
    reports = failures(done.stdout)
    for what, bug in zip(together, bugs, strict=True):
        report = reports[bug.test.split("::")[1]]
        said = [line for line in report.splitlines() if line.startswith((">", "E"))]
        assert any(bug.words in line for line in said), f"{what}\n{report}"


def failures(output: str) -> dict[str, str]:
    """Return what pytest has printed about each test that failed, by its name."""
    parts = re.split(r"(?m)^_{3,} (\S+) _{3,}$", output)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
