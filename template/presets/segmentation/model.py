"""YOURS: the model, its loss and its metrics. The other files use only the functions below it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, one_hot
from torch.utils.data import Dataset
from transformers import DINOv3ViTConfig, DINOv3ViTModel
from transformers.utils.logging import disable_progress_bar

from config import Config, SettingsError
from data import CLASS_WEIGHTS, CLASSES, IGNORE

DICE = 1.0  # how much the Dice loss counts beside the cross-entropy
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what DINOv3 was trained with
COLOURS = torch.tensor([(0.1, 0.1, 0.1), (0.9, 0.7, 0.1), (0.2, 0.5, 1.0), (0.8, 0.2, 0.2)])


class Segmenter(nn.Module):
    """A DINOv3 backbone and a head that makes its patches into a map of classes."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: DINOv3ViTModel, classes: int, *, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen
        self.backbone = backbone.requires_grad_(not frozen)
        # Only pre-training masks patches: DDP would wait for a gradient that never comes.
        backbone.embeddings.mask_token.requires_grad_(False)
        width = backbone.config.hidden_size
        layers = [*_upsample(width, 64), *_upsample(64, 32), nn.Conv2d(32, classes, 1)]
        self.head = nn.Sequential(*layers)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)

    def train(self, mode: bool = True) -> Segmenter:
        """Switch to training; a frozen backbone stays as it is evaluated."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) in [0, 1] to logits (batch, classes, height, width).

        Height and width must be multiples of the patch size.
        """
        patch = patch_size(self.backbone)
        rows, columns = images.shape[-2] // patch, images.shape[-1] // patch
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            tokens = self.backbone((images - self.mean) / self.std).last_hidden_state
        patches = tokens[:, -rows * columns :]  # behind the class token and the registers
        features = patches.transpose(1, 2).unflatten(2, (rows, columns))
        logits: Tensor = self.head(features)
        return interpolate(logits, images.shape[-2:], mode="bilinear")


def _upsample(width: int, narrower: int) -> list[nn.Module]:
    """Return layers that double height and width."""
    return [
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(width, narrower, 3, padding=1),
        nn.GroupNorm(8, narrower),
        nn.GELU(),
    ]


def build_model(config: Config) -> nn.Module:
    """Return the whole model on the CPU; it is moved and wrapped for you.

    Raises:
        SettingsError: The weights of the backbone cannot be had, or image_size does not fit.
    """
    backbone = load_backbone(config.backbone) if config.backbone else small_backbone(config)
    if config.image_size % patch_size(backbone):
        patch = patch_size(backbone)
        raise SettingsError(f"image_size {config.image_size} is not a multiple of {patch}")
    if config.activation_checkpointing:
        backbone.gradient_checkpointing_enable({"use_reentrant": False})
    return Segmenter(backbone, len(CLASSES), frozen=config.freeze)


def load_backbone(name: str) -> DINOv3ViTModel:
    """Return a DINOv3 ViT with the weights of a checkpoint of the Hugging Face Hub, or of a folder.

    Every process calls this. The Hub's cache locks each file, so one downloads it and once.py is
    not needed.

    Raises:
        SettingsError: It cannot be had; says what to do.
    """
    disable_progress_bar()  # there would be one for each process
    try:
        model: DINOv3ViTModel = DINOv3ViTModel.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(
            f"--backbone {name} cannot be loaded: {reason}\n"
            f"  The weights are gated: agree to their licence on https://huggingface.co/{name},\n"
            "  then `hf auth login`. Where there is no network: `hf download` them on another\n"
            "  machine, and give the folder as --backbone."
        ) from None
    return model


def patch_size(backbone: DINOv3ViTModel) -> int:
    """Return the side of a patch in pixels; all DINOv3 ViTs have square ones."""
    size = backbone.config.patch_size
    assert isinstance(size, int)
    return size


def small_backbone(config: Config) -> DINOv3ViTModel:
    """Return a DINOv3 ViT that a CPU can train, with random weights."""
    return DINOv3ViTModel(
        DINOv3ViTConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_register_tokens=4,
            image_size=config.image_size,
        )
    )


