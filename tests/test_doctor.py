"""`ddpgen doctor --quick`: each fault of the machine or the software is found, with its remedy."""

import json
import socket
from pathlib import Path

import pytest
from patients import Patient, Report, in_namespace
from support import Tool, git, snapshot, without_root_powers

TORCH = """
from types import SimpleNamespace

__version__ = "2.13.0"
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
version = SimpleNamespace(cuda=None)
distributed = SimpleNamespace(is_available=lambda: True)
device = SimpleNamespace  # tyro looks for it
"""


@pytest.fixture
def resting(patient: Patient) -> Patient:
    """A project of which only the machine is looked at: to import torch takes two seconds."""
    (patient.folder / "torch.py").write_text(TORCH)
    patient.commit()
    return patient


def assert_red(report: Report, check: str, found: str, remedy: str) -> None:
    """The row is red, says what is wrong and what to do, and so is the exit code."""
    row = report.row(check)
    assert row["status"] == "error", report.whole
    assert found in row["found"]
    assert remedy in row["remedy"]
    assert (report.code, report.whole["healthy"]) == (1, False)


def assert_yellow(report: Report, check: str, found: str, remedy: str) -> None:
    """The row warns, and the project is healthy all the same."""
    row = report.row(check)
    assert row["status"] == "warning", report.whole
    assert found in row["found"]
    assert remedy in row["remedy"]
    assert report.rows("error") == []
    assert (report.code, report.whole["healthy"]) == (0, True)


def test_a_healthy_machine_has_no_red_row_and_the_report_has_a_stable_shape(
    patient: Patient,
) -> None:
    report = patient.quick()
    assert report.code == 0, report.whole
    assert report.rows("error") == []
    assert {"git", "template", "python", "packages", "torch", "settings"} <= set(report.rows("ok"))
    assert list(report.whole) == [
        *("schema", "project", "python", "processes", "healthy", "findings", "figures")
    ]
    assert [row["check"] for row in report.whole["findings"]] == [
        *("template", "git", "python", "packages", "torch", "settings", "cuda", "gpus"),
        *("memory", "shared memory", "open files", "threads"),
        *("host name", "interface", "rendezvous"),
        *("one process", "repeatable", "all-reduce", "parity", "validation", "communication"),
        "disk",
    ]
    assert all(list(r) == ["check", "status", "found", "remedy"] for r in report.whole["findings"])
    assert (report.whole["schema"], report.whole["figures"]) == (1, None)


def test_every_row_that_is_not_green_says_what_to_do_in_one_line(resting: Patient) -> None:
    done = resting.quick(env={"OMP_NUM_THREADS": "many", "PYTHON": "/nowhere"})
    assert done.rows("error")
    for row in done.whole["findings"]:
        assert "\n" not in row["found"] + row["remedy"]
        assert bool(row["remedy"]) == (row["status"] in {"warning", "error"}), row


def test_the_table_has_the_rows_and_a_last_line(resting: Patient) -> None:
    done = resting.tool("doctor", "proj", "--quick", env={"PYTHON": "/nowhere"})
    assert done.code == 1
    lines = done.out.splitlines()
    assert "  error    python         launch.sh would find no `python`" in lines
    assert lines[-1].startswith("proj needs repair: ")
    assert "1 error" in lines[-1]
    assert done.err == ""


