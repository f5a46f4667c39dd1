"""./launch.sh starts the right processes on one machine or on several, whoever calls it and how."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from generated import ENVIRONMENT, finish, generate, imported, launch, metrics, start
from support import Result, free_port, snapshot
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.run import config_from_args, parse_args

TRAIN = ["--device", "cpu", "--tracker", "none", "--epochs", "2", "--batch-size", "8"]
EMPTY_PATH = "/usr/bin:/bin"  # bash and dirname, but no torchrun and no Python with torch

# A train.py that writes what it was started with, without the seconds that torch takes.
STAND_IN = """
import json, os, sys
seen = {"arguments": sys.argv[1:], "folder": os.getcwd(), "python": sys.executable}
with open(f"seen-{os.environ['RANK']}.json", "w") as file:
    json.dump({**seen, "environment": dict(os.environ)}, file)
"""
# One of each that a shell could take apart, expand or run.
TYPED = [
    "--name",
    "a \"b\" 'c' $(touch pwned) `touch pwned` $HOME \\ * ;touch pwned",
    "--best-metric",
    "two\nlines",
    "--resume=",
    "--config",
    "a b.toml",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in a folder with a space and quotes in its name."""
    return generate(tmp_path_factory.mktemp("launch") / "my 'first' \"project\"")


@pytest.fixture(scope="module")
def stand_in(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose train.py only writes what it was started with."""
    folder = tmp_path_factory.mktemp("stand in") / "p"
    shutil.copytree(project, folder)
    (folder / "train.py").write_text(STAND_IN)
    (folder / "a b.toml").write_text("epochs = 3\n")
    return folder


def seen(project: Path, rank: int = 0) -> dict[str, Any]:
    """Return what the stand-in for train.py has seen on a rank."""
    found: dict[str, Any] = json.loads((project / f"seen-{rank}.json").read_text())
    return found


@pytest.fixture(scope="module")
def from_afar(stand_in: Path) -> tuple[Result, list[dict[str, Any]]]:
    """Start three processes from another folder, with much in the options and the environment."""
    environment = {
        "NPROC": "3",
        "CUDA_VISIBLE_DEVICES": "2,5",
        "OMP_NUM_THREADS": "7",
        "PATH": EMPTY_PATH,
    }
    result = launch(stand_in, *TYPED, cwd=Path("/"), env=environment)
    assert result.code == 0, result.err
    return result, [seen(stand_in, rank) for rank in range(3)]


def test_cdpath_does_not_lead_elsewhere(stand_in: Path, tmp_path: Path) -> None:
    """Protects `CDPATH=''` in launch.sh: a folder of the same name may be found there."""
    (tmp_path / stand_in.name).mkdir()
    command = ["bash", f"{stand_in.name}/launch.sh"]
    environment = {**ENVIRONMENT, "CDPATH": os.fspath(tmp_path), "NPROC": "1"}
    done = subprocess.run(
        command, cwd=stand_in.parent, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert seen(stand_in)["folder"] == str(stand_in)


def test_it_works_from_another_folder(
    from_afar: tuple[Result, list[dict[str, Any]]], stand_in: Path
) -> None:
    """Protects `cd` in launch.sh and the quotes there."""
    assert [there["folder"] for there in from_afar[1]] == [str(stand_in)] * 3


def test_options_arrive_as_they_were_typed(
    from_afar: tuple[Result, list[dict[str, Any]]], stand_in: Path
) -> None:
    """Protects the quotes of "$@" in launch.sh."""
    assert [there["arguments"] for there in from_afar[1]] == [TYPED] * 3
    assert not list(stand_in.glob("**/pwned"))
    assert not Path("/pwned").exists()


def test_each_process_knows_its_place(from_afar: tuple[Result, list[dict[str, Any]]]) -> None:
    """Protects NPROC, which is not the 2 of the project's answers."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    places = [[there["environment"][name] for name in names] for there in from_afar[1]]
    assert places == [[str(rank), str(rank), "3", "3"] for rank in range(3)]


def test_the_users_choice_of_gpus_and_threads_is_left_alone(
    from_afar: tuple[Result, list[dict[str, Any]]],
) -> None:
    """Red when anything sets CUDA_VISIBLE_DEVICES, or OMP_NUM_THREADS without `setdefault`."""
    for there in from_afar[1]:
        assert there["environment"]["CUDA_VISIBLE_DEVICES"] == "2,5"
        assert there["environment"]["OMP_NUM_THREADS"] == "7"


def test_the_python_that_was_named_is_used_and_no_torchrun_on_the_path(
    from_afar: tuple[Result, list[dict[str, Any]]],
) -> None:
    """Protects PYTHON in launch.sh, and that launch.py calls torchrun as a function."""
    assert not any(shutil.which(name, path=EMPTY_PATH) for name in ("torchrun", "python"))
    assert {there["python"] for there in from_afar[1]} == {sys.executable}


def test_without_any_choice_the_defaults_are_taken_in_silence(stand_in: Path) -> None:
    """Protects the defaults of processes, Python and threads; without threads torchrun speaks."""
    (stand_in / "seen-2.json").unlink(missing_ok=True)
    path = f"{Path(sys.executable).parent}:{EMPTY_PATH}"
    result = launch(stand_in, env={"PATH": path, "PYTHON": ""})
    assert (result.code, result.out, result.err) == (0, "", "")
    there = seen(stand_in, rank=1)
    assert there["environment"]["WORLD_SIZE"] == "2"
    assert Path(there["python"]).parent == Path(sys.executable).parent
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert there["environment"]["OMP_NUM_THREADS"] == str(threads)
    assert "CUDA_VISIBLE_DEVICES" not in there["environment"]


TWO = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1"}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        *[({"NPROC": text}, "NPROC must be") for text in ("0", "-1", "1.5", "abc", "2 3", " ")],
        *[({"NNODES": text}, "NNODES must be") for text in ("0", "two", "1e1")],
        ({"NNODES": "2"}, "NNODES=2 needs MASTER_ADDR and NODE_RANK"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "needs MASTER_ADDR;"),
        ({**TWO, "NODE_RANK": ""}, "needs NODE_RANK;"),
        ({**TWO, "MASTER_ADDR": ""}, "needs MASTER_ADDR;"),
        *[({**TWO, "NODE_RANK": text}, "NODE_RANK must be") for text in ("2", "-1", "x")],
        *[({**TWO, "MASTER_PORT": text}, "MASTER_PORT must be") for text in ("0", "65536", "x")],
    ],
)
def test_a_number_that_cannot_be_is_one_line(
    project: Path, environment: dict[str, str], message: str
) -> None:
    """Exit code 2, the name and the value of the variable, and nothing is started or written."""
    before = snapshot(project / "runs")
    result = launch(project, *TRAIN, "--name", "bad", env=environment)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert message in result.err
    [value] = {environment[name] for name in environment if message.startswith(f"{name} must")} or {
        "MASTER_ADDR=<its name> ./launch.sh"  # what to type
    }
    assert value in result.err
    assert snapshot(project / "runs") == before


