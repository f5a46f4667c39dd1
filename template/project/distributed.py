"""What this process knows of the others: set-up and clean-up, DDP, reductions, rank guards."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP

from config import Config, SettingsError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among all processes of the run."""

    rank: int  # identity over all machines, 0 <= rank < world_size
    local_rank: int  # position on this machine: it picks the GPU and nothing else
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """True on the one process that prints and writes files: global rank 0.

        Never put a collective (reduce_*, sum_over_ranks, barrier, a DDP forward) behind it: the
        other ranks would not take part and the run would hang.
        """
        return self.rank == 0

    @property
    def no_bar(self) -> bool | None:
        """Whether tqdm shows nothing; None lets it decide: it shows a bar on a terminal only."""
        return None if self.is_main else True

    def print(self, message: str) -> None:
        """Print once for all ranks."""
        if self.is_main:
            print(message, flush=True)


def setup_ddp(device: str = "auto", timeout: float = 600.0) -> World:
    """Join the process group that torchrun describes in the environment. Call on every rank.

    Without torchrun (`python train.py`) there is no group and the world is this one process.

    Args:
        device: auto, cpu or cuda. auto is CUDA where a GPU is visible.
        timeout: seconds after which a collective that waits for a missing rank fails.

    Raises:
        SettingsError: CUDA was asked for and no GPU is visible.
        RuntimeError: There are fewer visible GPUs than processes on this machine.
    """
    rank, local_rank, world_size = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
    )
    where = _pick_device(device, local_rank)
    if where.type == "cuda":
        torch.cuda.set_device(where)  # before the group and the first tensor, or all land on GPU 0
    if "RANK" in os.environ and not dist.is_initialized():
        dist.init_process_group(
            "nccl" if where.type == "cuda" else "gloo",
            init_method=_meeting_place(),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout),
            device_id=where if where.type == "cuda" else None,
        )
    return World(rank, local_rank, world_size, where)


def _meeting_place() -> str:
    """Say where the processes find each other: in launch.py's file, or at torchrun's address."""
    if "STORE_FILE" not in os.environ:
        return "env://"
    # What a crashed process wrote must not be read after a restart.
    return f"file://{os.environ['STORE_FILE']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"


def _pick_device(device: str, local_rank: int) -> torch.device:
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if count == 0:
        raise SettingsError("device is cuda, but no GPU is visible (nvidia-smi lists them)")
    if local_rank >= count:
        raise RuntimeError(
            f"process {local_rank + 1} of this machine finds {count} visible GPU(s); "
            f"start one process for each (NPROC={count} ./launch.sh) or use --device cpu"
        )
    return torch.device("cuda", local_rank)


def cleanup_ddp() -> None:
    """Leave the process group. Call on every rank, and only after success.

    After an error no collective may run: the other ranks would wait in it, or this one for them.
    The exception ends the process, and torchrun ends the others.
    """
    if not dist.is_initialized():
        return
    gloo = dist.get_backend() == "gloo"
    gc.collect()  # the DDP object goes first: its destructor can wait for ever on a destroyed group
    dist.barrier()  # rank 0 hosts the store: nobody leaves before all are done with it
    dist.destroy_process_group()
    if gloo:
        # A gloo thread may still need the GIL while the interpreter shuts down, and then aborts.
        # https://github.com/pytorch/pytorch/issues/179291
        time.sleep(0.1)


def wrap_model(config: Config, world: World, model: nn.Module) -> nn.Module:
    """Let DDP average the gradients over the ranks, and compile if asked to. Call on every rank.

    The model must be complete and have its weights: DDP does not see later layers, and it gives
    every rank the weights of rank 0 now and never again. Without a process group there is no need
    of it.
    """
    on_gpu = world.device.type == "cuda"
    if (config.sync_bn or config.bf16_gradients) and not on_gpu:
        raise SettingsError("sync_bn and bf16_gradients need GPUs; leave them out on a CPU")
    if dist.is_initialized():
        if config.sync_bn:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = DDP(
            model,
            device_ids=[world.device.index] if on_gpu else None,  # the GPU of this process only
            gradient_as_bucket_view=True,  # one copy of the gradients less
            forward_sync_buffers=_reads_state(model),  # or it would broadcast in each forward pass
            find_unused_parameters=config.find_unused_parameters,
            static_graph=config.static_graph,
        )
        if config.bf16_gradients:
            model.register_comm_hook(None, bf16_compress_hook)
    if config.compile:
        model.compile()  # in place: the names in a checkpoint stay as they are
    return model


