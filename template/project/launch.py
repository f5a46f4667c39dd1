"""What launch.sh runs: torchrun, after the settings were checked, once and in one process.

The environment says how many processes: NPROC, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT,
MAX_RESTARTS (see launch.sh). `torchrun --standalone --nproc-per-node=2 train.py` works as well.

Exit codes: 0 done; 75 stopped by a signal, the same command goes on; 2 wrong settings; 1 failed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stopping import TRY_AGAIN, WRONG_SETTINGS, stop_signals

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

PROJECT = Path(__file__).resolve().parent


def main() -> None:
    """Start the processes with this command line and wait for them."""
    for number in stop_signals():  # until torchrun handles them: there is nothing to save yet
        signal.signal(number, lambda *_: os._exit(TRY_AGAIN))
    from config import load_config  # not above: a signal may come while it is imported

    options = sys.argv[1:]
    config = load_config(options)  # a misspelt setting ends here, before any process is started
    machines, processes = read_number("NNODES", lowest=1), read_number("NPROC", lowest=1)
    rendezvous = meet_at_master(machines) if machines > 1 else []
    restarts = read_number("MAX_RESTARTS", lowest=0)
    if restarts and config.resume != "auto":
        stop("MAX_RESTARTS needs --resume auto: each restart would begin again")
    if config.device != "cpu":
        processes = limit_to_gpus(processes, needed=config.device == "cuda")
    # torchrun would choose 1 and print a banner; share out the cores that this job may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "120")  # 30 s: too short for a big save
    os.environ["LAUNCHER_PID"] = str(os.getpid())
    arguments = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    raise SystemExit(run(arguments, rendezvous, [str(PROJECT / "train.py"), *options]))


def run(arguments: list[str], rendezvous: list[str], program: list[str]) -> int:
    """Run torchrun in this process and return the exit code; it hides those of the processes."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    # By default SIGUSR1 would end torchrun and leave the processes behind.
    handled = ",".join(number.name for number in [*stop_signals(), signal.SIGQUIT])
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        exit_code = Path(folder, "exit-code")  # which the training writes when it ends well
        os.environ["EXIT_CODE_FILE"] = str(exit_code)
        arguments += [f"--signals-to-handle={handled}", f"--log-dir={folder}"]
        arguments += rendezvous or meet_here(Path(folder))
        try:
            torchrun([*arguments, *program])
            code = 0
        except SignalException as error:
            code = TRY_AGAIN if error.sigval in stop_signals() else 128 + error.sigval
            wait_for_processes(exit_code, code)
        except ChildFailedError as error:
            code = 1 if exit_code.exists() else report(error.failures)
        for number in stop_signals():  # too late for one
            signal.signal(number, signal.SIG_IGN)
        if exit_code.exists():
            code = int(exit_code.read_text(encoding="ascii"))
    return code


def wait_for_processes(exit_code: Path, code: int) -> None:
    """Wait for processes that torchrun has left alone, because a second signal came.

    Or because the first one came just when it started them. They do not know of it, but look for
    this file when they have imported torch (end_on_signals in stopping.py).
    """
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    if not exit_code.exists():
        exit_code.write_text(str(code), encoding="ascii")
        print("stopped by a signal; the same command goes on", file=sys.stderr)
    while True:
        try:
            os.wait()
        except ChildProcessError:  # there is none left
            return


def report(failures: dict[int, ProcessFailure]) -> int:
    """Say which process failed, the first one first, and return the exit code."""
    codes = {failure.exitcode for failure in failures.values()}
    if codes <= {-number for number in stop_signals()}:  # before the training could take note
        print("stopped by a signal; the same command starts again", file=sys.stderr)
        return TRY_AGAIN
    for rank, failure in sorted(failures.items(), key=lambda item: failure_time(item[1])):
        if failure.exitcode != -signal.SIGTERM:  # so torchrun ends the others
            print(f"error: rank {rank}: {describe(failure)}", file=sys.stderr)
    return 1


def failure_time(failure: ProcessFailure) -> float:
    """Return when a process failed; torchrun knows whole seconds, its file is more exact."""
    file = Path(failure.error_file)
    return file.stat().st_mtime if file.exists() else failure.timestamp


def describe(failure: ProcessFailure) -> str:
    """Return the exception and where it was raised; the process has printed the whole traceback."""
    message = failure.message
    if isinstance(message, str):  # no Python exception: killed, or ended by the watchdog
        return message
    stack = re.findall(r'File "(.+)", line (\d+)', message["extraInfo"]["py_callstack"])
    ours = [f"{path}:{line}" for path, line in stack if Path(path).parent == PROJECT]
    return f"{message['message'].splitlines()[0]} ({ours[-1] if ours else 'not in this project'})"


def read_number(name: str, lowest: int, default: int | None = None) -> int:
    """Read a whole number from the environment; when it is not set, the default or `lowest`."""
    text = os.environ.get(name, str(default or lowest))
    if not text.isdecimal() or int(text) < lowest:
        stop(f"{name} must be a whole number of at least {lowest}, got {text!r}")
    return int(text)


def meet_here(folder: Path) -> list[str]:
    """Return torchrun's options for processes that find each other on this machine alone.

    They meet in files. torchrun's own way, --standalone, opens two ports to the whole network
    without any password, and one in two of its restarts fails on them.
    """
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ["STORE_FILE"] = str(folder / "store")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    return [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={folder / 'rendezvous'}",
        "--rdzv-conf=store_type=file",
    ]


def meet_at_master(machines: int) -> list[str]:
    """Return torchrun's options for processes on several machines: they meet at machine 0.

    Its port has no password: the machines must be in a network of their own.
    """
    missing = [name for name in ("MASTER_ADDR", "NODE_RANK") if not os.environ.get(name)]
    if missing:
        stop(
            f"NNODES={machines} needs {' and '.join(missing)}; on machine 0 of {machines}: "
            f"NNODES={machines} NODE_RANK=0 MASTER_ADDR=<its name> ./launch.sh"
        )
    node = read_number("NODE_RANK", lowest=0)
    if node >= machines:
        stop(f"NODE_RANK must be from 0 to {machines - 1}, got {node}")
    port = read_number("MASTER_PORT", lowest=1, default=29400)
    if port > 65535:
        stop(f"MASTER_PORT must be from 1 to 65535, got {port}")
    return [
        f"--nnodes={machines}",
        f"--node-rank={node}",
        f"--master-addr={os.environ['MASTER_ADDR']}",
        f"--master-port={port}",
    ]


def limit_to_gpus(processes: int, *, needed: bool) -> int:
    """Start no more processes than there are visible GPUs; on a CPU any number will do."""
    import torch

    gpus = torch.cuda.device_count()
    if needed and gpus == 0:
        stop("--device cuda, but no GPU is visible (nvidia-smi lists them); leave the option out")
    if 0 < gpus < processes:
        print(f"{processes} processes asked for, {gpus} GPU(s) visible: starting {gpus}")
        return gpus
    return processes


def stop(message: str) -> NoReturn:
    """End with a message about wrong settings."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(WRONG_SETTINGS)


if __name__ == "__main__":
    main()
