"""What the project's own Python says of itself: versions, torch, GPUs, settings.

The doctor starts this file with that Python: `python probe.py FILE PROJECT`. It adds lines of JSON
to FILE, each at once, so that what comes before a crash is known. An old Python must run it too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import sys
import warnings
from typing import Any


def main(file: str, folder: str) -> None:
    """Write the Python, the packages, torch with its GPUs, and the settings."""
    sys.path[0] = folder  # not the folder of this file: a module of the project comes first
    os.chdir(folder)
    tell(file, python=platform.python_version(), packages=packages())
    tell(file, torch=torch_facts())
    tell(file, settings=settings())
    os._exit(0)  # the interpreter's own shutdown can hang with a broken driver


def tell(file: str, **facts: Any) -> None:
    """Add facts by name."""
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(facts) + "\n")


def packages() -> dict[str, str]:
    """Return the version of each installed package by its normalised name."""
    from importlib import metadata  # Python 3.8

    found: dict[str, str] = {}
    for package in metadata.distributions():
        name = package.metadata["Name"]
        if name:
            found.setdefault(name.lower().replace("_", "-").replace(".", "-"), package.version)
    return found


def torch_facts() -> dict[str, Any]:
    """Import torch and say what it can use; {"error": ...} when that is not possible."""
    try:
        with warnings.catch_warnings(record=True) as said:  # a driver that is too old is a warning
            warnings.simplefilter("always")
            import torch

            usable = torch.cuda.is_available()
        gpus = [gpu_facts(number) for number in range(torch.cuda.device_count() if usable else 0)]
        return {
            "version": torch.__version__,
            "distributed": torch.distributed.is_available(),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else None,
            "gpus": gpus,
            "said": [str(each.message).split("\n")[0] for each in said if "CUDA" in str(each)],
        }
    except BaseException as problem:
        return {"error": one_line(problem)}


def gpu_facts(number: int) -> dict[str, Any]:
    """Return a GPU's name and its memory in bytes."""
    import torch

    free, total = torch.cuda.mem_get_info(number)
    return {"name": torch.cuda.get_device_name(number), "free": free, "total": total}


def settings() -> dict[str, Any]:
    """Return the project's settings as train.py reads them; {"error": ...} when it cannot."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            import config

            found = config.load_config([])
        return {
            "run_folder": str(found.run_folder),
            "device": found.device,
            "num_workers": found.num_workers,
            "keep_checkpoints": found.keep_checkpoints,
        }
    except SystemExit:
        lines = [line for line in printed.getvalue().splitlines() if line.strip()]
        told = [line.replace("error: ", "", 1) for line in lines if line.startswith("error: ")]
        return {"error": (told or lines or ["load_config ended without a word"])[-1]}
    except BaseException as problem:
        return {"error": one_line(problem)}


def one_line(problem: BaseException) -> str:
    """Return an exception as one line."""
    return f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"


if __name__ == "__main__":
    main(*sys.argv[1:])
