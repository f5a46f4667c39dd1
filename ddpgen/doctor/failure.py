"""Why a trial training did not come to its end, and what to do about it."""

import re
import signal

from ddpgen.doctor.finding import Finding, error
from ddpgen.doctor.patient import Patient
from ddpgen.doctor.processes import Process

# What to do about an error that people meet, by what its text says.
REMEDIES = {
    r"No module named '(\w+)": "{python} -m pip install {0}, and add it to pyproject.toml",
    r"find_unused_parameters|finished reduction": "find_unused_parameters = true in "
    "configs/default.toml, or remove the parameters that the loss does not depend on",
    r"out of memory|can't allocate memory": "a smaller batch_size, with accumulate instead",
    r"there is no setting|SettingsError": "correct it in configs/default.toml",
}
USUAL = "correct that line; `python train.py --limit-steps 1` shows the whole traceback"
SIGNALS = {
    signal.SIGKILL: "out of memory? `dmesg | tail` says so; then a smaller batch_size",
    signal.SIGBUS: "/dev/shm is full? docker run --shm-size=8g, or --num-workers 0",
}


def explain(check: str, group: list[Process], patient: Patient, patience: float) -> Finding:
    """Return the first reason that any process of a training tells.

    Args:
        check: the row of the report.
        group: the processes by rank; one at least has failed or hung.
        patient: the project.
        patience: seconds without progress after which a process has ended itself.
    """
    stages = [process.fact("stage") or "the start of Python" for process in group]
    for rank, process in enumerate(group):
        if process.code is not None and process.code < 0:
            number = signal.Signals(-process.code)
            return error(
                check,
                f"{_name(rank, group)} was killed by {number.name} in {stages[rank]}",
                SIGNALS.get(number, f"its last words: {process.last_words() or 'none'}"),
            )
    hung = {
        rank: where
        for rank, process in enumerate(group)
        if (where := process.hangs_at(patient.folder)) is not None
    }
    for rank, process in enumerate(group):  # before the others: they only miss this one
        silent = not process.told("error") and not process.told("result")
        if process.code is not None and rank not in hung and silent:
            last = process.last_words() or "it says nothing"
            return error(
                check,
                f"{_name(rank, group)} ended with {process.code} in {stages[rank]}: {last}",
                "look for sys.exit or os._exit in that part of the project",
            )
    if hung:
        places = ", ".join(f"{_name(rank, group)} at {where}" for rank, where in hung.items())
        return error(
            check,
            f"no progress for {patience:g} s in {stages[min(hung)]}: {places}",
            "look there for a wait, or for a collective that not every rank calls; "
            "when it is only slow: --timeout",
        )
    raised = [(line["time"], line["error"]) for each in group for line in each.told("error")]
    if raised:
        return _raised(check, min(raised, key=lambda told: told[0])[1], patient)
    return error(
        check,
        f"no answer for {patience:g} s in {stages[0]}",
        "--timeout, if the machine is only slow",
    )


def _name(rank: int, group: list[Process]) -> str:
    return f"rank {rank}" if len(group) > 1 else "the process"


def _raised(check: str, problem: dict[str, str], patient: Patient) -> Finding:
    where = f"{problem['where']}: " if problem["where"] else ""
    found = f"{where}{problem['type']}: {problem['message']} (in {problem['stage']})"
    for pattern, remedy in REMEDIES.items():
        if match := re.search(pattern, f"{problem['type']}: {problem['text']}"):
            return error(check, found, remedy.format(*match.groups(), python=patient.python))
    return error(check, found, USUAL)
