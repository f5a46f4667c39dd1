"""How the processes find and reach each other: host name, interface, rendezvous."""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import threading
from collections.abc import Iterator

from ddpgen.doctor.finding import Finding, error, ok, warning

DNS_SECONDS = 5.0
DEFAULT_PORT = 29400  # as in launch.py
IFF_UP = 1  # netdevice(7), as the two requests below
SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915
CHOICES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def check_network(machines: int, *, names_interface: bool) -> Iterator[Finding]:
    """Look at what the processes on so many machines need. Yields one finding for each.

    Args:
        machines: how many train together.
        names_interface: whether launch.sh sets GLOO_SOCKET_IFNAME where nobody has.
    """
    yield check_host_name(machines, names_interface=names_interface)
    yield check_interface(machines)
    yield check_rendezvous(machines)


def check_host_name(machines: int, *, names_interface: bool) -> Finding:
    """Does the name of this machine lead to an address at which the others reach it?"""
    name = socket.gethostname()
    addresses = resolve(name)
    status = error if machines > 1 else warning
    if not addresses:
        return status(
            "host name",
            f"{name} cannot be resolved",
            f"add the line `ADDRESS {name}` to /etc/hosts, with an address of this machine",
        )
    found = f"{name} is {', '.join(addresses[:2])}"
    chosen = names_interface or os.environ.get("GLOO_SOCKET_IFNAME")
    if machines > 1 and not chosen and ipaddress.ip_address(addresses[0]).is_loopback:
        return error(
            "host name",
            f"{found}: the other machines cannot reach that",
            f"GLOO_SOCKET_IFNAME={outer_interface() or 'eth0'}, or another address in /etc/hosts",
        )
    return ok("host name", found)


def check_interface(machines: int) -> Finding:
    """Is there the network interface that the processes will use, and does it work?"""
    there = interfaces()
    for variable in CHOICES:
        text = os.environ.get(variable, "")
        if text.startswith("^"):  # NCCL: all but these
            continue
        for name in filter(None, text.removeprefix("=").split(",")):
            exact = variable == "GLOO_SOCKET_IFNAME" or text.startswith("=")
            if not any(known == name if exact else known.startswith(name) for known in there):
                return error(
                    "interface",
                    f"{variable}={text}, but there are only {', '.join(there)}",
                    f"unset {variable}, or name one of these",
                )
    loopback = next((name for name in there if name in {"lo", "lo0"}), "")
    used = os.environ.get("GLOO_SOCKET_IFNAME") or (loopback if machines == 1 else "")
    used = used or outer_interface() or loopback
    address = address_of(used)
    if address is None:
        return error(
            "interface",
            f"{used or 'the loopback interface'} is down or has no address",
            f"ip link set {used or 'lo'} up",
        )
    if machines > 1 and used == loopback:
        return error(
            "interface",
            "there is only the loopback interface, which reaches no other machine",
            "connect this machine to the network of the others; `ip address` lists interfaces",
        )
    others = f"; there are {', '.join(there)}" if len(there) > 1 else ""
    return ok("interface", f"{used} ({address}){others}")


def check_rendezvous(machines: int) -> Finding:
    """Can the processes meet: in a file on one machine, or at a port of machine 0?"""
    if machines == 1:
        if (problem := cannot_listen("127.0.0.1", 0)) is not None:
            return error(
                "rendezvous", f"no port can be opened at 127.0.0.1: {problem}", "ip link set lo up"
            )
        return ok("rendezvous", "in a file, as on any single machine; free ports are there")
    master, node = os.environ.get("MASTER_ADDR", ""), os.environ.get("NODE_RANK", "")
    port = os.environ.get("MASTER_PORT") or str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) <= 65535:
        return error(
            "rendezvous", f"MASTER_PORT={port} is no port", "MASTER_PORT=29400, or leave it out"
        )
    if master and not resolve(master):
        return error(
            "rendezvous",
            f"MASTER_ADDR={master} cannot be resolved here",
            "give machine 0's address in numbers, or add its name to /etc/hosts on each machine",
        )
    if node in {"", "0"} and (problem := cannot_listen("", int(port))) is not None:
        return error(
            "rendezvous",
            f"port {port} cannot be opened here: {problem}",
            f"MASTER_PORT={int(port) % 65535 + 1} on all machines; `ss -ltnp` says who has it",
        )
    where = f"{master} (resolved)" if master else "MASTER_ADDR, which is not set here"
    free = ", free here" if node in {"", "0"} else ""
    return ok("rendezvous", f"port {port} of {where}{free}")


def resolve(name: str) -> list[str]:
    """Return the addresses of a name; [] when there are none, or no answer comes in time."""
    found: list[str] = []

    def ask() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            found.extend(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))

    thread = threading.Thread(target=ask, daemon=True)  # it cannot be interrupted
    thread.start()
    thread.join(DNS_SECONDS)
    return list(found)


def interfaces() -> list[str]:
    """Return the names of the network interfaces."""
    return [name for _, name in socket.if_nameindex()]


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface that is up; None when it has none."""
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        (flags,) = struct.unpack("H", fcntl.ioctl(asked, SIOCGIFFLAGS, request)[16:18])
        if flags & IFF_UP:
            return socket.inet_ntoa(fcntl.ioctl(asked, SIOCGIFADDR, request)[20:24])
    return None


def outer_interface() -> str | None:
    """Return the first interface with an address that is not the loopback."""
    return next((n for n in interfaces() if n not in {"lo", "lo0"} and address_of(n)), None)


def cannot_listen(address: str, port: int) -> str | None:
    """Say why no socket can listen there; None when one can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
        try:
            listener.bind((address, port))
            listener.listen(1)
        except OSError as problem:
            return problem.strerror or str(problem)
    return None
