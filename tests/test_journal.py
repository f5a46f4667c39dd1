"""Many files change as one: whatever fails, and whoever dies, the folder is the old or the new."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import snapshot

from ddpgen import journal

OLD = {"changed": "old", "gone": "old", "sub/gone": "old", "kept": "old", "index": "old"}
WRITES = {"changed": "new", "added": "new", "deep/er/added": "new"}
REMOVALS = ["gone", "sub/gone"]
CALLS = ("replace", "rename", "link", "unlink", "mkdir")


class Setting:
    """A folder with files, a journal's folder, and what is to be changed."""

    def __init__(self, folder: Path) -> None:
        """Make them."""
        self.root, self.place, made = (folder / name for name in ("root", "place", "made"))
        self.index = self.root / "index"
        for path in (self.root, self.place, made):
            path.mkdir()
        for name, text in OLD.items():
            self._write(self.root / name, text)
        for name, text in WRITES.items():
            self._write(made / name, text)
        self._write(made / "index", "new")
        self.made = made
        self.before = snapshot(self.root)

    @staticmethod
    def _write(file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def apply(self) -> None:
        """Change everything."""
        writes = {name: self.made / name for name in WRITES}
        index = (self.made / "index", self.index)
        journal.apply(self.place, self.root, writes, REMOVALS, index)

    def is_new(self) -> bool:
        """Say whether all has changed, and check that it is all or nothing."""
        found = snapshot(self.root)
        if found == self.before:
            return False
        texts = {name: text for name, text in found.items() if text != "folder"}
        expected = {**OLD, **WRITES, "index": "new"}
        assert texts == {k: v.encode() for k, v in expected.items() if k not in REMOVALS}
        return True


def break_after(count: int, how: Callable[[], None], only_in_child: bool) -> None:
    """Let the system calls of this process work `count` times, and then do something else."""
    left, parent = count, os.getpid()

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            if not only_in_child or os.getpid() != parent:
                left -= 1
                if left < 0:
                    how()
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def die() -> None:
    """End as a process ends that is killed."""
    os._exit(9)


def in_a_child(work: Callable[[], None]) -> int:
    """Run something in a process of its own and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_all_is_changed_and_empty_folders_go(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.apply()
    assert setting.is_new()
    assert not (setting.root / "sub").exists()
    assert not (setting.place / "journal.json").exists()


def test_a_death_after_any_step_is_undone_by_the_next_command(tmp_path: Path) -> None:
    """Protects `recover`: here the command and its writing process die together."""
    undone = done = 0
    for count in range(60):
        folder = tmp_path / str(count)
        folder.mkdir()
        setting = Setting(folder)

        def work(setting: Setting = setting, count: int = count) -> None:
            os.fork = lambda: 0  # the writing process is this one
            break_after(count, die, only_in_child=False)
            setting.apply()

        code = in_a_child(work)
        journal.recover(setting.place)
        journal.recover(setting.place)
        if setting.is_new():
            done += 1
            assert code == 0
        else:
            undone += 1
        assert not (setting.root / "index.lock").exists()
        if done:
            break
    assert undone > 10, "too few steps were broken: the test has seen nothing"
    assert done


def test_a_writing_process_that_dies_is_undone_at_once(tmp_path: Path) -> None:
    """Protects the `recover` after `waitpid`."""
    for count in range(8):
        folder = tmp_path / str(count)
        folder.mkdir()
        setting = Setting(folder)

        def work(setting: Setting = setting, count: int = count) -> None:
            break_after(count, die, only_in_child=True)
            with pytest.raises(OSError, match="writing process"):
                setting.apply()

        assert in_a_child(work) == 0, count
        assert not setting.is_new()


@pytest.mark.parametrize("alone", [False, True])
def test_an_error_at_any_step_is_undone_and_raised(tmp_path: Path, alone: bool) -> None:
    """Protects the `except` of `_run`: alone, it is the only one that is left to undo anything."""
    number = errno.ENOSPC
    for count in range(40):
        folder = tmp_path / str(count)
        folder.mkdir()
        setting = Setting(folder)

        def work(setting: Setting = setting, count: int = count) -> None:
            once = setting.root.with_name("broken")

            def fail() -> None:
                if not once.exists():  # undoing it must work
                    once.touch()
                    raise OSError(number, os.strerror(number))

            if alone:
                os.fork = lambda: 0
            break_after(count, fail, only_in_child=False)
            try:
                setting.apply()
            except OSError as problem:
                os._exit(3 if problem.errno == number else 4)

        code = in_a_child(work)
        assert code in ({0, 1, 3} if alone else {0, 3})
        assert setting.is_new() is (code == 0)
    assert code == 0, "no run was long enough to come to its end"


def test_what_its_owner_has_changed_since_is_not_undone(tmp_path: Path) -> None:
    """Protects the digests: days may be between a crash and the next command."""
    for steps in range(60):  # die as late as possible
        folder = tmp_path / str(steps)
        folder.mkdir()
        setting = Setting(folder)

        def late(setting: Setting = setting, steps: int = steps) -> None:
            os.fork = lambda: 0
            break_after(steps, die, only_in_child=False)
            setting.apply()

        in_a_child(late)
        if (setting.root / "added").exists() and (setting.place / "journal.json").exists():
            break
    (setting.root / "added").write_text("mine")
    (setting.root / "changed").write_text("mine")
    journal.recover(setting.place)
    assert (setting.root / "added").read_text() == "mine"
    assert (setting.root / "changed").read_text() == "mine"
    assert (setting.root / "gone").read_text() == "old"


def test_a_git_that_is_at_work_is_not_disturbed(tmp_path: Path) -> None:
    """Protects `os.link` on index.lock: git's own way to say that the index is taken."""
    setting = Setting(tmp_path)
    (setting.root / "index.lock").write_text("git's")
    setting.before = snapshot(setting.root)
    with pytest.raises(FileExistsError):
        setting.apply()
    assert snapshot(setting.root) == setting.before


def test_another_file_system_is_no_hindrance(tmp_path: Path) -> None:
    """Protects `_move`: a git folder may be on another disk than the files."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        return
    setting = Setting(tmp_path)
    place = shared / f"ddpgen-test-{os.getpid()}"
    place.mkdir()
    try:
        writes = {name: setting.made / name for name in WRITES}
        for name, file in writes.items():
            writes[name] = Path(shutil.copy2(file, place / name.replace("/", "-")))
        journal.apply(place, setting.root, writes, REMOVALS, None)
    finally:
        shutil.rmtree(place)
    assert (setting.root / "changed").read_text() == "new"
    assert (setting.root / "deep/er/added").read_text() == "new"
