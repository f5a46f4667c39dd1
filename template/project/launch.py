"""What launch.sh runs: torchrun, after the settings were checked, once and in one process.

The environment says how many processes: NPROC, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT,
JOIN_TIMEOUT, MAX_RESTARTS (see launch.sh). `torchrun --standalone --nproc-per-node=2 train.py`
works as well.

Exit codes: 0 done; 75 stopped by a signal, the same command goes on; 2 wrong settings; 1 failed.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from machines import meet_at_master, meet_here, read_machines, read_number, stop
from stopping import TRY_AGAIN, stop_signals, stopped_mark

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    from config import Config

PROJECT = Path(__file__).resolve().parent


def main() -> None:
    """Start the processes with this command line and wait for them."""
    for number in stop_signals():  # until torchrun handles them: there is nothing to save yet
        signal.signal(number, lambda *_: os._exit(TRY_AGAIN))
    from config import load_config  # not above: a signal may come while it is imported

    options = sys.argv[1:]
    config = load_config(options)  # a misspelt setting ends here, before any process is started
    machines, processes = read_machines(), read_number("NPROC", lowest=1)
    elastic = machines[0] < machines[1]  # without restarts, the first lost machine would end it
    restarts = read_number("MAX_RESTARTS", lowest=0, default=3 if elastic else 0)
    if restarts and config.resume != "auto":
        stop("MAX_RESTARTS needs --resume auto: each restart would begin again")
    rendezvous = meet_at_master(machines, restarts) if machines[1] > 1 else []
    if config.device != "cpu":
        processes = limit_to_gpus(processes, needed=config.device == "cuda")
    # torchrun would choose 1 and print a banner; share out the cores that this job may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "120")  # 30 s: too short for a big save
    os.environ["LAUNCHER_PID"] = str(os.getpid())
    arguments = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    raise SystemExit(run(config, arguments, rendezvous, [str(PROJECT / "train.py"), *options]))


def run(config: Config, arguments: list[str], rendezvous: list[str], program: list[str]) -> int:
    """Run torchrun in this process and return the exit code; it hides those of the processes."""
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import main as torchrun

    # By default SIGUSR1 would end torchrun and leave the processes behind.
    handled = ",".join(number.name for number in [*stop_signals(), signal.SIGQUIT])
    with tempfile.TemporaryDirectory(prefix="launch-") as folder:
        exit_code = Path(folder, "exit-code")  # which the training writes when it ends well
        os.environ["EXIT_CODE_FILE"] = str(exit_code)
        settings = Path(folder, "settings")  # for load_config: each process need not parse again
        settings.write_bytes(pickle.dumps(config))
        os.environ["SETTINGS_FILE"] = str(settings)
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
        except (DistError, RendezvousError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            print(f"error: the machines are not connected: {reason}", file=sys.stderr)
            code = 1
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
    stopped_mark(exit_code).touch()
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


if __name__ == "__main__":
    main()
