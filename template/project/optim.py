"""The optimizer step: learning rate, precision, clipping, and what to do with a bad gradient."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from batches import BatchPlan
from config import Config, SettingsError
from state import Progress

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def build_optimizer(config: Config, model: nn.Module) -> Optimizer:
    """Optimize what can be trained. Fused kernels update all tensors at once."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    decay = config.weight_decay
    if config.optimizer == "sgd":
        return SGD(weights, config.lr, momentum=config.momentum, weight_decay=decay, fused=True)
    return AdamW(weights, config.lr, weight_decay=decay, fused=True)


def learning_rate_scale(config: Config, plan: BatchPlan) -> float:
    """Return what lr is multiplied by because the global batch is larger than batch_size."""
    ratio = plan.samples_per_step / config.batch_size
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[config.scale_lr]


def learning_rate_factor(config: Config, step: int, total: int) -> float:
    """Return what the peak learning rate is multiplied by in a step, 0 <= step < total.

    It depends on the optimizer step alone, so there is no schedule to save and none to replay.
    """
    warmup = config.warmup_steps
    if config.schedule == "one-cycle" and not warmup:
        warmup = max(1, round(0.3 * total))
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "linear":
        return 1.0 - done
    return 0.5 * (1.0 + math.cos(math.pi * done))  # cosine, and the way down of one-cycle


class Stepper:
    """Turns the gradients that backward() left into new weights.

    After DDP's all-reduce every rank has the same gradients. So every rank decides alike what is
    done with them, without asking the others.
    """

    def __init__(
        self,
        config: Config,
        plan: BatchPlan,
        model: nn.Module,
        device: torch.device,
        batches: int,
    ) -> None:
        """Build the optimizer; `batches` is the number of batches of a whole epoch on each rank."""
        self.config = config
        self.plan = plan
        self.model = model
        self.device = device
        self.optimizer = build_optimizer(config, model)
        groups = self.optimizer.param_groups  # one, but you may make several, each with its lr
        self.weights = [weight for group in groups for weight in group["params"]]
        self.steps_per_epoch = plan.steps(batches)
        scale = learning_rate_scale(config, plan)
        self.peaks = [group["lr"] * scale for group in groups]
        self.lr = self.peaks[0]  # of the first group: the one that is logged
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")
        self.ema = self._build_ema()
        self._one = torch.ones((), device=device)
        self.skips: list[Tensor] = []  # 1 or 0 for each step that is not counted yet
        self.skipped = self._in_a_row = 0

    def __str__(self) -> str:
        peak = f"{self.config.optimizer} lr {self.peaks[0]:g}"
        return f"{self.steps_per_epoch} steps per epoch, {peak}"

    def _build_ema(self) -> AveragedModel | None:
        decay = self.config.ema_decay
        if decay is None:
            return None
        return AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context for a forward pass and its loss."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, AUTOCAST[self.config.precision])

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of this loss; fp16 scales it, or small gradients would be zero."""
        self.scaler.scale(loss).backward()

    def step(self, progress: Progress) -> None:
        """Take the optimizer step that comes after this progress, and forget the gradients."""
        self._set_learning_rate(progress)
        self.scaler.unscale_(self.optimizer)  # before clipping, which looks at the true norm
        self._skip(self._not_finite())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for weight in self.weights:
            weight.grad = None  # as optimizer.zero_grad() does, in a fraction of its time
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    def _set_learning_rate(self, progress: Progress) -> None:
        """Follow the schedule by samples seen: right also after a resume with more processes."""
        step = progress.epoch * self.steps_per_epoch
        step += progress.position // self.plan.samples_per_step
        total = self.config.epochs * self.steps_per_epoch
        factor = learning_rate_factor(self.config, step, total)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        self.lr = self.peaks[0] * factor

    def _not_finite(self) -> Tensor:
        """Clip if asked to; return 1 when a gradient is not finite, 0 when all are."""
        if self.config.clip_grad_norm is not None:
            norm = nn.utils.clip_grad_norm_(self.weights, self.config.clip_grad_norm)
            return (~norm.isfinite()).float()
        bad = torch.zeros((), device=self.device)
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        # GradScaler's own kernel; as it scales by 1 here, it only looks, in one pass over them all.
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, bad, self._one)
        return bad

    def _skip(self, bad: Tensor) -> None:
        """Let the fused optimizer skip this step on the device: asking here would wait for it."""
        if not self.scaler.is_enabled():  # it has the same mechanism for fp16
            self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.skips.append(bad)  # the count can wait, too

    def count(self, skips: list[float]) -> None:
        """Count the skipped steps among those of `skips`, which exchange.run has read.

        Raises:
            SettingsError: So many in a row were skipped that training does not get anywhere. It is
                raised on every rank alike.
        """
        self.skips = []
        for skip in skips:
            self.skipped += bool(skip)
            self._in_a_row = self._in_a_row + 1 if skip else 0
        if self._in_a_row > self.config.max_skipped_steps:
            raise SettingsError(
                f"the gradients of {self._in_a_row} steps in a row were not finite "
                f"(max_skipped_steps {self.config.max_skipped_steps}); the weights are those of "
                "before. Try a lower --lr, --clip-grad-norm 1, or --precision fp32"
            )

    def evaluated_model(self) -> nn.Module:
        """Return the model to evaluate: the averaged weights when there are any."""
        return self.model if self.ema is None else self.ema.module

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on besides the model."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "skipped": self.skipped + sum(bool(skip) for skip in self.skips),
            "ema": self.ema and self.ema.module.state_dict(),  # loads into a bare model
            "ema_updates": self.ema and self.ema.n_averaged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state. Call it after the model has its weights."""
        groups = [dict(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, ours in zip(self.optimizer.param_groups, groups, strict=True):
            group.update(ours)  # weight decay and the like are those of now, not the saved ones
        if state["scaler"]:  # it has none when the precision was another one
            self.scaler.load_state_dict(state["scaler"])
        self.skipped = int(state["skipped"])
        self.ema = self._build_ema()  # when it is switched on now, the average starts here
        if self.ema is not None and state["ema"] is not None:
            self.ema.module.load_state_dict(state["ema"])
            self.ema.n_averaged.copy_(state["ema_updates"])
