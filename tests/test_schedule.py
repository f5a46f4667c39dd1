"""Batches and learning rates follow from the settings, whatever the number of processes is."""

import re
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from generated import generate, imported
from hypothesis import assume, given
from hypothesis import strategies as st

SCHEDULES = st.sampled_from(["constant", "cosine", "linear", "one-cycle"])
SIZES = st.integers(1, 300)


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """The modules of a project that decide about batches and learning rates."""
    names = ["config", "batches", "optim", "sampler", "state"]
    with imported(generate(tmp_path_factory.mktemp("schedule") / "p"), *names) as found:
        yield dict(zip(names, found, strict=True))


@given(schedule=SCHEDULES, warmup=st.integers(0, 60), total=st.integers(1, 200))
def test_the_learning_rate_rises_to_its_peak_and_then_never_again(
    modules: dict[str, ModuleType], schedule: str, warmup: int, total: int
) -> None:
    """Protects each formula of `learning_rate_factor`."""
    config = modules["config"].Config(schedule=schedule, warmup_steps=warmup)
    factors = [modules["optim"].learning_rate_factor(config, step, total) for step in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    top = warmup or (max(1, round(0.3 * total)) if schedule == "one-cycle" else 0)
    assert factors[:top] == pytest.approx([(step + 1) / top for step in range(min(top, total))])
    after = factors[top:]
    assert all(later <= earlier for earlier, later in pairwise(after))
    if not after:
        return  # the warm-up is longer than the run
    assert after[0] == 1
    if schedule == "constant":
        assert set(after) == {1}
    else:  # strictly down, and the step after the last one would be at zero
        assert len(set(after)) == len(after)
        assert after[-1] <= 1 / len(after) + 1e-9


@given(total=st.integers(1, 4096), batch_size=st.integers(1, 64), world_size=st.integers(1, 64))
def test_the_global_batch_is_kept_or_refused_with_numbers_that_work(
    modules: dict[str, ModuleType], total: int, batch_size: int, world_size: int
) -> None:
    """Protects `plan_batches`: the remainder, the search for the passes, and its two proposals."""
    config_py, batches = modules["config"], modules["batches"]
    config = config_py.Config(global_batch_size=total, batch_size=batch_size)
    if total % world_size == 0:
        plan = batches.plan_batches(config, world_size)
        assert plan.samples_per_step == total
        assert 1 <= plan.batch_size <= batch_size
        share = total // world_size
        divisors = [passes for passes in range(1, share + 1) if share % passes == 0]
        assert plan.accumulate == min(n for n in divisors if share // n <= batch_size)
        return
    with pytest.raises(config_py.SettingsError, match=f"{total} cannot be shared") as error:
        batches.plan_batches(config, world_size)
    proposals = [int(n) for n in re.findall(r"\d+", str(error.value).split("; use ")[1])]
    assert proposals
    for proposal in proposals:
        assert abs(proposal - total) < world_size
        other = config_py.Config(global_batch_size=proposal, batch_size=batch_size)
        assert batches.plan_batches(other, world_size).samples_per_step == proposal


def steps_of_an_epoch(
    modules: dict[str, ModuleType], config: Any, world_size: int, size: int
) -> list[tuple[list[int], float]]:
    """Return, for each step of the second epoch, the samples of all ranks and the learning rate."""
    plan = modules["batches"].plan_batches(config, world_size)
    ranks = []
    for rank in range(world_size):
        sampler = modules["sampler"].ShuffledBatchSampler(
            size, plan.batch_size, rank=rank, world_size=world_size, seed=0
        )
        sampler.set_epoch(1)
        ranks.append(list(modules["batches"].windows(sampler, plan)))
    model = torch.nn.Linear(1, 1)
    stepper = modules["optim"].Stepper(
        config, plan, model, torch.device("cpu"), batches=len(sampler)
    )
    progress = modules["state"].Progress(epoch=1)
    steps = []
    for windows in zip(*ranks, strict=True):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        stepper.step(progress)
        passes = [batch for window in windows for batch in window]
        samples = sorted(index for _, indices in passes for index in indices)
        steps.append((samples, stepper.optimizer.param_groups[0]["lr"]))
        progress.position += len(windows[0]) * plan.samples_per_pass
    return steps


@given(
    schedule=SCHEDULES,
    size=SIZES,
    batch_size=st.integers(1, 16),
    share=st.integers(1, 12),
    worlds=st.lists(st.integers(1, 6), min_size=2, max_size=2, unique=True),
)
def test_with_a_global_batch_the_number_of_processes_changes_no_step(
    modules: dict[str, ModuleType],
    schedule: str,
    size: int,
    batch_size: int,
    share: int,
    worlds: list[int],
) -> None:
    """The same samples at the same learning rate in each step, to the end of the epoch.

    Red without `whole_steps`: the passes that are left at the end of an epoch made one step more
    on some numbers of processes, and so another schedule as well.
    """
    total = share * worlds[0] * worlds[1]
    assume(total <= size)
    config = modules["config"].Config(
        global_batch_size=total, batch_size=batch_size, schedule=schedule, warmup_steps=1, epochs=3
    )
    one, other = (steps_of_an_epoch(modules, config, world, size) for world in worlds)
    assert len(one) == size // total
    assert one == other


@given(size=SIZES, batch_size=st.integers(1, 9), passes=st.integers(1, 6), world=st.integers(1, 4))
def test_accumulation_leaves_no_batch_out(
    modules: dict[str, ModuleType], size: int, batch_size: int, passes: int, world: int
) -> None:
    """The last window of an epoch may be shorter; it is a step, and the schedule counts it."""
    assume(batch_size * world <= size)
    config = modules["config"].Config(batch_size=batch_size, accumulate=passes)
    steps = steps_of_an_epoch(modules, config, world, size)
    batches = size // (batch_size * world)
    assert sum(len(samples) for samples, _ in steps) == batches * batch_size * world
    assert len(steps) == modules["batches"].plan_batches(config, world).steps(batches)