@pytest.mark.parametrize("arguments", [["."], ["nowhere"], ["proj", "--processes", "0"]])
def test_no_project_or_a_wrong_option_is_2(resting: Patient, arguments: list[str]) -> None:
    done = resting.tool("doctor", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_a_range_of_machines_is_looked_at_as_several(resting: Patient) -> None:
    """Protects `_machines` of patient.py."""
    assert "port 29400" in resting.quick(env={"NNODES": "1:4"}).row("rendezvous")["found"]


def test_a_wrong_number_of_processes_in_the_environment_is_2(resting: Patient) -> None:
    done = resting.tool("doctor", "proj", env={"NPROC": "two"})
    assert done.code == 2
    assert "NPROC must be a whole number" in done.err


def test_nothing_is_left_in_the_project(patient: Patient) -> None:
    """Protects PYTHONDONTWRITEBYTECODE, --no-optional-locks and the file without a name."""
    (patient.folder / "train.py").touch()  # so that git would write its index anew
    before = snapshot(patient.folder)
    patient.quick()
    assert snapshot(patient.folder) == before


# The software.


def test_a_python_out_of_bounds(resting: Patient) -> None:
    resting.edit("pyproject.toml", '">=3.11"', '">=3.99"')
    assert_red(resting.quick(), "python", "the project needs >=3.99", "export PYTHON=")


def test_a_python_that_is_not_there_or_does_not_start(resting: Patient, tmp_path: Path) -> None:
    assert_red(resting.quick(env={"PYTHON": "/nowhere"}), "python", "no `python`", "PYTHON=")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho broken installation >&2\nexit 1\n")
    broken.chmod(0o755)
    report = resting.quick(env={"PYTHON": str(broken)})
    assert_red(report, "python", "does not start: broken installation", "PYTHON=")
    assert "torch" in report.rows("skipped")


def test_the_python_of_launch_sh_is_used_and_a_venv_is_named(resting: Patient) -> None:
    """Protects `find_python` (a path starts from the project) and `venv`."""
    report = resting.quick(env={"PYTHON": ".venv/bin/python"})
    assert_red(report, "python", "no `python`", "PYTHON=/path/to/python")
    there = resting.folder / ".venv/bin/python"
    there.parent.mkdir(parents=True)
    there.symlink_to(resting.quick().whole["python"])
    report = resting.quick(env={"PYTHON": ".venv/bin/python"})
    assert report.whole["python"] == str(there)
    assert str(there) in resting.quick(env={"PYTHON": "/nowhere"}).row("python")["remedy"]


def test_a_torch_out_of_bounds(patient: Patient) -> None:
    patient.edit("pyproject.toml", '"torch>=2.13"', '"torch>=99"')
    report = patient.quick()
    assert_red(report, "torch", "the project needs torch>=99", "-m pip install -e .")
    assert report.rows("error") == ["torch"]


def test_a_torch_that_cannot_be_imported(patient: Patient) -> None:
    (patient.folder / "torch.py").write_text("raise ImportError('libtorch.so: no such file')\n")
    report = patient.examine()
    assert_red(report, "torch", "ImportError: libtorch.so", "pip install")
    assert "parity" in report.rows("skipped")


def test_a_package_that_is_missing_and_one_out_of_bounds(resting: Patient) -> None:
    resting.edit("pyproject.toml", '"numpy>=1.26"', '"numpy>=99", "not-a-package-of-anybody"')
    report = resting.quick()
    assert_red(report, "packages", "not-a-package-of-anybody is not installed", "pip install")
    assert ">=99" in report.row("packages")["found"]


def test_a_pyproject_that_is_none(resting: Patient) -> None:
    (resting.folder / "pyproject.toml").write_text("[project")
    assert_red(resting.quick(), "packages", "no valid table [project]", "git checkout")


def test_a_setting_that_does_not_exist(patient: Patient) -> None:
    patient.append("configs/default.toml", "learning = 3")
    found = "there is no setting 'learning'"
    assert_red(patient.quick(), "settings", found, "--help` lists them")


def test_a_gpu_that_torch_cannot_use(patient: Patient, tmp_path: Path) -> None:
    """An nvidia-smi that lists a GPU, and a torch that was built without CUDA or sees none."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200, 570.86.15'\n")
    smi.chmod(0o755)
    path = f"{smi.parent}:{patient.tool.env['PATH']}"
    report = patient.quick(env={"PATH": path, "CUDA_VISIBLE_DEVICES": ""})
    assert_red(report, "cuda", "1 GPU(s) here", "CUDA")


def test_cuda_is_asked_for_where_no_gpu_is_visible(resting: Patient) -> None:
    report = resting.examine("--quick", "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
    assert_red(report, "gpus", "none is visible", "--device cpu")
    warned = resting.quick(env={"CUDA_VISIBLE_DEVICES": ""})
    assert warned.row("gpus")["status"] == "warning"


# The machine.


def test_a_low_limit_on_open_files(resting: Patient) -> None:
    shell = ["sh", "-c", 'ulimit -Sn "$0"; exec "$@"']
    assert_red(resting.quick(prefix=[*shell, "200"]), "open files", "200 for", "ulimit -n 4096")
    assert_yellow(resting.quick(prefix=[*shell, "800"]), "open files", "800 for", "ulimit -n")


def test_a_small_shared_memory(resting: Patient) -> None:
    """As large as in a container of Docker, 64 MiB: red with loader workers, else a warning."""
    small = in_namespace("mount -t tmpfs -o size=64m none /dev/shm", "mount")
    assert_yellow(resting.quick(prefix=small), "shared memory", "num_workers is 0", "--shm-size")
    resting.append("configs/default.toml", "num_workers = 2")
    resting.commit()
    report = resting.quick(prefix=small)
    assert_red(report, "shared memory", "67.1 MB free", "--shm-size=8g")
    assert report.rows("error") == ["shared memory"]


def test_too_little_memory(resting: Patient, tmp_path: Path) -> None:
    """With a /proc/meminfo that says so."""
    text = Path("/proc/meminfo").read_text().splitlines()
    low = ["MemAvailable: 300000 kB" if row.startswith("MemAvail") else row for row in text]
    (tmp_path / "meminfo").write_text("\n".join(low))
    prefix = in_namespace(f"mount --bind {tmp_path}/meminfo /proc/meminfo", "mount")
    assert_red(resting.quick(prefix=prefix), "memory", "307 MB available", "NPROC=1")


def test_more_threads_than_cores(resting: Patient) -> None:
    report = resting.quick(env={"OMP_NUM_THREADS": "512"})
    assert_red(report, "threads", "OMP_NUM_THREADS=512", "unset OMP_NUM_THREADS")
    report = resting.quick(env={"OMP_NUM_THREADS": "many"})
    assert_red(report, "threads", "'many', which is no number", "unset OMP_NUM_THREADS")


def test_a_host_name_that_leads_nowhere(resting: Patient, tmp_path: Path) -> None:
    """Red for several machines; one machine does not need it."""
    (tmp_path / "nsswitch").write_text("hosts: files\n")
    broken = f"hostname nowhere.invalid; mount --bind {tmp_path}/nsswitch /etc/nsswitch.conf"
    prefix = in_namespace(broken, "uts", "mount")
    alone = resting.quick(prefix=prefix)
    assert_yellow(alone, "host name", "nowhere.invalid cannot be resolved", "/etc/hosts")
    report = resting.quick(prefix=prefix, env={"NNODES": "2"})
    assert_red(report, "host name", "nowhere.invalid cannot be resolved", "/etc/hosts")


def test_a_host_name_that_leads_to_this_machine_only(resting: Patient, tmp_path: Path) -> None:
    """Debian's 127.0.1.1, with which two machines wait for each other in projects before 0.3.0.

    Protects `names_interface`: the launch.sh of today names an interface.
    """
    (tmp_path / "hosts").write_text("127.0.1.1 here\n")
    broken = f"hostname here; mount --bind {tmp_path}/hosts /etc/hosts"
    prefix = in_namespace(broken, "uts", "mount")
    assert resting.quick(prefix=prefix, env={"NNODES": "2"}).row("host name")["status"] == "ok"
    (resting.folder / "machines.py").unlink()
    resting.commit()
    report = resting.quick(prefix=prefix, env={"NNODES": "2"})
    assert_red(report, "host name", "here is 127.0.1.1", "GLOO_SOCKET_IFNAME=")
    assert resting.quick(prefix=prefix).row("host name")["status"] == "ok"


def test_an_interface_that_is_not_there(resting: Patient) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        report = resting.quick(env={name: "nosuch0"})
        assert_red(report, "interface", f"{name}=nosuch0", f"unset {name}")
        assert report.rows("error") == ["interface"]


def test_a_loopback_that_is_down(resting: Patient) -> None:
    report = resting.quick(prefix=in_namespace("", "net"))
    assert_red(report, "interface", "lo is down", "ip link set lo up")


def test_no_way_to_other_machines(resting: Patient) -> None:
    prefix = in_namespace("ip link set lo up", "net")
    report = resting.quick(prefix=prefix, env={"NNODES": "2"})
    assert_red(report, "interface", "only the loopback", "connect this machine")
    assert resting.quick(prefix=prefix).row("interface")["status"] == "ok"


def test_a_rendezvous_port_that_is_taken(resting: Patient) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        report = resting.quick(env={"NNODES": "2", "MASTER_PORT": port})
        assert_red(report, "rendezvous", f"port {port} cannot be opened", "MASTER_PORT=")
        other = resting.quick(env={"NNODES": "2", "MASTER_PORT": port, "NODE_RANK": "1"})
        assert other.row("rendezvous")["status"] == "ok"  # it is machine 0 that listens


def test_a_master_that_cannot_be_found(resting: Patient) -> None:
    report = resting.quick(env={"NNODES": "2", "MASTER_ADDR": "nowhere.invalid"})
    assert_red(report, "rendezvous", "nowhere.invalid cannot be resolved", "/etc/hosts")


DISKS = {
    "full": (
        "size=1m none {runs}; head -c 2m /dev/zero >{runs}/full 2>/dev/null",
        "No space left on device",
        "make room",
    ),
    "small": ("size=60m none {runs}", "62.9 MB free", "make room"),
    "read-only": ("ro none {runs}", "Read-only file system", "writable"),
}


@pytest.mark.parametrize("name", DISKS)
def test_a_run_folder_on_a_disk_that_takes_no_checkpoint(resting: Patient, name: str) -> None:
    options, found, remedy = DISKS[name]
    runs = resting.folder / "runs"
    runs.mkdir()
    mount = f"mount -t tmpfs -o {options.format(runs=runs)}"
    report = resting.quick(prefix=in_namespace(mount, "mount"))
    assert_red(report, "disk", found, remedy)


def test_a_run_folder_that_cannot_be_written(resting: Patient) -> None:
    runs = resting.folder / "runs"
    runs.mkdir(mode=0o555)
    report = resting.quick(prefix=without_root_powers())
    assert_red(report, "disk", "Permission denied", "writable")


# The checkout.


def test_work_that_is_not_committed(resting: Patient) -> None:
    resting.append("model.py", "# tried")
    assert_yellow(resting.quick(), "git", "1 file is not as committed", "git commit")


def test_a_merge_under_way(resting: Patient) -> None:
    for branch, text in (("other", "# theirs"), ("mine", "# ours")):
        git(resting.folder, "checkout", "--quiet", "-B", branch, "HEAD")
        resting.append("model.py", text)
        resting.commit()
        git(resting.folder, "checkout", "--quiet", "--detach", "HEAD~")
    git(resting.folder, "checkout", "--quiet", "mine")
    with pytest.raises(Exception, match="merge"):
        git(resting.folder, "-c", "user.name=n", "-c", "user.email=e", "merge", "other")
    assert_red(resting.quick(), "git", "a merge is under way", "git merge --continue")


def test_a_project_without_git(tool: Tool) -> None:
    assert tool("new", "proj", "--yes", "--no-git").code == 0
    done = tool("doctor", "proj", "--quick", "--json", env={"PYTHON": "python"})
    (row,) = [row for row in json.loads(done.out)["findings"] if row["check"] == "git"]
    assert row["status"] == "warning"
    assert row["remedy"].startswith("git init && ")


def test_an_old_and_an_unknown_version_of_the_template(resting: Patient) -> None:
    file = resting.folder / ".copier-answers.yml"
    lines = file.read_text().splitlines()
    (commit,) = [line for line in lines if line.startswith("_commit:")]
    resting.edit(".copier-answers.yml", commit, "_commit: v0.0.0.post0+g0123456789")
    resting.commit()
    assert_yellow(resting.quick(), "template", "v0.0.0.post0+g0123456789, and v", "ddpgen update")
    resting.edit(".copier-answers.yml", "v0.0.0.post0+g0123456789", "v99.0.0")
    assert_red(resting.quick(), "template", "made by ddpgen v99.0.0", "pip install --upgrade")
