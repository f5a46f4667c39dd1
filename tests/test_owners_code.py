"""What owners change first: the datasets that come with torch, their batches, the optimizer."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from generated import generate, imported
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.optim import SGD
from torch.utils.data import Dataset, TensorDataset
from transformers import BatchEncoding

NAMES = ["config", "batches", "distributed", "loaders", "optim", "state"]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The modules of a generated project."""
    with imported(generate(tmp_path_factory.mktemp("owners") / "p"), *NAMES) as found:
        yield dict(zip(NAMES, found, strict=True))


class Doubled(TensorDataset):
    """Tensors with an augmentation, as they are often made."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        """Return a sample, changed."""
        return tuple(2 * tensor[index] for tensor in self.tensors)


def negated(*tensors: Tensor) -> TensorDataset:
    """Return tensors that are collated in a way of their own."""
    dataset = TensorDataset(*tensors)
    dataset.collate_fn = lambda samples: [  # type: ignore[attr-defined]
        -torch.stack(values) for values in zip(*samples, strict=True)
    ]
    return dataset


@pytest.mark.parametrize(("kind", "factor"), [(TensorDataset, 1), (Doubled, 2), (negated, -1)])
def test_a_dataset_of_tensors_is_asked_for_its_samples(
    modules: dict[str, ModuleType], kind: Callable[..., TensorDataset], factor: int
) -> None:
    """Protects both conditions of the short cut in loaders.py; without a word it took the rows."""
    numbers = torch.arange(8.0)
    batches = modules["loaders"].Batches(kind(numbers, -numbers), seed=0)
    one, other = batches[(0, [1, 5])]
    assert one.tolist() == [factor, 5 * factor]
    assert other.tolist() == [-factor, -5 * factor]


class Lone(Dataset[Any]):
    """Samples that are no tuples."""

    def __init__(self, sample: Any) -> None:
        """Make eight of them."""
        self.sample = sample

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        """Return it."""
        return self.sample


@pytest.mark.parametrize("sample", [torch.ones(3), {"x": torch.ones(3)}])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_without_a_first_element_is_refused(
    modules: dict[str, ModuleType], sample: Any, workers: int
) -> None:
    """Protects `_checked`: of a batch of tensors the model would get one sample, without a word."""
    config = modules["config"].Config(batch_size=4, num_workers=workers)
    world = modules["distributed"].World(0, 0, 1, torch.device("cpu"))
    plan = modules["batches"].plan_batches(config, 1)
    for build in ("build_train_loader", "build_validation_loader"):
        _, loader = getattr(modules["loaders"], build)(config, world, plan, Lone(sample))
        with pytest.raises(modules["config"].SettingsError, match=r"\(x, target\) or \(x,\)"):
            next(iter(loader))
    _, loader = modules["loaders"].build_train_loader(config, world, plan, Lone((sample,)))
    assert len(next(iter(loader))) == 1


def test_what_has_a_to_is_moved_by_it(modules: dict[str, ModuleType]) -> None:
    """The lengths of a PackedSequence have to stay on the CPU, so no loop over its fields will do.

    The device without memory stands in for a GPU.
    """
    packed = pack_sequence([torch.ones(3, 4), torch.ones(2, 4)])
    encoding = BatchEncoding({"input_ids": torch.ones(2, 5)})
    batch = modules["loaders"].to_device((packed, [{"words": encoding}]), torch.device("meta"))
    moved, [named] = batch
    assert isinstance(moved, PackedSequence)
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("meta", "cpu")
    assert named["words"]["input_ids"].device.type == "meta"


def two_groups(config: Any, model: nn.Linear) -> SGD:
    """Return what most people make of build_optimizer: no decay for biases, and a slower part."""
    return SGD(
        [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.1 * config.lr}],
        config.lr,
        fused=True,
    )


def test_an_optimizer_may_have_several_groups(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects `weights` and `peaks` in optim.py.

    The gradients of a group that is left out would never be forgotten, clipped or looked at.
    """
    monkeypatch.setattr(modules["optim"], "build_optimizer", two_groups)
    config = modules["config"].Config(lr=1.0, schedule="linear", epochs=4, scale_lr="linear")
    plan = modules["batches"].BatchPlan(batch_size=32, accumulate=2, world_size=1)
    model = nn.Linear(3, 1)
    stepper = modules["optim"].Stepper(config, plan, model, torch.device("cpu"), batches=4)
    progress = modules["state"].Progress()
    rates = []
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        stepper.step(progress)
        assert [weight.grad for weight in model.parameters()] == [None, None]
        rates.append([group["lr"] for group in stepper.optimizer.param_groups])
        progress.epoch += 1
    assert rates == [[2.0, pytest.approx(0.2)], [1.5, pytest.approx(0.15)]]

    before = [weight.detach().clone() for weight in model.parameters()]
    model(torch.ones(2, 3)).sum().backward()
    assert model.bias.grad is not None
    model.bias.grad.fill_(float("inf"))
    stepper.step(progress)
    for weight, expected in zip(model.parameters(), before, strict=True):
        assert torch.equal(weight, expected)
