"""A preset is a folder, and nothing else of a project knows which one it was made from."""

from __future__ import annotations

import dataclasses
import shutil
import tomllib
from pathlib import Path

import pytest
from generated import copy_preset, render
from releases import make_checkout, write_launcher
from support import Tool

from ddpgen.template import presets, questions, template_dir

NAMES = [preset.name for preset in presets(template_dir())]
OF_THE_PRESET = {"model.py", "data.py", "settings.py", "pyproject.toml", "configs/default.toml"}


def test_no_other_file_depends_on_the_preset(tmp_path: Path) -> None:
    """Protects the seam: very different tasks fit through it, and train.py is the same for all."""
    different = set()
    projects = [copy_preset(tmp_path / name, name) for name in NAMES]
    files = {path.relative_to(projects[0]) for path in projects[0].rglob("*") if path.is_file()}
    for project in projects[1:]:
        assert files == {path.relative_to(project) for path in project.rglob("*") if path.is_file()}
        different |= {
            str(file)
            for file in files
            if (project / file).read_bytes() != (projects[0] / file).read_bytes()
        }
    assert different <= OF_THE_PRESET | {".copier-answers.yml"}
    assert {"model.py", "data.py"} <= different
    assert {"train.py", "loaders.py", "distributed.py", "checkpoint.py"} <= set(map(str, files))


def test_a_new_folder_is_a_new_preset(tool: Tool, tmp_path: Path) -> None:
    """Red when any list of presets is kept elsewhere: only the folder is added here."""
    checkout = make_checkout(tmp_path / "checkout")
    mine = checkout / "template/presets/mine"
    shutil.copytree(checkout / "template/presets/regression", mine)
    (mine / "preset.yml").write_text(
        'description: what we do\ndata: "ours: all of it"\n'
        'dependencies: ["einops>=0.8"]\ndefaults: {lr: 0.003, best_metric: rmse}\n'
    )
    tool = dataclasses.replace(tool, executable=write_launcher(checkout))
    line = next(line for line in tool("presets").out.splitlines() if "mine" in line)
    assert line.split(maxsplit=1)[1] == "what we do (ours: all of it); needs einops>=0.8"
    done = tool("new", "ours", "--preset", "mine", "--yes", "--no-git")
    assert done.code == 0, done.err
    ours = tool.cwd / "ours"
    copied = render(tmp_path / "copied", checkout, project_name="myproj", preset="mine")
    for project in (ours, copied):
        settings = tomllib.loads((project / "configs/default.toml").read_text())
        assert settings == {"tracker": "tensorboard", "lr": 0.003, "best_metric": "rmse"}
        needed = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
        assert "einops>=0.8" in needed
        assert not any("scikit" in dependency for dependency in needed)


@pytest.mark.parametrize("source", ["", "template"])
def test_copier_offers_what_ddpgen_offers(source: str, tmp_path: Path) -> None:
    """Protects the expression in template/copier.yml, also from the root of the repository."""
    template = make_checkout(tmp_path / "checkout") / source
    with pytest.raises(ValueError, match="is not in") as refused:
        render(tmp_path / "project", template, project_name="myproj", preset="no such preset")
    assert str(refused.value).endswith(f"is not in {list(questions()['preset'].choices)}")
