"""The GPUs: the driver, what torch can use of them, and how many processes want one."""

import subprocess
from collections.abc import Iterator

from ddpgen.doctor.finding import Finding, error, ok, skipped, warning
from ddpgen.doctor.interview import Inside
from ddpgen.doctor.machine import in_bytes
from ddpgen.doctor.patient import Patient


def check_gpus(patient: Patient, inside: Inside, processes: int) -> Iterator[Finding]:
    """Does torch see the GPUs of this machine, and as many as launch.sh wants to use?"""
    installed = installed_gpus()
    if "version" not in inside.torch:
        yield skipped("cuda", "needs torch")
        yield skipped("gpus", "needs torch")
        return
    yield check_cuda(inside, installed)
    yield check_number_of_gpus(patient, inside, processes)


def check_cuda(inside: Inside, installed: list[str]) -> Finding:
    """Do torch and the driver fit together?"""
    cuda, nccl = inside.torch["cuda"], inside.torch["nccl"]
    driver = installed[0].partition(", ")[2] if installed else ""
    if inside.gpus:
        return ok("cuda", f"CUDA {cuda}, NCCL {nccl}, driver {driver or 'unknown'}")
    if installed and not cuda:
        return error(
            "cuda",
            f"{len(installed)} GPU(s) here, and a torch without CUDA",
            "install a torch with CUDA: pytorch.org/get-started/locally",
        )
    if installed:
        said = "; ".join(inside.torch["said"]) or "CUDA_VISIBLE_DEVICES may hide them"
        return error(
            "cuda",
            f"{len(installed)} GPU(s) here with driver {driver}, and torch sees none: {said}",
            f"update the driver for CUDA {cuda}, or unset CUDA_VISIBLE_DEVICES",
        )
    return ok("cuda", "no GPU on this machine, so none is needed")


def check_number_of_gpus(patient: Patient, inside: Inside, processes: int) -> Finding:
    """Are there as many as processes, and is none left over?"""
    visible = len(inside.gpus)
    if patient.device == "cpu":
        return ok("gpus", "none is used with --device cpu")
    if visible == 0 and "cuda" in {patient.device, inside.settings.get("device")}:
        return error("gpus", "none is visible, and device is cuda", "--device cpu, or auto")
    if visible == 0:
        return warning(
            "gpus",
            "none is visible: the project trains on the CPU with gloo",
            "nothing, if that is meant; `nvidia-smi` lists what the driver sees",
        )
    names = f"{visible} x {inside.gpus[0]['name']}"
    if processes > visible:
        return error("gpus", f"{names}, but {processes} processes", f"--processes {visible}")
    if patient.usual != visible:
        return warning(
            "gpus",
            f"{names} visible, and launch.sh is made for {patient.usual}",
            f"NPROC={visible} ./launch.sh, or ddpgen update --set gpus={visible}",
        )
    busy = [number for number, gpu in enumerate(inside.gpus) if gpu["free"] < gpu["total"] / 2]
    if busy:
        return warning(
            "gpus",
            f"{names}; half of the memory of GPU {busy[0]} is in use already",
            "nvidia-smi says by whom",
        )
    return ok("gpus", f"{names}, {in_bytes(inside.gpus[0]['total'])} each")


def installed_gpus() -> list[str]:
    """Return "name, driver version" of each GPU that nvidia-smi lists."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,  # a driver that hangs
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]