def test_two_runs_at_once_do_not_collide(project: Path) -> None:
    """Also when torch's usual port is taken. Red with --master-port=29500 in `meet_here`."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else has it: taken as well
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        names = ["one", "other"]
        jobs = [start(project, *TRAIN, "--name", name) for name in names]
        for name, result in zip(names, [finish(job) for job in jobs], strict=True):
            assert result.code == 0, result.err
            assert [line["step"] for line in metrics(project, name) if "epoch/loss" in line] == [
                3,
                6,
            ]


def test_one_machine_waits_for_no_other(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects alone.py: torchrun's c10d starts a thread, and sleeps in case that others come."""
    monkeypatch.setenv("STORE_FILE", "")  # what `meet_here` sets is forgotten afterwards
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with imported(project, "machines") as [machines]:
        options = machines.meet_here(tmp_path)
        asked, _, _ = config_from_args(parse_args([*options, "train.py"]))
        where = (asked.rdzv_backend, asked.rdzv_endpoint, "run", 1, 1)
        handler = get_rendezvous_handler(RendezvousParameters(*where, **asked.rdzv_configs))
        before = threading.active_count()
        met = handler.next_rendezvous()
        assert threading.active_count() == before
        assert (met.rank, met.world_size) == (0, 1)
        handler.shutdown()


def test_two_machines_train_as_one(project: Path) -> None:
    """Two launchers with one process each, as on two machines; only global rank 0 speaks.

    Protects `meet_at_master`; and red when rank 0 of each machine prints, or writes metrics.
    """
    address = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "NPROC": "1"}
    jobs = [
        start(project, *TRAIN, "--name", "two", env={**address, "NODE_RANK": node}) for node in "01"
    ]
    first, second = [finish(job) for job in jobs]
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "global batch 16 = 8 on each of 2 processes" in first.out
    assert first.out.count("  validation  ") == 2
    assert second.out == ""
    lines = metrics(project, "two")
    assert [line["step"] for line in lines if "validation/loss" in line] == [3, 6]


@pytest.fixture
def launcher(project: Path) -> Iterator[ModuleType]:
    """The module launch.py."""
    with imported(project, "launch") as [module]:
        yield module


@pytest.mark.parametrize(
    ("gpus", "asked", "started"), [(0, 5, 5), (1, 4, 1), (3, 4, 3), (4, 4, 4), (8, 4, 4)]
)
def test_no_more_processes_than_gpus(
    launcher: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpus: int,
    asked: int,
    started: int,
) -> None:
    """Protects `limit_to_gpus`; it says so when it starts fewer, and only then."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert launcher.limit_to_gpus(asked, needed=gpus > 0) == started
    said = capsys.readouterr().out
    if started == asked:
        assert said == ""
    else:
        assert said == f"{asked} processes asked for, {gpus} GPU(s) visible: starting {gpus}\n"
