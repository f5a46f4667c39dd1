"""ddpgen doctor: whether a project will train here, and whether it trains right."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpgen import console, parameters

if TYPE_CHECKING:
    from ddpgen.doctor.examination import Examination
    from ddpgen.doctor.finding import Finding

COLOURS = {"ok": "green", "warning": "yellow", "error": "red", "skipped": "cyan"}
SCHEMA = 1  # of --json; a key that is added does not change it


@click.command(context_settings={"max_content_width": 100})
@parameters.project_path
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(min=1),
    help="Train with N processes; by default one for each GPU of launch.sh, or two and more on "
    "a CPU, as it has cores.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Train on this device, as with ./launch.sh --device.",
)
@click.option("--quick", is_flag=True, help="Look at the machine only; start no training.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=1, max=86400),
    default=120.0,
    show_default=True,
    help="After so long without progress a process hangs, and is ended.",
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
def command(
    path: str, processes: int | None, device: str, quick: bool, timeout: float, as_json: bool
) -> int:
    """Say whether the project in PATH (here, by default) can train on this machine.

    It looks at the machine with the Python that launch.sh would use, and trains your model on
    your data for 20 steps: as one process and as several, which must come to the same weights.
    Nothing is written into the project.

    Exit code 0: healthy, warnings aside; 1: something has to be repaired; 2: no project, or a
    wrong option.
    """
    from ddpgen.doctor.examination import Examination
    from ddpgen.doctor.patient import admit

    visit = Examination(admit(Path(path), processes, device), quick=quick, patience=timeout)
    for finding in visit.run():
        if not as_json:
            _print(finding)
    if as_json:
        console.json(_report(visit))
    else:
        _summarise(visit)
    return 0 if visit.healthy else 1


def _print(finding: "Finding") -> None:
    status = console.coloured(f"{finding.status:<7}", COLOURS[finding.status])
    console.out(f"  {status}  {finding.check:<13}  {finding.found}")
    if finding.remedy:
        console.out(f"  {'':7}  {'':13}  {console.coloured('try:', 'green')} {finding.remedy}")


def _summarise(visit: "Examination") -> None:
    counts = {
        status: sum(finding.status == status for finding in visit.findings) for status in COLOURS
    }
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    verdict = "can train here" if visit.healthy else "needs repair"
    console.out(f"{console.bold(visit.patient.folder.name)} {verdict}: {told}")


def _report(visit: "Examination") -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "project": str(visit.patient.folder),
        "python": visit.patient.python,
        "processes": visit.processes,
        "healthy": visit.healthy,
        "findings": [asdict(finding) for finding in visit.findings],
        "figures": asdict(visit.figures) if visit.figures else None,
    }
