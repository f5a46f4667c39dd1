"""The command line itself: quick, quiet, and complete by Tab."""

import os
import subprocess
import sys

import pytest
from support import ROOT, Tool

from ddpgen import __version__, cli
from ddpgen.template import presets, template_dir

SLOW = ("copier", "jinja2", "yaml", "torch", "plumbum")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_and_version_import_nothing_slow(arguments: list[str]) -> None:
    """Protects `_Commands`: importing a command to show its line would import PyYAML."""
    program = (
        "import sys\nfrom ddpgen.__main__ import main\n"
        f"sys.argv[1:] = {arguments}\n"
        "try: main()\n"
        f"finally: print('\\nimported', [name for name in {SLOW} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "imported []", done.stderr


def test_a_refusal_does_not_wait_for_copier() -> None:
    program = (
        "import sys\nfrom ddpgen.cli import run\n"
        "print(run(['new', 'class', '--yes']), 'copier' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "2 False\n", done.stderr


def test_version(tool: Tool) -> None:
    assert tool("--version").out == f"ddpgen {__version__}\n"


def test_help_shows_every_command(tool: Tool) -> None:
    shown = tool("--help").out
    for name, line in cli._COMMANDS.items():
        assert f"  {name}" in shown
        assert line in shown
        assert tool(name, "--help").code == 0


def test_without_a_command_the_help_is_shown(tool: Tool) -> None:
    done = tool()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: ddpgen")


def test_presets_are_a_line_each(tool: Tool) -> None:
    lines = tool("presets").out.splitlines()
    names = [preset.name for preset in presets(template_dir())]
    assert [line.split()[0] for line in lines] == names
    assert any("diabetes" in line for line in lines)


@pytest.mark.parametrize("arguments", ["--help", "new --help", "presets", "new proj --yes"])
def test_a_reader_that_has_ended_is_no_error_to_report(tool: Tool, arguments: str) -> None:
    """Protects the BrokenPipeError branch and `abandon_output`."""
    done = subprocess.run(
        ["bash", "-c", f'exec 3>&1; {{ sleep 0.1; "$0" {arguments}; }} | true', tool.executable],
        cwd=tool.cwd,
        env=tool.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_no_colour_reaches_a_pipe(tool: Tool) -> None:
    assert "\x1b" not in tool("new", "class").err
    assert "\x1b" not in tool("new", "myproj", "--yes").out


def complete(tool: Tool, shell: str, words: list[str]) -> list[str]:
    """Return what Tab offers for the last word, as Click hands it to the shell."""
    line = " ".join(["ddpgen", *words])
    done = tool(
        env={
            "_DDPGEN_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
        }
    )
    assert done.code == 0, done.err
    return done.out.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_tab_completes_commands_options_and_choices(tool: Tool, shell: str) -> None:
    def offered(*words: str) -> str:
        return " ".join(complete(tool, shell, list(words)))

    assert "presets" in offered("pre")
    assert "--tracker" in offered("new", "--tr")
    assert "vision" in offered("new", "--preset", "vi")
    assert "wandb" in offered("new", "--tracker", "w")
    with_two = offered("new", "--with", "slurm,d")
    assert "slurm,docker" in with_two
    assert "slurm,slurm" not in offered("new", "--with", "slurm,s")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_click_gives_the_completion_script(tool: Tool, shell: str) -> None:
    done = tool(env={"_DDPGEN_COMPLETE": f"{shell}_source"})
    assert done.code == 0
    assert "_DDPGEN_COMPLETE" in done.out


def test_python_m_ddpgen_is_the_same_program(tool: Tool) -> None:
    python = os.fspath(tool.executable.parent / "python")
    done = subprocess.run(
        [python, "-m", "ddpgen", "--version"], env=tool.env, capture_output=True, text=True
    )
    assert done.stdout == f"ddpgen {__version__}\n"


def test_it_runs_with_warnings_as_errors(tool: Tool) -> None:
    done = tool("new", "myproj", "--yes", env={"PYTHONWARNINGS": "error"})
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_error_that_a_signal_has_brought_up_is_told_as_the_signal(
    number: str, code: int
) -> None:
    """Protects `signals.exit_code`: Python drops what a signal raises inside of a `__del__`.

    And `signals._report_dropped`: it would print a traceback of what it drops.
    """
    script = (
        "import os, signal, sys; from ddpgen import cli, signals\n"
        "class Dropped:\n"
        f"    def __del__(self): os.kill(os.getpid(), signal.{number})\n"
        "def main(*arguments, **options):\n"
        "    Dropped()\n"
        "    print('dropped', flush=True)\n"
        "    raise OSError(39, 'Directory not empty')\n"
        "cli.group.main = main\n"
        "signals.unwind()\n"
        "sys.exit(cli.run(['presets']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, "dropped\n")
    assert done.stderr == "error: interrupted\n"
