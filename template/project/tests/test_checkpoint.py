"""Checkpoints are whole or not there, damage is noticed, and a run folder has one job."""

import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint import Checkpoints, DamagedCheckpoint, read_checkpoint, write_checkpoint


def state_at(step: int) -> dict[str, Any]:
    """Two tied weights, a moment of the same shape, and other things that a run saves."""
    weight = torch.full((300, 100), float(step))
    model = {"embedding": weight, "head": weight.detach(), "counter": torch.tensor(step)}
    moments = [torch.full((300, 100), -float(step))]
    return {"tensors": [model, moments], "step": step, "random": [(1, 2.5, "x"), None, True]}


def save_steps(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(state_at(step), step)
    checkpoints.wait()
    return checkpoints


def assert_is_state_at(step: int, state: dict[str, Any]) -> None:
    expected = state_at(step)
    torch.testing.assert_close(state.pop("tensors"), expected.pop("tensors"), rtol=0, atol=0)
    assert state == expected


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path / "new" / "folder", 7)
    path, state = checkpoints.load_newest() or pytest.fail("nothing was found")
    assert path.name == "step_0000000007.pt"
    model, _ = state["tensors"]
    assert model["embedding"].data_ptr() == model["head"].data_ptr(), "tied weights are one"
    assert_is_state_at(7, state)


@pytest.mark.parametrize("name", ["step_0000000007.pt", "last.pt", "best.pt"])
def test_plain_torch_load_reads_it(tmp_path: Path, name: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state_at(7), 7, best=True)
    checkpoints.wait()
    assert_is_state_at(7, torch.load(tmp_path / name, weights_only=True))


def test_the_copy_is_finished_when_save_returns(tmp_path: Path) -> None:
    """Red without the copy in `Checkpoints.save`, or with a buffer taken twice in `Snapshot`."""
    checkpoints = Checkpoints(tmp_path, keep=100)
    for step in range(20):
        state = state_at(step)
        checkpoints.save(state, step)
        model, moments = state["tensors"]
        for tensor in (*model.values(), *moments):
            tensor.fill_(99)  # training goes on
    checkpoints.wait()
    for step in range(20):
        assert_is_state_at(step, read_checkpoint(tmp_path / f"step_{step:010d}.pt"))


def cut(content: bytearray) -> None:
    del content[len(content) // 2 :]


def flip_a_bit(content: bytearray) -> None:
    content[len(content) // 2] ^= 1


def zero_a_page(content: bytearray) -> None:
    content[4096:8192] = bytes(4096)


def empty(content: bytearray) -> None:
    content.clear()


def lose_the_trailer(content: bytearray) -> None:
    del content[-73:]


DAMAGES = [cut, flip_a_bit, zero_a_page, empty, lose_the_trailer]


def damage(path: Path, how: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    how(content)
    path.write_bytes(content)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_is_told_once_and_the_one_before_is_used(
    tmp_path: Path, how: Callable[[bytearray], None]
) -> None:
    """Red without either `raise DamagedCheckpoint` in `read_checkpoint`."""
    checkpoints = save_steps(tmp_path, 10, 20)
    damage(tmp_path / "step_0000000020.pt", how)
    told: list[str] = []
    path, state = checkpoints.load_newest(told.append) or pytest.fail("nothing was found")
    assert (path.name, state["step"]) == ("step_0000000010.pt", 10)
    assert len(told) == 1
    assert "step_0000000020.pt" in told[0]


def test_when_all_are_damaged_the_run_does_not_start_from_zero(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 10, 20)
    for path in tmp_path.glob("step_*.pt"):
        damage(path, flip_a_bit)
    with pytest.raises(DamagedCheckpoint, match=r"(?s)every .*step_0000000020.*step_0000000010"):
        checkpoints.load_newest(lambda message: None)


def test_only_an_empty_or_missing_folder_has_nothing_to_load(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "missing").load_newest() is None
    checkpoints = save_steps(tmp_path, 10)
    (tmp_path / "step_0000000010.pt").unlink()
    path, _ = checkpoints.load_newest() or pytest.fail("last.pt was not used")
    assert path.name == "last.pt"


def test_the_last_are_kept_and_the_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 4, 4):
        checkpoints.save(state_at(step), step, best=step == 1)
    checkpoints.wait()
    assert names(tmp_path) == ["best.pt", "last.pt", "step_0000000003.pt", "step_0000000004.pt"]
    assert read_checkpoint(tmp_path / "best.pt")["step"] == 1
    assert read_checkpoint(tmp_path / "last.pt")["step"] == 4
    with pytest.raises(ValueError, match="keep = 0"):
        Checkpoints(tmp_path, keep=0)


def test_a_run_that_went_back_keeps_its_new_checkpoints(tmp_path: Path) -> None:
    """Red without the first loop of `Checkpoints._tidy`: step 30 would stay the newest."""
    save_steps(tmp_path, 10, 20, 30)
    damage(tmp_path / "step_0000000030.pt", cut)
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(state_at(21), 21)
    checkpoints.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path, _ = checkpoints.load_newest() or pytest.fail("nothing was found")
    assert path.name == "step_0000000021.pt"
    assert names(tmp_path) == ["last.pt", "step_0000000021.pt", "step_0000000030.pt.old"]


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "step_0000000009.pt.tmp").write_bytes(b"half")
    save_steps(tmp_path, 10)
    assert names(tmp_path) == ["last.pt", "step_0000000010.pt"]


def test_a_full_disk_is_named_and_harms_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A limit on the size of files stands in for the full disk: the same error path.

    Red without `raise file.error` in `_save` or without `unlink` in `write_checkpoint`.
    """
    checkpoints = save_steps(tmp_path, 10)
    before = names(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    with pytest.raises(OSError, match="too large"):
        write_checkpoint(state_at(20), tmp_path / "step_0000000020.pt")
    checkpoints.save(state_at(30), 30)
    with pytest.raises(OSError, match="too large"):
        checkpoints.save(state_at(40), 40)  # tells of 30
    with pytest.raises(OSError, match="too large"):
        checkpoints.wait()  # tells of 40
    checkpoints.wait()
    assert names(tmp_path) == before

    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    checkpoints.save(state_at(50), 50)
    checkpoints.wait()
    path, _ = checkpoints.load_newest() or pytest.fail("nothing was found")
    assert path.name == "step_0000000050.pt"


def test_a_state_that_could_not_be_loaded_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    """Red without `_check_loadable`."""
    with pytest.raises(TypeError, match="not loaded"):
        write_checkpoint({"path": Path("x")}, tmp_path / "step_0000000001.pt")
    assert names(tmp_path) == []


CLAIM = """
import os, sys, time
from pathlib import Path
from run_folder import claim_run_folder
claim_run_folder(Path(sys.argv[1]))
if os.fork() == 0:  # as a DataLoader worker, which lives on for a while after a kill
    print("claimed", flush=True)
time.sleep(60)
"""


@contextmanager
def claim(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that claims `folder` and forks another; and its first line, "" if refused."""
    command = [sys.executable, "-c", CLAIM, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # both processes


def test_a_run_folder_has_one_job_and_a_kill_frees_it(tmp_path: Path) -> None:
    """Red without `fcntl.flock`; and, at the third claim, without `register_at_fork`."""
    with claim(tmp_path) as (first, line):
        assert line == "claimed\n"
        with claim(tmp_path) as (second, line):
            assert line == ""
            _, message = second.communicate(timeout=30)
            assert f"{tmp_path} is in use by process {first.pid} on " in message
        first.kill()
        first.wait(timeout=30)
        with claim(tmp_path) as (_, line):
            assert line == "claimed\n"
