"""A signal stops all ranks at one step, with a checkpoint; launch.sh exits 75 and leaves nothing.

Then the same command goes on. The signals are real, and come at every phase of a run.
"""

import re
import signal
import time
from pathlib import Path

import pytest
from faults import Job, Project
from generated import PATIENCE

TRY_AGAIN = 75
STOPPED = r"^stopped by a signal at step (\d+); the same command goes on$"
LONG = ("--epochs", "100000", "--log-every", "5")
TERM, INT, USR1, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP


def stopped_at(job: Job) -> int:
    """Return the step that the job says it has stopped at, and check that all is done."""
    job.process.wait(PATIENCE)
    assert job.pids() == {}  # launch.sh is the last to leave
    assert job.wait() == TRY_AGAIN, job.output
    (step,) = re.findall(STOPPED, job.output, re.M)
    assert job.project.steps()[-1] == int(step)
    return int(step)


@pytest.mark.parametrize(
    ("number", "rank", "workers"),
    [
        (TERM, None, 0),  # None: launch.sh, which has become torchrun
        (INT, None, 0),
        (USR1, None, 0),
        (HUP, None, 0),
        (TERM, 1, 2),
        (INT, 0, 0),
        (USR1, 1, 0),
    ],
)
def test_a_signal_stops_all_ranks_at_one_step(
    project: Project, number: signal.Signals, rank: int | None, workers: int
) -> None:
    """Protects StopRequest, the `stop` of Exchange, --signals-to-handle, and EXIT_CODE_FILE."""
    project.before("model.py", "loss_fn", "if args[0].requires_grad: note(calls)")
    job = project.start(*LONG, "--num-workers", str(workers))
    job.until_step(10)
    job.send(number, rank)
    step = stopped_at(job)
    assert step >= 10
    assert [int(project.notes(each)[-1]) for each in (0, 1)] == [step, step]
    assert "Traceback" not in job.output


def test_a_signal_to_every_process_stops_them_at_one_step(project: Project) -> None:
    """Protects `obey_parent` in workers.py: a rank raises when its DataLoader worker is killed."""
    job = project.start(*LONG, "--num-workers", "2")
    job.until_step(10)
    job.send_all(TERM)
    stopped_at(job)
    assert "Traceback" not in job.output


def test_a_second_signal_does_not_cut_the_first_short(project: Project) -> None:
    """Protects `wait_for_processes` in launch.py: torchrun forgets its processes then."""
    project.before("model.py", "loss_fn", "time.sleep(2)")  # so that all come within one step
    job = project.start("--log-every", "1")
    job.until_step(1)
    job.send(INT)
    job.until(lambda: "shutting down workers" in job.output, "shutting down")
    for _ in range(5):
        job.send(INT)
        time.sleep(0.1)
    stopped_at(job)


def test_a_hangup_under_nohup_is_no_signal_and_a_finished_run_stays_finished(
    project: Project,
) -> None:
    """Protects the SIG_IGN in `stop_signals`, and the return on `progress.ended` in train.py."""
    options = ("--epochs", "8", "--log-every", "5")
    job = project.start(*options, command=["nohup", "./launch.sh"])
    job.until_step(10)
    job.send(HUP)
    assert job.wait() == 0, job.output
    weights, files = project.weights(), project.steps()
    again = project.run(*options, processes=1)
    assert again.code == 0, again.output
    assert "run default has ended: 8 epochs, 48 steps" in again.output
    assert "give more --epochs to go on" in again.output
    assert (project.weights(), project.steps()) == (weights, files)


@pytest.mark.parametrize("rank", [None, 1])
def test_a_signal_while_the_data_is_built_ends_the_run_at_once(
    project: Project, rank: int | None
) -> None:
    """Protects `end_on_signals` in train.py: a note would be read after the first step only."""
    project.before("data.py", "build_datasets", "note('building'); time.sleep(600)")
    job = project.start(*LONG)
    job.until(lambda: project.notes(0) and project.notes(1), "building")
    job.send(TERM, rank)
    assert job.wait() == TRY_AGAIN, job.output
    assert "Traceback" not in job.output
    assert project.steps() == []


def test_a_signal_while_the_processes_start_ends_the_run(project: Project) -> None:
    """Protects the handlers at the top of launch.py, and TRY_AGAIN for SignalException."""
    early = project.start(*LONG)
    launcher = Path(f"/proc/{early.process.pid}/maps")
    early.until(lambda: "libtorch" in launcher.read_text(), "importing torch")
    early.send(TERM)
    assert early.wait() == TRY_AGAIN, early.output
    late = project.start(*LONG)
    late.until_workers()
    late.send(USR1)
    assert late.wait() == TRY_AGAIN, late.output


def test_a_signal_between_the_starts_of_two_processes_ends_both(project: Project) -> None:
    """Protects the look for EXIT_CODE_FILE in `end_on_signals`.

    torchrun has then started a process that it does not know yet, and cannot end it.
    """
    for _ in range(10):
        job = project.start(*LONG, processes=4)
        while not job.workers():
            assert job.process.poll() is None, job.output
        job.send(signal.SIGSTOP)
        started = len(job.workers())
        job.send(TERM)
        job.send(signal.SIGCONT)
        assert job.wait() == TRY_AGAIN, job.output
        if started < 4:
            return
    raise AssertionError("the signal never came in between")


def test_a_signal_during_evaluation_stops_it(project: Project) -> None:
    """Protects the exchange in `evaluate`: minutes of evaluation lie ahead."""
    slow = "note('evaluating'); time.sleep(0.2)"
    project.before("model.py", "update_metrics", slow)
    options = ("--epochs", "1", "--batch-size", "1", "--log-every", "1000")
    job = project.start(*options)
    job.until(lambda: len(project.notes(0)) > 2, "evaluating")
    job.send(TERM)
    step = stopped_at(job)
    assert len(project.notes(0)) < 25 == 50 // 2

    again = project.run_alone(*options)  # straight to the evaluation: every step was taken
    assert again.code == 0
    assert f"done: 1 epochs, {step} steps" in again.output
    assert "nan" not in again.output


def test_a_signal_during_a_save_waits_for_it(project: Project) -> None:
    """Protects `saver.close` in train.py, and the checkpoints from a signal in their midst."""
    project.append(
        "model.py",
        """
_build_model = build_model

def build_model(config):
    model = _build_model(config)  # 80 MB more to write
    model.ballast = nn.Parameter(torch.randn(20_000_000), requires_grad=False)
    return model
""",
    )
    job = project.start(*LONG, "--save-every-steps", "1", "--keep-checkpoints", "100")
    job.until(lambda: len(project.steps()) > 1, "saving")
    folder = project.run_folder() / "checkpoints"
    job.until(lambda: list(folder.glob("*.tmp")), "saving again")
    job.send(TERM)
    step = stopped_at(job)
    assert not list(folder.glob("*.tmp"))
    assert f"from step {step} on" in project.run_alone("--limit-steps", str(step + 1)).output
