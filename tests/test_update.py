"""An update brings what the template has gained, and loses no line of the owner's work."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kill_updates import run as run_kills
from releases import NEW, NEWEST, OLD, at, checkout_of, make_checkout, write_launcher
from support import Tool, commit, edit, git, snapshot
from updates import commands_of, files_of, table

from ddpgen import store
from ddpgen.template import questions


@pytest.fixture
def proj(old: Tool) -> Path:
    """A project of the oldest release, as it was made."""
    done = old("new", "proj", "--yes")
    assert done.code == 0, done.err
    return old.cwd / "proj"


ALL = ",".join(questions()["parts"].choices)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("options", ["", f"--gpus 5 --preset vision --tracker none --with {ALL}"])
def test_an_update_of_what_nobody_has_changed_is_the_newest_project(
    tool: Tool, shelf: Path, version: str, options: str
) -> None:
    """Byte for byte and bit for bit; only model.py and data.py are their owner's from the start."""
    typed = ["--yes", *options.split()]
    assert at(tool, shelf, version)("new", "a/proj", *typed).code == 0
    done = at(tool, shelf, NEWEST)("update", "a/proj")
    assert done.code == 0, done.err
    assert at(tool, shelf, NEWEST)("new", "b/proj", *typed).code == 0
    updated, made = (files_of(tool.cwd / place / "proj") for place in "ab")
    for name in ("model.py", "data.py"):
        del updated[name], made[name]
    assert updated == made


def test_every_release_of_the_past_leads_to_the_present_template(
    tool: Tool, tmp_path: Path
) -> None:
    """The same with the releases that are recorded in this repository."""
    now = write_launcher(make_checkout(tmp_path / "now"))
    present = dataclasses.replace(tool, executable=now)
    cells = {"plain": [], "full": ["--gpus", "5", "--preset", "vision", "--with", ALL]}
    for cell, options in cells.items():
        assert present("new", f"now/{cell}/proj", "--yes", *options).code == 0
        made = files_of(tool.cwd / f"now/{cell}/proj")
        for version in store.releases():
            past = checkout_of(version, tmp_path / cell)
            then = dataclasses.replace(tool, executable=past / "bin/ddpgen")
            path = f"{version}/{cell}/proj"
            assert then("new", path, "--yes", *options).code == 0
            done = present("update", path)
            assert done.code == 0, (version, done)
            updated = files_of(tool.cwd / path)
            for name in ("model.py", "data.py"):
                updated.pop(name), made.pop(name, None)
            assert updated == made, version


def test_each_kind_of_change_is_told_in_a_table(newest: Tool, proj: Path) -> None:
    done = newest("update", "proj")
    assert (done.code, done.err) == (0, "")
    assert table(done) == {
        ".copier-answers.yml": "updated",
        "long.py": "updated",
        "notes.py": "updated",
        "added.py": "added",
        "leftover.py": "removed",
        "model.py": "kept yours",
    }
    assert done.out.startswith(f"Updated proj: v{OLD} -> v{NEWEST}\n")
    assert f"commit -m 'Update to v{NEWEST}'\n" in done.out
    assert "ddpgen diff --template model.py" in done.out
    assert git(proj, "status", "--porcelain").splitlines() == [
        " M .copier-answers.yml".strip(),
        " D leftover.py",
        " M long.py",
        " M notes.py",
        "?? added.py",
    ]
    assert not (proj / ".git/ddpgen-update").exists()
    assert newest("update", "proj", "--check").code == 0


def test_the_owners_lines_and_the_templates_lines_meet(newest: Tool, proj: Path) -> None:
    """Protects the merge: a change elsewhere in a file is kept, and so is what the owner adds."""
    edit(proj / "long.py", "LINE_20 = 20\n", "LINE_20 = 'mine'\n")
    (proj / "mine.py").write_text("MINE = 1\n")
    git(proj, "rm", "--quiet", "meter.py", "data.py")
    (proj / "model.py").write_text("'''Mine.'''\n")
    commit(proj)
    before = files_of(proj)
    done = newest("update", "proj")
    assert done.code == 0, done.err
    after = files_of(proj)
    text = (proj / "long.py").read_text()
    assert all(f"LINE_{line}\n" in text for line in ("5 = 500", "20 = 'mine'", "30 = 3000"))
    assert after["mine.py"] == before["mine.py"]
    assert after["model.py"] == before["model.py"]
    assert "meter.py" not in after
    assert "data.py" not in after
    assert table(done)["data.py"] == "kept yours"


