"""Hosts of our own on this machine: network namespaces behind a bridge, each with a name."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from generated import PATIENCE

# What a command of a host runs in: its network, its name, its /etc/hosts. Not `ip netns exec`,
# which hides the cgroups from slurmd. It dies with the tests.
ENTER = 'hostname "$0"; mount --bind "$1" /etc/hosts; shift; exec setpriv --pdeathsig KILL "$@"'


def ip(*arguments: str) -> str:
    """Run the command `ip`."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@cache
def why_not() -> str:
    """Say why there can be no hosts here; empty when there can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    try:
        ip("netns", "add", f"try{os.getpid()}")
        ip("netns", "del", f"try{os.getpid()}")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"
    return ""


class Hosts:
    """Hosts n1, n2, ... that see each other and this machine."""

    def __init__(self, folder: Path, *, debian: bool = False) -> None:
        """Make n1 and n2; the process id keeps apart what two test processes make.

        Args:
            folder: for their files /etc/hosts.
            debian: the own name of a host leads to 127.0.1.1, as Debian sets it up.
        """
        me = os.getpid()
        self.folder = folder
        self.bridge = f"br{me}"
        # Above 127.0.0.1: of two addresses gloo listens at the higher one.
        network = f"172.{16 + me % 16}.{me // 16 % 256}"
        self.here = f"{network}.254"
        self.started: list[subprocess.Popen[bytes]] = []
        self.address = {"n1": f"{network}.1", "n2": f"{network}.2"}
        for host in self.address:
            names = {**self.address, **({host: "127.0.1.1"} if debian else {})}
            lines = [f"{address} {name}\n" for name, address in names.items()]
            (folder / f"hosts-{host}").write_text("".join(["127.0.0.1 localhost\n", *lines]))
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.here}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for name, address in self.address.items():
            space, link = self.space(name), f"v{me}{name}"
            ip("netns", "add", space)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", link, "master", self.bridge, "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def space(self, name: str) -> str:
        """Return the name of a host's network namespace."""
        return f"{self.bridge}-{name}"

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        output: IO[bytes],
        env: dict[str, str],
        cwd: Path | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a command on a host."""
        enter = ["nsenter", f"--net=/run/netns/{self.space(name)}", "unshare", "--uts", "--mount"]
        process = subprocess.Popen(
            [*enter, "sh", "-c", ENTER, name, self.folder / f"hosts-{name}", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
        )
        self.started.append(process)
        return process

    def pids(self, name: str) -> list[int]:
        """Return the processes of a host."""
        return [int(pid) for pid in ip("netns", "pids", self.space(name)).split()]

    def power_off(self, name: str) -> None:
        """Let a host vanish: no packet leaves it any more, not even that a connection is closed."""
        ip("-n", self.space(name), "link", "set", "eth0", "down")
        self.kill(name)

    def power_on(self, name: str) -> None:
        """Connect a host again."""
        ip("-n", self.space(name), "link", "set", "eth0", "up")

    def kill(self, name: str) -> None:
        """Kill all processes of a host."""
        while pids := self.pids(name):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Remove the hosts with everything that runs there."""
        for name in self.address:
            self.kill(name)
            ip("netns", "del", self.space(name))
        for process in self.started:
            process.wait()
        ip("link", "del", self.bridge)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"still not {what}"
        time.sleep(0.1)
