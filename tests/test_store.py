"""The template's releases: recorded once, never changed, and the same commits on every machine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from releases import NEW, NEWEST, OLD, at, copy_checkout, release, with_home
from support import ROOT, Tool, commit, edit, git

from ddpgen import store
from ddpgen.template import template_dir

BUNDLE = ".local/share/ddpgen/template.bundle"


def commits(home: Path) -> dict[str, str]:
    """Return the commit of each tag in the bundle of a home."""
    listed = git(home, "bundle", "list-heads", str(home / BUNDLE)).splitlines()
    return {name.removeprefix("refs/tags/"): sha for sha, name in map(str.split, listed)}


def test_the_template_is_the_newest_recorded_release() -> None:
    """Red when template/ has changed since the last release: `make release VERSION=x.y.z`.

    People install from the main branch at any time, and what they get has to be known to all later
    versions, or their projects could not be updated.
    """
    newest = next(reversed(store.releases().items()), ("nothing", ""))
    name = store.digest(store.read_tree(template_dir()))
    assert name == newest[1], f"template/ is not {newest[0]}: make release VERSION=x.y.z"


@pytest.mark.parametrize("history", [store.HISTORY, None], ids=["real", "of the tests"])
def test_every_record_is_what_the_index_says(history: Path | None, shelf: Path) -> None:
    """Protects the records: a zip that is changed later has another digest."""
    history = history or shelf / NEWEST / "ddpgen/_history"
    recorded = store.releases(history)
    for version, digest in recorded.items():
        assert store.digest(store.read_record(version, history)) == digest
    files = {path.name for path in history.glob("*.zip")}
    assert files == {f"{version}.zip" for version in recorded}


def changed_records(repository: Path) -> list[str]:
    """Return the records that are not what an earlier commit says of them."""
    index = "ddpgen/_history/index.json"
    now = json.loads((repository / index).read_text()) if (repository / index).exists() else {}
    wrong = []
    for revision in git(repository, "log", "--format=%H", "--", index).split():
        try:
            then = json.loads(git(repository, "show", f"{revision}:{index}"))
        except subprocess.CalledProcessError:
            then = {}  # the commit that removed the file; those before it are looked at as well
        wrong += [
            f"{version} of {revision}" for version in then if now.get(version) != then[version]
        ]
    return wrong


def test_no_record_has_changed_since_it_was_committed() -> None:
    """Append-only: projects of an older record could not be updated by a changed one."""
    if (ROOT / ".git").exists():
        assert changed_records(ROOT) == []


def test_a_record_that_changes_later_is_noticed(shelf: Path, tmp_path: Path) -> None:
    """So that the test above cannot be green because it looks for nothing."""
    checkout = copy_checkout(shelf / NEW, tmp_path / "checkout")
    git(checkout, "init", "--quiet")
    commit(checkout)
    assert changed_records(checkout) == []
    index = checkout / "ddpgen/_history/index.json"
    recorded = json.loads(index.read_text())
    index.write_text(json.dumps({**recorded, OLD: "0" * 64}))
    commit(checkout)
    assert len(changed_records(checkout)) == 1


def test_a_record_whose_content_changes_is_noticed(shelf: Path, tmp_path: Path) -> None:
    history = shutil.copytree(shelf / NEW / "ddpgen/_history", tmp_path / "history")
    shutil.copy2(history / f"{NEW}.zip", history / f"{OLD}.zip")
    assert store.digest(store.read_record(OLD, history)) != store.releases(history)[OLD]


def test_the_same_releases_are_the_same_bundle_everywhere(shelf: Path, tmp_path: Path) -> None:
    """Protects `_PLAIN`, the fixed dates and the modes that the content decides."""
    script = "import os; os.umask(int(os.environ['MASK'], 8)); from ddpgen import store; "
    script += "print(store.ensure())"
    made = {}
    machines = {"one": "022", "two": "077", "hash": "000", "crlf": "002"}
    for name, mask in machines.items():
        home = tmp_path / name
        home.mkdir()
        settings = (
            "[core]\n autocrlf = true\n[commit]\n gpgSign = true\n[core]\n fileMode = false\n"
        )
        (home / ".gitconfig").write_text(settings if name == "crlf" else "")
        env = {"HOME": os.fspath(home), "MASK": mask, "PATH": os.environ["PATH"]}
        env |= {
            "PYTHONPATH": os.fspath(shelf / NEWEST),
            "TZ": "Asia/Tokyo" if name == "two" else "",
        }
        env |= {"GIT_DEFAULT_HASH": "sha256"} if name == "hash" else {}
        command = [sys.executable, "-c", script]
        subprocess.run(command, cwd=home, env=env, check=True, capture_output=True)
        made[name] = (home / BUNDLE).read_bytes()
    assert len(set(made.values())) == 1
    assert set(commits(tmp_path / "one")) >= {f"v{version}" for version in (OLD, NEW, NEWEST)}


def test_it_does_not_matter_which_ddpgen_came_first(
    tool: Tool, shelf: Path, tmp_path: Path
) -> None:
    """An older ddpgen keeps what a newer one has put into the bundle."""
    for name, order in {"up": (OLD, NEW, NEWEST), "down": (NEWEST, NEW, OLD)}.items():
        there = with_home(tool, tmp_path / name)
        for number, version in enumerate(order):
            assert at(there, shelf, version)("new", f"{name}{number}", "--yes").code == 0
    assert commits(tmp_path / "up") == commits(tmp_path / "down")
    assert set(commits(tmp_path / "up")) >= {f"v{version}" for version in (OLD, NEW, NEWEST)}


def test_a_bundle_that_is_there_is_not_written_again(tool: Tool, shelf: Path) -> None:
    home = Path(tool.env["HOME"])
    assert at(tool, shelf, NEW)("new", "one", "--yes").code == 0
    before = (home / BUNDLE).stat().st_ino
    assert at(tool, shelf, NEW)("new", "two", "--yes").code == 0
    assert at(tool, shelf, OLD)("new", "three", "--yes").code == 0
    assert (home / BUNDLE).stat().st_ino == before


def test_a_template_that_is_worked_on_is_a_snapshot(
    tool: Tool, shelf: Path, tmp_path: Path
) -> None:
    """No release, no commit and no tag is needed to try an edited template on a project."""
    checkout = copy_checkout(shelf / OLD, tmp_path / OLD)
    (checkout / "bin/ddpgen").write_text(
        f'#!/bin/sh\nPYTHONPATH="{checkout}" exec "{sys.executable}" -m ddpgen "$@"\n'
    )
    dev = at(tool, tmp_path, OLD)
    assert dev("new", "proj", "--yes").code == 0
    for number, text in enumerate(("first", "second"), start=1):
        edit(
            checkout / "template/project/notes.py",
            '"old"' if number == 1 else '"first"',
            f'"{text}"',
        )
        done = dev("update", "proj")
        assert done.code == 0, done.err
        assert f"-> v{OLD}.post{number}+g" in done.out
        assert text in (tool.cwd / "proj/notes.py").read_text()
        commit(tool.cwd / "proj")
    assert dev("update", "--check", "proj").code == 0
    # Another ddpgen, which does not know the snapshots, keeps them.
    assert at(tool, shelf, NEWEST)("new", "other", "--yes").code == 0
    kept = commits(Path(tool.env["HOME"]))
    assert sum(".post" in tag for tag in kept) == 2
    assert f"v{NEWEST}" in kept


def test_new_is_whole_where_the_store_cannot_be_written(tool: Tool, shelf: Path) -> None:
    """Protects `_keep_template`: without the store only a note is said."""
    (Path(tool.env["HOME"]) / ".local").write_text("a file, where a folder should be")
    done = at(tool, shelf, OLD)("new", "proj", "--yes")
    assert done.code == 0
    assert "could not be kept for updates yet" in done.err
    assert f"_commit: v{OLD}\n" in (tool.cwd / "proj/.copier-answers.yml").read_text()


@pytest.fixture
def checkout(shelf: Path, tmp_path: Path) -> Path:
    """A checkout in which the template has changed since its newest release."""
    folder = copy_checkout(shelf / NEW, tmp_path / "checkout")
    edit(folder / "template/project/notes.py", "new", "newer")
    return folder


def test_a_release_sets_the_version_and_the_changelog(checkout: Path) -> None:
    changelog = checkout / "CHANGELOG.md"
    edit(changelog, "## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- Something.\n")
    assert release(checkout, "100.1.1").returncode == 0
    assert '__version__ = "100.1.1"\n' in (checkout / "ddpgen/__init__.py").read_text()
    text = changelog.read_text()
    assert text.index("[Unreleased]") < text.index("[100.1.1]") < text.index("- Something.")
    assert list(store.releases(checkout / "ddpgen/_history"))[-1] == "100.1.1"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (NEW, "is recorded, and a record is never changed"),
        (OLD, "is recorded"),
        ("99.0.0", "is not later than"),
        ("1.2", "say which release"),
        ("", "say which release"),
    ],
)
def test_a_release_that_cannot_be_is_refused(checkout: Path, version: str, words: str) -> None:
    before = sorted(path.stat().st_mtime_ns for path in checkout.rglob("*.zip"))
    done = release(checkout, version)
    assert done.returncode == 1
    assert words in done.stderr
    assert sorted(path.stat().st_mtime_ns for path in checkout.rglob("*.zip")) == before


def test_a_template_that_has_not_changed_is_not_released_again(shelf: Path, tmp_path: Path) -> None:
    folder = copy_checkout(shelf / NEW, tmp_path / "checkout")
    assert "there is nothing to release" in release(folder, "100.1.1").stderr


def test_what_starts_with_a_shebang_is_what_is_executable() -> None:
    """A release knows no other modes, so that they are the same wherever it is recorded."""
    for path in template_dir().rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            executable = store.mode(path.read_bytes()) == "100755"
            assert os.access(path, os.X_OK) is executable, path
