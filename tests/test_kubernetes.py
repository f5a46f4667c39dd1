"""The manifests are valid, fit the image and the launcher, and their command trains."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from generated import ENVIRONMENT, generate, metrics, render
from kubeflow_trainer_api import models
from parts import complaints, copy_with_fault
from support import free_port

FILES = ("job.yaml", "trainjob.yaml")
VALIDATORS = [f"kubernetes-validate --strict -k {version}" for version in ("1.30.0", "1.37.0")]
# One fault for each kind of mistake that a schema is there for.
FAULTS = [
    ("job.yaml", "completionMode:", "completionsMode:"),
    ("job.yaml", "parallelism: 2", "parallelism: two"),
    ("job.yaml", "drop: [ALL]", "drop: ALL"),
    ("job.yaml", "clusterIP: None", "clusterIp: None"),
    ("job.yaml", 'value: "2"', "value: 2"),
    ("trainjob.yaml", "accessModes: [ReadWriteMany]", "accessModes: ReadWriteMany"),
    ("trainjob.yaml", "mlPolicy:", "mlpolicy:"),
    ("trainjob.yaml", "torch: {}", "torch: {numProcPerNode: auto}"),  # as it was before 2.2
    ("trainjob.yaml", "replicatedJobs:", "replicatedJob:"),
    ("trainjob.yaml", "backoffLimit: 6", "backofflimit: 6"),
    ("trainjob.yaml", "operator: In", "operator: Within"),
    ("trainjob.yaml", "containerName: node", "container: node"),
    ("trainjob.yaml", "runAsUser: 1000", "runAsUser: trainer"),
    ("trainjob.yaml", "drop: [ALL]", "drop: ALL"),
    ("trainjob.yaml", "claimName: my-proj-runs", "name: my-proj-runs"),
    ("trainjob.yaml", "medium: Memory", "medium: {Memory: true}"),
    ("trainjob.yaml", "runtimeRef:", "runtime:"),
    ("trainjob.yaml", "numNodes: 2\n    numProc", "numNodes: two\n    numProc"),
    ("trainjob.yaml", "numProcPerNode: 4", "procPerNode: 4"),
    ("trainjob.yaml", "args: []", "args: --epochs 50"),
    ("trainjob.yaml", 'cpu: "16"', "cpu: [16]"),
]


def manifests(file: Path) -> dict[str, dict[str, Any]]:
    """Return the Kubernetes objects of a file by their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(file.read_text())}


