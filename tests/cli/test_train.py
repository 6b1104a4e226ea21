"""`multiguard train`: example, mistakes, help."""

import re
from dataclasses import fields

import pytest
from PIL import Image
from tests.pipeline.tiny_run import command

from multiguard.train import Hyperparameters, hyperparameters_for


def example_of(help_text):
    words = " ".join(help_text.split())
    return re.search(r"Example: multiguard (.+?) (Arguments|Options):", words)[1].split()


def test_train_example(tmp_path, monkeypatch):
    """The example of train works."""
    monkeypatch.chdir(tmp_path)
    example = example_of(command("train", "--help")[1])
    code, out, err = command(*example, "--epochs", 1, "--images", 64, "--val-images", 50)
    assert code == 0, err
    assert re.search(r"epoch +1  loss +\d", out)
    assert "best epoch 1: mAP 0." in out
    assert (tmp_path / "runs/digits/model.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--data", "digitz", "--out", "x"], "unknown dataset 'digitz': did you mean 'digits'?"),
        (["train", "--data", "digits", "--out", "x", "--loss", "als"], "did you mean 'asl'"),
        (
            ["train", "--data", "digits", "--out", "x", "--sigma", "-1"],
            "--sigma is -1.0; expected a number of 0 or more",
        ),
        (["train", "--data", "coco", "--root", ".", "--out", "x"], "no model given for 'coco'"),
        (["train", "--data", "digits", "--out", "x", "--weights", "no.pth"], "no.pth: no such weights file"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, arguments, message):
    """A mistake is one line and exit code 2."""
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*arguments)
    assert (code, out, err[:12], err.count("\n")) == (2, "", "multiguard: ", 1)
    assert message in err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "--size is 0; expected a whole number from 1 to"),
        (["--size", "-3"], "--size is -3"),
        (["--workers", "-1"], "workers is -1"),
        (["--seed", "-1"], "seed is -1"),
        (["--sigma", "nan"], "sigma is nan"),
        (["--val-sigma", "inf"], "--val-sigma is inf"),
        (["--weight-decay", "-1"], "--weight-decay is -1"),
        (["--model", "cnn:0"], "integer from 1 to 2048"),
        (["--weights", "empty"], "empty: not readable"),
        (["--denoiser", "empty"], "empty: not readable"),
        (["--cache", "empty"], "empty: no folder that can be written to"),
        (["--out", "empty"], "empty: no folder that can be written to"),
    ],
)
def test_option_mistakes(tmp_path, monkeypatch, arguments, message):
    """No mistake in an option is a traceback."""
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    common = ["train", "--data", "digits", "--out", "x", "--images", 20, "--val-images", 20]
    code, out, err = command(*common, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_empty_separator(tmp_path):
    """An empty separator is refused in one line."""
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\n")
    code, _, err = command("data", "check", "folder", "--root", tmp_path, "--separator", "")
    assert code == 2
    assert "the separator is empty" in err


def test_markup_labels(tmp_path):
    """Labels that look like markup are printed as they are."""
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("file,labels\na.png,[/x];[red]tag;:cat:\n")
    code, out, _ = command("data", "check", "folder", "--root", tmp_path)
    assert code == 0
    assert all(label in out for label in ("[/x]", "[red]tag", ":cat:"))


def test_table_problems(tmp_path):
    """Check lists the failures of the table beside those of the images."""
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("file,x\na.png,1\n./a.png,0\nb.png,2\nc.png,1\n")
    code, out, _ = command("data", "check", "folder", "--root", tmp_path)
    assert code == 1
    for part in ("line 3: image 'a.png' is already listed in line 2", "line 4: '2' under 'x'", "c.png: no such"):
        assert part in out
    (tmp_path / "labels.csv").write_text("file,x\na.png,3\nb.png,2\n")
    code, out, _ = command("data", "check", "folder", "--root", tmp_path)
    assert code == 1
    assert out.count("expected 0 or 1") == 2


def test_seeded_sample():
    """With --images the check reads a seeded sample."""
    asked = ["data", "check", "digits", "--images", 12, "--seed", 3]
    code, out, _ = command(*asked)
    assert code == 0
    assert "digits train (seed 0), 12 random images (seed 3): 12 images, 12 readable" in out


def test_random_weights_note(tmp_path):
    """A note says that a network starts from random weights."""
    options = ["--model", "timm:test_vit3", "--size", 32, "--images", 20, "--val-images", 20, "--epochs", 0]
    code, out, err = command("train", "--data", "digits", *options, "--out", tmp_path)
    assert code == 0, err
    assert out.count("timm:test_vit3 starts from random weights") == 1


def shown(value):
    if isinstance(value, bool | str):
        return {True: "yes", False: "no"}.get(value, value)
    return f"{value:g}"


def test_help_defaults():
    """The defaults in the help are those of the recipe."""
    _, text, _ = command("train", "--help")
    said = {}
    for words in re.split(r"\n  (?=--)", text.split("Options:")[1])[1:]:
        default = re.search(r"\[([^]]+)\]\.?$", " ".join(words.split()))
        said[words.split()[0].removeprefix("--")] = default and default[1]
    usual, digits = hyperparameters_for("coco"), hyperparameters_for("digits")
    for field in fields(Hyperparameters):
        if field.name in ("val_noise", "loss"):
            continue
        one, two = (shown(getattr(recipe, field.name)) for recipe in (usual, digits))
        name = "batch-size" if field.name == "batch" else field.name.replace("_", "-")
        assert said[name] == (one if one == two else f"{one}; digits {two}"), field.name
    assert (said["val-noise"], said["loss"]) == ("noise", usual.loss)


def test_image_problems(tmp_path):
    """Check prints every problem and exits with 1."""
    Image.new("CMYK", (20, 10)).save(tmp_path / "good.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "labels.csv").write_text("file,labels\ngood.jpg,Käfer\nbad.jpg,Käfer\ngone.jpg,dog\n")
    code, out, _ = command("data", "check", "folder", "--root", tmp_path)
    assert code == 1
    assert "3 images, 1 readable" in out
    assert "bad.jpg: not a readable image" in out
    assert "gone.jpg: no such image" in out
    assert "sizes: 10x20 (1)" in out
    assert "never present: dog" in out


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
