"""Whatever ends `ddpgen new` early, there is the whole project or nothing."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Tool, git, snapshot

from ddpgen import git as ddpgens_git
from ddpgen import overlay, signals, staging, target
from ddpgen.console import Failure
from ddpgen.doctor import processes

FILES = ("README.md", "launch.sh", "model.py", "data.py", ".copier-answers.yml")


def start(tool: Tool) -> subprocess.Popen[str]:
    """Start `ddpgen new`, and wait until it has its signals in hand."""
    process = subprocess.Popen(
        [tool.executable, "new", "parent/myproj", "--yes"],
        cwd=tool.cwd,
        env=tool.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    caught = 1 << (signal.SIGHUP - 1)  # the last of them
    while process.poll() is None and not _caught_signals(process.pid) & caught:
        time.sleep(0.001)
    return process


def _caught_signals(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)


def wait_for_work(tool: Tool, process: subprocess.Popen[str]) -> None:
    """Wait until the temporary folder is there, or the process has ended."""
    while not list(tool.cwd.glob(f"{staging.PREFIX}*/lock")) and process.poll() is None:
        time.sleep(0.001)


def assert_whole_or_nothing(tool: Tool) -> bool:
    """Check that there is a committed project, or no trace of one; return which."""
    left = {name for name in os.listdir(tool.cwd) if not name.startswith(staging.PREFIX)}
    if not left:
        return False
    project = tool.cwd / "parent/myproj"
    assert {path.name for path in project.iterdir()} >= set(FILES)
    assert git(project, "status", "--porcelain") == ""
    return True


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_at_any_moment_leaves_all_or_nothing(tool: Tool, number: int, code: int) -> None:
    """Protects the `finally` of `staging.folder`, and the handlers of `__main__`."""
    chance = random.Random(int(number))
    started = time.monotonic()
    start(tool).communicate(timeout=60)
    whole_run = time.monotonic() - started
    assert assert_whole_or_nothing(tool)
    cut_short = 0
    for moment in [0.0, *(chance.uniform(0, whole_run) for _ in range(7))]:
        subprocess.run(["rm", "-rf", tool.cwd / "parent"], check=True)
        process = start(tool)
        time.sleep(moment)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode in {0, code}, err
        assert "Traceback" not in err
        whole = assert_whole_or_nothing(tool)
        assert whole or process.returncode == code
        assert not list(tool.cwd.glob(f"{staging.PREFIX}*")), "the temporary folder is removed"
        cut_short += not whole
    assert cut_short, "no moment was early enough: the test has seen nothing"


STARTS: dict[str, Callable[[Path], object]] = {
    "git": lambda folder: ddpgens_git.run(folder, "cat-file", "--batch"),
    "doctor": lambda folder: processes.run([["sleep", "600"]], folder, 600, [os.environ]),
}


@pytest.mark.parametrize("what", STARTS)
@pytest.mark.parametrize(
    ("number", "raised"), [("SIGINT", KeyboardInterrupt), ("SIGTERM", SystemExit)]
)
def test_a_signal_in_the_midst_of_popen_leaves_nothing_at_work(
    what: str,
    number: str,
    raised: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protects `signals.held`: the process is there, and nobody has got its handle yet."""
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.Signals[number])

    git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    monkeypatch.setattr(signals, "_received", [])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    handlers = {
        each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        signals.unwind()
        with pytest.raises(raised):
            STARTS[what](tmp_path)
        assert started[0].poll() == -signal.SIGKILL
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        with started[0]:  # closes its pipes
            started[0].kill()


def test_a_kill_at_any_moment_leaves_all_or_nothing_and_the_next_run_tidies_up(tool: Tool) -> None:
    """Protects `publish` (one rename) and `_sweep` (nobody else removes the folder)."""
    chance = random.Random(9)
    stale = 0
    for _ in range(10):
        subprocess.run(["rm", "-rf", tool.cwd / "parent"], check=True)
        process = start(tool)
        wait_for_work(tool, process)
        time.sleep(chance.uniform(0, 0.5))
        process.kill()
        process.communicate(timeout=60)
        assert_whole_or_nothing(tool)
        stale += bool(list(tool.cwd.glob(f"{staging.PREFIX}*")))
    assert stale, "no kill came while the project was made: the test has seen nothing"
    assert tool("new", "another", "--yes").code == 0
    assert not list(tool.cwd.glob(f"{staging.PREFIX}*"))


def test_the_folder_of_a_living_process_is_not_swept(tmp_path: Path) -> None:
    """Protects the lock: two runs beside each other must not remove each other's work."""
    with staging.folder(tmp_path) as mine, staging.folder(tmp_path) as other:
        assert mine.is_dir()
        assert other.is_dir()
    assert os.listdir(tmp_path) == []


def test_ctrl_c_ends_the_work_and_is_said_in_one_line(tool: Tool) -> None:
    """Protects `interruptible` in `_create`: held back, Ctrl-C would come after the project."""
    process = start(tool)
    wait_for_work(tool, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "error: interrupted")
    assert snapshot(tool.cwd) == {}


def test_many_at_once_into_one_path_and_one_wins(tool: Tool) -> None:
    """Protects the rename: a copy file by file would mix them."""
    for _ in range(2):
        processes = [start(tool) for _ in range(4)]
        errors = [process.communicate(timeout=120)[1] for process in processes]
        codes = [process.returncode for process in processes]
        assert sorted(codes) == [0, 1, 1, 1], errors
        for code, err in zip(codes, errors, strict=True):
            assert code == 0 or "exists" in err
        assert assert_whole_or_nothing(tool)
        assert os.listdir(tool.cwd) == ["parent"]
        subprocess.run(["rm", "-rf", tool.cwd / "parent"], check=True)


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[tuple[Path, target.Target]]:
    """A project that is made and not in its place yet, whose parent was missing when it began."""
    place = target.inspect(str(tmp_path / "parent/myproj"))
    with staging.folder(tmp_path) as content:
        (content / "parent/myproj").mkdir(parents=True)
        (content / "parent/myproj/model.py").write_text("ours")
        yield content, place


def test_a_parent_that_appears_meanwhile_is_shared(
    staged: tuple[Path, target.Target], tmp_path: Path
) -> None:
    """Protects the loop in `publish`."""
    (tmp_path / "parent/other").mkdir(parents=True)
    staging.publish(*staged)
    assert sorted(os.listdir(tmp_path / "parent")) == ["myproj", "other"]


@pytest.mark.parametrize("appeared", ["parent", "parent/myproj", "parent/myproj/theirs"])
def test_what_appears_meanwhile_is_never_replaced(
    staged: tuple[Path, target.Target], tmp_path: Path, appeared: str
) -> None:
    """Protects the choice of rename in `publish`: nothing but an empty folder gives way to it."""
    (tmp_path / appeared).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / appeared).write_text("theirs")
    with pytest.raises(Failure, match="exists now"):
        staging.publish(*staged)
    assert (tmp_path / appeared).read_text() == "theirs"


