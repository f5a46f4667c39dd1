"""A copy of a training state in host memory, so that training goes on while it is written."""

import copy
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor


class Snapshot:
    """Copies states; the tensors of the last copy are overwritten by the next.

    The buffers are kept because fresh memory costs more than the copy itself. For CUDA tensors they
    are pinned, and all transfers run before one wait.
    """

    def __init__(self) -> None:
        """Buffers come with the first state."""
        self._buffers: dict[Hashable, Tensor] = {}

    @torch.no_grad()
    def take(self, state: dict[str, Any]) -> dict[str, Any]:
        """Deep copy of `state`, nested dictionaries, lists and tuples, its tensors on the CPU.

        Tensors that are the same memory (tied weights) are one tensor in the copy as well.
        """
        spare, self._buffers = self._buffers, {}
        copies: dict[Hashable, Tensor] = {}
        memo: dict[int, Any] = {}  # what deepcopy puts in the place of each tensor
        tensors = list(_tensors(state))
        for tensor in tensors:
            layout = (tensor.device, tensor.dtype, tensor.shape, tensor.stride())
            memory = (tensor.data_ptr(), layout)
            if memory not in copies:
                slot = (len(copies), layout)
                buffer = spare.get(slot)
                if buffer is None:
                    buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
                buffer.copy_(tensor, non_blocking=tensor.is_cuda)
                copies[memory] = self._buffers[slot] = buffer
            memo[id(tensor)] = copies[memory]
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            torch.cuda.synchronize(device)
        return copy.deepcopy(state, memo)


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in nested dictionaries, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
