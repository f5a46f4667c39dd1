"""Lightning's Trainer with its TensorBoard logger, and without what would slow it down.

No progress bar, no checkpoint, and no sync_dist: that would all-reduce the loss in each step, so
what it logs is the loss of rank 0.
"""

from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.optim import AdamW
from torch.utils.data import DataLoader

import job
from workload import build_datasets, build_model, loss_fn


class Task(LightningModule):
    """The model with its loss and its optimizer."""

    def __init__(self) -> None:
        """Take no settings."""
        super().__init__()
        self.model = build_model()

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        """Return the loss, and log it in every LOG_EVERY-th step."""
        loss: Tensor = loss_fn(self.model(batch[0]), batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> AdamW:
        """Return the optimizer."""
        return AdamW(self.parameters(), job.LR)


def main() -> None:
    """Train; torchrun starts this on each process."""
    seed_everything(0)
    dataset, _ = build_datasets()
    trainer = Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=job.WORLD_SIZE,
        max_epochs=job.EPOCHS,
        log_every_n_steps=job.LOG_EVERY,
        logger=TensorBoardLogger(job.FOLDER),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Task(), DataLoader(dataset, job.BATCH_SIZE, shuffle=True, drop_last=True))


if __name__ == "__main__":
    main()
