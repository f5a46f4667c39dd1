"""The README says what is there."""

from __future__ import annotations

import re
from pathlib import Path

from generated import render
from support import ROOT


def test_the_file_table_lists_a_generated_project(tmp_path: Path) -> None:
    """Protects the table "What you get": a file of the template that is new, renamed or gone."""
    project = tmp_path / "project"
    parts = ["slurm", "docker", "kubernetes", "ci"]
    render(project, project_name="project", parts=parts)
    there = {path.name + "/" * path.is_dir() for path in project.iterdir()}
    table = (ROOT / "README.md").read_text().partition("## What you get")[2].partition("\n## ")[0]
    first_columns = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    listed = re.findall(r"`([^`]+)`", " ".join(first_columns))
    assert sorted(listed) == sorted(there)
