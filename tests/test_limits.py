"""What a run refuses or bears: bad numbers, too little data, settings that changed underway."""

import math

import torch
from faults import Project

NAN = "if rank == 1 and calls in {calls}: return _loss_fn(*args) * float('nan')"
HASHES = """
if args[0].requires_grad:
    import hashlib
    data = [weight.detach().numpy().tobytes() for weight in MODELS[0].parameters()]
    note(hashlib.sha256(b"".join(data)).hexdigest())
"""
KEEP_MODEL = """
MODELS = []
_build_model = build_model

def build_model(config):
    MODELS.append(_build_model(config))
    return MODELS[0]
"""


def test_a_loss_that_is_not_finite_on_one_rank_is_skipped_on_all(project: Project) -> None:
    """Protects `_skip` and `count` in optim.py, and `isfinite` in meter.py."""
    project.append("model.py", KEEP_MODEL)
    project.before("model.py", "loss_fn", HASHES + NAN.format(calls="(3, 4, 9)"))
    job = project.run("--batch-size", "8", "--epochs", "1", "--log-every", "5")
    assert job.code == 0, job.output
    first, second = project.notes(0), project.notes(1)
    assert len(first) == 25  # at the start of each step
    assert first == second
    same = [step for step in range(1, 25) if first[step - 1] == first[step]]
    assert same == [3, 4, 9]

    assert project.metrics("train/skipped_steps") == {5: 2, 10: 3, 15: 3, 20: 3, 25: 3}
    for key in ("train/loss", "epoch/loss", "validation/loss"):
        assert all(math.isfinite(value) for value in project.metrics(key).values())
    assert all(tensor.isfinite().all() for tensor in project.state()["model"].values())


def test_too_many_skipped_steps_in_a_row_end_the_run(project: Project) -> None:
    """Protects the end of `count` in optim.py, and leave(WRONG_SETTINGS): no restart follows.

    And `isfinite` in tracker.py: JSON has no nan.
    """
    project.before("model.py", "loss_fn", NAN.format(calls="range(3, 10**9)"))
    job = project.run("--log-every", "1", "--max-skipped-steps", "4", MAX_RESTARTS="2")
    assert job.code == 2
    assert job.output.count("error:") == 1
    assert "the gradients of 5 steps in a row were not finite (max_skipped_steps 4)" in job.output
    losses = project.metrics("train/loss")
    assert losses[2] > 0
    assert losses[3] is None
    assert "Traceback" not in job.output


def test_too_little_data_is_one_clear_error(project: Project) -> None:
    """Protects the two SettingsErrors of loaders.py."""
    for sizes, processes, message in (
        ((1, 5), 2, "the training set has 1 samples"),
        ((40, 5), 2, "the training set has 40 samples, but one step needs 64"),
        ((100, 0), 1, "the validation set is empty"),
    ):
        project.write_data(*sizes)
        job = project.run(processes=processes)
        assert job.code == 2, job.output
        assert job.output.count("error:") == 1
        assert message in job.output
        assert "Traceback" not in job.output


def test_fewer_validation_samples_than_ranks_give_the_metric_of_one_process(
    project: Project,
) -> None:
    """Protects `is_empty` in train.py: the third rank has no sample and must not count."""
    project.write_data(100, 2)
    batch = ("--batch-size", "1")  # the forward pass of two samples rounds otherwise than of one
    assert project.run_alone(*batch, "--limit-steps", "3").code == 0
    alone = project.metrics("validation/loss")
    assert project.run(*batch, "--eval-only", processes=3).code == 0
    together = project.metrics("validation/loss")
    assert list(alone) == list(together) == [3]
    assert math.isclose(alone[3], together[3], rel_tol=1e-9)
    text = (project.run_folder() / "metrics.jsonl").read_text()
    assert text.count("validation/loss") == 2  # the second one is new


def test_changed_settings_are_listed_and_some_refused(project: Project) -> None:
    """Protects the list in `restore_state`, FIXED, `_differences` and `versions`."""
    answers = project.folder / ".copier-answers.yml"
    answers.write_text(f"{answers.read_text()}_commit: v1.2.3\n")
    assert project.run_alone("--limit-steps", "2", "--lr", "0.01").code == 0
    assert project.state()["versions"] == {"torch": str(torch.__version__), "ddpgen": "v1.2.3"}
    answers.write_text(answers.read_text().replace("_commit: v1.2.3", "_commit: v9.9.9"))
    again = project.run_alone("--limit-steps", "3", "--lr", "0.02", "--clip-grad-norm", "1")
    assert again.code == 0
    changes = [line for line in again.output.splitlines() if line.startswith("changed")]
    assert sorted(changes) == [
        f"changed since the checkpoint: {change}"
        for change in (
            "clip_grad_norm None -> 1.0",
            "ddpgen 'v1.2.3' -> 'v9.9.9'",
            "limit_steps 2 -> 3",
            "lr 0.01 -> 0.02",
        )
    ]

    seed = project.run_alone("--limit-steps", "5", "--seed", "7")
    assert seed.code == 2
    assert "seed (was 0, now 7)" in seed.output
    model = project.folder / "model.py"
    model.write_text(model.read_text().replace("width: int = 32", "width: int = 16"))
    shape = project.run("--limit-steps", "5")
    assert shape.code == 2
    assert shape.output.count("error:") == 1
    assert "features.0.weight was (32, 1, 3, 3), is (16, 1, 3, 3)" in shape.output
    assert "Traceback" not in seed.output + shape.output
    assert project.steps() == [2, 3]
