"""BARE: the smallest correct loop. It logs nothing, saves nothing and validates nothing."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.utils.data import DataLoader, DistributedSampler

import job
from workload import build_datasets, build_model, loss_fn


def main() -> None:
    """Train; torchrun starts this on each process."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    dataset, _ = build_datasets()
    model = DistributedDataParallel(build_model().to(device))
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, job.BATCH_SIZE, sampler=sampler, pin_memory=on_gpu)
    optimizer = AdamW(model.parameters(), job.LR, fused=job.FUSED)
    autocast: Any = torch.autocast(device.type, torch.bfloat16) if job.BF16 else nullcontext()
    for epoch in range(job.EPOCHS):
        sampler.set_epoch(epoch)
        for samples in loader:
            batch = [part.to(device, non_blocking=True) for part in samples]
            with autocast:
                loss = loss_fn(model(batch[0]), batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
