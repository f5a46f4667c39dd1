"""YOURS: the model, its loss and its metrics. The other files use only the functions below it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from config import Config, SettingsError
from data import NOTHING

# Dense bf16 and fp16, in 1e12 operations per second, from the makers' data sheets.
PEAK_TFLOPS = {
    "B200": 2250, "H200": 989, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362, "A10G": 70,
    "L4": 121, "V100": 125, "T4": 65, "RTX 4090": 165, "RTX 3090": 71,
}  # fmt: skip


class Block(nn.Module):
    """Attention to the tokens before, and a layer for each token alone; both add to the input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors of shape (batch, length, width) to the same shape."""
        x = x + self._drop(self.project(self._attend(self.norm_attention(x))))
        return x + self._drop(self.mlp(self.norm_mlp(x)))

    def _attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, length, width)

    def _drop(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, self.training)


class Transformer(nn.Module):
    """A decoder-only transformer like GPT-2: learned positions, norms first, tied embeddings."""

    def __init__(
        self,
        vocabulary: int,
        block_size: int,
        layers: int,
        heads: int,
        width: int,
        dropout: float = 0.0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._initialise)
        for name, weight in self.named_parameters():  # their sum shall not grow with the depth
            if name.endswith(("project.weight", "mlp.2.weight")):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers))
        self.head.weight = self.tokens.weight  # tied: one matrix reads and writes tokens

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens of shape (batch, length) to logits of shape (batch, length, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, temperature: float = 0.8) -> Tensor:
        """Return tokens of shape (length,) with `count` more, drawn from what the model expects."""
        block_size = self.positions.num_embeddings
        for _ in range(count):
            logits = self(tokens[None, -block_size:])[0, -1].float()
            chosen = torch.multinomial((logits / temperature).softmax(dim=0), 1)
            tokens = torch.cat([tokens, chosen])
        return tokens


def build_model(config: Config) -> nn.Module:
    """Return the whole model on the CPU; it is moved and wrapped for you."""
    if config.width % config.heads:
        raise SettingsError(f"width {config.width} is not divisible by heads {config.heads}")
    return Transformer(
        config.vocabulary,
        config.block_size,
        config.layers,
        config.heads,
        config.width,
        config.dropout,
        config.activation_checkpointing,
    )


def loss_weight(batch: Any) -> Tensor:
    """Return how many tokens loss_fn's mean is over: batches differ in it (see extras.py)."""
    _, targets = batch
    weight: Tensor = (targets != NOTHING).sum()
    return weight


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss over the tokens of this batch: the scalar that backward() is called on.

    Args:
        output: what the model returned for batch[0].
        batch: what the DataLoader gave, on the right device.
    """
    _, targets = batch
    total = cross_entropy(output.flatten(0, 1), targets.flatten(), reduction="sum")
    return total / loss_weight(batch).clamp(min=1)


def update_metrics(output: Tensor, batch: Any) -> dict[str, Tensor]:
    """Return SUMS over the tokens of this batch, tensors of any shape.

    They are added over all batches and all processes. Means do not add up, sums do.
    """
    _, targets = batch
    logits = output.flatten(0, 1).double()
    return {
        "tokens": loss_weight(batch),
        "loss": cross_entropy(logits, targets.flatten(), reduction="sum"),
    }


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Turn the sums over the whole validation set into the metrics to report."""
    loss = sums["loss"] / sums["tokens"]
    return {"loss": loss.item(), "perplexity": loss.exp().item()}


def speed(
    config: Config, model: nn.Module, samples_per_second: float, world_size: int
) -> dict[str, float]:
    """Return tokens per second of all processes, and mfu where the peak of the device is known.

    mfu is the model FLOPs utilisation (Chowdhery et al., PaLM, 2022, appendix B): the operations
    that the model needs, without any that are done twice, over those that the devices could do.
    """
    tokens = samples_per_second * config.block_size  # places; a short window has some empty ones
    weights = sum(weight.numel() for weight in model.parameters())
    weights -= config.block_size * config.width  # the positions are added, not multiplied
    needed = 6 * weights + 12 * config.layers * config.width * config.block_size  # for each token
    peak = config.peak_tflops or _known_peak(config, next(model.parameters()).device)
    line = {"tokens_per_second": tokens}
    return {**line, "mfu": tokens * needed / (world_size * peak * 1e12)} if peak else line


def _known_peak(config: Config, device: torch.device) -> float | None:
    if device.type != "cuda" or config.precision == "fp32":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


def show(config: Config, model: nn.Module, validation_set: Dataset[Any]) -> dict[str, str | Tensor]:
    """Return a text that goes on from the start of a validation document."""
    assert isinstance(model, Transformer)
    start = validation_set[0][0][:16].to(next(model.parameters()).device)
    tokens = model.generate(start, count=100).tolist()
    if config.vocabulary == 256:
        return {"sample": repr(bytes(tokens).decode(errors="replace"))}
    return {"sample": " ".join(map(str, tokens))}
