"""The language-model preset: each token counts once, whatever the ranks and the windows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from generated import ENVIRONMENT, copy_preset, imported, launch, metrics

NAMES = ("config", "data", "model")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of the preset."""
    return copy_preset(tmp_path_factory.mktemp("language-model") / "p", "language-model")


@pytest.mark.parametrize("lengths", [[2], [9, 1, 5, 4, 3], [100], [5, 5]])
def test_each_token_but_the_first_of_a_document_is_predicted_once(
    project: Path, lengths: list[int]
) -> None:
    """Protects `Windows`: none spans two documents, and what follows is what is to be said."""
    with imported(project, *NAMES) as (_, data, _):
        tokens = np.arange(1, sum(lengths) + 1, dtype=np.uint16)
        windows = data.Windows(tokens, lengths, 4)
        predicted = []
        for inputs, targets in (windows[index] for index in range(len(windows))):
            known = targets != data.NOTHING
            assert torch.equal(inputs[known] + 1, targets[known])
            predicted += targets[known].tolist()
        firsts = {sum(lengths[:number]) + 1 for number in range(len(lengths))}
        assert predicted == [token for token in tokens.tolist() if token not in firsts]


def test_the_batches_of_the_real_text_differ_in_their_tokens(project: Path) -> None:
    """Or the project's own parity test would not have met the case that loss_weight is for."""
    with imported(project, *NAMES) as (config, data, model):
        train, _ = data.build_datasets(config.load_config([]))
        counts = {int(model.loss_weight(train[index])) for index in range(0, len(train), 7)}
    assert len(counts) > 5


def test_a_token_file_of_ones_own_text_is_mapped_and_trained_on(
    project: Path, tmp_path: Path
) -> None:
    """`python data.py`, then a run on two processes: a text sample, speed, and exact perplexity."""
    for part, repeats in (("train", 200), ("validation", 3)):
        (tmp_path / f"{part}.txt").write_text("she sells sea shells on the sea shore\n" * repeats)
    texts = [str(tmp_path / f"{part}.txt") for part in ("train", "validation")]
    command = [sys.executable, "data.py", str(tmp_path / "tokens"), *texts]
    subprocess.run(command, cwd=project, env=ENVIRONMENT, check=True)
    with imported(project, *NAMES) as (config, data, _):
        train, _ = data.build_datasets(config.load_config(["--corpus", str(tmp_path / "tokens")]))
        assert isinstance(train.tokens, np.memmap)
    options = ["--device=cpu", "--corpus", str(tmp_path / "tokens"), "--peak-tflops=0.05"]
    done = launch(project, *options, "--epochs=8", "--log-every=1", "--batch-size=8")
    assert done.code == 0, done.err
    assert len(re.findall(r"sample: ['\"]she sells sea sh", done.out)) == 8
    lines = metrics(project)
    evaluated = [line for line in lines if "validation/loss" in line]
    for line in evaluated:
        assert line["validation/perplexity"] == pytest.approx(np.exp(line["validation/loss"]))
    assert evaluated[-1]["validation/perplexity"] < evaluated[0]["validation/perplexity"] / 2
    speeds = [line for line in lines if "train/mfu" in line]
    assert speeds
    for line in speeds:
        assert line["train/tokens_per_second"] == 64 * line["train/samples_per_second"]
        assert line["train/mfu"] > 0


def test_a_token_beyond_the_vocabulary_is_named_with_the_remedy(
    project: Path, tmp_path: Path
) -> None:
    """Protects the look into the file: an embedding says "index out of range", a GPU even less."""
    for part in ("train", "validation"):
        np.save(tmp_path / f"{part}.npy", np.arange(301, dtype=np.uint16))
    options = ["--corpus", str(tmp_path)]
    with imported(project, *NAMES) as (config, data, _):
        with pytest.raises(config.SettingsError, match=r"train.npy has token 300: .* 301 or more"):
            data.build_datasets(config.load_config(options))
        assert data.build_datasets(config.load_config([*options, "--vocabulary", "301"]))


def test_the_embedding_is_tied_and_small_at_the_start(project: Path) -> None:
    """An untrained model knows nothing: its loss is that of a guess among 256 bytes."""
    with imported(project, *NAMES) as (config, data, model):
        settings = config.load_config([])
        torch.manual_seed(0)
        built = model.build_model(settings).eval()
        assert built.head.weight is built.tokens.weight
        inputs, targets = data.build_datasets(settings)[1][0]
        loss = model.loss_fn(built(inputs[None]), (inputs[None], targets[None]))
        assert loss.item() == pytest.approx(np.log(256), rel=0.1)
        with pytest.raises(config.SettingsError, match="not divisible"):
            model.build_model(config.load_config(["--heads", "3"]))


def test_the_model_looks_back_and_never_ahead(project: Path) -> None:
    """Protects is_causal: a changed token changes what is said after it and nothing before."""
    with imported(project, *NAMES) as (config, _, model):
        built = model.build_model(config.load_config([])).eval()
        tokens = torch.arange(64)[None]
        changed = tokens.clone()
        changed[0, 30] = 200
        differs = (built(tokens) != built(changed)).any(dim=-1)[0]
        assert not differs[:30].any()
        assert differs[30:].all()
