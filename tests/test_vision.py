"""The vision preset: images of one's own, soft labels, and metrics that are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from generated import copy_preset, imported, launch, metrics
from PIL import Image

NAMES = ("config", "data", "model")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of the preset."""
    return copy_preset(tmp_path_factory.mktemp("vision") / "p", "vision")


def write_images(folder: Path) -> list[str]:
    """Write pictures of two classes, dark and light ones, and return the settings for them."""
    draw = np.random.default_rng(0)
    for part, count in (("train", 20), ("validation", 7)):
        for lowest, name in ((0, "dark"), (128, "light")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(lowest, lowest + 128, (20, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
    return ["--images", str(folder), "--classes", "2", "--image-size", "16"]


def test_a_folder_of_images_is_trained_on_with_mixup_and_smoothing(
    project: Path, tmp_path: Path
) -> None:
    """Two processes, from files; what is so easy is soon right."""
    options = write_images(tmp_path)
    options += ["--mixup=0.2", "--label-smoothing=0.1", "--mirror", "--batch-size=4"]
    done = launch(project, "--device=cpu", "--epochs=6", *options)
    assert done.code == 0, done.err
    last = [line for line in metrics(project) if "validation/accuracy" in line][-1]
    assert last["validation/accuracy"] == 1
    assert last["validation/top5_accuracy"] == 1


def test_an_image_has_the_class_of_its_folder(project: Path, tmp_path: Path) -> None:
    options = write_images(tmp_path)
    with imported(project, *NAMES) as (config, data, _):
        for images, count in zip(
            data.build_datasets(config.load_config(options)), (40, 14), strict=True
        ):
            assert len(images) == count
            for image, label in (images[index] for index in range(count)):
                assert image.shape == (3, 16, 16)
                assert image.mean() < 0.5 if label == 0 else image[:, 4:12, 4:12].mean() > 0.5


def test_folders_that_do_not_fit_are_refused_with_the_remedy(project: Path, tmp_path: Path) -> None:
    options = write_images(tmp_path)
    with imported(project, *NAMES) as (config, data, _):
        for wrong, message in (
            ([*options, "--classes=3"], "has 2 folders: --classes 2"),
            ([*options[2:], "--images", "nowhere"], "no folders with images in nowhere/train"),
        ):
            with pytest.raises(config.SettingsError, match=message):
                data.build_datasets(config.load_config(wrong))
        for image in (tmp_path / "validation/dark").iterdir():
            image.unlink()
        with pytest.raises(config.SettingsError, match="validation/dark has no images"):
            data.build_datasets(config.load_config(options))


@pytest.mark.parametrize("options", [["--mixup=1"], ["--label-smoothing=0.2"]])
def test_soft_labels_are_shares_and_validation_has_none(project: Path, options: list[str]) -> None:
    """Label smoothing is what cross_entropy(label_smoothing=...) does."""
    with imported(project, *NAMES) as (config, data, model):
        train, validation = data.build_datasets(config.load_config(options))
        image, shares = train[5]
        assert shares.sum().item() == pytest.approx(1)
        assert validation[5][1].dtype == torch.int64
        if "mixup" in options[0]:
            assert len({train[index][1].max().item() for index in range(9)}) > 5
        else:
            logits = torch.randn(1, 10)
            expected = torch.nn.functional.cross_entropy(
                logits, train.labels[5][None], label_smoothing=0.2
            )
            torch.testing.assert_close(model.loss_fn(logits, (image, shares[None])), expected)


def test_images_are_mixed_as_their_labels_are(project: Path) -> None:
    """Protects `lerp` of both: an image of class n is n everywhere but at its border."""
    with imported(project, *NAMES) as (config, data, _):
        labels = torch.arange(10)
        images = labels.float().view(10, 1, 1, 1).expand(10, 1, 8, 8)
        mixed = data.TrainingImages(images, labels, config.load_config(["--mixup=1"]))
        torch.manual_seed(0)
        for image, shares in (mixed[index % 10] for index in range(30)):
            torch.testing.assert_close(image[0, 4, 4], (shares * labels).sum())


@pytest.mark.parametrize(("options", "ways"), [([], 1), (["--mirror"], 2)])
def test_images_are_mirrored_when_asked_to(project: Path, options: list[str], ways: int) -> None:
    with imported(project, *NAMES) as (config, data, _):
        image = torch.arange(8.0).expand(1, 1, 8, 8)
        seen = data.TrainingImages(image, torch.tensor([0]), config.load_config(options))
        torch.manual_seed(0)
        middle_rows = [seen[0][0][0, 4] for _ in range(20)]
        rising = {bool(row[2] < row[5]) for row in middle_rows}
        assert len(rising) == ways


def test_top_five_counts_each_sample(project: Path) -> None:
    with imported(project, *NAMES) as (_, _, model):
        logits = torch.arange(10.0).expand(4, 10)
        labels = torch.tensor([9, 9, 5, 4])
        found = model.compute_metrics(model.update_metrics(logits, (None, labels)))
        assert found["accuracy"] == 0.5
        assert found["top5_accuracy"] == 0.75
