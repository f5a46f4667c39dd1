"""The loop of Lightning Fabric's documentation, with its TensorBoard logger."""

import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import TensorBoardLogger
from torch.optim import AdamW
from torch.utils.data import DataLoader

import job
from workload import build_datasets, build_model, loss_fn


def main() -> None:
    """Train; torchrun starts this on each process."""
    logger = TensorBoardLogger(job.FOLDER)
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=job.WORLD_SIZE, loggers=logger)
    fabric.launch()
    torch.manual_seed(0)
    dataset, _ = build_datasets()
    model = build_model()
    model, optimizer = fabric.setup(model, AdamW(model.parameters(), job.LR))
    loader = fabric.setup_dataloaders(
        DataLoader(dataset, job.BATCH_SIZE, shuffle=True, drop_last=True)
    )
    step = 0
    for _ in range(job.EPOCHS):
        for batch in loader:
            loss = loss_fn(model(batch[0]), batch)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % job.LOG_EVERY == 0:
                mean = fabric.all_reduce(loss.detach(), reduce_op="mean").item()
                fabric.print(f"step {step} loss {mean}")
                fabric.log("loss", mean, step)


if __name__ == "__main__":
    main()
