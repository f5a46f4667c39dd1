"""Which machines train together, and where their processes find each other."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

from stopping import WRONG_SETTINGS

SIOCGIFADDR = 0x8915  # netdevice(7)


def read_number(name: str, lowest: int, default: int | None = None) -> int:
    """Read a whole number from the environment; when it is not set, the default or `lowest`."""
    text = os.environ.get(name, str(default or lowest))
    if not text.isdecimal() or int(text) < lowest:
        stop(f"{name} must be a whole number of at least {lowest}, got {text!r}")
    return int(text)


def read_machines() -> tuple[int, int]:
    """Read NNODES, the fewest and the most machines: 2 is both of them, 1:4 is a range."""
    text = os.environ.get("NNODES", "1")
    low, colon, high = text.partition(":")
    numbers = [low, high] if colon else [low]
    if not all(number.isdecimal() and int(number) for number in numbers):
        stop(f"NNODES must be a number of machines or a range such as 1:4, got {text!r}")
    lowest, highest = int(numbers[0]), int(numbers[-1])
    if lowest > highest:
        stop(f"NNODES must have the smaller number first, got {text!r}")
    return lowest, highest


def meet_here(folder: Path) -> list[str]:
    """Return torchrun's options for processes that find each other on this machine alone."""
    import alone  # not above: it imports torch

    os.environ["STORE_FILE"] = str(folder / "store")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    # Nobody looks at the endpoint, but without one torchrun prints a warning.
    return [f"--rdzv-backend={alone.BACKEND}", "--rdzv-endpoint=127.0.0.1"]


def meet_at_master(machines: tuple[int, int], restarts: int) -> list[str]:
    """Return torchrun's options for processes on several machines: they meet at machine 0.

    Its port has no password: the machines must be in a network of their own.
    """
    lowest, highest = machines
    missing = [name for name in ("MASTER_ADDR", "NODE_RANK") if not os.environ.get(name)]
    if missing:
        nnodes = os.environ["NNODES"]
        stop(
            f"NNODES={nnodes} needs {' and '.join(missing)}; on machine 0 of {highest}: "
            f"NNODES={nnodes} NODE_RANK=0 MASTER_ADDR=<its name> ./launch.sh"
        )
    node, master = read_number("NODE_RANK", lowest=0), os.environ["MASTER_ADDR"]
    if node >= highest:
        stop(f"NODE_RANK must be from 0 to {highest - 1}, got {node}")
    port = read_number("MASTER_PORT", lowest=1, default=29400)
    if port > 65535:
        stop(f"MASTER_PORT must be from 1 to 65535, got {port}")
    patience = read_number("JOIN_TIMEOUT", lowest=1, default=600)
    if node == 0:
        claim_port(port)
    else:
        wait_for_machine_0(master, port, patience)
    address, interfaces = address_towards(master, port), interfaces_here()
    if address.startswith("127.") and not master.startswith(("127.", "localhost")):
        # On Debian the name of machine 0 leads to 127.0.1.1 on machine 0 itself.
        address = next((each for each in interfaces if not each.startswith("127.")), address)
    if address in interfaces:  # gloo would take the address of this machine's own name
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interfaces[address])
    if lowest == highest and restarts == 0:
        return [
            f"--nnodes={highest}",
            f"--node-rank={node}",
            f"--master-addr={master}",
            f"--master-port={port}",
            f"--rdzv-conf=timeout={patience}",
        ]
    # Machines may come and go, so each start has a rendezvous and may give them other ranks.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # a crash would leave its keys there
    return [
        f"--nnodes={lowest}:{highest}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={master}:{port}",
        # last_call: so long the first machines wait for more, at the start and after each change
        f"--rdzv-conf=is_host={int(node == 0)},join_timeout={patience},last_call_timeout=10",
        f"--local-addr={master if node == 0 else address}",  # where the others reach this machine
    ]


def claim_port(port: int) -> None:
    """End with a clear message when machine 0, this one, cannot listen on its port."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # error.strerror has the address in it as well
        stop(f"machine 0 cannot listen on port {port}: {reason}; set another MASTER_PORT")


def wait_for_machine_0(master: str, port: int, patience: int) -> None:
    """Wait until machine 0 listens; say at once why it is not reached, in case it never will be."""
    end = time.monotonic() + patience
    said = ""
    while True:
        try:
            socket.create_connection((master, port), timeout=5).close()
            return
        except OSError as error:
            reason = f"machine 0 is not reached at {master}:{port}: {error.strerror or error}"
        if time.monotonic() > end:
            stop(f"{reason}; gave up after {patience} s (JOIN_TIMEOUT)", code=1)
        if reason != said:
            print(f"{reason}; trying for {patience} s", file=sys.stderr, flush=True)
            said = reason
        time.sleep(0.5)


def address_towards(host: str, port: int) -> str:
    """Return the address that this machine has towards another; nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        stop(f"MASTER_ADDR={host} leads nowhere: {error.strerror or error}")


def interfaces_here() -> dict[str, str]:
    """Return the network interfaces of this machine by their IPv4 address; {} if not on Linux."""
    if sys.platform != "linux":
        return {}
    import fcntl

    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, request)
            except OSError:  # it has no address
                continue
            found.setdefault(socket.inet_ntoa(answer[20:24]), name)
    return found


def stop(message: str, code: int = WRONG_SETTINGS) -> NoReturn:
    """End with a message."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
