"""Samplers and DataLoaders over the datasets of data.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    Subset,
    TensorDataset,
    default_collate,
)

from batches import BatchPlan
from config import Config, SettingsError
from distributed import World
from sampler import ShuffledBatchSampler
from seeding import kept_random_state, seed_sample
from streams import StreamBatches
from workers import Loader, obey_parent

Batch = Any  # what the dataset's samples become when collated; Batch[0] is the model's input
Key = tuple[int, list[int]]  # the epoch and the indices of one batch


def build_train_loader(
    config: Config, world: World, plan: BatchPlan, dataset: Dataset[Any]
) -> tuple[ShuffledBatchSampler | StreamBatches, DataLoader[Batch]]:
    """Batches of this rank: every rank gets the same number, all different samples.

    A map-style dataset is shuffled; a stream (IterableDataset) comes in its own order.

    Raises:
        SettingsError: One step needs more samples than the dataset has.
    """
    if isinstance(dataset, IterableDataset):
        return _build_stream_loader(config, world, plan, dataset)
    if config.overfit_batches is not None:
        few = min(len(dataset), config.overfit_batches * plan.samples_per_pass)  # type: ignore[arg-type]
        dataset = Subset(dataset, range(few))
    try:
        sampler = ShuffledBatchSampler(
            len(dataset),  # type: ignore[arg-type]
            plan.batch_size,  # per process
            rank=world.rank,
            world_size=world.world_size,
            seed=config.seed,
        )
    except ValueError as error:  # one pass needs more samples than there are
        raise SettingsError(str(error)) from None
    _refuse_less_than_a_step(plan, len(sampler), sampler.size)
    return sampler, _loader(config, world, dataset, sampler)


def _refuse_less_than_a_step(plan: BatchPlan, batches: int, size: int) -> None:
    if plan.steps(batches) == 0:
        raise SettingsError(
            f"one step needs {plan.samples_per_step} samples, but the training set has only {size}"
        )


def _build_stream_loader(
    config: Config, world: World, plan: BatchPlan, stream: IterableDataset[Any]
) -> tuple[StreamBatches, DataLoader[Batch]]:
    batches = StreamBatches(
        stream,
        plan,
        getattr(stream, "collate_fn", default_collate),
        rank=world.rank,
        seed=config.seed,
        limit=config.overfit_batches,
    )
    _refuse_less_than_a_step(plan, len(batches), batches.size)
    loader = Loader(
        batches,
        batch_size=None,  # they are whole batches
        collate_fn=_checked,
        num_workers=config.num_workers,  # started anew in each epoch, so that they know which it is
        pin_memory=world.device.type == "cuda",
        worker_init_fn=obey_parent,
        generator=torch.Generator(),
    )
    return batches, loader


def build_validation_loader(
    config: Config, world: World, plan: BatchPlan, dataset: Dataset[Any]
) -> tuple[ShardBatchSampler, DataLoader[Batch]]:
    """This rank's share of the validation set: each sample is on exactly one rank."""
    if isinstance(dataset, IterableDataset):
        raise SettingsError(
            "the validation set is a stream; metrics that are exact need __len__ and __getitem__: "
            "list(stream) has both"
        )
    # No DistributedSampler here: it would pad, and padded samples would count twice.
    sampler = ShardBatchSampler(
        len(dataset),  # type: ignore[arg-type]
        plan.batch_size,
        rank=world.rank,
        world_size=world.world_size,
    )
    return sampler, _loader(config, world, dataset, sampler)


class ShardBatchSampler(Sampler[Key]):
    """Batches of the indices rank, rank + world_size, ... without padding.

    A rank without any sample gets index 0 as a batch to learn the shapes from; `is_empty` then
    says that it must not count.
    """

    def __init__(self, size: int, batch_size: int, *, rank: int, world_size: int) -> None:
        if size < 1:
            raise SettingsError("the validation set is empty; build_datasets must return samples")
        self.indices = range(rank, size, world_size)
        self.batch_size = batch_size
        self.is_empty = not self.indices
        self.batches_on_every_rank = -(-(size // world_size) // batch_size)

    def __len__(self) -> int:
        """Batches of this rank; it may be one more or less than that of another rank."""
        return max(1, -(-len(self.indices) // self.batch_size))

    def __iter__(self) -> Iterator[Key]:
        """Yield (0, indices); a validation sample is the same in each epoch."""
        indices = self.indices or range(1)
        for start in range(0, len(indices), self.batch_size):
            yield 0, list(indices[start : start + self.batch_size])


class Batches(Dataset[Batch]):
    """The owner's dataset, asked for a whole batch at a time.

    Each sample is fetched with random states of its own (seed_sample). A dataset may bring its
    own `collate_fn(samples) -> batch`; it is found inside a Subset too (random_split).
    """

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset = dataset
        self.seed = seed
        # Not those of a subclass: its owner may change what comes out, to augment it for example.
        self.tensors = dataset.tensors if type(dataset) is TensorDataset else ()
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        self.collate = getattr(dataset, "collate_fn", default_collate)

    def __getitem__(self, key: Key) -> Batch:
        """Return the collated batch."""
        epoch, indices = key
        if self.tensors and self.collate is default_collate:  # nothing random, so all at once
            rows = torch.tensor(indices)
            return tuple(tensor[rows] for tensor in self.tensors)
        with kept_random_state():  # without workers, dropout draws from the same states
            return self.collate([self._sample(epoch, index) for index in indices])

    def _sample(self, epoch: int, index: int) -> Any:
        seed_sample(self.seed, epoch, index)
        return self.dataset[index]


def _loader(
    config: Config, world: World, dataset: Dataset[Any], sampler: Sampler[Key]
) -> DataLoader[Batch]:
    workers = config.num_workers
    return Loader(
        Batches(dataset, config.seed),
        sampler=sampler,
        batch_size=None,  # the sampler yields whole batches
        collate_fn=_checked,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=world.device.type == "cuda",
        worker_init_fn=obey_parent,
        generator=torch.Generator(),  # or each new iterator would draw from the dropout's state
    )


def _checked(batch: Batch) -> Batch:
    """Return the batch as it is; of a bare tensor, batch[0] would be one sample and no input."""
    if not isinstance(batch, (tuple, list)):
        raise SettingsError(
            f"a batch is a {type(batch).__name__}, but its first element has to be the model's "
            "input: let the samples of build_datasets be tuples, (x, target) or (x,)"
        )
    return batch


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Copy a batch to the device: tensors, and what has a `to`, in tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if hasattr(batch, "to"):  # a PackedSequence, what a tokenizer returns, a graph
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