def job_of(file: Path) -> dict[str, Any]:
    """Return the Job of a file, or the one that Kubeflow Trainer makes of its two objects."""
    found = manifests(file)
    if file.name == "job.yaml":
        return found["Job"]
    runtime, trainjob = found["TrainingRuntime"]["spec"], found["TrainJob"]["spec"]
    [node] = runtime["template"]["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "node"}}
    [container] = node["template"]["spec"]["template"]["spec"]["containers"]
    trainer = trainjob["trainer"]
    container |= {"image": trainer["image"], "args": trainer["args"]}
    container["resources"] = trainer["resourcesPerNode"]
    count = trainer["numNodes"]
    indexed = {"completionMode": "Indexed", "completions": count, "parallelism": count}
    return {**job, "spec": {**node["template"]["spec"], **indexed}}


def faults_of(file: Path, scratch: Path, validators: list[str]) -> str:
    """Check a file against the schemas of Kubernetes and the models of Kubeflow Trainer."""
    if file.name == "job.yaml":
        return complaints(file, validators)
    found = manifests(file)
    for kind in ("TrainingRuntime", "TrainJob"):
        model = getattr(models, f"TrainerV1alpha1{kind}")
        try:
            understood = model.from_dict(found[kind]).to_dict()
        except (ValueError, AttributeError, TypeError) as error:
            return str(error)
        if understood != found[kind]:  # the models pass over keys that they do not know
            return f"{kind}: only this is understood: {understood}"
    # The models let pass much that is inside of a pod.
    native = scratch / "native.yaml"
    native.write_text(yaml.safe_dump_all([found["PersistentVolumeClaim"], job_of(file)]))
    return complaints(native, validators)


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render them for a name that Kubernetes would refuse: capitals and an underscore."""
    folder = tmp_path_factory.mktemp("kubernetes") / "project"
    parts = ["docker", "kubernetes"]
    return render(folder, project_name="My_Proj", gpus=4, nodes=2, parts=parts) / "kubernetes"


@pytest.mark.parametrize("name", FILES)
def test_the_manifests_are_valid(kubernetes: Path, name: str, tmp_path: Path) -> None:
    """Any of the faults below, made in the template, turns this red."""
    assert not faults_of(kubernetes / name, tmp_path, VALIDATORS)


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_the_schemas_see_a_fault(
    kubernetes: Path, name: str, right: str, wrong: str, tmp_path: Path
) -> None:
    """So that the test above cannot be green for want of a check."""
    broken = copy_with_fault(kubernetes / name, tmp_path / name, right, wrong)
    assert faults_of(broken, tmp_path, VALIDATORS[:1])


def test_they_start_the_pods_of_the_answers(kubernetes: Path) -> None:
    """Protects the substitutions in both files."""
    for name in FILES:
        job = job_of(kubernetes / name)["spec"]
        [container] = job["template"]["spec"]["containers"]
        assert job["completions"] == job["parallelism"] == 2
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    environment = {e["name"]: e.get("value") for e in container_of(kubernetes / "job.yaml")["env"]}
    assert (environment["NNODES"], environment["NPROC"]) == ("2", "4")
    trainer = manifests(kubernetes / "trainjob.yaml")["TrainJob"]["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)


def container_of(file: Path) -> dict[str, Any]:
    """Return the one container of the pods of a file."""
    [container] = job_of(file)["spec"]["template"]["spec"]["containers"]
    return dict(container)


@pytest.mark.parametrize("name", FILES)
def test_they_know_the_exit_codes_of_the_launcher(kubernetes: Path, name: str) -> None:
    """Protects podFailurePolicy: a stopped run starts again uncounted, a wrong option does not."""
    job = job_of(kubernetes / name)["spec"]
    rules = job["podFailurePolicy"]["rules"]
    codes = [rule for rule in rules if "onExitCodes" in rule]
    actions = {value: rule["action"] for rule in codes for value in rule["onExitCodes"]["values"]}
    launcher = (kubernetes.parent / "stopping.py").read_text()
    code = dict(re.findall(r"^(TRY_AGAIN|WRONG_SETTINGS) = (\d+)", launcher, re.M))
    assert actions == {int(code["TRY_AGAIN"]): "Ignore", int(code["WRONG_SETTINGS"]): "FailJob"}
    named = {rule["onExitCodes"]["containerName"] for rule in codes}
    assert named == {container_of(kubernetes / name)["name"]}


@pytest.mark.parametrize("nodes", [1, 2])
def test_run_folders_can_be_written_by_every_node(nodes: int, tmp_path: Path) -> None:
    """Protects the access mode: ReadWriteOnce would leave the pods of the other nodes pending."""
    folder = render(tmp_path / "p", project_name="p", nodes=nodes, parts=["kubernetes"])
    for name in FILES:
        claim = manifests(folder / "kubernetes" / name)["PersistentVolumeClaim"]
        assert claim["spec"]["accessModes"] == [{1: "ReadWriteOnce", 2: "ReadWriteMany"}[nodes]]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "name", ["My_Proj", "No", "null", "A" * 64, "a" * 49 + "_-_b", "a" * 56 + "_-_b", "x__Y-z"]
)
def test_names_are_valid_and_fit_together(name: str, file: str, tmp_path: Path) -> None:
    """Protects the name's filters: lower case, no underscore, room for the pod's index, quotes."""
    folder = render(tmp_path / "p", project_name=name, nodes=4096, parts=["kubernetes"])
    path = folder / "kubernetes" / file
    found = manifests(path)
    pod = job_of(path)["spec"]["template"]["spec"]
    claim = found["PersistentVolumeClaim"]["metadata"]["name"]
    if file == "job.yaml":
        host, service = found["Job"]["metadata"]["name"], found["Service"]
        labels = [f"{host}-4095", service["metadata"]["name"], claim]
        assert pod["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": host}
        [master] = [e["value"] for e in pod["containers"][0]["env"] if e["name"] == "MASTER_ADDR"]
        assert master == f"{host}-0.{service['metadata']['name']}"
    else:
        host = found["TrainJob"]["metadata"]["name"]
        labels = [f"{host}-node-0-4095", claim]  # as JobSet names the pods
        assert found["TrainJob"]["spec"]["runtimeRef"]["name"] == host
        assert found["TrainingRuntime"]["metadata"]["name"] == host
    for label in labels:
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", label), label
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "runs"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim


@pytest.mark.parametrize("name", FILES)
def test_they_run_the_image_that_the_dockerfile_builds(kubernetes: Path, name: str) -> None:
    """Protects the user, the run folder and the volumes, which stand in more than one place."""
    dockerfile = (kubernetes.parent / "Dockerfile").read_text()
    pod = job_of(kubernetes / name)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert f"ARG UID={pod['securityContext']['runAsUser']}\n" in dockerfile
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "WORKDIR /app\n" in dockerfile
    assert 'ENTRYPOINT ["./launch.sh"]\n' in dockerfile
    assert mounts == {"runs": "/app/runs", "shm": "/dev/shm"}
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)


def test_the_port_is_the_same_everywhere(kubernetes: Path) -> None:
    """Protects MASTER_PORT, the port of the Service and the one of the container."""
    found, container = manifests(kubernetes / "job.yaml"), container_of(kubernetes / "job.yaml")
    [port] = [int(e["value"]) for e in container["env"] if e["name"] == "MASTER_PORT"]
    assert [each["port"] for each in found["Service"]["spec"]["ports"]] == [port]
    assert [each["containerPort"] for each in container["ports"]] == [port]


def pod_environment(container: dict[str, Any], index: int, port: str) -> dict[str, str]:
    """Return what Kubernetes and Kubeflow Trainer set in the container of a pod.

    The name of pod 0, which the cluster's DNS would resolve, is an address here, and the port is
    one that is free on this machine.
    """
    field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    environment = {}
    for entry in container.get("env", []):
        if "valueFrom" in entry:
            assert entry["valueFrom"]["fieldRef"]["fieldPath"] == field
        environment[entry["name"]] = entry.get("value", str(index))
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if environment:
        return {**environment, **here}
    return {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(index),
        **{f"PET_{name}": value for name, value in here.items()},
    }


@pytest.mark.parametrize("name", FILES)
def test_the_command_of_two_pods_trains_as_one(name: str, tmp_path: Path) -> None:
    """Protects the command, and the variables between the manifests and launch.sh."""
    project = generate(
        tmp_path / "p", gpus=1, nodes=2, tracker="none", parts=["docker", "kubernetes"]
    )
    container = container_of(project / "kubernetes" / name)
    [entry] = re.findall(r'^ENTRYPOINT \["(.*)"\]$', (project / "Dockerfile").read_text(), re.M)
    command = [*container.get("command", [entry]), "--device=cpu", "--epochs=1", "--batch-size=8"]
    port = free_port()
    pods = [
        subprocess.Popen(
            command,
            cwd=project,
            env={**ENVIRONMENT, **pod_environment(container, index, port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(2)
    ]
    outputs = [pod.communicate(timeout=300)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], outputs
    assert "on each of 2 processes" in outputs[0]
    assert any("validation/loss" in line for line in metrics(project))
