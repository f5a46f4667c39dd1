"""CPU time of commands that take turns: what the benchmarks of the command line have in common."""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import results_folder

Samples = dict[str, list[float]]  # seconds of CPU, by command


def run(
    name: str,
    description: str,
    measure: Callable[[Path, int], Samples],
    comparisons: Callable[[Samples], list[str]],
) -> None:
    """Measure, write results/NAME.json (every sample) and .md (the tables), print the tables.

    Args:
        name: of the results.
        description: the docstring of the benchmark; its first line is the help text.
        measure: measures in an empty folder, so many rounds.
        comparisons: returns the lines of the table that compares the commands.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="samples of each command")
    rounds = parser.parse_args().rounds

    with tempfile.TemporaryDirectory(prefix="ddpgen-bench-") as folder:
        samples = measure(Path(folder), rounds)
    report = {"machine": machine(), "unit": "seconds of CPU, user + system", "samples": samples}
    text = "\n".join([*times(samples, rounds), "", *comparisons(samples)]) + "\n"
    results_folder.write(name, report, text)
    print(text, end="")


def seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """Return the user and system time of a command and of all processes that it waited for."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read().decode()}")
    return usage.ru_utime + usage.ru_stime


def machine() -> dict[str, str | int | None]:
    """Say what the numbers were measured on."""
    packages = {name: version(name) for name in ("ddpgen", "click", "copier")}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        **packages,
    }


def times(samples: Samples, rounds: int) -> list[str]:
    """Return the lines of a Markdown table: the median and the range of each command."""
    lines = [
        f"CPU time in milliseconds, user + system with all child processes, {rounds} rounds.",
        "",
        "| command | median | lowest | highest |",
        "|---|---:|---:|---:|",
    ]
    for name, values in samples.items():
        numbers = (statistics.median(values), min(values), max(values))
        lines.append(f"| {name} | " + " | ".join(f"{1000 * n:.0f}" for n in numbers) + " |")
    return lines
