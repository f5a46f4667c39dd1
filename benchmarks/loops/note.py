"""NOTE: the loop of the source note as it stands, with its faults.

It all-reduces and prints the loss in each step, before backward(), never calls set_epoch, and has
eight loader workers on each process and pinned memory, whatever the machine.
"""

from contextlib import nullcontext
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.utils.data import DataLoader, DistributedSampler

import job
from workload import build_datasets, build_model, loss_fn


def reduce_loss(loss: torch.Tensor) -> torch.Tensor:
    """Average the loss itself over the ranks, not a copy of it."""
    distributed.all_reduce(loss)
    loss /= distributed.get_world_size()
    return loss


def main() -> None:
    """Train; torchrun starts this on each process."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    dataset, _ = build_datasets()
    model = DistributedDataParallel(build_model().to(device))
    sampler: DistributedSampler[Any] = DistributedSampler(dataset)
    loader = DataLoader(dataset, job.BATCH_SIZE, sampler=sampler, num_workers=8, pin_memory=True)
    optimizer = AdamW(model.parameters(), job.LR)
    autocast: Any = torch.autocast(device.type, torch.bfloat16) if job.BF16 else nullcontext()
    for epoch in range(job.EPOCHS):
        for step, samples in enumerate(loader):
            batch = [part.to(device) for part in samples]
            optimizer.zero_grad()
            with autocast:
                loss = loss_fn(model(batch[0]), batch)
            loss = reduce_loss(loss)
            loss.backward()
            optimizer.step()
            if job.RANK == 0:
                print(f"epoch {epoch} step {step} loss {loss.item()}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
