"""Several machines: two hosts with their own networks, and all that can go wrong between them."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Job, Project
from generated import ENVIRONMENT, PATIENCE
from namespaces import Hosts, wait_until, why_not
from support import free_port

hosts_needed = pytest.mark.skipif(bool(why_not()), reason=why_not())
OPTIONS = ["--device=cpu", "--epochs=3", "--global-batch-size=40", "--log-every=1"]
STEPS = 30
SLOWLY = """
if Path(__file__).with_name("slow").exists():
    time.sleep(1)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts whose names lead to 127.0.1.1 at home, as Debian sets it up."""
    made = Hosts(tmp_path, debian=True)
    yield made
    made.remove()


@pytest.fixture
def slow(project: Project) -> Path:
    """The file that makes the steps of the project slow, as long as it is there."""
    project.before("model.py", "loss_fn", SLOWLY)
    file = project.folder / "slow"
    file.touch()
    return file


# The process of machine 1 dies in step 15, the first time.
CRASH = """
mark = Path(__file__).with_name("crashed")
if rank == 1 and calls == 15 and not mark.exists():
    mark.touch()
    os._exit(9)
"""


class Launch:
    """launch.sh on a host."""

    def __init__(
        self, hosts: Hosts, project: Project, name: str, *options: str, **env: str
    ) -> None:
        """Start it as machine 0 on n1, or as machine 1 on n2."""
        self.project = project
        self.file = project.folder / f"output-{name}-{time.monotonic_ns()}"
        address = {"MASTER_ADDR": hosts.address["n1"], "NODE_RANK": str(int(name == "n2"))}
        with self.file.open("wb") as output:
            self.process = hosts.start(
                name,
                ["./launch.sh", *OPTIONS, *options],
                output,
                cwd=project.folder,
                env={**ENVIRONMENT, "NPROC": "1", "OMP_NUM_THREADS": "1", **address, **env},
            )

    @property
    def output(self) -> str:
        """What it has printed."""
        return self.file.read_text()

    def until(self, text: str) -> None:
        """Wait until it has printed a text."""
        end = time.monotonic() + PATIENCE
        while text not in self.output:
            assert time.monotonic() < end, f"still not {text!r}:\n{self.output}"
            assert self.process.poll() is None, f"ended before {text!r}:\n{self.output}"
            time.sleep(0.05)

    def wait(self) -> int:
        """Wait for the exit code."""
        return self.process.wait(PATIENCE)


@hosts_needed
def test_a_host_may_come_late_and_when_one_dies_the_same_command_goes_on(
    hosts: Hosts, project: Project, slow: Path
) -> None:
    """Protects `wait_for_machine_0`, and GLOO_SOCKET_IFNAME: these names lead to loopback at home.

    Machine 0 is named by its address at first, and then by such a name.
    """
    early = Launch(hosts, project, "n2", NNODES="2")
    early.until(f"machine 0 is not reached at {hosts.address['n1']}:29400: Connection refused")
    first = Launch(hosts, project, "n1", NNODES="2")
    first.until("step     12")
    hosts.kill("n2")
    assert first.wait() == 1, first.output
    slow.unlink()
    again = [Launch(hosts, project, n, NNODES="2", MASTER_ADDR="n1") for n in ("n1", "n2")]
    assert [launch.wait() for launch in again] == [0, 0], again[0].output
    assert "from step 10 on cpu" in again[0].output
    assert list(project.metrics("train/loss")) == list(range(1, STEPS + 1))


@hosts_needed
def test_with_a_range_of_machines_the_run_goes_on_as_they_come_and_go(
    hosts: Hosts, project: Project, slow: Path
) -> None:
    """Protects the elastic half of `meet_at_master`, and `leave` and `end_on_signals`."""
    first = Launch(hosts, project, "n1", "--save-every-steps=1", NNODES="1:2")
    Launch(hosts, project, "n2", "--save-every-steps=1", NNODES="1:2")
    first.until("step      3")
    hosts.kill("n2")
    first.until("on each of 1 process ")
    second = Launch(hosts, project, "n2", "--save-every-steps=1", NNODES="1:2")
    wait_until(lambda: first.output.count("on each of 2 processes") == 2, "two again")
    slow.unlink()
    assert [first.wait(), second.wait()] == [0, 0], first.output
    assert sorted(project.metrics("train/loss")) == list(range(1, STEPS + 1))


@hosts_needed
def test_without_machine_0_the_others_end_with_one_clear_line(
    hosts: Hosts, project: Project, slow: Path
) -> None:
    """Protects `except (DistError, RendezvousError)` in launch.py."""
    first, second = (Launch(hosts, project, name, NNODES="1:2") for name in ("n1", "n2"))
    first.until("step      1")
    hosts.kill("n1")
    assert second.wait() == 1
    assert "error: the machines are not connected: " in second.output


def launch(project: Project, *options: str, **env: str) -> Job:
    """Start launch.sh as one of two machines that are this one."""
    return project.start(
        *OPTIONS[1:], *options, processes=1, **{"NNODES": "2", "MASTER_ADDR": "127.0.0.1", **env}
    )


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("no-such-machine.invalid", "not known"),
        ("127.0.0.1", "Connection refused"),
        ("192.0.2.1", ""),  # for documentation only: nothing there will answer
    ],
)
def test_a_machine_0_that_is_not_reached_is_one_line(
    project: Project, address: str, reason: str
) -> None:
    """Protects JOIN_TIMEOUT and the first line of `wait_for_machine_0`, which comes at once."""
    port = free_port()
    job = launch(project, MASTER_ADDR=address, NODE_RANK="1", MASTER_PORT=port, JOIN_TIMEOUT="2")
    job.wait()
    assert job.code == 1
    first, last = job.output.splitlines()
    assert first.startswith(f"machine 0 is not reached at {address}:{port}: ")
    assert reason in first
    assert first.endswith("; trying for 2 s")
    assert last.startswith("error: ")
    assert last.endswith("; gave up after 2 s (JOIN_TIMEOUT)")


def test_a_port_that_is_in_use_is_one_line(project: Project) -> None:
    """Protects `claim_port`: torch would answer with a page of traceback."""
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        job = launch(project, NODE_RANK="0", MASTER_PORT=port)
        job.wait()
    assert job.code == 2
    assert job.output == (
        f"error: machine 0 cannot listen on port {port}: Address already in use; "
        "set another MASTER_PORT\n"
    )


@pytest.mark.parametrize("nnodes", ["2", "2:3"])
def test_machines_that_do_not_come_are_not_waited_for_for_ever(
    project: Project, nnodes: str
) -> None:
    """Protects `timeout` and `join_timeout` in `meet_at_master`."""
    job = launch(project, NNODES=nnodes, NODE_RANK="0", MASTER_PORT=free_port(), JOIN_TIMEOUT="3")
    job.wait()
    assert job.code == 1
    assert "error: the machines are not connected: " in job.output
    assert "Traceback" not in job.output


def test_run_folders_that_the_machines_do_not_share_are_refused_at_the_start(
    project: Project,
) -> None:
    """Protects `_see_that_it_is_shared` in saver.py."""
    other = Project(project.folder.with_name("other"))
    port = free_port()
    first = launch(project, NODE_RANK="0", MASTER_PORT=port)
    second = launch(other, NODE_RANK="1", MASTER_PORT=port)
    assert [first.wait(), second.wait()] == [2, 2], first.output
    assert (
        f"runs/default is another folder on {socket.gethostname()}: all machines need"
        in first.output
    )


def test_a_crash_on_one_machine_starts_both_again(project: Project) -> None:
    """Protects MAX_RESTARTS with several machines."""
    project.before("model.py", "loss_fn", CRASH)
    port = free_port()
    jobs = [launch(project, NODE_RANK=n, MASTER_PORT=port, MAX_RESTARTS="1") for n in "01"]
    assert [job.wait() for job in jobs] == [0, 0], jobs[0].output
    assert list(project.metrics("train/loss")) == list(range(1, STEPS + 1))
