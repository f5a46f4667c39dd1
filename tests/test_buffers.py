"""Which buffers DDP sends in each forward pass; test_features.py has those that are saved."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from generated import generate, imported
from torch import nn


class Codebook(nn.Module):
    """Has a buffer that training reads, or a constant."""

    def __init__(self, persistent: bool) -> None:
        """Register it."""
        super().__init__()
        self.register_buffer("codes", torch.zeros(2), persistent=persistent)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ModuleType]]:
    """Two modules of a generated project, in a process group of one process."""
    folder = tmp_path_factory.mktemp("buffers")
    with imported(generate(folder / "p"), "config", "distributed") as found:
        dist.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
        yield found
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("layer", "synchronized"),
    [
        (nn.Dropout(), False),
        (nn.BatchNorm1d(2), False),
        (nn.InstanceNorm1d(2, track_running_stats=True), False),
        (Codebook(persistent=False), False),
        (Codebook(persistent=True), True),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_they_are_those_that_a_training_step_reads(
    modules: list[ModuleType], layer: nn.Module, synchronized: bool
) -> None:
    """Left alone DDP sends all of them: one collective more in each step, mostly for nothing."""
    config, distributed = modules
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), layer)
    world = distributed.World(0, 0, 1, torch.device("cpu"))
    ddp = distributed.wrap_model(config.Config(), world, model)
    assert ddp.forward_sync_buffers is synchronized
