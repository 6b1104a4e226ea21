"""Commands with other noise than Gaussian: what is trained, voted on, predicted and verified, and what is refused."""

import json

import pytest
from PIL import Image
from tests.pipeline.tiny_run import command

from multiguard.data import DigitsDataset
from multiguard.models.card import read_card
from multiguard.votes import read_votes

TRAIN = ["train", "--data", "digits", "--size", 16, "--model", "cnn:2", "--epochs", 1, "--images", 64]
TRAIN += ["--set", "val_images=40"]
DATA = ["--data", "digits", "--images", 3]


def done(*arguments):
    code, out, err = command(*arguments)
    assert code == 0, err
    return out


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a model trained on bands."""
    folder = tmp_path_factory.mktemp("noise")
    said = done(*TRAIN, "--noise", "band:4", "--out", folder / "bands")
    assert "under band:4/16" in said
    Image.fromarray(DigitsDataset("test", size=16)[0].image.transpose(1, 2, 0)).save(folder / "digit.png")
    return folder


@pytest.fixture
def place(home, monkeypatch):
    """That folder as the current one."""
    monkeypatch.chdir(home)
    return home


def test_trained_noise(place):
    """The model folder says which noise it was trained with, and is made for."""
    card = read_card(place / "bands")
    assert (str(card.noise), card.trained_noise) == ("band:4/16", "band:4/16")
    assert card.training["recipe"]["noise"] == "band:4/16"


def test_votes_of_bands(place):
    """Every band votes once, without a seed to guess; certificates hold for certain; verify draws them again."""
    said = done("vote", "--model", "bands", *DATA, "--out", "votes")
    assert "16 votes on each of 3 images, band:4/16, by " in said
    assert "note" not in said
    run = read_votes(place / "votes").provenance
    assert (str(run.noise), run.trained_noise, run.draws) == ("band:4/16", "band:4/16", 16)
    certified = done("certify", "votes", "--k", 3, "--k-prime", 2, "--out", "certificates")
    assert "nothing is random" in certified
    assert "all equal" in done("verify", "certificates", "--votes", "votes", "--model", "bands", "--images", 3)


@pytest.mark.parametrize("noise", ["pixels:60", "uniform:0.5"])
def test_votes_of_another_noise(place, noise):
    """A model that was made for another noise is noted; votes of two noises do not share a folder."""
    out = noise.partition(":")[0]
    said = done("vote", "--model", "bands", *DATA, "--draws", 20, "--noise", noise, "--out", out)
    full = "pixels:60/256" if out == "pixels" else noise
    assert said.startswith(f"note: bands was made for band:4/16; this votes with {full}\n")
    assert str(read_votes(place / out).provenance.noise) == full
    code, _, err = command("vote", "--model", "bands", *DATA, "--draws", 20, "--sigma", 0.5, "--out", out)
    assert code == 2
    assert "holds the votes of another run: noise" in err


def test_prediction_of_bands(place):
    """A prediction by bands is the same each time, and needs no draws."""
    first, second = (json.loads(done("predict", "digit.png", "--model", "bands", "--json")) for _ in range(2))
    assert first["noise"] == "band:4/16"
    assert first["images"][0]["draws"] == 16
    assert first["images"] == second["images"]
    assert "noise_seed" not in first
    said = " ".join(done("predict", "digit.png", "--model", "bands").split())
    assert "(16 bands)" in said
    assert "under any change inside one such patch, anywhere" in said
    assert "all of this holds, since nothing is random. bands, torch float32 on cpu, k' = " in said


def test_dry_run(place):
    """A dry run looks at the model under its own noise, and says what the bands can prove."""
    said = done("vote", "--dry-run", "--model", "bands", *DATA)
    assert "16 bands that all agree on one label hold against any " in said
