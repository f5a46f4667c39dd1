"""The optional parts are right for what reads them: SLURM, Docker, GitHub Actions."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from generated import render
from namespaces import wait_until
from parts import complaints, copy_with_fault

FILES = {
    "slurm": {"slurm.sbatch"},
    "docker": {"Dockerfile", ".dockerignore"},
    "kubernetes": {"kubernetes/job.yaml", "kubernetes/trainjob.yaml"},
    "ci": {".github/workflows/tests.yml"},
}
LINTERS = {
    "slurm.sbatch": ["bash -n", "shellcheck"],
    "Dockerfile": ["hadolint"],
    ".github/workflows/tests.yml": [
        "check-jsonschema --builtin-schema vendor.github-workflows",
        "zizmor --offline --no-progress --persona pedantic",
    ],
}
# One fault for each kind of mistake that a linter is there for.
FAULTS = [
    ("slurm.sbatch", '"$SLURM_JOB_NODELIST"', "$SLURM_JOB_NODELIST"),
    ("slurm.sbatch", "\nfi\n", "\n"),
    ("Dockerfile", "FROM python:3.13.11-slim-bookworm", "FROM python"),
    ("Dockerfile", 'ENTRYPOINT ["./launch.sh"]', "ENTRYPOINT ./launch.sh"),
    ("Dockerfile", "USER $UID", "USER root"),
    ("Dockerfile", "pip install --no-cache-dir", "pip install"),
    (".github/workflows/tests.yml", "timeout-minutes: 30", "timeout-minutes: soon"),
    (".github/workflows/tests.yml", "    runs-on: ubuntu-24.04\n", ""),
    (".github/workflows/tests.yml", "contents: read", "contents: write"),
    (".github/workflows/tests.yml", "@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "@v7"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render all parts."""
    folder = tmp_path_factory.mktemp("parts") / "project"
    return render(folder, project_name="My_Proj", gpus=4, nodes=2, parts=sorted(FILES))


def files_of(project: Path) -> set[str]:
    """Return the relative names of all files."""
    return {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}


@pytest.mark.parametrize("part", FILES)
def test_a_part_brings_its_own_files_and_no_others(part: str, tmp_path: Path) -> None:
    """Protects the `_exclude` table of template/copier.yml."""
    plain = files_of(render(tmp_path / "plain", project_name="plain"))
    with_part = files_of(render(tmp_path / part, project_name="plain", parts=[part]))
    assert with_part - plain == FILES[part]
    assert plain <= with_part


@pytest.mark.parametrize("file", LINTERS)
def test_each_part_passes_its_schema_and_linters(project: Path, file: str) -> None:
    """Any of the faults below, made in the template, turns this red."""
    assert not complaints(project / file, LINTERS[file])


@pytest.mark.parametrize(("file", "right", "wrong"), FAULTS)
def test_the_linters_see_a_fault(
    project: Path, file: str, right: str, wrong: str, tmp_path: Path
) -> None:
    """So that the test above cannot be green for want of a check."""
    # The folders stay: zizmor knows a workflow by the folder that it is in.
    broken = copy_with_fault(project / file, tmp_path / file, right, wrong)
    assert complaints(broken, LINTERS[file])


def test_slurm_asks_for_the_nodes_and_gpus_of_the_answers(project: Path) -> None:
    """Protects the substitutions in slurm.sbatch."""
    lines = re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", (project / "slurm.sbatch").read_text(), re.M)
    asked = dict(lines)
    assert asked["job-name"] == "My_Proj"
    assert asked["nodes"] == "2"
    assert asked["gpus-per-node"] == "4"
    assert asked["ntasks-per-node"] == "1"
    assert asked["cpus-per-task"] == "16"
    assert asked["open-mode"] == "append"


SRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" > srun.arguments
while [[ $1 == --* ]]; do shift; done
for node in 0 1; do SLURM_NODEID=$node "$@"; done
"""
SCONTROL = """#!/usr/bin/env bash
[[ $* == "show hostnames n[7-8]" ]] && printf 'n7\\nn8\\n'
"""
LAUNCH = """#!/usr/bin/env bash
echo "$NNODES $NODE_RANK $MASTER_ADDR $MASTER_PORT $NPROC"
printf '<%s>' "$@"
echo
"""


# A training that goes on until it is asked to stop, and then ends with a code.
ENDLESS_SRUN = """#!/usr/bin/env bash
trap 'exit {code}' USR1 TERM
touch started
while true; do sleep 0.05; done
"""
NOTED_SCONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then echo n7; else echo "$@" >> asked; fi
"""
JOB = {
    "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NODELIST": "n[7-8]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "16",
}


