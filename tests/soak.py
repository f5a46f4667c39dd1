"""Disturb one run again and again, at random, and compare its end with an undisturbed run.

python tests/soak.py --faults 30 --seed 0     random faults, at random moments of one run
python tests/soak.py --restarts 20            one run whose processes are killed so many times
python tests/soak.py --finished 50            a finished run, started again so many times

Prints what was done and exits 0 when nothing was stuck or lost and the weights are equal to the
bit. The same seed draws the same faults; at which step they hit depends on the machine.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults import Job, Project
from generated import PATIENCE

TRY_AGAIN = 75
EPOCHS_PER_FAULT = 3  # of 25 steps
OPTIONS = (
    *("--batch-size", "8", "--log-every", "5", "--save-every-steps", "10"),
    *("--schedule", "cosine", "--ema-decay", "0.99", "--step-timeout", "20"),
)
# So slow that a fault hits the run before it has ended.
SLOW = "if os.environ.get('SLOW'): time.sleep(0.02)"


@dataclass(frozen=True)
class Fault:
    """A signal to launch.sh or to one process of the training, and the exit code that follows."""

    number: signal.Signals
    to_worker: bool
    code: int
    while_starting: bool

    def __str__(self) -> str:
        where = "one worker" if self.to_worker else "launch.sh"
        when = " while it starts" if self.while_starting else ""
        return f"{self.number.name} to {where}{when}"


STOPS = [
    Fault(number, to_worker, TRY_AGAIN, starting)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
    for to_worker in (False, True)
    for starting in (False, True)
]
KILLS = [
    Fault(signal.SIGKILL, to_worker, 1 if to_worker else -signal.SIGKILL, starting)
    for to_worker in (False, True)
    for starting in (False, True)
]
HANG = Fault(signal.SIGSTOP, to_worker=True, code=1, while_starting=False)


def draw_faults(count: int, draw: random.Random) -> list[Fault]:
    """Draw: half of them stops, nearly half kills; a quarter while it starts; a few hangs.

    A hang takes long: the watchdog of the other process, then torchrun's patience of 30 s.
    """
    kinds = draw.choices([STOPS, KILLS, [HANG]], weights=[10, 9, 1], k=count)
    early = draw.choices([True, False], weights=[1, 3], k=count)
    return [
        draw.choice([fault for fault in kind if fault.while_starting == now] or kind)
        for kind, now in zip(kinds, early, strict=True)
    ]


class Soak:
    """One run, what has been done to it, and what went wrong."""

    def __init__(self, folder: Path, epochs: int, seed: int = 0) -> None:
        """Train the undisturbed run, of so many epochs."""
        self.draw = random.Random(seed)
        self.epochs = epochs
        self.wrong: dict[str, list[str]] = {"stuck": [], "lost": [], "other exit code": []}
        self.project = Project(folder / "project")
        self.project.before("model.py", "loss_fn", SLOW)
        self.finish("undisturbed")

    def start(self, name: str = "disturbed", slow: str = "1", restarts: int = 0) -> Job:
        """Start launch.sh; with DataLoader workers or without, it makes no difference."""
        workers = str(self.draw.choice([0, 2]))
        options = ("--epochs", str(self.epochs), "--num-workers", workers, "--name", name)
        return self.project.start(*OPTIONS, *options, SLOW=slow, MAX_RESTARTS=str(restarts))

    def finish(self, name: str = "disturbed") -> Job:
        """Run launch.sh to its end."""
        job = self.start(name, slow="")
        assert job.wait() == 0, job.output
        return job

    def disturb(self, fault: Fault) -> str:
        """Go on with the run until the fault; say what has become of it."""
        saved = max(self.project.steps("disturbed"), default=0)
        job = self.start()
        try:
            job.until_workers()
            if not fault.while_starting:
                job.until(lambda: "train " in job.output, "training")
                if f"from step {saved} on" not in job.output:
                    self.wrong["lost"].append(f"{fault}\n{job.output}")
            time.sleep(self.draw.uniform(0, 2))
            job.send(fault.number, self.draw.choice([0, 1]) if fault.to_worker else None)
            job.process.wait(PATIENCE)
            job.wait_for_processes()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.wrong["stuck"].append(f"{fault}: {error!r}\n{job.output}")
        job.end()
        reached = max(self.project.steps("disturbed"), default=0)
        if reached < saved:
            self.wrong["lost"].append(f"{fault}\n{job.output}")
        if job.code != fault.code:
            self.wrong["other exit code"].append(f"{fault}: {job.code}\n{job.output}")
        return f"{fault}: exit code {job.code}, step {saved} -> {reached}"

    def equal(self) -> bool:
        """Compare the ends of the two runs."""
        return self.project.weights("disturbed") == self.project.weights("undisturbed")


def soak(folder: Path, count: int, seed: int) -> bool:
    """Disturb a run by random faults; print what happened, return whether all is well."""
    run = Soak(folder, EPOCHS_PER_FAULT * count, seed)
    faults = draw_faults(count, run.draw)
    for number, fault in enumerate(faults, start=1):
        print(f"{number:>3}  {run.disturb(fault)}", flush=True)
    run.finish()
    print(f"seed {seed}, {count} faults:")
    for kind, times in sorted(Counter(map(str, faults)).items()):
        print(f"{times:>5}  {kind}")
    for problem, cases in run.wrong.items():
        print(f"{len(cases):>5}  {problem}", *cases, sep="\n")
    print(f"weights equal to the bit: {run.equal()}")
    return run.equal() and not any(run.wrong.values())


def restarts(folder: Path, count: int) -> bool:
    """Kill a process so many times in one launch.sh; return whether it ends as if never."""
    run = Soak(folder, EPOCHS_PER_FAULT * count)
    job = run.start(restarts=count)
    for number in range(count):
        job.until(partial(begun, job, number), "restarted")
        time.sleep(run.draw.uniform(0, 2))
        job.send(signal.SIGKILL, run.draw.choice([0, 1]))
    job.process.wait(10 * PATIENCE)  # the rest of the run
    code = job.wait()
    came_back = job.output.count("on cpu") - 1
    print(f"{came_back} restarts of {count}, exit code {code}, equal to the bit: {run.equal()}")
    return code == 0 and came_back == count and run.equal()


def begun(job: Job, restart: int) -> bool:
    """Say whether the training has begun again for so many times."""
    return job.output.count("on cpu") > restart


def finished(folder: Path, count: int) -> bool:
    """Start a finished run so many times; return whether it said so each time."""
    run = Soak(folder, epochs=1)
    run.finish()
    said = sum("has ended" in run.finish().output for _ in range(count))
    print(f"{said} of {count} times the finished run said so, exit code 0, equal: {run.equal()}")
    return said == count and run.equal()


def main() -> None:
    """Read the command line and do what it asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=0, help="random faults")
    parser.add_argument("--seed", type=int, default=0, help="draws them")
    parser.add_argument("--restarts", type=int, default=0, help="kills that torchrun mends")
    parser.add_argument("--finished", type=int, default=0, help="starts of a finished run")
    asked = parser.parse_args()
    if not (asked.faults or asked.restarts or asked.finished):
        asked.faults = 30
    well = True
    for count, what in (
        (asked.faults, partial(soak, seed=asked.seed)),
        (asked.restarts, restarts),
        (asked.finished, finished),
    ):
        if count:
            with tempfile.TemporaryDirectory(prefix="soak-") as folder:
                well &= what(Path(folder), count)
    sys.exit(not well)


if __name__ == "__main__":
    main()
