"""`ddpgen doctor`: the owner's own model and data, trained as one process and as several."""

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from patients import CALM, Patient, in_namespace, processes_with
from support import snapshot
from test_doctor import assert_red

TRAINED = ("one process", "repeatable", "all-reduce", "parity", "validation", "communication")
ON_RANK_1 = 'import os\nif os.environ.get("RANK") == "1": '


def test_a_healthy_project_is_green_with_its_figures_and_as_it_was(patient: Patient) -> None:
    """Protects the whole way, and that nothing is left: no file, no __pycache__, no run folder."""
    before = snapshot(patient.folder)
    report = patient.examine()
    assert (report.code, report.rows("error")) == (0, []), report.whole
    assert set(TRAINED) <= set(report.rows("ok"))
    assert "2 processes train as one does" in report.row("parity")["found"]
    figures = report.whole["figures"]
    assert 0 <= figures["gradient_difference"] < 1e-5
    assert 0 <= figures["weight_difference"] < 1e-4
    assert figures["gradient_bytes"] == 44  # 10 weights and a bias
    assert 0 < figures["all_reduce_seconds"] < 60
    assert 0 < figures["step_seconds"] < 60
    assert list(figures["predicted_efficiency"]) == ["8", "64", "512"]
    assert snapshot(patient.folder) == before


def test_as_many_processes_as_asked_and_with_loader_workers(patient: Patient) -> None:
    patient.append("configs/default.toml", "num_workers = 1")
    report = patient.examine("--processes", "3")
    assert report.code == 0, report.whole
    assert report.whole["processes"] == 3
    assert report.row("parity")["found"].startswith("3 processes train as one does")


