"""`multiguard train`: example, mistakes, settings."""

import json
import re

from PIL import Image
from tests.pipeline.tiny_run import command

FEW = ["train", "--data", "digits", "--images", 20, "--set", "val_images=20"]


def test_train_example(tmp_path, monkeypatch):
    """The example of train works, and any other setting is given by --set."""
    monkeypatch.chdir(tmp_path)
    words = " ".join(command("train", "--help")[1].split())
    example = re.search(r"Example: multiguard (.+?) (Arguments|Options):", words)[1].split()
    changes = ["--set", "keep=last", "--set", "crop=0.25", "--set", "flip=true", "--set", "val_sigma=0.5"]
    code, out, err = command(*example, "--epochs", 1, "--images", 64, "--set", "val_images=50", *changes)
    assert code == 0, err
    assert re.search(r"epoch +1  loss +\d", out)
    assert "last epoch 1: mAP 0." in out
    recipe = json.loads((tmp_path / "runs/digits/model.json").read_text())["training"]["recipe"]
    assert (recipe["crop"], recipe["flip"], recipe["val_noise"], recipe["lr"]) == (0.25, True, "gaussian:0.5", 0.002)


def test_random_weights_note(tmp_path):
    """A note says that a network starts from random weights."""
    code, out, err = command(*FEW, "--model", "timm:test_vit3", "--size", 32, "--epochs", 0, "--out", tmp_path)
    assert code == 0, err
    assert out.count("timm:test_vit3 starts from random weights") == 1


def test_folder_training(tmp_path):
    """A folder of images trains with a held out tenth."""
    rows = ["file,red,blue"]
    for number in range(40):
        red = number % 2
        Image.new("RGB", (24, 20), (200 * red, 30, 200 * (1 - red))).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{red},{1 - red}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    code, out, err = command(
        *["train", "--data", "folder", "--root", tmp_path, "--model", "cnn:4", "--size", 16],
        *["--epochs", 3, "--batch-size", 6, "--sigma", 0.25, "--out", tmp_path / "m"],
    )
    assert code == 0, err
    assert "best epoch" in out
