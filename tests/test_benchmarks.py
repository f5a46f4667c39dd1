"""Protects what benchmarks/ says: both sides do the same work, and noise is no finding.

No test here looks at a time.
"""

import json
from pathlib import Path

import pytest

from paired import difference, estimate, ratio
from running import Task, generate, run


def test_bare_and_the_generated_project_do_the_same_work(tmp_path: Path) -> None:
    """Each step uses all samples, so that their order does not matter."""
    task = Task("linear", batch_size=32, block=1, steps=3, epochs=3)
    project = generate(tmp_path)
    bare, ours = (run(loop, task, project) for loop in ("bare", "ours"))
    assert ours.loss == pytest.approx(bare.loss, rel=1e-6)
    line = json.loads((project / "runs/default/metrics.jsonl").read_text().splitlines()[-1])
    assert line["step"] == task.steps  # and it was the training that was timed
    assert len(ours.blocks) == len(bare.blocks) == 1


def test_a_ratio_is_taken_within_a_round() -> None:
    """A round that was slow for both changes nothing."""
    assert ratio([1, 2, 30], [2, 4, 60]).median == 0.5
    assert difference([1, 2, 30], [2, 3, 31]).median == -1


def test_the_interval_leaves_out_what_chance_allows() -> None:
    """Of nine values one at each end, of five none: the tables of the sign test."""
    nine = estimate([9, 1, 2, 3, 4, 5, 6, 7, 8])
    assert (nine.low, nine.median, nine.high) == (2, 5, 8)
    assert (estimate([1, 2, 3, 4, 5]).low, estimate([1]).low) == (1, 1)


def test_a_bound_within_the_interval_is_left_open() -> None:
    """A finding needs the whole interval on one side."""
    assert estimate([1.0] * 5).verdict(2.0) == "too few rounds to tell"
    found = estimate([1.0, 1.1, 1.1, 1.1, 1.1, 1.2])
    verdicts = [found.verdict(bound) for bound in (1.2, 1.1, 0.9)]
    assert verdicts == ["yes", "too noisy to tell", "no"]
