"""The loop of Accelerate's documentation, with its TensorBoard tracker."""

import torch
from accelerate import Accelerator
from torch.optim import AdamW
from torch.utils.data import DataLoader

import job
from workload import build_datasets, build_model, loss_fn


def main() -> None:
    """Train; torchrun starts this on each process."""
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=job.FOLDER)
    accelerator.init_trackers("logs")
    torch.manual_seed(0)
    dataset, _ = build_datasets()
    model = build_model()
    optimizer = AdamW(model.parameters(), job.LR)
    loader = DataLoader(dataset, job.BATCH_SIZE, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    for _ in range(job.EPOCHS):
        for batch in loader:
            loss = loss_fn(model(batch[0]), batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % job.LOG_EVERY == 0:
                mean = accelerator.reduce(loss.detach(), "mean").item()
                accelerator.print(f"step {step} loss {mean}")
                accelerator.log({"loss": mean}, step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