@pytest.fixture
def conflicting(proj: Path) -> Path:
    """A project whose owner has changed the line that the template changes, and a removed file."""
    edit(proj / "long.py", "LINE_5 = 5\n", "LINE_5 = 'mine'\n")
    edit(proj / "leftover.py", "LEFT = 1\n", "LEFT = 'mine'\n")
    commit(proj)
    return proj


def test_a_conflict_is_left_as_a_merge_of_git_leaves_it(newest: Tool, conflicting: Path) -> None:
    """Protects `_index`, `_deleted_by_them` and the lines in the table."""
    done = newest("update", "proj")
    assert done.code == 2
    lines = (conflicting / "long.py").read_text().splitlines()
    assert lines[lines.index("<<<<<<< before updating") + 1] == "LINE_5 = 'mine'"
    line = lines.index("<<<<<<< before updating") + 1
    assert re.search(rf"^  conflict +long\.py +line {line}$", done.out, re.MULTILINE)
    assert table(done)["leftover.py"] == "conflict"
    assert "LEFT = 'mine'" in (conflicting / "leftover.py").read_text()
    states = git(conflicting, "status", "--porcelain").splitlines()
    assert {"UU long.py", "UD leftover.py"} <= {state.strip() for state in states}
    assert "LINE_5 = 500" in git(conflicting, "show", ":3:long.py")
    assert "LINE_5 = 5\n" in git(conflicting, "show", ":1:long.py")


@pytest.mark.parametrize("conflict", ["inline", "rej"])
def test_the_printed_commands_go_on_and_undo(
    newest: Tool, conflicting: Path, conflict: str
) -> None:
    before = files_of(conflicting)
    done = newest("update", "proj", "--conflict", conflict)
    assert done.code == 2
    assert files_of(conflicting) != before
    undo, go_on = commands_of(done, "Undo:"), commands_of(done, "Go on:")
    env = {**newest.env, "GIT_AUTHOR_NAME": "x", "GIT_COMMITTER_NAME": "x", "EMAIL": "x@localhost"}
    subprocess.run(undo, shell=True, cwd=newest.cwd, check=True, env=env)
    assert files_of(conflicting) == before
    assert git(conflicting, "status", "--porcelain") == ""
    assert newest("update", "proj", "--conflict", conflict).code == 2
    subprocess.run(go_on, shell=True, cwd=newest.cwd, check=True, env=env, capture_output=True)
    assert git(conflicting, "status", "--porcelain") == ""
    assert newest("update", "--check", "proj").code == 0


def test_rejected_hunks_stand_beside_the_file(newest: Tool, conflicting: Path) -> None:
    done = newest("update", "proj", "--conflict", "rej")
    assert done.code == 2
    assert "LINE_5 = 'mine'" in (conflicting / "long.py.rej").read_text()
    assert "<<<<<<<" not in (conflicting / "long.py").read_text()
    assert not (conflicting / "leftover.py.rej").exists()


def test_a_dry_run_predicts_and_writes_nothing(newest: Tool, conflicting: Path) -> None:
    (conflicting / "added.py").write_text("data that git ignores\n")
    (conflicting / ".git/info/exclude").write_text("added.py\n")
    before = snapshot(conflicting)
    predicted = newest("update", "proj", "--dry-run")
    assert predicted.code == 2
    after = snapshot(conflicting)
    for name in (".git/index", ".git/worktrees"):  # git's memory of file times; objects may be new
        before.pop(name, None), after.pop(name, None)
    gone = {name for name in before if name not in after}
    new = {name for name in after if name not in before}
    assert not gone
    assert all(name.startswith(".git/objects/") for name in new), new
    assert all(after[name] == before[name] for name in before)
    for sign in ('-NOTE = "old"', '+NOTE = "new"', "deleted file", "<<<<<<<"):
        assert (sign in predicted.out) is (sign != "deleted file")
    done = newest("update", "proj")
    assert table(done) == table(predicted)
    assert done.code == predicted.code
    assert (conflicting / "added.py").read_text() == "data that git ignores\n"


