"""An owner's model: nothing of it is like the presets (tokens, dropout, batch statistics)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from config import Config


class Tagger(nn.Module):
    """Counts vowels: embeds letters, averages over the word, and classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 16, padding_idx=0)
        self.body = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 8)

    def forward(self, words: Tensor) -> Tensor:
        """Map letters of shape (batch, length) to logits of shape (batch, 8)."""
        letters = (words > 0).sum(1, keepdim=True)
        logits: Tensor = self.head(self.body(self.embedding(words).sum(1) / letters))
        return logits


def build_model(config: Config) -> nn.Module:
    """Return the model."""
    return Tagger()


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss of the batch."""
    return nn.functional.cross_entropy(output, batch[1]["vowels"])


def update_metrics(output: Tensor, batch: Any) -> dict[str, Any]:
    """Return sums: a confusion matrix is one too, and so is a plain number."""
    vowels = batch[1]["vowels"]
    confusion = torch.zeros(8, 8, dtype=torch.int64, device=vowels.device)
    confusion.index_put_((vowels, output.argmax(1)), torch.ones_like(vowels), accumulate=True)
    loss = nn.functional.cross_entropy(output.double(), vowels, reduction="sum")
    return {"confusion": confusion, "loss": loss, "count": len(vowels)}


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, Any]:
    """Return the mean loss and the macro F1, which no average over batches would give; as tensors.

    Nobody has to remember .item().
    """
    confusion = sums["confusion"]
    hits = confusion.diagonal()
    f1 = 2 * hits / (confusion.sum(0) + confusion.sum(1)).clamp(min=1)
    return {"loss": sums["loss"] / sums["count"], "f1": f1.mean()}
