"""A run that was interrupted ends as if it had never been: to the bit, each sample once."""

import signal
from functools import partial

import torch
from faults import NOTE, Project

# All that has a state of its own: moments, an average, a schedule, windows of two batches.
OPTIONS = (
    *("--batch-size", "8", "--accumulate", "2", "--epochs", "3", "--log-every", "3"),
    *("--ema-decay", "0.9", "--schedule", "cosine", "--warmup-steps", "3", "--clip-grad-norm", "1"),
)
NOTE_LOSS = """
_loss_fn = loss_fn

def loss_fn(output, batch):
    loss = _loss_fn(output, batch)
    if loss.requires_grad:
        note(loss.item().hex())
    return loss
"""
NOTE_INDEX = """
class Noting(Pictures):
    def __getitem__(self, index):
        note(index)
        return super().__getitem__(index)

_build_datasets = build_datasets

def build_datasets(config):
    train, validation = _build_datasets(config)
    train.__class__ = Noting
    return train, validation
"""


def test_the_losses_after_an_interruption_are_those_of_the_undisturbed_run(
    project: Project,
) -> None:
    """Protects `random` and `position` in state.py, the EMA and the optimizer in optim.py.

    And `seed_sample` and `kept_random_state` in loaders.py: without them the augmentation depends
    on the number of DataLoader workers and on where they started.
    """
    project.append("model.py", NOTE + NOTE_LOSS)
    assert project.run(*OPTIONS).code == 0
    undisturbed, state = project.take_notes(), project.state()
    assert [len(losses) for losses in undisturbed] == [75, 75]  # 3 epochs of 25 batches
    assert undisturbed[0] != undisturbed[1]

    for workers in ("0", "2"):
        name = f"workers{workers}"
        options = (*OPTIONS, "--num-workers", workers, "--name", name)
        job = project.start(*options, "--save-every-steps", "5")
        job.until(partial(has_saved, project, name, 15), "in the second epoch")
        job.send(signal.SIGKILL, rank=1)
        assert job.wait() == 1, job.output
        before, progress = project.take_notes(), project.state(name)["progress"]
        used = 25 * progress["epoch"] + progress["position"] // 16  # batches on each rank
        assert 25 < used < 75

        assert project.run(*options).code == 0
        after = project.take_notes()
        for rank in (0, 1):
            assert before[rank] == undisturbed[rank][: len(before[rank])]
            assert after[rank] == undisturbed[rank][used:]
        assert_equal(project.state(name), state)


def has_saved(project: Project, name: str, step: int) -> bool:
    """Say whether there is a checkpoint of this step or of a later one."""
    return max(project.steps(name), default=0) >= step


def assert_equal(one: object, other: object, path: str = "") -> None:
    """Compare two states to the bit, apart from the settings that name a run."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        assert torch.equal(one, other), path
    elif isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), path
        for key in one.keys() - {"name", "num_workers", "save_every_steps"}:
            assert_equal(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other), path
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_equal(left, right, f"{path}/{number}")
    else:
        assert one == other, path


def test_another_number_of_processes_sees_each_sample_once(project: Project) -> None:
    """Protects `position` in state.py and `start` in sampler.py: one place in one permutation."""
    steps = {1: 7, 3: 7, 4: 7, 2: 7}  # of batches of 4 samples
    size = 4 * sum(processes * count for processes, count in steps.items()) + 5 * 12
    project.write_data(size, 8)
    project.append("data.py", NOTE + NOTE_INDEX)
    seen: list[int] = []
    step = 0
    for processes, count in steps.items():
        step += count
        options = ("--epochs", "1", "--batch-size", "4", "--limit-steps", str(step))
        assert project.run(*options, processes=processes).code == 0
        notes = project.take_notes(processes)
        assert [len(indices) for indices in notes] == [4 * count] * processes
        seen += [int(index) for indices in notes for index in indices]
    assert project.run("--epochs", "1", "--batch-size", "4", processes=3).code == 0
    seen += [int(index) for indices in project.take_notes(3) for index in indices]
    assert sorted(seen) == list(range(size))
