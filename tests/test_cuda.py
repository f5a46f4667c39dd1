"""What only a GPU would show, seen here by standing in for CUDA and for nothing else."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from generated import generate, imported
from torch import nn

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
SECOND_GPU = torch.device("cuda", 1)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The modules of a generated project, by name."""
    names = ["config", "batches", "distributed", "loaders", "optim", "checkpoint", "state"]
    with imported(generate(tmp_path_factory.mktemp("cuda") / "p"), *names) as found:
        yield dict(zip(names, found, strict=True))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls, in order, on a machine with two GPUs and without a process group."""
    made: list[Call] = []

    def stand_in(owner: object, name: str, result: object = None) -> None:
        def call(*arguments: object, **options: object) -> object:
            made.append((name, arguments, options))
            return result

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    stand_in(torch.cuda, "set_device")
    for name in ("init_process_group", "barrier", "destroy_process_group"):
        stand_in(dist, name)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "STORE_FILE"):
        monkeypatch.delenv(name, raising=False)
    return made


def be_rank(monkeypatch: pytest.MonkeyPatch, rank: int, local_rank: int, world_size: int) -> None:
    """Set what torchrun sets."""
    for name, value in (("RANK", rank), ("LOCAL_RANK", local_rank), ("WORLD_SIZE", world_size)):
        monkeypatch.setenv(name, str(value))


def test_the_second_process_of_the_third_machine_takes_the_second_gpu(
    modules: dict[str, ModuleType], calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is set before the group is made, and both know it.

    Red with RANK in place of LOCAL_RANK, with set_device after init_process_group, and without
    device_id: NCCL would guess, and open a context of every rank on GPU 0.
    """
    be_rank(monkeypatch, rank=5, local_rank=1, world_size=6)
    world = modules["distributed"].setup_ddp("auto", timeout=30.0)
    assert (world.rank, world.local_rank, world.world_size) == (5, 1, 6)
    assert world.device == SECOND_GPU
    assert not world.is_main
    assert [name for name, _, _ in calls] == ["set_device", "init_process_group"]
    assert calls[0][1] == (SECOND_GPU,)
    backend, options = calls[1][1], calls[1][2]
    assert backend == ("nccl",)
    assert options["device_id"] == SECOND_GPU
    assert (options["rank"], options["world_size"]) == (5, 6)
    assert options["timeout"] == timedelta(seconds=30)


def test_one_process_takes_the_first_gpu_and_makes_no_group(
    modules: dict[str, ModuleType], calls: list[Call]
) -> None:
    world = modules["distributed"].setup_ddp()
    assert (world.device, world.is_main) == (torch.device("cuda", 0), True)
    assert calls == [("set_device", (torch.device("cuda", 0),), {})]


def test_the_cpu_can_be_asked_for_where_there_are_gpus(
    modules: dict[str, ModuleType], calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when the backend follows what is there: NCCL does not reduce tensors of the CPU."""
    be_rank(monkeypatch, rank=1, local_rank=1, world_size=2)
    world = modules["distributed"].setup_ddp("cpu")
    assert world.device == torch.device("cpu")
    [(name, backend, options)] = calls
    assert (name, backend, options["device_id"]) == ("init_process_group", ("gloo",), None)


def test_a_run_on_the_cpu_leaves_the_gpus_alone(
    modules: dict[str, ModuleType], calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a checkpoint asks for the random state of a GPU because there is one.

    That makes a context on the first GPU, of half a gigabyte, in every process.
    """
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: pytest.fail("a GPU was asked"))
    [states] = modules["state"].gather_random_states()
    assert states["cuda"] is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: torch.zeros(16))
    [states] = modules["state"].gather_random_states()
    assert states["cuda"] is not None


@pytest.mark.parametrize(("gpus", "proposal"), [(2, "NPROC=2"), (1, "NPROC=1")])
def test_a_process_without_a_gpu_says_how_many_to_start(
    modules: dict[str, ModuleType],
    calls: list[Call],
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    proposal: str,
) -> None:
    """In place of "invalid device ordinal"; and before anything was set or made."""
    be_rank(monkeypatch, rank=3, local_rank=3, world_size=4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(RuntimeError, match=rf"process 4 .* {gpus} visible GPU.*\({proposal} "):
        modules["distributed"].setup_ddp("cuda")
    assert calls == []


@pytest.mark.parametrize(("backend", "pause"), [("nccl", 0), ("gloo", 1)])
def test_the_end_waits_for_all_and_only_gloo_needs_a_pause(
    modules: dict[str, ModuleType],
    calls: list[Call],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    pause: int,
) -> None:
    """Red without the barrier: rank 0 hosts the store that the others still talk to."""
    pauses: list[float] = []
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: backend)
    monkeypatch.setattr(modules["distributed"].time, "sleep", pauses.append)
    modules["distributed"].cleanup_ddp()
    assert [name for name, _, _ in calls] == ["barrier", "destroy_process_group"]
    assert len(pauses) == pause