def test_two_projects_in_one_missing_parent_both_get_there(tool: Tool) -> None:
    """Protects the loop in `publish`: the second finds the parent that the first has made."""
    processes = [
        subprocess.Popen(
            [tool.executable, "new", f"parent/{name}", "--yes"],
            cwd=tool.cwd,
            env=tool.env,
            stdout=subprocess.DEVNULL,
        )
        for name in ("one", "two")
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert sorted(os.listdir(tool.cwd / "parent")) == ["one", "two"]


def small_disk(folder: Path, options: str) -> list[str]:
    """Return a command that runs another one with a small disk at `folder`, and lists what is left.

    Where nothing may be mounted, a limit on the size of a file stands in for the disk.
    """
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
    listing = f"cd {shlex.quote(str(folder))}; echo left: $(ls -A); exit $code"
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        return ["sh", "-c", f'(ulimit -f 0; exec "$@"); code=$?; {listing}', "sh"]
    mount = f"mount -t tmpfs -o {options} none {shlex.quote(str(folder))}"
    script = f'{mount} && cd {shlex.quote(str(folder))} && "$@"; code=$?; {listing}'
    return [*unshare, "sh", "-c", script, "sh"]


@pytest.mark.parametrize("options", ["size=4k", "size=12k", "nr_inodes=5", "nr_inodes=9"])
def test_a_full_disk_leaves_nothing(tool: Tool, options: str) -> None:
    """Protects the `finally` of `staging.folder`, and the translation of ENOSPC."""
    done = tool("new", "parent/myproj", "--yes", prefix=small_disk(tool.cwd, options))
    assert done.code == 1
    assert done.out == "left:\n"
    first, second = done.err.splitlines()
    assert first.startswith(("error: No space left on device; nothing was left", "error: File too"))
    assert second.startswith("try: ")


def test_a_disk_that_is_full_for_git_still_gets_the_whole_project(tool: Tool) -> None:
    tool("new", "myproj", "--yes", "--no-git")
    needed = len(snapshot(tool.cwd))
    subprocess.run(["rm", "-rf", tool.cwd / "myproj"], check=True)
    disk = small_disk(tool.cwd, f"size=8m,nr_inodes={needed + 10}")
    done = tool("new", "myproj", "--yes", prefix=disk)
    assert done.code == 0, done.err
    assert "the project has no repository, because git failed" in done.err
    assert done.out.endswith("left: myproj\n")


def test_an_error_in_the_middle_of_force_puts_everything_back(tmp_path: Path) -> None:
    """Protects the ExitStack of `overlay.apply`."""
    content, folder, backup = (tmp_path / name for name in ("content", "folder", "backup"))
    for path, text in {
        content / "changed": "theirs",
        content / "sub/new": "theirs",
        content / "last": "theirs",
        folder / "changed": "mine",
        folder / "kept": "mine",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = [Path(name) for name in ("sub/new", "last", "changed")]
    plan = overlay.plan(names, content, folder)
    assert plan.changed == (Path("changed"),)
    before = snapshot(folder)
    broken = overlay.Plan(plan.new, (*plan.changed, Path("kept")))  # `kept` was not rendered
    with pytest.raises(FileNotFoundError):
        overlay.apply(broken, content, folder, backup)
    assert snapshot(folder) == before
