"""slurm.sbatch on a real SLURM: munged, slurmctld and two slurmd, each a host of its own."""

import json
import os
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Project
from namespaces import Hosts, wait_until, why_not
from slurm import Slurm, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}"),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
OPTIONS = ["--device=cpu", "--batch-size=20", "--log-every=1", "--save-every-steps=3"]
STEPS = 30  # 3 epochs of 400 samples in steps of 2 x 20
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
# A step takes two seconds as long as the file is there that SLOW names.
SLOWLY = """
if os.path.exists(os.environ.get("SLOW", "")):
    time.sleep(2)
"""
# A launch.sh that says how it was started.
STAND_IN = """#!/usr/bin/env bash
echo "$NNODES $NODE_RANK $MASTER_ADDR $NPROC $CUDA_VISIBLE_DEVICES $(hostname)" > "seen-$NODE_RANK"
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The daemons; all tests of this file share them."""
    folder = tmp_path_factory.mktemp("slurm")
    hosts = Hosts(folder)
    try:
        daemons = Slurm(folder, hosts)
        yield daemons
        daemons.stop()
    finally:
        hosts.remove()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project for two nodes with a GPU each, in a folder that both see."""
    made = Project(tmp_path_factory.mktemp("slurm") / "p", nodes=2, gpus=1, parts=["slurm"])
    made.before("model.py", "loss_fn", SLOWLY)
    return made


class Run:
    """A job of the project, and what it has written."""

    def __init__(self, slurm: Slurm, project: Project, name: str, *words: str) -> None:
        """Submit it with further words for sbatch; it is slow until `hurry`."""
        self.slurm = slurm
        self.project = project
        self.name = name
        self.slow = project.folder / f"slow-{name}"
        self.slow.touch()
        # The jobs of the array have no end: the tests need them at work.
        more = ["--epochs=1000"] if "--array=1-2" in words else ["--epochs=3", "--name", name]
        export = f"--export=ALL,SLOW={self.slow}"
        self.id = slurm.submit(project.folder, *words, export, "slurm.sbatch", *OPTIONS, *more)

    def hurry(self) -> None:
        """Let the steps take no time from now on."""
        self.slow.unlink()

    def until(self, *states: str) -> dict[str, str]:
        """Wait for a state of the job, and return what SLURM knows of it."""
        return self.slurm.until(self.id, *states)

    def until_step(self, step: int) -> None:
        """Wait until a step is done."""
        wait_until(lambda: max(self.steps(), default=0) >= step, f"at step {step}")

    def steps(self, name: str = "") -> list[int]:
        """Return the steps of all log lines, in the order in which they were written."""
        path = self.project.run_folder(name or self.name) / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["step"] for line in lines if '"train/loss"' in line]

    def result(self) -> list[object]:
        """Return the final weights and all losses by step."""
        keys = ("train/loss", "validation/loss")
        losses = [self.project.metrics(key, self.name) for key in keys]
        return [self.project.weights(self.name), *losses]

    @property
    def log(self) -> str:
        """What the job has printed."""
        return (self.project.folder / f"slurm-{self.id}.out").read_text()


@pytest.fixture(scope="module")
def undisturbed(slurm: Slurm, shared: Project) -> Run:
    """A run from its first step to its last."""
    run = Run(slurm, shared, "undisturbed")
    run.hurry()
    assert run.until(*ENDED)["JobState"] == "COMPLETED", run.log
    return run


def test_two_nodes_train_as_one(undisturbed: Run) -> None:
    """Protects NNODES, NODE_RANK and MASTER_ADDR in slurm.sbatch, and `meet_at_master`."""
    assert "global batch 40 = 20 on each of 2 processes" in undisturbed.log
    assert undisturbed.steps() == list(range(1, STEPS + 1))


def test_near_its_time_limit_a_job_saves_queues_again_and_loses_nothing(
    slurm: Slurm, shared: Project, undisturbed: Run
) -> None:
    """Protects --signal, --open-mode, the trap for USR1, the second wait and `scontrol requeue`."""
    run = Run(slurm, shared, "limited", "--signal=B:USR1@120")
    run.until_step(1)
    hours, minutes, _ = (int(part) for part in slurm.job(run.id)["RunTime"].split(":"))
    slurm("scontrol", "update", f"JobId={run.id}", f"TimeLimit={60 * hours + minutes + 2}")
    wait_until(lambda: slurm.job(run.id)["Restarts"] == "1", "requeued")
    slurm("scontrol", "update", f"JobId={run.id}", "TimeLimit=60")  # enough on any machine
    stopped_at = shared.steps("limited")[-1]
    assert run.steps()[-1] == stopped_at
    run.hurry()
    assert run.until(*ENDED)["JobState"] == "COMPLETED", run.log
    assert f"stopped by a signal at step {stopped_at}" in run.log
    assert f"from step {stopped_at} on cpu" in run.log
    assert run.steps() == list(range(1, STEPS + 1))
    assert run.result() == undisturbed.result()


@pytest.fixture(scope="module")
def sweep(slurm: Slurm, shared: Project, undisturbed: Run) -> Run:
    """An array of two jobs that are at work on the same two nodes, for the next four tests."""
    run = Run(slurm, shared, "sweep", "--array=1-2", "--job-name=sweep")
    wait_until(lambda: run.steps("sweep-1") and run.steps("sweep-2"), "both at work")
    return run


def test_the_jobs_of_an_array_share_their_nodes_and_nothing_else(sweep: Run) -> None:
    """Protects MASTER_PORT, and the name and the seed that slurm.sbatch gives to each of them."""
    jobs = [sweep.slurm.job(f"{sweep.id}_{task}") for task in (1, 2)]
    assert [(job["JobState"], job["NodeList"]) for job in jobs] == [("RUNNING", "n[1-2]")] * 2
    files = [sweep.project.run_folder(f"sweep-{task}") / "config.toml" for task in (1, 2)]
    assert [tomllib.loads(file.read_text())["seed"] for file in files] == [1, 2]


def test_a_cancelled_job_leaves_a_checkpoint_and_no_process(sweep: Run) -> None:
    """Protects the trap for TERM in slurm.sbatch."""
    sweep.slurm("scancel", f"{sweep.id}_1")
    assert sweep.slurm.until(f"{sweep.id}_1", *ENDED)["JobState"] == "CANCELLED"
    wait_until(lambda: not sweep.slurm.processes(task=1), "ended")
    assert sweep.project.steps("sweep-1")[-1] == sweep.steps("sweep-1")[-1]


def test_a_second_job_in_the_same_run_folder_is_refused(sweep: Run) -> None:
    """Protects the lock of run_folder.py."""
    second = Run(sweep.slurm, sweep.project, "sweep-2", "--nodes=1")
    assert second.until(*ENDED)["ExitCode"] == "2:0", second.log
    assert "sweep-2 is in use by process" in second.log


def test_a_launcher_that_is_killed_ends_its_job_on_all_nodes(sweep: Run) -> None:
    """Protects --kill-on-bad-exit: without it the other node would go on waiting."""
    there = sweep.slurm.processes(task=2, node="n2")
    [launcher] = [pid for pid, command in there.items() if "launch.py" in command]
    os.kill(launcher, signal.SIGKILL)
    assert sweep.slurm.until(f"{sweep.id}_2", *ENDED)["JobState"] == "FAILED"
    wait_until(lambda: not sweep.slurm.processes(task=2), "ended")


def test_when_a_node_dies_the_job_is_queued_again_and_goes_on(
    slurm: Slurm, shared: Project, undisturbed: Run
) -> None:
    """Protects --requeue in slurm.sbatch, and that what a checkpoint holds is all that counts."""
    run = Run(slurm, shared, "node")
    run.until_step(4)
    slurm.hosts.power_off("n2")
    wait_until(lambda: slurm.job(run.id)["Restarts"] == "1", "requeued")
    slurm.hosts.power_on("n2")
    slurm.start_node("n2")
    run.hurry()
    assert run.until(*ENDED)["JobState"] == "COMPLETED", run.log
    assert "from step 3 on cpu" in run.log
    assert run.result() == undisturbed.result()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus-per-node=2", []),
        ("--gres=gpu:2", []),
        ("--gpus-per-node=1", ["--gres=gpu:2"]),
    ],
)
def test_both_ways_to_ask_for_gpus_start_a_process_for_each(
    slurm: Slurm, shared: Project, tmp_path: Path, line: str, words: list[str]
) -> None:
    """Protects NPROC and SLURM_GPUS_PER_NODE in slurm.sbatch."""
    text = (shared.folder / "slurm.sbatch").read_text()
    assert "\n#SBATCH --gpus-per-node=1\n" in text
    assert "--gres=gpu:1\n" in text  # the other one, in a comment
    (tmp_path / "slurm.sbatch").write_text(text.replace("--gpus-per-node=1", line))
    (tmp_path / "launch.sh").write_text(STAND_IN)
    (tmp_path / "launch.sh").chmod(0o755)
    job = slurm.submit(tmp_path, *words, "slurm.sbatch")
    assert slurm.until(job, *ENDED)["JobState"] == "COMPLETED"
    seen = [(tmp_path / f"seen-{node}").read_text().split() for node in range(2)]
    gpus = [set(words.pop(4).split(",")) for words in seen]
    assert seen == [["2", "0", "n1", "2", "n1"], ["2", "1", "n1", "2", "n2"]]
    assert all(len(few) == 2 and few < {"0", "1", "2", "3"} for few in gpus)
