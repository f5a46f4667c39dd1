"""Checkpoints that cannot be written or read, and two jobs that want one run folder."""

import re
import signal

import pytest
from faults import Project

SMALL = (
    "--batch-size",
    "4",
    "--log-every",
    "5",
    "--save-every-steps",
    "5",
    "--keep-checkpoints",
    "5",
)
TRY_AGAIN = 75


def cut(content: bytes) -> bytes:
    """Lose the second half."""
    return content[: len(content) // 2]


def empty(content: bytes) -> bytes:
    """Lose everything but the name."""
    return b""


def flip(content: bytes) -> bytes:
    """Change one bit in the middle, among the weights."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def zero_page(content: bytes) -> bytes:
    """Lose one page, as a file system may after a power cut."""
    page = len(content) // 2 // 4096 * 4096
    return content[:page] + bytes(4096) + content[page + 4096 :]


def test_damaged_checkpoints_are_told_once_and_passed_over(project: Project) -> None:
    """Protects the checksum in `read_checkpoint` (a bit, a page), and `load_newest` in Saver.

    And that `_open` turns "all are damaged" into a SettingsError, instead of a start from zero.
    """
    assert project.run_alone(*SMALL, "--limit-steps", "25").code == 0
    folder = project.run_folder() / "checkpoints"
    files = sorted(folder.glob("step_*.pt"))
    assert project.steps() == [5, 10, 15, 20, 25]
    for path, damage in zip(files[1:], [cut, flip, zero_page, empty], strict=True):
        path.write_bytes(damage(path.read_bytes()))

    again = project.run(*SMALL, "--limit-steps", "6")
    assert again.code == 0
    assert "from step 5 on" in again.output
    for path in files[1:]:
        assert len(re.findall(f"damaged.*{path.name}", again.output)) == 1, again.output

    for path in folder.glob("step_*.pt"):  # last.pt is the same file as one of them
        path.write_bytes(flip(path.read_bytes()))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = project.run(*SMALL, "--limit-steps", "7")
    assert refused.code == 2
    message = refused.output[refused.output.index("error: every checkpoint is damaged") :]
    for step in project.steps():
        assert f"step_{step:010d}.pt" in message
    assert message.count("error:") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_full_disk(project: Project, policy: str) -> None:
    """Protects `_errors` in saver.py and `_training_goes_on` in tracker.py.

    A limit on the size of files stands in for the disk: 100 blocks, and a checkpoint has 500. The
    file of the metrics is really full: /dev/full.
    """
    run = (*SMALL, "--limit-steps", "20", "--on-save-error", policy)
    assert project.run_alone(*SMALL, "--limit-steps", "5").code == 0
    good = project.weights()
    metrics = project.run_folder() / "metrics.jsonl"
    metrics.unlink()
    metrics.symlink_to("/dev/full")
    limited = ["bash", "-c", 'ulimit -f 50; exec "$0" "$@"', "./launch.sh"]
    full = project.start(*run, command=limited)
    full.wait()
    assert "warning: metrics could not be written: [Errno 28] No space left" in full.output
    assert "a checkpoint could not be written: [Errno 27] File too large" in full.output
    if policy == "continue":
        assert full.code == 0
        assert "done: 0 epochs, 20 steps" in full.output
    else:
        assert full.code == 1
        assert re.search(r"^error: rank 0: OSError: a checkpoint could not be", full.output, re.M)
    assert project.weights() == good
    assert project.steps() == [5]
    assert not list(project.run_folder().glob("checkpoints/*.tmp"))


def test_a_second_job_in_one_run_folder_is_refused(project: Project) -> None:
    """Protects `claim_run_folder` in saver.py, and SettingsError for all ranks by one message."""
    project.before("model.py", "loss_fn", "time.sleep(0.1)")  # leaves the cores to the second
    first = project.start("--epochs", "100000", "--log-every", "1")
    first.until_step(1)
    second = project.run("--epochs", "100000", MAX_RESTARTS="3")  # which are not used for this
    assert second.code == 2
    assert second.output.count("error:") == second.output.count("is in use by") == 1
    assert "Traceback" not in second.output
    first.send(signal.SIGTERM)
    assert first.wait() == TRY_AGAIN
