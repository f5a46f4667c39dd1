"""A small language model: embeddings, causal attention, a head over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import stopwatch
from job import BATCH_SIZE, LARGE, SAMPLES, WORLD_SIZE

WIDTH, LAYERS, LENGTH = (1024, 12, 512) if LARGE else (64, 2, 64)
VOCABULARY = 256


class Decoder(nn.Module):
    """A stack of pre-norm layers with a causal mask."""

    def __init__(self) -> None:
        """Take no settings."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, WIDTH // 32, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        """Map tokens of shape (batch, length) to scores of shape (batch, length, vocabulary)."""
        hidden = self.tokens(text) + self.places.weight
        scores: Tensor = self.head(self.layers(hidden, mask=self.mask, is_causal=True))
        return scores


def build_model(config: object = None) -> nn.Module:
    """Return the model."""
    return Decoder()


def loss_fn(output: Tensor, batch: list[Tensor]) -> Tensor:
    """Return the mean cross-entropy of the next tokens."""
    loss = nn.functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())
    stopwatch.tick(loss)
    return loss


def update_metrics(output: Tensor, batch: list[Tensor]) -> dict[str, Tensor]:
    """Return sums over a batch, for the loop that validates."""
    error = nn.functional.cross_entropy(output.flatten(0, 1), batch[1].flatten(), reduction="sum")
    return {"count": torch.tensor(batch[1].numel()), "error": error}


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Return the loss."""
    return {"loss": (sums["error"] / sums["count"]).item()}


def build_datasets(config: object = None) -> tuple[TensorDataset, TensorDataset]:
    """Return random texts, whose words do not matter here; the validation set is one batch."""
    random = torch.Generator().manual_seed(0)
    text = torch.randint(VOCABULARY, (SAMPLES, LENGTH + 1), generator=random)
    few = BATCH_SIZE * WORLD_SIZE
    return (
        TensorDataset(text[:, :-1], text[:, 1:]),
        TensorDataset(text[:few, :-1], text[:few, 1:]),
    )