class Wrapped(nn.Module):
    """Stands in for DistributedDataParallel, which would look for a process group."""

    def __init__(self, module: nn.Module, **options: object) -> None:
        super().__init__()
        self.module, self.options = module, options
        self.hooks: list[object] = []

    def register_comm_hook(self, state: object, hook: object) -> None:
        self.hooks.append(hook)


def wrap(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, device: str, **settings: bool
) -> Wrapped:
    """Return a model with BatchNorm as `wrap_model` wraps it on a device."""
    distributed = modules["distributed"]
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "DDP", Wrapped)
    world = distributed.World(5, 1, 6, torch.device(device))
    config = modules["config"].Config(**settings)
    wrapped = distributed.wrap_model(
        config, world, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    )
    assert isinstance(wrapped, Wrapped)
    return wrapped


@pytest.mark.parametrize(("device", "device_ids"), [("cuda:1", [1]), ("cpu", None)])
def test_ddp_gets_the_gpu_of_this_process_alone(
    modules: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    device_ids: list[int] | None,
) -> None:
    """`output_device` never: on a CPU it fails on every rank but 0, which then waits for ever."""
    wrapped = wrap(modules, monkeypatch, device)
    assert wrapped.options["device_ids"] == device_ids
    assert "output_device" not in wrapped.options
    assert wrapped.options["find_unused_parameters"] is False
    assert not wrapped.hooks
    assert type(wrapped.module[1]) is nn.BatchNorm1d  # type: ignore[index]


def test_synchronized_batchnorm_is_in_place_before_ddp_sees_the_model(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = wrap(modules, monkeypatch, "cuda:1", sync_bn=True, bf16_gradients=True)
    assert type(wrapped.module[1]) is nn.SyncBatchNorm  # type: ignore[index]
    assert wrapped.hooks == [modules["distributed"].bf16_compress_hook]


@pytest.mark.parametrize(("device", "pinned"), [("cuda:1", True), ("cpu", False)])
def test_memory_is_pinned_for_a_gpu_only(
    modules: dict[str, ModuleType], device: str, pinned: bool
) -> None:
    """On a CPU torch warns of it."""
    world = modules["distributed"].World(0, 0, 1, torch.device(device))
    config = modules["config"].Config(batch_size=2)
    plan = modules["batches"].plan_batches(config, 1)
    dataset = torch.utils.data.TensorDataset(torch.zeros(4, 1))
    for build in ("build_train_loader", "build_validation_loader"):
        _, loader = getattr(modules["loaders"], build)(config, world, plan, dataset)
        assert loader.pin_memory is pinned


def test_copies_to_the_gpu_do_not_wait(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[torch.device, bool]] = []

    def to(tensor: torch.Tensor, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        seen.append((device, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)
    batch = {"image": torch.zeros(1), "boxes": [(torch.zeros(1), 3)]}
    assert modules["loaders"].to_device(batch, SECOND_GPU) == batch
    assert seen == [(SECOND_GPU, True)] * 2


@pytest.mark.parametrize(
    ("precision", "cast", "scaled"),
    [
        ("fp32", [], False),
        ("bf16", [("cuda", torch.bfloat16)], False),
        ("fp16", [("cuda", torch.float16)], True),
    ],
)
def test_precision_is_for_the_device_of_this_process(
    modules: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    cast: list[tuple[str, torch.dtype]],
    scaled: bool,
) -> None:
    """Red with "cuda" or "cpu" written out; only fp16 has gradients that need a scale."""
    seen: list[tuple[Any, ...]] = []
    one = torch.ones(())
    monkeypatch.setattr(torch, "ones", lambda *size, device: one)
    monkeypatch.setattr(
        torch.amp, "GradScaler", lambda device, enabled: seen.append((device, enabled))
    )
    monkeypatch.setattr(torch, "autocast", lambda device, dtype: seen.append((device, dtype)))
    config = modules["config"].Config(precision=precision)
    plan = modules["batches"].plan_batches(config, 1)
    stepper = modules["optim"].Stepper(config, plan, nn.Linear(1, 1), SECOND_GPU, batches=1)
    stepper.autocast()
    assert seen == [("cuda", scaled), *cast]


def test_a_checkpoint_is_read_into_host_memory(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the tensors of all ranks would come back on the GPU they were saved from, GPU 0."""
    path = tmp_path / "step.pt"
    modules["checkpoint"].write_checkpoint({"weight": torch.ones(2)}, path)
    original, seen = torch.load, list[dict[str, Any]]()

    def load(file: Path, **options: Any) -> Any:
        seen.append(options)
        return original(file, **options)

    monkeypatch.setattr(torch, "load", load)
    modules["checkpoint"].read_checkpoint(path)
    assert [(o["map_location"], o["weights_only"]) for o in seen] == [("cpu", True)]
