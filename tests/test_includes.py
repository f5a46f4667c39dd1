"""A template may include files of its own, as Copier allows it, and no others."""

from pathlib import Path

import pytest

from ddpgen import config
from ddpgen.console import Failure


@pytest.fixture
def including(tmp_path: Path) -> Path:
    """A template whose copier.yml includes a file, which includes another one."""
    folder = tmp_path / "template"
    (folder / "more").mkdir(parents=True)
    (folder / "copier.yml").write_text("!include more/o*.yml\n")
    (folder / "more/one.yml").write_text("a: 1\n---\n!include more/two.yml\n")
    (folder / "more/two.yml").write_text("b: 2\n")
    return folder


def test_what_an_included_file_includes_is_read(including: Path) -> None:
    assert config.read(including) == {"a": 1, "b": 2}


def test_a_file_that_includes_itself_by_another_one_is_named(including: Path) -> None:
    """Protects `above` in `_documents`."""
    (including / "more/two.yml").write_text("!include more/one.yml\n")
    with pytest.raises(Failure, match=r"more/one\.yml includes itself"):
        config.read(including)


@pytest.mark.parametrize("pattern", ["../nothing/*.yml", "more/../../outside.yml", "**/*.yml"])
def test_an_include_stays_in_the_folder_of_the_template(including: Path, pattern: str) -> None:
    """Protects both places that `_included` looks at: the pattern's, and where a link leads."""
    (including.parent / "outside.yml").write_text("c: 3\n")
    (including / "more/link.yml").symlink_to(including.parent / "outside.yml")
    (including / "more/two.yml").write_text(f"!include {pattern!r}\n")
    with pytest.raises(Failure) as refused:
        config.read(including)
    assert f"more/two.yml includes {pattern!r}: only a relative path" in str(refused.value)
