"""What launch.sh runs: torchrun, after the settings were checked, once and in one process.

The environment says how many processes: NPROC, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT (see
launch.sh). `torchrun --standalone --nproc-per-node=2 train.py ...` works as well.

Exit codes: 0 done; 75 stopped by a signal, the same command goes on; 2 wrong settings; 1 failed.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h
STOP_SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1")


def main() -> None:
    """Start the processes with this command line and wait for them."""
    for name in STOP_SIGNALS:  # until torchrun handles them: there is nothing to save yet
        signal.signal(getattr(signal, name), lambda *_: os._exit(TRY_AGAIN))
    from config import PROJECT, load_config  # not above: a signal may come while it is imported

    options = sys.argv[1:]
    config = load_config(options)  # a misspelt setting ends here, before any process is started
    rendezvous = find_rendezvous(read_number("NNODES", lowest=1))
    processes = read_number("NPROC", lowest=1)
    if config.device != "cpu":
        processes = limit_to_gpus(processes)
    # torchrun would choose 1 and print a banner; share out the cores that this job may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) // processes)))
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        os.environ["STOP_MARKER"] = str(Path(folder, "stopped"))
        command = [f"--nproc-per-node={processes}", *rendezvous, str(PROJECT / "train.py")]
        code = run([*command, *options])
        stopped = Path(folder, "stopped").exists()
    if code == TRY_AGAIN or (code == 0 and stopped):
        print("stopped by a signal; the same command goes on from there", file=sys.stderr)
        code = TRY_AGAIN
    raise SystemExit(code)


def run(command: list[str]) -> int:
    """Run torchrun in this process and return the exit code; it hides those of the processes."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # By default SIGUSR1 would end torchrun and leave the processes behind.
    handled = ",".join([*STOP_SIGNALS, "SIGHUP", "SIGQUIT"])
    try:
        torchrun([f"--signals-to-handle={handled}", *command])
    except SignalException as error:
        return TRY_AGAIN if error.sigval.name in STOP_SIGNALS else 128 + error.sigval
    except ChildFailedError as error:  # each process has printed its own traceback
        failures = sorted(error.failures.items(), key=lambda item: item[1].timestamp)
        codes = {failure.exitcode for _, failure in failures}
        if codes <= {-getattr(signal, name) for name in STOP_SIGNALS}:
            return TRY_AGAIN  # a signal before the training could take note of it
        if codes == {2}:
            return 2  # wrong settings: rank 0 has said what is wrong
        for rank, failure in failures:
            print(f"error: rank {rank}: {first_line(failure.message)}", file=sys.stderr)
        return 1
    return 0


def read_number(name: str, lowest: int) -> int:
    """Read a whole number from the environment, 1 when it is not set."""
    text = os.environ.get(name, "1")
    if not text.isdecimal() or int(text) < lowest:
        stop(f"{name} must be a whole number of at least {lowest}, got {text!r}")
    return int(text)


def find_rendezvous(machines: int) -> list[str]:
    """Return torchrun's options for how the processes find each other."""
    if machines == 1:
        return ["--standalone"]  # a free port on this machine: two runs do not collide
    missing = [name for name in ("MASTER_ADDR", "NODE_RANK") if not os.environ.get(name)]
    if missing:
        stop(
            f"NNODES={machines} needs {' and '.join(missing)}; on machine 0 of {machines}: "
            f"NNODES={machines} NODE_RANK=0 MASTER_ADDR=<its name> ./launch.sh"
        )
    node = read_number("NODE_RANK", lowest=0)
    if node >= machines:
        stop(f"NODE_RANK must be from 0 to {machines - 1}, got {node}")
    port = os.environ.get("MASTER_PORT", "29400")
    return [
        f"--nnodes={machines}",
        f"--node-rank={node}",
        f"--master-addr={os.environ['MASTER_ADDR']}",
        f"--master-port={port}",
    ]


def limit_to_gpus(processes: int) -> int:
    """Start no more processes than there are visible GPUs; on a CPU any number will do."""
    import torch

    gpus = torch.cuda.device_count()
    if 0 < gpus < processes:
        print(f"{processes} processes asked for, {gpus} GPU(s) visible: starting {gpus}")
        return gpus
    return processes


def first_line(message: object) -> str:
    """Return the exception itself from what torchrun has of a failed process."""
    text = message["message"] if isinstance(message, dict) else message
    return str(text).strip().splitlines()[0]


def stop(message: str) -> NoReturn:
    """End with a message and exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