def state_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return, by name, what training may change besides the weights: the buffers of a checkpoint.

    A buffer that is registered with persistent=False is a constant.
    """
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}


def _reads_state(model: nn.Module) -> bool:
    """Say whether a training step reads such a buffer, so that it must be that of rank 0.

    BatchNorm and InstanceNorm read theirs, the running statistics, only in evaluation.
    """
    owners = (model.get_submodule(name.rpartition(".")[0]) for name in state_buffers(model))
    return not all(isinstance(owner, nn.modules.batchnorm._NormBase) for owner in owners)


def share_buffers(model: nn.Module) -> None:
    """Give every rank the buffers of rank 0, which are those that are saved.

    A collective for a model that has any: call on every rank.
    """
    if dist.is_initialized():
        for buffer in state_buffers(model).values():
            dist.broadcast(buffer, src=0)


def no_sync(model: nn.Module, when: bool) -> AbstractContextManager[None]:
    """Leave the gradients of this pass on this rank: only the last pass of a step is averaged.

    It must enclose the forward pass too: around backward() alone it saves no communication.
    """
    if not when or not isinstance(model, DDP):
        return nullcontext()
    if not getattr(model, "_static_graph_delay_allreduce_enqueued", True):
        return nullcontext()  # a static graph is recorded in the first pass, which must be averaged
    return model.no_sync()


def reduce_tensor(tensor: Tensor) -> Tensor:
    """Mean over ranks, elementwise, in a new detached tensor. A collective: call on every rank.

    Args:
        tensor: any shape, same shape and dtype on every rank, on this rank's device; unchanged.

    Returns:
        The mean; floating-point (an integer tensor gives float64).
    """
    mean = tensor.detach().clone()
    if not mean.is_floating_point():
        mean = mean.double()
    if dist.is_initialized():
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
    return mean


def reduce_loss(loss: Tensor) -> float:
    """Mean of a scalar over ranks, for logging. A collective: call on every rank.

    Call it after backward(), never on the tensor that backward() is called on afterwards: DDP
    already averages the gradients, so a reduced loss would divide them by world_size again.
    It waits for the device, so call it in steps that log and not in each.
    """
    return reduce_tensor(loss).item()


def on_main_process(world: World, function: Callable[[], T]) -> T:
    """Call the function on global rank 0 alone; return its result on every rank.

    A collective: call on every rank. Its exception is raised on every rank too, so that nobody
    waits for a rank that has failed.
    """
    outcome: list[Any] = [None, None]
    if world.is_main:
        try:
            outcome[0] = function()
        except Exception as error:
            outcome[1] = error
    if dist.is_initialized():
        dist.broadcast_object_list(outcome, src=0, device=world.device)
    result, failure = outcome
    if failure is not None:
        raise failure
    return cast(T, result)


def gather_from_ranks(value: T) -> list[T]:
    """Return the value of each rank, by rank. A collective: call on every rank.

    It pickles: good for a few numbers now and then, not for each step.
    """
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def sum_over_ranks(sums: dict[str, Tensor]) -> dict[str, Tensor]:
    """Sum each tensor over ranks, all in one collective. Call on every rank.

    Args:
        sums: the same names and shapes on every rank, on this rank's device; unchanged.

    Returns:
        The totals as float64 (counts are exact up to 2**53).
    """
    flat = torch.cat([value.detach().double().flatten() for value in sums.values()])
    if dist.is_initialized():
        dist.all_reduce(flat)
    parts = torch.split(flat, [value.numel() for value in sums.values()])
    return {key: part.view(sums[key].shape) for key, part in zip(sums, parts, strict=True)}
