"""A checkpoint survives kills, a full disk and a failing file system.

kill -9 cannot show that fsync is called (the kernel still writes what it has), so the order of the
calls is read from strace. strace also injects the errors that no disk gives on demand.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
PROJECT = TESTS.parent / "template" / "project"
DRIVER = [sys.executable, str(TESTS / "checkpoint_driver.py")]


def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def answer(command: list[str]) -> dict[str, Any]:
    done = run(command)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture
def strace() -> list[str]:
    path = shutil.which("strace")
    assert path, "these tests need strace: apt-get install strace"
    return [path, "-qq", "-f"]


def test_200_kills_during_saves_leave_nothing_unloadable_and_lose_nothing(tmp_path: Path) -> None:
    """Red when `write_checkpoint` writes to `path` itself instead of `temporary` (unloadable).

    Also red when `_join` does not join the thread (lost: acknowledged before it is there).
    """
    counts = answer([*DRIVER, "kills", str(tmp_path), "200", "0"])
    assert counts["kills"] == 200
    assert counts["during a save"] >= 100, counts  # else the kills came at the wrong moments
    assert counts["saves"] >= 150, counts
    assert (counts["unloadable"], counts["lost"]) == (0, 0), counts


def test_a_full_disk_is_named_and_harms_nothing(tmp_path: Path) -> None:
    """A real file system of 7 MB; where none may be mounted, a limit on the size of a file.

    Red without `raise file.error` in `_save`, and without `unlink` in `write_checkpoint`.
    """
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mount.append('mount -t tmpfs -o size=7m tmpfs "$0" && exec "$@"')
    may_mount = shutil.which("unshare") and run([*mount, str(tmp_path), "true"]).returncode == 0
    if may_mount:
        command = [*mount, str(tmp_path), *DRIVER, "full", str(tmp_path), '"disk"']
    else:
        command = [*DRIVER, "full", str(tmp_path), '"file"']
    assert answer(command) == {
        "error": "ENOSPC" if may_mount else "EFBIG",
        "unchanged": True,
        "after": ["last.pt", "step_0000000003.pt"],
    }


def test_each_step_of_a_save_is_on_disk_before_the_next(tmp_path: Path, strace: list[str]) -> None:
    """Red without either fsync in `write_checkpoint`, or with `_tidy` before it."""
    folder = tmp_path / "run"
    calls = "trace=write,fsync,rename,renameat,renameat2,unlink,unlinkat"
    one_file_a_thread = ["-ff", "-y", "-o", str(tmp_path / "calls"), "-e", calls]
    answer([*strace, *one_file_a_thread, *DRIVER, "twice", str(folder)])

    step = rf"{folder}/step_0000000002\.pt"
    logs = [path.read_text() for path in tmp_path.glob("calls.*")]
    [log] = [text for text in logs if re.search(rf'rename\w*\(.*"{step}"', text)]
    order = [
        rf"^write\(\d+<{step}\.tmp>",
        rf"^fsync\(\d+<{step}\.tmp>\) += 0",
        rf'^rename\w*\(.*"{step}\.tmp".*"{step}"',
        rf"^fsync\(\d+<{folder}>\) += 0",
        rf'^rename\w*\(.*"{folder}/last\.pt"',
        rf'^unlink\w*\(.*"{folder}/step_0000000001\.pt"',
        rf"^fsync\(\d+<{folder}>\) += 0",
    ]
    at = 0
    for call in order:
        found = re.compile(call, re.MULTILINE).search(log, at)
        assert found, f"{call} does not come next in\n{log[at:]}"
        at = found.end()
    assert not re.search(rf"^write\(\d+<{step}", log[log.index("fsync(") :], re.MULTILINE)


def test_a_failed_fsync_is_not_a_checkpoint(tmp_path: Path, strace: list[str]) -> None:
    """Red without `os.fsync(file.fileno())` in `write_checkpoint`."""
    folder = tmp_path / "run"
    broken = ["-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO"]
    result = answer([*strace, *broken, *DRIVER, "twice", str(folder)])
    assert result == {"errors": ["EIO", "EIO"], "names": []}


def test_without_hard_links_there_are_copies(tmp_path: Path, strace: list[str]) -> None:
    """Red without `shutil.copyfile` in `_give_name`."""
    folder = tmp_path / "run"
    broken = ["-o", "/dev/null", "-e", "trace=link,linkat", "-e", "inject=link,linkat:error=EPERM"]
    result = answer([*strace, *broken, *DRIVER, "twice", str(folder)])
    assert result == {"errors": [], "names": ["best.pt", "last.pt", "step_0000000002.pt"]}
    last, step = (folder / name for name in result["names"][1:])
    assert last.read_bytes() == step.read_bytes()
    assert last.stat().st_ino != step.stat().st_ino


@pytest.mark.parametrize(("grace", "left"), [("60", ["last.pt", "step_0000000001.pt"]), ("0", [])])
def test_an_exception_during_a_save_ends_the_program(
    tmp_path: Path, grace: str, left: list[str]
) -> None:
    """By its traceback and exit status 1, with a whole checkpoint or none.

    Red with `daemon=True` in `Checkpoints.save` (aborts, status -6), and without the deadline in
    `_HashingFile.write` (a slow disk would hold up the end of the program).
    """
    done = run([*DRIVER, "fail", str(tmp_path), grace])
    assert done.returncode == 1, done.stderr
    assert done.stderr.rstrip().endswith("RuntimeError: the loss is on fire")
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_file_system_without_locks_is_told_and_used(tmp_path: Path, strace: list[str]) -> None:
    """Red without the second `except` in `claim_run_folder`."""
    broken = ["-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOSYS"]
    claim = "from pathlib import Path; from run_folder import *; claim_run_folder(Path({!r}))"
    done = run([*strace, *broken, sys.executable, "-c", claim.format(str(tmp_path))])
    assert done.returncode == 0, done.stderr
    assert f"the file system of {tmp_path} has no locks" in done.stderr
