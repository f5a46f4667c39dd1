"""Protects the doctor's prediction for more processes: ddpgen/doctor/scaling.py."""

import pytest

from ddpgen.doctor.scaling import BUCKET, Link, efficiency
from ddpgen.doctor.trial import predict


@pytest.mark.parametrize("processes", [2, 5])
def test_a_link_explains_what_it_was_measured_from(processes: int) -> None:
    link = Link.measured(processes, 0.001, 4_000_000, 0.009)
    assert link.exchange(processes, 4_000_000) == pytest.approx(0.009)
    assert link.exchange(processes, 1) == pytest.approx(0.001, rel=1e-4)


def test_a_ring_passes_on_each_byte_less_than_twice_and_waits_for_each_neighbour() -> None:
    assert Link(0.0, 1.0).exchange(4, 100) == pytest.approx(150)
    assert Link(0.0, 1.0).exchange(10**6, 100) == pytest.approx(200)
    assert Link(1.0, 0.0).exchange(4, 100) == 6
    assert Link(1.0, 0.0).exchange(4, BUCKET + 1) == 12


def test_the_exchange_hides_behind_the_backward_pass_at_best() -> None:
    assert efficiency(3.0, 1.0) == (0.75, 1.0)
    assert efficiency(3.0, 3.0) == (0.5, 0.75)


def test_one_process_foresees_nothing() -> None:
    measured = {
        "gradient_bytes": 400,
        "work_seconds": 0.1,
        "latency_seconds": 0.001,
        "all_reduce_seconds": 0.002,
    }
    assert predict(1, measured) == {}
    assert list(predict(2, measured)) == [8, 64, 512]
    assert 1 > predict(2, measured)[8] > predict(2, measured)[512] > 0
