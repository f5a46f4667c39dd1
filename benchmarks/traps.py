"""What a common hand-written loop computes on two processes, and what a generated project computes.

    python benchmarks/traps.py

The loop is the one of many tutorials: the loss is all-reduced before backward(), validation goes
through a DistributedSampler and averages the batch means, set_epoch is not called, the state of
the DDP wrapper is saved. Both sides run on the CPU with gloo, on scikit-learn's diabetes table.
Writes results/traps.json and results/traps.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

import torch
import torch.distributed as dist
from sklearn.datasets import load_diabetes  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

HERE = Path(__file__).resolve().parent
PROCESSES = 2
VALIDATION_ROWS = 89  # odd, so that two processes cannot share it evenly
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


class Row(TypedDict):
    """One line of the table."""

    quantity: str
    loop: float
    right: float


def main() -> None:
    """Measure both sides and write the results; torchrun starts this again as a worker."""
    if "RANK" in os.environ:
        run_loop(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory(prefix="ddpgen-traps-") as folder:
        out = Path(folder) / "rows.json"
        worker = [*TORCHRUN, f"--nproc-per-node={PROCESSES}", __file__, str(out)]
        quiet = {
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }  # torch warns of the first trap
        subprocess.run(worker, check=True, env={**os.environ, **quiet})
        rows: list[Row] = json.loads(out.read_text())
        generated = validation_losses(Path(folder) / "project")
    report = {"torch": torch.__version__, "loop": rows, "generated project": generated}
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "traps.json").write_text(json.dumps(report, indent=1) + "\n")
    text = table(rows, generated)
    (results / "traps.md").write_text(text)
    print(text, end="")


def run_loop(out: Path) -> None:
    """Do what the loop does, on each of the processes, and write the rows on rank 0."""
    dist.init_process_group("gloo")
    table = load_diabetes()
    features = torch.tensor(table.data, dtype=torch.float32)
    target = torch.tensor(table.target, dtype=torch.float32).unsqueeze(1) / 100
    rows = [
        gradient(features[VALIDATION_ROWS:-1], target[VALIDATION_ROWS:-1]),
        validation(features[:VALIDATION_ROWS], target[:VALIDATION_ROWS]),
        orders(TensorDataset(features, target)),
        checkpoint(),
    ]
    if dist.get_rank() == 0:
        out.write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def linear() -> nn.Linear:
    """Return the same small model on every rank."""
    torch.manual_seed(0)
    return nn.Linear(10, 1)


def gradient(features: Tensor, target: Tensor) -> Row:
    """Compare the gradient of the averaged loss with that of one process on all samples."""
    alone = linear()
    mse_loss(alone(features), target).backward()

    ddp = DistributedDataParallel(linear())
    mine = slice(dist.get_rank(), None, PROCESSES)
    loss = mse_loss(ddp(features[mine]), target[mine])
    dist.all_reduce(loss)
    loss /= PROCESSES
    loss.backward()
    lengths = [
        torch.cat(
            [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
        )
        for model in (ddp, alone)
    ]
    ratio = (lengths[0].norm() / lengths[1].norm()).item()
    return {"quantity": "length of the gradient, true one = 1", "loop": ratio, "right": 1.0}


def validation(features: Tensor, target: Tensor) -> Row:
    """Compare the mean of batch means over padded shards with the mean over all samples."""
    model = linear()
    data = TensorDataset(features, target)
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data, shuffle=False))
    with torch.no_grad():
        right = mse_loss(model(features), target).item()
        mean = torch.stack([mse_loss(model(x), y) for x, y in loader]).mean()
    dist.all_reduce(mean)
    loop = mean.item() / PROCESSES
    return {"quantity": f"loss over {VALIDATION_ROWS} samples", "loop": loop, "right": right}


def orders(data: TensorDataset) -> Row:
    """Count the different orders that three epochs see without set_epoch."""
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(data)
    seen = {tuple(sampler) for _ in range(3)}
    return {"quantity": "different orders in 3 epochs", "loop": len(seen), "right": 3}


def checkpoint() -> Row:
    """Count the tensors that a bare model takes from the wrapper's state, with strict=False."""
    saved = DistributedDataParallel(linear()).state_dict()
    model = linear()
    missing = model.load_state_dict(saved, strict=False).missing_keys
    own = len(model.state_dict())
    return {
        "quantity": "tensors loaded from a checkpoint",
        "loop": own - len(missing),
        "right": own,
    }


def validation_losses(project: Path) -> dict[str, float]:
    """Train a generated project with 1, 2 and 3 processes on the same global batch."""
    ddpgen = str(Path(sys.executable).parent / "ddpgen")
    subprocess.run([ddpgen, "new", project, "--yes", "--no-git"], check=True, capture_output=True)
    losses = {}
    for processes in (1, 2, 3):
        name = f"with{processes}"
        settings = f"--name {name} --device cpu --optimizer sgd --lr 0.01 --epochs 5"
        subprocess.run(
            ["./launch.sh", *settings.split(), "--batch-size", str(30 // processes)],
            check=True,
            cwd=project,
            capture_output=True,
            env={**os.environ, "NPROC": str(processes), "PYTHON": sys.executable},
        )
        lines = (project / "runs" / name / "metrics.jsonl").read_text().splitlines()
        values = [json.loads(line).get("validation/loss") for line in lines]
        losses[str(processes)] = [value for value in values if value is not None][-1]
    return losses


def table(rows: list[Row], generated: dict[str, float]) -> str:
    """Write the results as Markdown."""
    lines = [
        f"Measured with torch {torch.__version__}, gloo, {PROCESSES} processes.",
        "",
        "| | hand-written loop | right |",
        "|---|---:|---:|",
    ]
    lines += [f"| {row['quantity']} | {row['loop']:.4g} | {row['right']:.4g} |" for row in rows]
    lines += [
        "",
        "A generated project, five epochs of SGD on a global batch of 30:",
        "",
        "| processes | exact validation loss |",
        "|---:|---:|",
    ]
    lines += [f"| {processes} | {loss:.12f} |" for processes, loss in generated.items()]
    spread = max(generated.values()) - min(generated.values())
    lines += ["", f"Largest difference: {spread:.1e}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
