"""What is the owner's own, what is the template's, and the optional parts one by one."""

import shutil
from pathlib import Path

import pytest
from releases import OLD
from support import Tool, commit, edit, git, snapshot
from terminal import ENTER, Terminal
from updates import ANSWERS, files_of, table


@pytest.fixture
def proj(old: Tool) -> Path:
    """A project of the oldest release."""
    assert old("new", "proj", "--yes", "--with", "docker").code == 0
    return old.cwd / "proj"


def test_an_untouched_project_has_no_difference(newest: Tool, proj: Path) -> None:
    """Compared with its own release, not with the newest."""
    (proj / "runs").mkdir()
    (proj / "runs/result").write_text("git ignores this\n")
    done = newest("diff", "proj", "--exit-code")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_what_the_owner_has_changed_is_shown(newest: Tool, proj: Path) -> None:
    """Committed or not, tracked or not; the project and its index are left alone."""
    edit(proj / "long.py", "LINE_5 = 5\n", "LINE_5 = 'mine'\n")
    git(proj, "rm", "--quiet", "meter.py")
    (proj / "committed naïve.py").write_text("A = 1\n")
    commit(proj)
    (proj / "not tracked.py").write_text("B = 1\n")
    (proj / "train.py").chmod(0o755)
    before = {k: v for k, v in snapshot(proj).items() if not k.startswith(".git/index")}
    done = newest("diff", "proj")
    assert done.code == 0, done.err
    for sign in (
        "\n-LINE_5 = 5\n+LINE_5 = 'mine'\n",
        "diff --git a/meter.py b/meter.py\ndeleted file",
        "\n+A = 1\n",
        "\n+B = 1\n",
        "old mode 100644\nnew mode 100755\n",
    ):
        assert sign in done.out
    assert done.out.count("diff --git") == 5
    assert newest("diff", "proj", "--exit-code").code == 1
    after = {k: v for k, v in snapshot(proj).items() if not k.startswith(".git/index")}
    assert after == before


def test_a_project_below_the_top_of_its_repository(newest: Tool, proj: Path) -> None:
    git(newest.cwd, "init", "--quiet", "mono")
    shutil.copytree(proj, newest.cwd / "mono/sub/proj", ignore=shutil.ignore_patterns(".git"))
    (newest.cwd / "mono/other").write_text("not the project's\n")
    assert newest("diff", "mono/sub/proj", "--exit-code").code == 0
    (newest.cwd / "mono/sub/proj/mine.py").write_text("A = 1\n")
    assert newest("diff", "mono/sub/proj").out.startswith("diff --git a/mine.py b/mine.py")


def test_the_templates_own_version_of_a_file_is_shown(newest: Tool, proj: Path) -> None:
    done = newest("diff", "proj", "--template", "model.py")
    assert "\n+# A later thought of the template.\n" in done.out
    assert newest("diff", "proj", "--template", "data.py", "--exit-code").code == 0
    assert "new file" in newest("diff", "proj", "--template", "added.py").out
    done = newest("diff", "proj", "--template", "modle.py")
    assert done.code == 1
    assert "did you mean model.py?" in done.err
    applied = newest("diff", "proj", "--template", "model.py").out
    (newest.cwd / "patch").write_text(applied)
    git(proj, "apply", "../patch")
    assert newest("diff", "proj", "--template", "model.py").out == ""


def test_a_part_comes_and_goes_and_nothing_else_changes(
    newest: Tool, old: Tool, proj: Path
) -> None:
    """The template stays at the recorded release: this is no update."""
    before = files_of(proj)
    shown = newest("add", "slurm", "proj", "--dry-run")
    assert shown.code == 0, shown.err
    assert "+++ b/slurm.sbatch" in shown.out
    assert files_of(proj) == before
    done = newest("add", "slurm", "proj")
    assert done.code == 0, done.err
    assert table(done) == table(shown)
    assert table(done)["slurm.sbatch"] == "added"
    commit(proj)
    assert old("new", "other/proj", "--yes", "--with", "docker,slurm").code == 0
    assert files_of(proj) == files_of(old.cwd / "other/proj")
    assert newest("remove", "slurm", "proj").code == 0
    assert files_of(proj) == before


