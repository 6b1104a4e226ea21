import os
import re
import subprocess
import sys

import pytest
from PIL import Image

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
    assert "digits/test?seed=0: 1000 pictures, 1000 readable" in done.stdout
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


def test_check_prints_every_problem_and_exits_with_1(tmp_path):
    Image.new("CMYK", (20, 10)).save(tmp_path / "good.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    (tmp_path / "labels.csv").write_text("file,labels\ngood.jpg,Käfer\nbad.jpg,Käfer\ngone.jpg,dog\n")
    done = multiguard("data", "check", "folder", "--root", tmp_path)
    assert done.returncode == 1
    assert "3 pictures, 1 readable" in done.stdout
    assert "bad.jpg: not a readable picture" in done.stdout
    assert "gone.jpg: no such picture" in done.stdout
    assert "sizes: 10x20 (1)" in done.stdout
    assert "never present: dog" in done.stdout


def test_a_folder_of_pictures_trains_with_a_held_out_tenth(tmp_path):
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
