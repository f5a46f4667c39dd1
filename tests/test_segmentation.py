"""The segmentation preset: pictures and masks stay together, and the backbone is a real DINOv3."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from generated import ENVIRONMENT, copy_preset, imported, launch, metrics
from PIL import Image
from safetensors.torch import load_file

NAMES = ("config", "data", "model")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of the preset."""
    return copy_preset(tmp_path_factory.mktemp("segmentation") / "p", "segmentation")


def write_pictures(folder: Path, count: int) -> None:
    """Write pictures of two colours, white where the mask has class 1."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        mask = np.zeros((40, 56), dtype=np.uint8)
        mask[number : number + 20, 10:40] = 1
        Image.fromarray(np.stack([mask * 255] * 3, axis=-1)).save(folder / f"images/{number}.jpg")
        Image.fromarray(mask).save(folder / f"masks/{number}.png")


def test_pictures_without_a_partner_are_listed(project: Path, tmp_path: Path) -> None:
    """Protects the check in `find_pairs`: sorted lists of other lengths would shift the pairs."""
    write_pictures(tmp_path, 5)
    (tmp_path / "masks/3.png").rename(tmp_path / "masks/three.png")
    with imported(project, *NAMES) as (config, data, _):
        settings = config.load_config(["--pictures", str(tmp_path)])
        with pytest.raises(config.SettingsError) as refused:
            data.build_datasets(settings)
        assert "images/3.jpg has no mask" in str(refused.value)
        assert "masks/three.png has no image" in str(refused.value)
        assert "images/2.jpg" not in str(refused.value)
        (tmp_path / "masks/three.png").rename(tmp_path / "masks/3.png")
        train, validation = data.build_datasets(settings)
        assert (len(train), len(validation)) == (4, 1)
        Image.fromarray(np.full((40, 56), 7, dtype=np.uint8)).save(tmp_path / "masks/3.png")
        with pytest.raises(ValueError, match=r"3\.png has classes \[7\]"):
            data.read(tmp_path / "images/3.jpg", tmp_path / "masks/3.png")
        with pytest.raises(ValueError, match=r"shape \(20, 56\), its image \(40, 56\)"):
            data.read(tmp_path / "images/3.jpg", np.zeros((20, 56), dtype=np.uint8))


def test_a_picture_and_its_mask_are_cut_and_mirrored_alike(project: Path, tmp_path: Path) -> None:
    """Protects `augment`: what is white in the picture has class 1, wherever it has gone."""
    write_pictures(tmp_path, 5)
    with imported(project, *NAMES) as (config, data, _):
        train, _ = data.build_datasets(config.load_config(["--pictures", str(tmp_path)]))
        torch.manual_seed(0)
        seen = [train[index % 4] for index in range(20)]
    assert len({mask.numpy().tobytes() for _, mask in seen}) > 15
    for image, mask in seen:
        inside = image.mean(0) > image.mean(0).amax() / 2
        assert (inside == (mask == 1)).float().mean() > 0.97  # the border is blurred


def test_the_loss_of_a_batch_is_the_mean_of_its_parts_by_pixels(project: Path) -> None:
    """Protects `loss_sum`, with the weights of classes and IGNORE."""
    with imported(project, *NAMES) as (_, _, model):
        torch.manual_seed(0)
        logits, masks = torch.randn(6, 4, 8, 8), torch.randint(4, (6, 8, 8))
        masks[0] = model.IGNORE
        masks[1, :5] = model.IGNORE
        parts = [(logits[:2], (None, masks[:2])), (logits[2:], (None, masks[2:]))]
        weights = [model.loss_weight(batch) for _, batch in parts]
        losses = [model.loss_fn(*part) for part in parts]
        mean = sum(map(torch.mul, losses, weights)) / sum(weights)
        torch.testing.assert_close(mean, model.loss_fn(logits, (None, masks)))
        sums = model.update_metrics(logits, (None, masks))
        assert sums["confusion"].sum() == (masks != model.IGNORE).sum()
        changed = logits.clone()
        changed[0] = 9.0
        changed[1, :, :5] = 9.0
        torch.testing.assert_close(model.loss_fn(changed, (None, masks)), mean)


def test_the_loss_is_cross_entropy_and_dice(project: Path) -> None:
    """Of a picture of one class that could be any: by hand, whatever the weight of the class."""
    with imported(project, *NAMES) as (_, _, model):
        found = model.loss_fn(torch.zeros(1, 4, 8, 8), (None, torch.zeros(1, 8, 8).long()))
        overlaps = [(2 * 64 / 4 + 1) / (64 / 4 + 64 + 1), *[1 / (64 / 4 + 1)] * 3]
        assert found.item() == pytest.approx(np.log(4) + 1 - sum(overlaps) / 4)


def test_pixels_to_ignore_are_as_if_they_were_not_there(project: Path) -> None:
    """Protects IGNORE in the weights and in in Dice: the rest alone has the same loss."""
    with imported(project, *NAMES) as (_, _, model):
        torch.manual_seed(0)
        logits, masks = torch.randn(2, 4, 8, 8), torch.randint(4, (2, 8, 8))
        rest = model.loss_fn(logits[:, :, :5], (None, masks[:, :5]))
        masks[:, 5:] = model.IGNORE
        torch.testing.assert_close(model.loss_fn(logits, (None, masks)), rest)


def test_settings_that_do_not_fit_are_refused_with_the_numbers(project: Path) -> None:
    with imported(project, *NAMES) as (config, data, model):
        with pytest.raises(config.SettingsError, match="image_size 40 is not a multiple of 16"):
            model.build_model(config.load_config(["--image-size", "40"]))
        with pytest.raises(config.SettingsError, match="both sets need some"):
            data.build_datasets(config.load_config(["--validation-share", "0"]))


def test_a_frozen_backbone_is_not_in_training_mode(project: Path) -> None:
    """Protects `train` of the model: its dropout and stochastic depth would stay on."""
    with imported(project, *NAMES) as (config, _, model):
        for options, training in (([], True), (["--freeze"], False)):
            built = model.build_model(config.load_config(options)).train()
            assert built.head.training
            assert built.backbone.training == training


def test_the_mean_iou_is_that_of_the_classes_that_occur(project: Path) -> None:
    with imported(project, *NAMES) as (_, _, model):
        confusion = torch.tensor([[8, 2, 0, 0], [1, 3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
        one = torch.ones((), dtype=torch.float64)
        found = model.compute_metrics({"confusion": confusion, "loss": one, "weight": one})
        assert found["iou_background"] == pytest.approx(8 / 11)
        assert found["iou_coin"] == pytest.approx(3 / 6)
        assert found["miou"] == pytest.approx((8 / 11 + 3 / 6) / 2)


def test_predictions_are_shown_below_their_pictures_and_masks(project: Path) -> None:
    """Protects `show` and `paint`: three rows, a column for each picture, a colour for a class."""
    with imported(project, *NAMES) as (config, data, model):
        settings = config.load_config([])
        _, validation = data.build_datasets(settings)
        built = model.build_model(settings).eval()
        shown = model.show(settings, built, validation)["predictions"]
        assert shown.shape == (3, 3 * 64, 6 * 64)
        pictures, masks, predicted = shown.split(64, dim=1)
        answers = built(torch.stack([validation[number][0] for number in range(6)])).argmax(dim=1)
        for number, column in enumerate(range(0, 6 * 64, 64)):
            image, mask = validation[number]
            assert torch.equal(pictures[:, :, column : column + 64], image)
            colours = masks[:, :, column : column + 64]
            assert torch.equal((colours == 1).all(dim=0), mask == model.IGNORE)
            known = mask != model.IGNORE
            assert torch.equal(colours[:, known].T, model.COLOURS[mask[known]])
            painted = model.paint(answers[number : number + 1])[0]
            assert torch.equal(predicted[:, :, column : column + 64], painted)


def test_a_checkpoint_of_a_backbone_is_loaded_frozen_and_left_as_it_is(
    project: Path, tmp_path: Path
) -> None:
    """Real `from_pretrained`, two processes; only the head has an optimizer state and moves.

    What it predicts is an image for TensorBoard.
    """
    program = (
        "import sys\nfrom config import load_config\nfrom model import small_backbone\n"
        "small_backbone(load_config([])).save_pretrained(sys.argv[1])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "backbone")]
    subprocess.run(command, cwd=project, env=ENVIRONMENT, check=True, capture_output=True)
    options = ["--device=cpu", "--backbone", str(tmp_path / "backbone"), "--freeze"]
    done = launch(project, *options, "--limit-steps=2", "--log-every=1")
    assert done.code == 0, done.err
    assert done.err == ""
    assert len([line for line in metrics(project) if "train/loss" in line]) == 2
    state = torch.load(project / "runs/default/checkpoints/last.pt", weights_only=True)
    after = {
        name.removeprefix("backbone.").removeprefix("model."): weight
        for name, weight in state["model"].items()
    }  # a file names them without "model."
    for name, weight in load_file(tmp_path / "backbone/model.safetensors").items():
        assert torch.equal(after[name], weight), name
    head = [name for name in state["model"] if name.startswith("head.")]
    assert len(state["optimizer"]["state"]) == len(head) > 0
    (events,) = (project / "runs/default").glob("events.out.tfevents.*")  # rank 0 alone writes
    assert b"predictions" in events.read_bytes()


def test_weights_that_cannot_be_had_end_the_run_with_what_to_do(project: Path) -> None:
    """Offline, one message for two processes, before any step."""
    name = "facebook/dinov3-vits16-pretrain-lvd1689m"
    options = ["--device=cpu", "--name=offline", "--backbone", name]
    done = launch(project, *options, env={"HF_HUB_OFFLINE": "1"})
    assert done.code == 2, done.err
    assert done.err.count(f"error: --backbone {name} cannot be loaded") == 1
    assert "gated" in done.err
    assert json.dumps(name) not in done.out