def loss_weight(batch: Any) -> Tensor:
    """Return what loss_fn's mean is over: its pixels, by the weights of their classes."""
    _, mask = batch
    return pixel_weights(mask).sum()


def pixel_weights(mask: Tensor) -> Tensor:
    """Return the weight of each pixel: that of its class, and 0 where it is IGNORE."""
    weights = torch.zeros(IGNORE + 1, device=mask.device)
    weights[: len(CLASSES)] = torch.tensor(CLASS_WEIGHTS, device=mask.device)
    return weights[mask]


def loss_fn(output: Tensor, batch: Any) -> Tensor:
    """Return the mean loss over the pixels of this batch: the scalar that backward() is called on.

    Args:
        output: what the model returned for batch[0].
        batch: what the DataLoader gave, on the right device.
    """
    mean: Tensor = loss_sum(output, batch) / loss_weight(batch).clamp(min=1e-6)
    return mean


def loss_sum(output: Tensor, batch: Any) -> Tensor:
    """Return the loss summed over pixels, so that it is the same however they are batched.

    Cross-entropy, and the Dice loss of each picture times the weight of its pixels.
    """
    _, mask = batch
    weights = pixel_weights(mask)
    losses = cross_entropy(output, mask, ignore_index=IGNORE, reduction="none")
    known = (mask != IGNORE).unsqueeze(1)
    share = output.softmax(dim=1) * known
    truth = one_hot(mask.where(known[:, 0], 0), len(CLASSES)).movedim(-1, 1) * known
    overlap = 2 * (share * truth).sum((2, 3)) + 1  # of each picture and class
    dice = 1 - (overlap / ((share + truth).sum((2, 3)) + 1)).mean(dim=1)
    total: Tensor = (losses * weights).sum() + DICE * (dice * weights.sum((1, 2))).sum()
    return total


def update_metrics(output: Tensor, batch: Any) -> dict[str, Tensor]:
    """Return SUMS over the pixels of this batch, tensors of any shape.

    They are added over all batches and all processes. Means do not add up, sums do.
    """
    _, mask = batch
    known = mask != IGNORE
    pairs = mask[known] * len(CLASSES) + output.argmax(dim=1)[known]
    confusion = torch.bincount(pairs, minlength=len(CLASSES) ** 2)
    return {
        "confusion": confusion.view(len(CLASSES), len(CLASSES)),  # [true class, predicted class]
        "loss": loss_sum(output.double(), batch),
        "weight": pixel_weights(mask).double().sum(),
    }


def compute_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Turn the sums over the whole validation set into the metrics to report.

    The mean IoU is over the classes that occur, in the masks or in the predictions.
    """
    confusion = sums["confusion"]
    hits = confusion.diagonal()
    union = confusion.sum(0) + confusion.sum(1) - hits
    iou = hits / union  # nan for a class that does not occur
    return {
        "loss": (sums["loss"] / sums["weight"]).item(),
        "miou": iou.nanmean().item(),
        **{f"iou_{name}": value for name, value in zip(CLASSES, iou.tolist(), strict=True)},
    }


def show(config: Config, model: nn.Module, validation_set: Dataset[Any]) -> dict[str, str | Tensor]:
    """Return one image: a few pictures, below them their masks, and what the model predicts."""
    count = min(6, len(validation_set))  # type: ignore[arg-type]
    images, masks = map(torch.stack, zip(*(validation_set[i] for i in range(count)), strict=True))
    predicted = model(images.to(next(model.parameters()).device)).argmax(dim=1).cpu()
    columns = torch.cat([images, paint(masks), paint(predicted)], dim=2)
    return {"predictions": torch.cat(list(columns), dim=2)}


def paint(mask: Tensor) -> Tensor:
    """Map classes (batch, height, width) to colours (batch, 3, height, width); white is IGNORE."""
    colours = COLOURS[mask.remainder(len(COLOURS))]
    return colours.where((mask != IGNORE).unsqueeze(-1), 1.0).movedim(-1, 1)
