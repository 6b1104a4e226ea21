"""Runs of deployed classifiers: the threshold rule, adaptive draws, no labels; which votes can be reused."""

import numpy as np
import pytest
from PIL import Image
from tests.pipeline.test_recipe import ADAPTIVE, RANKS, SETS
from tests.pipeline.tiny_run import command

from multiguard.data import DigitsDataset
from multiguard.evaluate import read_certificates
from multiguard.votes import read_votes

MODEL = "model: {spec: tests.cli.test_certify:linear_model, output: logits}"


def run(home, text, *more):
    (home / "recipe.yaml").write_text(text.replace("model: onnx:t.onnx", MODEL))
    return command("run", home / "recipe.yaml", "--out", home / "run", *more)


@pytest.mark.parametrize("made_by", [MODEL, "train: {model: 'cnn:4', images: 20, val_images: 10, epochs: 1}"])
def test_too_few_labels(tmp_path, made_by):
    """A recipe that needs more labels than there are is refused before anything is made."""
    recipe = RANKS.replace("model: onnx:t.onnx", made_by)
    for was, becomes, name in (("k: 4", "k: 11", "certify.k"), ("sweep: {", "sweep: {k: [4, 11], ", "sweep.k")):
        code, _, err = run(tmp_path, recipe.replace(was, becomes))
        assert (code, err.count("\n")) == (2, 1)
        assert f"{name} is 11, and there are 10 labels; take 10 at most" in err
        assert not any((tmp_path / "run").rglob("*.*"))


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    home = tmp_path_factory.mktemp("sets")
    code, out, err = run(home, SETS)
    assert code == 0, err
    return home, out


def test_threshold_run(sets):
    """A run of the threshold rule goes to the page."""
    home, out = sets
    assert read_votes(home / "run/votes").rule == "threshold"
    assert {curve.config.rule.t for curve in read_certificates(home / "run/certificates").curves} == {0.3, 0.5}
    assert "t = 0.5, n = 60" in out
    assert "plotly" in (home / "run/report.html").read_text(encoding="utf-8")


def test_adaptive_run(tmp_path):
    """A run of adaptive draws is made for what it certifies."""
    code, out, err = run(tmp_path, ADAPTIVE, "--until", "certify")
    assert code == 0, err
    found = read_certificates(tmp_path / "run/certificates").certificates
    assert f"vote: {np.mean(found.draws):.1f} draws per image on average" in out
    assert f"adaptive draws: {np.mean(found.draws):.1f} per image on average, 200 at most" in out
    run_of = read_votes(tmp_path / "run/votes").provenance
    assert (run_of.stopping["k"], run_of.stopping["radii"], run_of.draws) == (4, (0.1, 0.3), 200)
    code, out, _ = run(tmp_path, ADAPTIVE, "--until", "certify")
    assert (code, out.count("skipped (unchanged)")) == (0, 2)
    code, _, err = run(tmp_path, ADAPTIVE, "--set", "certify.k=3", "--until", "certify")
    assert (code, err.count("\n")) == (2, 1)
    assert "holds the votes of another run: stopping differs" in err


def test_unlabelled_folder_run(tmp_path):
    """A run on a folder without labels."""
    (tmp_path / "images").mkdir()
    digits = DigitsDataset("test", size=20)
    for number in range(3):
        Image.fromarray(digits[number].image[0]).save(tmp_path / "images" / f"{number}.png")
    (tmp_path / "names.txt").write_text("\n".join("0123456789"))
    text = ADAPTIVE.replace("name: digits, images: 6", f"name: folder, root: {tmp_path / 'images'}, labelled: false")
    text = text.replace("model: onnx:t.onnx", MODEL).replace(
        "output: logits", f"output: logits, labels: {tmp_path / 'names.txt'}"
    )
    code, out, err = run(tmp_path, text)
    assert code == 0, err
    assert "100 pilot draws chose the labels" in out
    assert "no images" not in out
    assert not read_certificates(tmp_path / "run/certificates").certificates.labelled
    code, again, _ = command("run", tmp_path / "run/recipe.yaml", "--out", tmp_path / "run")
    assert (code, again.count("skipped (unchanged)")) == (0, 3)
