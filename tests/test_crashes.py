"""A process that dies, raises or hangs ends the run quickly and visibly; nothing hangs with it.

All runs have collective timeouts of ten minutes, and a test waits for two.
"""

import re
import signal
from functools import partial

import pytest
from faults import NOTE, Job, Project

LONG = ("--epochs", "100000", "--log-every", "5", "--save-every-steps", "5")
KILL = signal.SIGKILL


READS_FOR_EVER = """
class Slow(Pictures):
    calls = 0

    def __getitem__(self, index):
        self.calls += 1  # in this DataLoader worker
        if self.augment and self.calls > 200 and str(rank) == os.environ.get("SLOW_RANK"):
            note("reading")
            time.sleep(10**6)
        return super().__getitem__(index)

Pictures = Slow
"""


def test_a_killed_worker_ends_the_run_and_a_new_one_goes_on(project: Project) -> None:
    """Protects `die_with_parent` in loaders.py, and the checkpoints on the way.

    The rank is killed while its DataLoader workers read from a disk that does not answer.
    """
    project.append("data.py", NOTE + READS_FOR_EVER)
    job = project.start(*LONG, "--num-workers", "2", SLOW_RANK="1")
    job.until(lambda: project.notes(1), "reading")
    job.until_step(10)
    job.send(KILL, rank=1)
    assert job.wait() == 1, job.output
    assert re.search(r"^error: rank 1: Signal 9 \(SIGKILL\)", job.output, re.M)
    logged, saved = max(project.metrics("train/loss")), project.steps()[-1]
    assert saved >= logged - 5  # at most the steps since the last save are lost

    again = project.run_alone(*LONG, "--limit-steps", str(saved + 1))
    assert again.code == 0
    assert f"from step {saved} on" in again.output


def test_a_killed_launcher_takes_its_workers_along_with_a_checkpoint(project: Project) -> None:
    """Protects `die_with_parent` in `end_on_signals`; and the run folder, free again at once."""
    job = project.start("--epochs", "100000", "--log-every", "5", "--num-workers", "2")
    job.until_step(10)
    before = project.steps()
    job.send(KILL)
    job.process.wait()
    job.wait_for_processes()
    (step,) = re.findall(r"^stopped by a signal at step (\d+)", job.output, re.M)
    assert project.steps()[-1] == int(step) not in before

    again = project.run_alone("--limit-steps", str(int(step) + 1))
    assert again.code == 0, again.output  # and no lock was left
    assert f"from step {step} on" in again.output


def test_a_launcher_killed_during_the_start_leaves_nothing(project: Project) -> None:
    """Protects the look for LAUNCHER_PID in `end_on_signals`."""
    job = project.start(*LONG)
    job.until_workers()
    job.send(KILL)
    job.process.wait()
    job.wait_for_processes()


def test_restarts_after_a_crash_end_in_the_same_weights(project: Project) -> None:
    """Protects MAX_RESTARTS, and the new STORE_FILE of each restart in distributed.py."""
    options = ("--epochs", "12", "--log-every", "5", "--save-every-steps", "5")
    assert project.run(*options, "--name", "undisturbed").code == 0
    job = project.start(*options, MAX_RESTARTS="2")
    for count, step, rank in (("1", 10, 0), ("2", 40, 1)):
        job.until_step(step)
        job.send(KILL, rank)
        job.until(partial(restarted, job, count), "restarting")
    assert job.wait() == 0, job.output
    assert len(re.findall(r"from step [1-9]\d* on", job.output)) >= 1
    assert project.weights() == project.weights("undisturbed")


def restarted(job: Job, count: str) -> bool:
    """Say whether all training processes are those of this restart."""
    workers, processes = job.workers().values(), job.pids()
    counts = [processes.get(pid, {}).get("TORCHELASTIC_RESTART_COUNT") for pid in workers]
    return counts == [count, count]


RAISES = {
    "in a step": ("model.py", "loss_fn", "calls == 5"),
    "in evaluation": ("model.py", "update_metrics", "calls == 2"),
    "while the data is built": ("data.py", "build_datasets", "True"),
}


@pytest.mark.parametrize("where", RAISES)
def test_one_rank_raises(project: Project, where: str) -> None:
    """Protects `report` in launch.py, @record in train.py, and `child.kill` in `end_soon`.

    And that no collective follows an error: with `cleanup_ddp()` in a `finally` of `main` the run
    hangs. torchrun looks only when all is over, so that it cannot know which rank was the first:
    the files of @record tell.
    """
    file, function, when = RAISES[where]
    project.before(file, function, f"if rank == 1 and {when}: raise ZeroDivisionError('injected')")
    job = project.start("--epochs", "2", "--num-workers", "1", "--batch-size", "8")
    job.until_workers()
    job.send(signal.SIGSTOP)
    job.until(lambda: [*job.pids()] == [job.process.pid], "failing")
    job.send(signal.SIGCONT)
    assert job.wait() == 1
    line = 1 + (project.folder / file).read_text().splitlines().index(
        f"    if rank == 1 and {when}: raise ZeroDivisionError('injected')"
    )
    assert "Timeout" not in job.output  # nobody had to be ended by the watchdog of `end_soon`
    path = re.escape(str(project.folder / file))
    assert f'{project.folder / file}", line {line}' in job.output  # the traceback
    first = re.search(r"^error: .*", job.output, re.M)
    assert first, job.output
    expected = rf"error: rank 1: ZeroDivisionError: injected \({path}:{line}\)"
    assert re.fullmatch(expected, first[0]), job.output


def test_one_rank_hangs(project: Project) -> None:
    """Protects `watch` at each exchange: the other rank waits in a collective, for ten minutes."""
    project.before("model.py", "loss_fn", "if rank == 1 and calls == 12: time.sleep(10**6)")
    job = project.run("--step-timeout", "15")
    assert job.code == 1
    # The watch is set once a second, and rank 1 waits until rank 0 has printed.
    stacks = re.split(r"Timeout \(0:00:16(?:\.200000)?\)!\n", job.output)[1:]
    assert len(stacks) == 2
    assert any(re.search(r'model.py", line \d+ in loss_fn', stack) for stack in stacks)
    assert all(re.search(r'train.py", line \d+ in train_step', stack) for stack in stacks)
