"""The loop of PyTorch-Ignite's documentation, with its TensorBoard logger."""

import torch
from ignite import distributed as idist
from ignite.engine import Engine, Events
from ignite.handlers import TensorboardLogger
from torch import Tensor
from torch.optim import AdamW

import job
from workload import build_datasets, build_model, loss_fn


def training(local_rank: int) -> None:
    """Train on one process."""
    torch.manual_seed(0)
    dataset, _ = build_datasets()
    loader = idist.auto_dataloader(
        dataset, batch_size=job.BATCH_SIZE * job.WORLD_SIZE, shuffle=True, drop_last=True
    )
    model = idist.auto_model(build_model())
    optimizer = idist.auto_optim(AdamW(model.parameters(), job.LR))

    def train_step(engine: Engine, batch: list[Tensor]) -> Tensor:
        model.train()
        loss: Tensor = loss_fn(model(batch[0]), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    trainer = Engine(train_step)
    logger = TensorboardLogger(job.FOLDER) if idist.get_rank() == 0 else None

    @trainer.on(Events.EPOCH_STARTED)
    def shuffle(engine: Engine) -> None:
        loader.sampler.set_epoch(engine.state.epoch)

    @trainer.on(Events.ITERATION_COMPLETED(every=job.LOG_EVERY))
    def log(engine: Engine) -> None:
        mean = idist.all_reduce(engine.state.output.clone()).item() / idist.get_world_size()
        if logger:
            print(f"step {engine.state.iteration} loss {mean}")
            logger.writer.add_scalar("loss", mean, engine.state.iteration)

    trainer.run(loader, max_epochs=job.EPOCHS)
    if logger:
        logger.close()


def main() -> None:
    """Train; torchrun starts this on each process."""
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)


if __name__ == "__main__":
    main()
