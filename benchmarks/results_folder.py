"""What a benchmark has measured, in results/: each sample as JSON, and a table made from it."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "results"


def rounds_parser(description: str, default: int) -> ArgumentParser:
    """Return a parser of `--rounds` and `--more`."""
    parser = ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=default)
    parser.add_argument("--more", action="store_true", help="keep the rounds that are there")
    return parser


def earlier_rounds(name: str) -> dict[str, Any]:
    """Return the rounds of NAME.json by workload, {} when there are none."""
    file = FOLDER / f"{name}.json"
    rounds: dict[str, Any] = json.loads(file.read_text())["rounds"] if file.exists() else {}
    return rounds


def write(name: str, report: dict[str, Any], table: str) -> None:
    """Write NAME.json and NAME.md."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    (FOLDER / f"{name}.md").write_text(table)