# Code at the end of model.py or data.py; the row that is red, what it says, and what to do.
FAULTS = {
    "a data.py that cannot be imported": (
        *("data.py", "import not_a_module"),
        *("one process", "No module named 'not_a_module'", "pip install not_a_module"),
    ),
    "a data.py that raises": (
        *("data.py", "def build_datasets(config):\n    return 1 / 0"),
        *("one process", "ZeroDivisionError: division by zero (in build_datasets", "correct that"),
    ),
    "a loss that is not finite": (
        *("model.py", "def loss_fn(output, batch):\n    return output.mean() * float('nan')"),
        *("one process", "the first gradient or a metric is not finite", "in model.py"),
    ),
    "weights that differ from call to call": (
        "model.py",
        "def build_model(config):\n    model = MyModel()\n"
        "    fresh = torch.Generator()\n    fresh.seed()\n"
        "    model.linear.weight.data.normal_(generator=fresh)\n    return model",
        *("repeatable", "build_model gives other weights", "seed_everything"),
    ),
    "a split that differs from call to call": (
        "data.py",
        "def build_datasets(config):\n    x = torch.randn(64, 10, generator=torch.Generator()"
        ".manual_seed(__import__('time').time_ns()))\n"
        "    return TensorDataset(x, x[:, :1]), TensorDataset(x, x[:, :1])",
        *("repeatable", "data.py gives other samples", "config.seed"),
    ),
    "a model that draws at random": (
        "model.py",
        "MyModel.forward = lambda self, x: self.linear(x) * torch.rand(1, "
        "generator=torch.Generator().manual_seed(__import__('time').time_ns()))",
        *("repeatable", "the same step gives another gradient", "eval()"),
    ),
    "a loss that is a sum": (
        "model.py",
        "def loss_fn(output, batch):\n    return (output - batch[1]).square().sum()",
        *("parity", "the gradient is 2 times too small", "the mean over the batch"),
    ),
    "a forward that mixes the samples of a batch": (
        "model.py",
        "MyModel.forward = lambda self, x: self.linear(x - x.mean(0))",
        *("parity", "2 processes train otherwise than one", "other samples of its batch"),
    ),
    "other samples on another rank": (
        "data.py",
        "import os\n_all = build_datasets\n\ndef build_datasets(config):\n"
        "    from dataclasses import replace\n"
        "    return _all(replace(config, seed=config.seed + int(os.environ.get('RANK', 0))))",
        *("parity", "2 processes train otherwise than one", "the same samples"),
    ),
    "a parameter without a gradient": (
        "model.py",
        "def build_model(config):\n    model = MyModel()\n"
        "    model.unused = nn.Linear(3, 3)\n    return model",
        *("parity", "RuntimeError: Expected to have finished reduction", "find_unused_parameters"),
    ),
    "metrics that are means": (
        "model.py",
        "def update_metrics(output, batch):\n    return {'loss': loss_fn(output, batch)}\n\n"
        "def compute_metrics(sums):\n    return {'loss': sums['loss'].item()}",
        *("validation", "2 processes measure loss", "sums over the samples"),
    ),
    "a rank that is killed": (
        *("model.py", f"{ON_RANK_1}os.kill(os.getpid(), 9)"),
        *("parity", "rank 1 was killed by SIGKILL in import of model.py", "out of memory?"),
    ),
    "a rank that ends without a word": (
        *("data.py", f"{ON_RANK_1}os._exit(3)"),
        *("parity", "rank 1 ended with 3 in import of data.py", "sys.exit"),
    ),
    "a backend that is not there": (
        *("distributed.py", "dist.init_process_group = lambda *a, **k: 1 / 0"),
        *("all-reduce", "ZeroDivisionError", "correct that line"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_found(patient: Patient, fault: str) -> None:
    """Each fault is real code of the owner's; its row is red, those that need it are skipped.

    Samples that are mixed or others are measured otherwise too, so `validation` may be red as well.
    """
    file, code, check, found, remedy = FAULTS[fault]
    patient.append(file, code)
    report = patient.examine("--timeout", "60")
    assert_red(report, check, found, remedy)
    assert report.rows("error") in ([check], [check, "validation"])
    later = TRAINED[TRAINED.index(check) + 1 :]
    if check not in {"parity", "validation"}:
        assert report.rows("skipped") == list(later)


def test_a_rank_that_hangs_is_ended_and_its_line_is_named(patient: Patient) -> None:
    """Protects the watchdog of worker.py, and `hangs_at`: no test waits for 10 minutes."""
    patient.append(
        "model.py",
        "import os, time\n\ndef loss_fn(output, batch):\n"
        "    while os.environ.get('RANK') == '1':\n        time.sleep(1)\n"
        "    return nn.functional.mse_loss(output, batch[1])",
    )
    mark = uuid.uuid4().hex
    report = patient.examine("--timeout", "30", env={"DOCTOR_MARK": mark})
    line = 1 + (patient.folder / "model.py").read_text().splitlines().index("        time.sleep(1)")
    assert_red(report, "parity", "no progress for 30 s in step 1: ", "not every rank calls")
    assert f"rank 1 at model.py:{line} in loss_fn" in report.row("parity")["found"]
    assert processes_with(mark) == []


def test_a_large_model_is_slow_to_exchange_and_fills_a_small_disk(patient: Patient) -> None:
    """Protects `communication`, and the size of the checkpoints in `check_disk`."""
    patient.append(
        "model.py",
        "def build_model(config):\n    model = MyModel()\n"
        "    model.large = nn.Parameter(torch.zeros(5_000_000))\n"
        "    model.forward = lambda x: model.linear(x) + model.large[0]\n    return model",
    )
    (patient.folder / "runs").mkdir()
    mount = f"mount -t tmpfs -o size=125m none {patient.folder}/runs"
    report = patient.examine(prefix=in_namespace(mount, "mount"))
    assert_red(report, "disk", "5 checkpoints and the logs need 367 MB", "keep_checkpoints")
    assert report.whole["figures"]["gradient_bytes"] == 4 * 5_000_011
    share = report.whole["figures"]["all_reduce_seconds"] / report.whole["figures"]["step_seconds"]
    assert report.row("communication")["status"] == ("warning" if share > 0.5 else "ok")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_doctor_leaves_no_process(
    patient: Patient, number: signal.Signals, tmp_path: Path
) -> None:
    """Protects the `finally` of `processes.run`; for SIGKILL `die_with` in worker.py."""
    patient.append(
        "model.py",
        f"{ON_RANK_1}\n    open('ready', 'w').close()\n    import time\n    time.sleep(600)",
    )
    mark = uuid.uuid4().hex
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {**patient.tool.env, **CALM, "DOCTOR_MARK": mark, "TMPDIR": str(scratch)}
    job = subprocess.Popen(patient.command("--json"), env=env, start_new_session=True)
    end = time.monotonic() + 120
    while not (patient.folder / "ready").exists():
        assert time.monotonic() < end
        assert job.poll() is None
        time.sleep(0.05)
    os.kill(job.pid, number)
    job.wait(60)
    end = time.monotonic() + 30
    while processes_with(mark):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.05)
    if number != signal.SIGKILL:
        assert job.returncode == 128 + number
        assert list(scratch.iterdir()) == []