def test_json_says_the_same(newest: Tool, conflicting: Path) -> None:
    predicted = json.loads(newest("update", "proj", "--dry-run", "--json").out)
    done = json.loads(newest("update", "proj", "--json").out)
    assert done["files"] == predicted["files"]
    assert (done["from"], done["to"], done["conflicts"]) == (f"v{OLD}", f"v{NEWEST}", 2)
    (conflict,) = [file for file in done["files"] if file["path"] == "long.py"]
    assert conflict["verdict"] == "conflict"
    assert conflict["lines"]
    assert predicted["diff"].startswith("diff --git")


def test_check_says_whether_it_is_behind(newest: Tool, old: Tool, proj: Path) -> None:
    before = snapshot(proj)
    assert newest("update", "--check", "proj").code == 3
    assert old("update", "--check", "proj").code == 0
    said = json.loads(newest("update", "--check", "--json", "proj").out)
    assert said == {"from": f"v{OLD}", "to": f"v{NEWEST}", "behind": True}
    assert snapshot(proj) == before


def test_check_is_quick_because_it_imports_little(newest: Tool, shelf: Path, proj: Path) -> None:
    """Protects the lazy imports: Copier alone takes three times what --check may."""
    script = (
        "import sys; from ddpgen.cli import run; code = run(['update', '--check']);"
        "slow = {'copier', 'pydantic', 'plumbum', 'jinja2', 'zipfile', 'packaging'};"
        "print(code, sorted(slow & set(sys.modules)))"
    )
    env = {**newest.env, "PYTHONPATH": str(shelf / NEWEST)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=proj,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "3 []", done


def test_an_answer_is_changed_with_set(newest: Tool, old: Tool, proj: Path) -> None:
    words = ["update", "proj", "--set", "gpus=8", "--set", "tracker=none"]
    assert old(*words, "--dry-run").out.startswith("Would update proj: gpus=8 tracker=none\n")
    done = old(*words)
    assert done.code == 0, done.err
    assert done.out.startswith("Updated proj: gpus=8 tracker=none\n")
    assert "commit -m 'Set gpus=8 tracker=none'\n" in done.out
    commit(proj)
    assert old("new", "other/proj", "--yes", "--gpus", "8", "--tracker", "none").code == 0
    assert files_of(proj) == files_of(old.cwd / "other/proj")
    assert "is up to date" in old("update", "proj").out


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        ("--set gpu=8", "there is no question 'gpu'", 2),
        ("--set gpus=many", "'many' is not a whole number", 2),
        ("--set gpus=999", "must be a whole number from 1 to 128", 2),
        ("--set tracker=wand", "did you mean wandb?", 2),
        ("--set gpus", "has no =", 2),
        ("--conflict both", "is not one of", 2),
        ("--to 99", "the template has no version '99'", 1),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    newest: Tool, proj: Path, words: str, says: str, code: int
) -> None:
    before = files_of(proj)
    done = newest("update", "proj", *words.split())
    assert done.code == code
    assert says in done.err
    assert files_of(proj) == before
    assert not (proj / ".git/ddpgen-update").exists()


def test_an_update_goes_to_a_release_that_is_named(newest: Tool, proj: Path) -> None:
    done = newest("update", "proj", "--to", NEW)
    assert done.code == 0, done.err
    assert f"_commit: v{NEW}\n" in (proj / ".copier-answers.yml").read_text()
    commit(proj)
    done = newest("update", "proj", "--to", f"v{OLD}")
    assert done.code == 1
    assert "leads forward only" in done.err


def test_plain_copier_updates_to_the_same(newest: Tool, old: Tool, proj: Path) -> None:
    """Where ddpgen has run once; from the root of the project, as Copier wants it."""
    assert newest("new", "other", "--yes").code == 0  # this brings the newest release to the store
    copier = subprocess.run(
        [sys.executable, "-m", "copier", "update", "--defaults", "--quiet"],
        cwd=proj,
        env=newest.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert copier.returncode == 0, copier.stderr
    by_copier = files_of(proj)
    git(proj, "stash", "--include-untracked")
    assert newest("update", "proj").code == 0
    assert files_of(proj) == by_copier


def test_a_kill_or_an_interrupt_leaves_the_old_or_the_new_tree(
    tool: Tool, shelf: Path, tmp_path: Path
) -> None:
    """Protects `journal`; `python tests/kill_updates.py` does the same some hundred times."""
    counts = run_kills(shelf, tmp_path / "range", tool.env, kills=6, interrupts=4)
    assert not [name for name in counts if name.endswith("mixed")]
    assert counts["SIGKILL old"], "no kill came in time: the test has seen nothing"
