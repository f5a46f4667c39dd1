"""Kill and interrupt updates with conflicts at random moments; each tree is the old or the new one.

    python tests/kill_updates.py --kills 200 --interrupts 100

A round starts `ddpgen update` on a fresh copy of a project and ends it: half of the kills come at
any moment of the run, the other half once the files are being put into place. When the process and
what it has started are gone, the files, their permissions and git's index are compared with what
they were and with what an update that nobody disturbs makes of them. After each kill the next
update has to succeed.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from releases import NEWEST, make_releases
from support import git
from updates import files_of, make_original

Picture = tuple[dict[str, object], str]


@dataclass
class Range:
    """A project that waits for an update, and the tools of two releases.

    Attributes:
        folder: where everything is.
        env: the environment of the tools.
        command: the update.
        old: what the project is before.
        new: what an update makes of it.
        seconds: how long that takes.
        counts: how the rounds have ended.
    """

    folder: Path
    env: Mapping[str, str]
    command: list[str] = field(init=False)
    old: Picture = field(init=False)
    new: Picture = field(init=False)
    seconds: float = field(init=False)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def project(self) -> Path:
        """The project that is updated."""
        return self.folder / "round" / "proj"

    def prepare(self, shelf: Path) -> None:
        """Make the project, with changes of its owner of each kind, and update it once."""
        self.command = [str(shelf / NEWEST / "bin/ddpgen"), "update", "proj"]
        original = self.folder / "original"
        original.mkdir(parents=True)
        make_original(shelf, original, self.env)
        self.reset()
        self.old = self.picture()
        started = time.monotonic()
        process = self.start()
        _, err = process.communicate()
        self.seconds = time.monotonic() - started
        assert process.returncode == 2, err
        self.new = self.picture()
        assert self.new != self.old

    def reset(self) -> None:
        """Put a fresh copy of the project there."""
        shutil.rmtree(self.project.parent, ignore_errors=True)
        shutil.copytree(self.folder / "original", self.project.parent, symlinks=True)
        git(self.project, "status")  # the copies have other times: let git look at them once

    def start(self) -> "subprocess.Popen[str]":
        """Start an update in a session of its own."""
        return subprocess.Popen(
            self.command,
            cwd=self.project.parent,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def picture(self) -> Picture:
        """Return the files with their permissions, and what the index says."""
        return files_of(self.project), git(self.project, "ls-files", "--stage")

    def round(self, number: int, chance: random.Random, *, late: bool) -> str:
        """End one update early and return what its tree is: old, new or mixed."""
        self.reset()
        process = self.start()
        if late:
            sign = (
                self.project
                / ".git/ddpgen-update"
                / chance.choice(("index", "journal/journal.json"))
            )
            while not sign.exists() and process.poll() is None:
                time.sleep(0.0001)
            time.sleep(chance.choice((0, chance.uniform(0, 0.001), chance.uniform(0, 0.1))))
        else:
            time.sleep(chance.uniform(0, self.seconds))
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            self.counts["ended before"] += 1
        _, err = process.communicate()  # also waits for the process that writes: it has the pipe
        found = self.picture()
        if found == self.new:
            assert process.returncode in {2, -number}, (process.returncode, err)
            return "new"
        assert process.returncode in {130, -number}, (number, process.returncode, err)
        return "old" if found == self.old else "mixed"

    def check_next_update(self) -> None:
        """Update after a kill that left the old tree: it works, and nothing is left of the kill."""
        process = self.start()
        _, err = process.communicate()
        assert process.returncode == 2, err
        assert self.picture() == self.new
        assert not (self.project / ".git/ddpgen-update").exists()
        assert git(self.project, "worktree", "list").count("\n") == 0


def run(
    shelf: Path, folder: Path, env: Mapping[str, str], kills: int, interrupts: int
) -> Counter[str]:
    """Run the rounds and return how they have ended, by "SIGKILL old" and the like."""
    place = Range(folder, env)
    place.prepare(shelf)
    chance = random.Random(4)
    for number, count in ((signal.SIGKILL, kills), (signal.SIGINT, interrupts)):
        for turn in range(count):
            state = place.round(number, chance, late=turn % 2 == 1)
            place.counts[f"{number.name} {state}"] += 1
            if number == signal.SIGKILL and state == "old" and turn % 8 == 0:
                place.check_next_update()
            if turn % 20 == 19:
                print(dict(place.counts), file=sys.stderr, flush=True)
    return place.counts


def main() -> None:
    """Read the command line, run, print, and fail if there was a tree of the third kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--interrupts", type=int, default=100)
    options = parser.parse_args()
    # A shell ignores it for background jobs, and programs inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="ddpgen-kills-") as name:
        folder = Path(name)
        make_releases(folder / "shelf")
        (folder / "home").mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8"}
        counts = run(folder / "shelf", folder / "range", env, options.kills, options.interrupts)
    for name, count in sorted(counts.items()):
        print(f"{count:5}  {name}")
    sys.exit(any(name.endswith("mixed") for name in counts))


if __name__ == "__main__":
    main()
