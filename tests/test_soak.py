"""The short form of soak.py."""

from pathlib import Path

import pytest
from soak import soak


def test_five_random_faults_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Protects all that the other tests of faults protect, in combination."""
    assert soak(tmp_path, count=5, seed=3), capsys.readouterr().out
