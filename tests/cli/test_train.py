import os
import re
import subprocess
import sys
from dataclasses import fields

import pytest
from PIL import Image

from multiguard.cli.main import run
from multiguard.train import Hyperparameters, hyperparameters_for

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "CUDA_VISIBLE_DEVICES": ""}


def multiguard(*arguments, cwd=None):
    command = [sys.executable, "-m", "multiguard", *map(str, arguments)]
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, cwd=cwd, check=False)


def example_of(help_text):
    words = " ".join(help_text.split())
    return re.search(r"Example: multiguard (.+?) (Arguments|Options):", words)[1].split()


def test_the_example_of_train_works(tmp_path):
    example = example_of(multiguard("train", "--help").stdout)
    done = multiguard(*example, "--epochs", 1, "--images", 64, "--val-images", 50, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"epoch +1  sigma 0\.25  loss +\d", done.stdout)
    assert "best epoch 1: mAP 0." in done.stdout
    assert (tmp_path / "runs/digits/model.json").is_file()


def test_the_example_of_data_check_works():
    done = multiguard(*example_of(multiguard("data", "check", "--help").stdout))
    assert done.returncode == 0, done.stderr
    assert "digits/test?seed=0: 1000 images, 1000 readable" in done.stdout
    assert re.search(r"^ *7 +\d+ +2\d\.\d%", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--data", "digitz", "--out", "x"], "unknown dataset 'digitz': did you mean 'digits'?"),
        (["train", "--data", "digits", "--out", "x", "--loss", "als"], "did you mean 'asl'"),
        (["train", "--data", "digits", "--out", "x", "--sigma", "-1"], "sigma is -1.0; it must be 0 or more"),
        (["train", "--data", "coco", "--root", ".", "--out", "x"], "no model given for 'coco'"),
        (["train", "--data", "digits", "--out", "x", "--weights", "no.pth"], "no.pth: no such weights file"),
        (["data", "check", "coco"], "coco: no root folder given"),
        (["data", "check", "folder", "--root", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, arguments, message):
    done = multiguard(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("multiguard: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def in_process(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["multiguard", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        run()
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "the size is 0"),
        (["--size", "-3"], "the size is -3"),
        (["--workers", "-1"], "workers is -1"),
        (["--seed", "-1"], "seed is -1"),
        (["--sigma", "nan"], "sigma is nan"),
        (["--val-sigma", "inf"], "val_sigma is inf"),
        (["--weight-decay", "-1"], "weight_decay is -1"),
        (["--model", "cnn:0"], "whole number above 0"),
        (["--weights", "empty"], "empty: not readable"),
        (["--denoiser", "empty"], "empty: not readable"),
        (["--cache", "empty"], "empty: no folder that can be written to"),
        (["--out", "empty"], "empty: no folder that can be written to"),
    ],
)
def test_no_mistake_in_an_option_is_a_traceback(tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    common = ["train", "--data", "digits", "--out", "x", "--images", 20, "--val-images", 20]
    code, out, err = in_process(monkeypatch, capsys, *common, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_an_empty_separator_is_a_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\n")
    code, _, err = in_process(monkeypatch, capsys, "data", "check", "folder", "--root", tmp_path, "--separator", "")
    assert code == 2
    assert "the separator is empty" in err


def test_labels_that_look_like_markup_are_printed_as_they_are(tmp_path, monkeypatch, capsys):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("file,labels\na.png,[/x];[red]tag;:cat:\n")
    code, out, _ = in_process(monkeypatch, capsys, "data", "check", "folder", "--root", tmp_path)
    assert code == 0
    assert all(label in out for label in ("[/x]", "[red]tag", ":cat:"))


def test_check_lists_the_faults_of_the_table_beside_those_of_the_images(tmp_path, monkeypatch, capsys):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("file,x\na.png,1\n./a.png,0\nb.png,2\nc.png,1\n")
    code, out, _ = in_process(monkeypatch, capsys, "data", "check", "folder", "--root", tmp_path)
    assert code == 1
    for part in ("line 3: the image 'a.png' stands already in line 2", "line 4: '2' under 'x'", "c.png: no such"):
        assert part in out
    (tmp_path / "labels.csv").write_text("file,x\na.png,3\nb.png,2\n")
    code, out, _ = in_process(monkeypatch, capsys, "data", "check", "folder", "--root", tmp_path)
    assert code == 1
    assert out.count("expected 0 or 1") == 2


def test_check_reads_a_seeded_part_when_asked(monkeypatch, capsys):
    asked = ["data", "check", "digits", "--images", 12, "--seed", 3]
    code, out, _ = in_process(monkeypatch, capsys, *asked)
    assert code == 0
    assert "digits/train?seed=0[images=12,seed=3]: 12 images, 12 readable" in out


def test_random_weights_are_said(tmp_path, monkeypatch, capsys):
    options = ["--model", "timm:test_vit3", "--size", 32, "--images", 20, "--val-images", 20, "--epochs", 0]
    code, out, err = in_process(monkeypatch, capsys, "train", "--data", "digits", *options, "--out", tmp_path)
    assert code == 0, err
    assert out.count("timm:test_vit3 starts from random weights") == 1


def shown(value):
    if isinstance(value, bool | str):
        return {True: "yes", False: "no"}.get(value, value)
    return f"{value:g}"


def test_the_defaults_in_the_help_are_those_of_the_recipe(monkeypatch, capsys):
    _, text, _ = in_process(monkeypatch, capsys, "train", "--help")
    said = {}
    for words in re.split(r"\n  (?=--)", text.split("Options:")[1])[1:]:
        default = re.search(r"\[([^]]+)\]\.?$", " ".join(words.split()))
        said[words.split()[0].removeprefix("--")] = default and default[1]
    usual, digits = hyperparameters_for("coco"), hyperparameters_for("digits")
    for field in fields(Hyperparameters):
        if field.name in ("val_sigma", "loss"):
            continue
        one, two = (shown(getattr(recipe, field.name)) for recipe in (usual, digits))
        assert said[field.name.replace("_", "-")] == (one if one == two else f"{one}; digits {two}"), field.name
    assert (said["val-sigma"], said["loss"]) == ("sigma", usual.loss)


def test_check_prints_every_problem_and_exits_with_1(tmp_path):
    Image.new("CMYK", (20, 10)).save(tmp_path / "good.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "labels.csv").write_text("file,labels\ngood.jpg,Käfer\nbad.jpg,Käfer\ngone.jpg,dog\n")
    done = multiguard("data", "check", "folder", "--root", tmp_path)
    assert done.returncode == 1
    assert "3 images, 1 readable" in done.stdout
    assert "bad.jpg: not a readable image" in done.stdout
    assert "gone.jpg: no such image" in done.stdout
    assert "sizes: 10x20 (1)" in done.stdout
    assert "never present: dog" in done.stdout


def test_a_folder_of_images_trains_with_a_held_out_tenth(tmp_path):
    rows = ["file,red,blue"]
    for number in range(40):
        red = number % 2
        Image.new("RGB", (24, 20), (200 * red, 30, 200 * (1 - red))).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{red},{1 - red}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    done = multiguard(
        *["train", "--data", "folder", "--root", tmp_path, "--model", "cnn:4", "--size", 16],
        *["--epochs", 3, "--batch", 6, "--sigma", 0.25, "--out", tmp_path / "m"],
    )
    assert done.returncode == 0, done.stderr
    assert "best epoch" in done.stdout