def put_programs(folder: Path, **texts: str) -> dict[str, str]:
    """Write programs into a folder; return the environment of a job that finds them."""
    for name, text in texts.items():
        file = folder / name.replace("_", ".")
        file.write_text(text)
        file.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", **JOB}


def run_batch_script(project: Path, folder: Path, **environment: str) -> list[str]:
    """Run slurm.sbatch with stand-ins for SLURM and launch.sh; return what these printed."""
    slurm = put_programs(folder, srun=SRUN, scontrol=SCONTROL, launch_sh=LAUNCH)
    result = subprocess.run(
        ["bash", project / "slurm.sbatch", "--name", "two words"],
        cwd=folder,
        env={**slurm, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_slurm_starts_one_launcher_on_each_node(project: Path, tmp_path: Path) -> None:
    """Protects the exports of slurm.sbatch, NODE_RANK inside srun, and the quotes around "$@"."""
    launched = run_batch_script(project, tmp_path, SLURM_GPUS_ON_NODE="8")
    assert launched == [
        "2 0 n7 13456 8",
        "<--name><two words>",
        "2 1 n7 13456 8",
        "<--name><two words>",
    ]
    arguments = (tmp_path / "srun.arguments").read_text().splitlines()
    assert {"--kill-on-bad-exit=1", "--cpus-per-task=16"} <= set(arguments)


def test_slurm_leaves_the_process_count_to_the_user_and_to_launch_sh(
    project: Path, tmp_path: Path
) -> None:
    """Protects the order NPROC, SLURM_GPUS_ON_NODE, launch.sh's default."""
    asked = run_batch_script(project, tmp_path, SLURM_GPUS_ON_NODE="8", NPROC="3")
    assert asked[0] == "2 0 n7 13456 3"
    unknown = run_batch_script(project, tmp_path)
    assert unknown[0] == "2 0 n7 13456 "


def test_slurm_gives_each_job_of_an_array_a_name_and_a_seed(project: Path, tmp_path: Path) -> None:
    """Protects `set --`: before the options of the user, which win."""
    launched = run_batch_script(
        project, tmp_path, SLURM_ARRAY_TASK_ID="7", SLURM_JOB_NAME="my sweep"
    )
    assert launched[1] == "<--name><my sweep-7><--seed><7><--name><two words>"


@pytest.mark.parametrize(
    ("sent", "code", "requeued"),
    [(signal.SIGUSR1, 75, True), (signal.SIGUSR1, 0, False), (signal.SIGTERM, 75, False)],
)
def test_slurm_queues_again_what_was_not_done_and_not_cancelled(
    project: Path, tmp_path: Path, sent: signal.Signals, code: int, requeued: bool
) -> None:
    """Protects the condition for `scontrol requeue`: a training that is done would run again."""
    programs = {"srun": ENDLESS_SRUN.format(code=code), "scontrol": NOTED_SCONTROL}
    environment = put_programs(tmp_path, **programs, launch_sh=LAUNCH)
    job = subprocess.Popen(["bash", project / "slurm.sbatch"], cwd=tmp_path, env=environment)
    wait_until((tmp_path / "started").exists, "started")
    job.send_signal(sent)
    assert job.wait(60) == code
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == "requeue 123456\n" * requeued


def test_slurm_outside_of_the_project_says_where_to_submit(project: Path, tmp_path: Path) -> None:
    """Protects the check for launch.sh."""
    result = subprocess.run(
        ["bash", project / "slurm.sbatch"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert f"no launch.sh in {tmp_path}" in result.stderr


def test_docker_installs_the_dependencies_that_pyproject_declares(
    project: Path, tmp_path: Path
) -> None:
    """Runs the Dockerfile's own command; protects the layer that comes before the sources."""
    text = (project / "Dockerfile").read_text().replace("\\\n", "")
    [command] = re.findall(r"^RUN (python -c .*?) > /tmp/requirements.txt", text, re.M)
    shutil.copy(project / "pyproject.toml", tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    assert declared
    assert result.stdout.splitlines() == declared


def test_the_workflow_pins_each_action_by_commit_and_only_reads(project: Path) -> None:
    """Protects the pins, each with its version beside it, and the permissions."""
    text = (project / ".github/workflows/tests.yml").read_text()
    uses = re.findall(r"uses: (.*)$", text, re.M)
    assert len(uses) == 2
    for line in uses:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
