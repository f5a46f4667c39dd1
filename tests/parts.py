"""The linters of what the optional parts are written in, and faults for them to find."""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def copy_with_fault(file: Path, copy: Path, right: str, wrong: str) -> Path:
    """Copy a file with a text of it replaced, and return the copy."""
    text = file.read_text()
    assert right in text
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text.replace(right, wrong))
    return copy


def complaints(file: Path, linters: list[str]) -> str:
    """Run the linters of this Python environment on a file; return what the failing ones said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = []
    for linter in linters:
        name, *options = linter.split()
        program = shutil.which(name, path=path)
        assert program, f"{name} is not installed"
        result = subprocess.run([program, *options, file], capture_output=True, text=True)
        if result.returncode:
            said.append(f"{linter}:\n{result.stdout}{result.stderr}")
    return "\n".join(said)