def test_a_part_is_asked_for_on_a_terminal(newest: Tool, proj: Path) -> None:
    """Protects the question of `parts.change`: what is shown first can still be refused."""
    before = files_of(proj)
    terminal = Terminal([newest.executable, "add", "slurm", "proj"], newest.cwd, newest.env)
    terminal.expect("+++ b/slurm.sbatch")
    terminal.expect("Do this? [y/N]")
    terminal.type(ENTER)
    assert terminal.end() == 1
    assert "nothing was written" in terminal.shown
    assert files_of(proj) == before


def test_a_part_that_its_owner_has_changed_is_not_lost(old: Tool, proj: Path) -> None:
    edit(proj / "Dockerfile", "\nFROM ", "\n# mine\nFROM ")
    commit(proj)
    done = old("remove", "docker", "proj")
    assert done.code == 2
    assert table(done)["Dockerfile"] == "conflict"
    assert "# mine" in (proj / "Dockerfile").read_text()


def test_a_part_that_there_is_not(newest: Tool, proj: Path) -> None:
    done = newest("add", "slrum", "proj")
    assert done.code == 2
    assert "did you mean slurm?" in done.err
    assert "there already" in newest("add", "docker", "proj").out
    assert "not there" in newest("remove", "slurm", "proj").out


def test_a_project_without_its_answers_is_linked_again(newest: Tool, old: Tool) -> None:
    """Each answer is found out of the files, and the release by the smallest difference."""
    words = ["--gpus", "5", "--nodes", "3", "--tracker", "mlflow", "--preset", "vision"]
    assert old("new", "proj", "--yes", *words, "--with", "slurm,ci").code == 0
    project = old.cwd / "proj"
    recorded = (project / ANSWERS).read_bytes()
    (project / ANSWERS).unlink()
    edit(project / "long.py", "LINE_9 = 9\n", "LINE_9 = 'mine'\n")
    commit(project)
    before = files_of(project)
    shown = newest("adopt", "proj", "--dry-run")
    assert f"closest to v{OLD}: 2 lines differ" in shown.out
    assert files_of(project) == before
    done = newest("adopt", "proj")
    assert done.code == 0, done.err
    assert (project / ANSWERS).read_bytes() == recorded
    commit(project)
    done = newest("update", "proj")
    assert done.code == 0, done.err
    assert "LINE_9 = 'mine'" in (project / "long.py").read_text()


def test_an_answer_that_is_given_is_not_guessed(newest: Tool, proj: Path) -> None:
    (proj / ANSWERS).unlink()
    commit(proj)
    assert newest("adopt", "proj", "--set", "gpus=7").code == 0
    assert "gpus: 7\n" in (proj / ANSWERS).read_text()


def test_a_project_in_a_folder_of_another_name_is_linked(newest: Tool, proj: Path) -> None:
    """Its name and its files are what they are: the folder's is no project's, a file no UTF-8."""
    (proj / ANSWERS).unlink()
    (proj / "README.md").write_bytes((proj / "README.md").read_bytes() + b"# caf\xe9\n")
    commit(proj)
    moved = proj.rename(newest.cwd / "my proj.v2")
    done = newest("adopt", str(moved), "--set", "gpus=999")
    assert done.code == 2
    assert "error: gpus: must be a whole number" in done.err
    assert "try: --set gpus=" in done.err
    done = newest("adopt", str(moved))
    assert done.code == 0, done.err
    assert "project_name: proj\n" in (moved / ANSWERS).read_text()


def test_what_is_no_project_of_ddpgen_is_not_adopted(newest: Tool, proj: Path) -> None:
    done = newest("adopt", "proj")
    assert done.code == 1
    assert "needs no adoption" in done.err
    other = newest.cwd / "other"
    other.mkdir()
    (other / "train.py").write_text("print('another project')\n")
    git(other, "init", "--quiet")
    commit(other)
    done = newest("adopt", "other")
    assert done.code == 1
    assert "is no project of ddpgen" in done.err
    assert not (other / ANSWERS).exists()
