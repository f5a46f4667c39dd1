"""A SLURM of our own: munged, slurmctld and two slurmd, in a folder and two network namespaces.

Each slurmd has an address and a host name of its own (n1, n2), and four GPUs that are none.
"""

import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from faults import environment_of
from generated import ENVIRONMENT
from namespaces import Hosts, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName={name}
SlurmctldHost={controller}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# How long a requeued job waits follows from cred_expire; the default makes it two minutes.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdTimeout=6
KillWait=10
MinJobAge=300
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n1 NodeAddr={n1} CPUs=16 RealMemory=8000 Gres=gpu:4 State=UNKNOWN
NodeName=n2 NodeAddr={n2} CPUs=16 RealMemory=8000 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
# Each GPU needs a file that is there; without one the nodes are refused.
GPUS = "".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full", "random"))


def missing() -> list[str]:
    """Return the programs of SLURM that are not installed here."""
    return [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]


class Slurm:
    """The daemons, and what a user types."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        """Start the daemons and wait until both nodes are idle."""
        self.folder = folder
        self.hosts = hosts
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**ENVIRONMENT, "PATH": SBIN, "SLURM_CONF": str(folder / "slurm.conf")}
        (folder / "state").mkdir()
        for name in hosts.address:
            (folder / name).mkdir()
        with socket.socket() as probe:
            probe.bind((hosts.here, 0))
            port = probe.getsockname()[1]
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                name=f"test{port}",
                controller=socket.gethostname(),
                address=hosts.here,
                port=port,
                folder=folder,
                **hosts.address,
            )
        )
        (folder / "gres.conf").write_text(GPUS)
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{option}={folder}/munge.{end}" for option, end in files.items()]
        self._start("munged", ["munged", "--foreground", "--force", *options])
        wait_until(lambda: (folder / "munge.socket").exists(), "munged")
        self._start("slurmctld", ["slurmctld", "-D", "-c"])
        for name in hosts.address:
            self.start_node(name)
        wait_until(lambda: self("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "idle")

    def _start(self, name: str, command: list[str], host: str | None = None) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            if host is None:
                self.daemons[name] = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", *command],
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            else:
                self.daemons[name] = self.hosts.start(host, command, output, env=self.env)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a host."""
        self._start(f"slurmd-{name}", ["slurmd", "-D", "-N", name], host=name)

    def processes(self, task: int, node: str | None = None) -> dict[int, str]:
        """Return the command line of each process of a task of an array, on one node or on all."""
        found = {}
        for name in [node] if node else self.hosts.address:
            for pid in self.hosts.pids(name):
                if environment_of(pid).get("SLURM_ARRAY_TASK_ID") == str(task):
                    with suppress(OSError):
                        found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return found

    def stop(self) -> None:
        """End all jobs and daemons."""
        self("scancel", "--user=root", check=False)
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()

    def __call__(self, *command: str, cwd: Path | None = None, check: bool = True) -> str:
        """Run a command of a user and return what it prints."""
        done = subprocess.run(
            command, env=self.env, cwd=cwd, capture_output=True, text=True, timeout=60
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, project: Path, *words: str) -> str:
        """Run sbatch in a project's folder; return the id of the job."""
        return self("sbatch", "--parsable", *words, cwd=project).strip()

    def job(self, job: str) -> dict[str, str]:
        """Return what SLURM knows of a job."""
        return dict(re.findall(r"(\S+?)=(\S*)", self("scontrol", "show", "job", job)))

    def until(self, job: str, *states: str) -> dict[str, str]:
        """Wait until a job is in one of these states."""
        try:
            wait_until(lambda: self.job(job)["JobState"] in states, " or ".join(states))
        except AssertionError as error:
            error.add_note(f"{self.job(job)}\n{self('sinfo', '-R')}")
            raise
        return self.job(job)
