import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.train.runs import SMALL, KilledError, backbone, fit, kill_after

from multiguard.certify import Gaussian
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io import files
from multiguard.models import card, model_folder
from multiguard.models.backbone import build_backbone
from multiguard.models.card import read_card, write_card
from multiguard.models.model_folder import load_folder, save_folder
from multiguard.train import checkpoint, loop
from multiguard.train.trainer import noisy_map


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, pixels, val_pixels):
    """A run of four epochs that nothing interrupted."""
    return fit(pixels, val_pixels, SMALL, tmp_path_factory.mktemp("uninterrupted"))


def assert_same_run(resumed, uninterrupted):
    assert resumed.card.weights_sha256 == uninterrupted.card.weights_sha256
    for file in ("model.safetensors", "state/last.safetensors"):
        one, two = load_file(uninterrupted.folder / file), load_file(resumed.folder / file)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    outcomes = [
        [{key: record[key] for key in ("epoch", "noise", "loss", "map_noisy", "map_clean")} for record in run]
        for run in (uninterrupted.card.history, resumed.card.history)
    ]
    assert outcomes[0] == outcomes[1]
    load_folder(resumed.folder)


def test_resume_bit_for_bit(tmp_path, pixels, val_pixels, uninterrupted):
    """A run that is killed and restarted twice is bit for bit the uninterrupted run."""
    for epoch in (1, 3):
        with pytest.raises(KilledError):
            fit(pixels, val_pixels, SMALL, tmp_path, on_epoch=kill_after(epoch))
    assert_same_run(fit(pixels, val_pixels, SMALL, tmp_path), uninterrupted)


@pytest.mark.parametrize("lost", ["model.json", "log.jsonl"])
def test_kill_between_files(tmp_path, pixels, val_pixels, monkeypatch, uninterrupted, lost):
    """A kill between two files of an epoch is repaired when the run is resumed."""
    write, seen = files.write_atomically, []

    def killed(path, data):
        seen.append(path.name)
        if path.name == lost and seen.count(lost) == 2:
            raise KilledError
        write(path, data)

    with monkeypatch.context() as patch:
        for module in (card, model_folder, loop, checkpoint):
            patch.setattr(module, "write_atomically", killed)
        with pytest.raises(KilledError):
            fit(pixels, val_pixels, SMALL, tmp_path)
    assert_same_run(fit(pixels, val_pixels, SMALL, tmp_path), uninterrupted)


def test_finished_run(tmp_path, pixels, val_pixels):
    """A finished run is left alone; a folder that does not match its state is written again."""
    once = SMALL.replace(epochs=1)
    before = fit(pixels, val_pixels, once, tmp_path).card
    assert fit(pixels, val_pixels, once, tmp_path, on_epoch=kill_after(1)).card == before
    save_folder(tmp_path, before, build_backbone("cnn:4", 10).network)
    write_card(tmp_path, before)  # not the weights' card
    with pytest.raises(ModelError, match="do not match"):
        load_folder(tmp_path)
    assert fit(pixels, val_pixels, once, tmp_path).card == before
    load_folder(tmp_path)


def test_model_folder(val_pixels, uninterrupted):
    """The folder records everything, and has the weights of the best epoch."""
    folder, card = uninterrupted.folder, read_card(uninterrupted.folder)
    assert (str(card.noise), card.image_size, card.label_names) == ("gaussian:0.25", (16, 16), val_pixels.label_names)
    assert card.training["recipe"]["loss"] == "asl"
    assert card.training["train"]["name"] == "digits train (seed 0)"
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2, 3, 4]
    assert {record["noise"] for record in log} == {"gaussian:0.25"}
    assert list(card.history) == log
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    best = max(record["map_noisy"] for record in log)
    assert uninterrupted.kept["map_noisy"] == best
    assert noisy_map(load_folder(folder), val_pixels, Gaussian(0.25)) == pytest.approx(best, abs=1e-6)


def test_zero_epochs(tmp_path, pixels, val_pixels):
    """Zero epochs validate and save the network as it is, and never overwrite another model."""
    start, none = backbone(), SMALL.replace(epochs=0)
    before = {name: tensor.clone() for name, tensor in start.network.state_dict().items()}
    first = fit(pixels, val_pixels, none, tmp_path, start=start)
    after = load_folder(tmp_path).network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert first.kept["epoch"] == 0
    assert 0 < first.kept["map_noisy"] < 1
    again = fit(pixels, val_pixels, none, tmp_path).card
    assert again.weights_sha256 == first.card.weights_sha256
    with pytest.raises(InvalidInputError, match="holds a run with other settings: "):
        fit(pixels, val_pixels, none.replace(noise="gaussian:0.5"), tmp_path)
    assert read_card(tmp_path) == again


def test_exploding_loss(tmp_path, pixels, val_pixels):
    """A loss of nan is named with its epoch."""
    broken = backbone()
    with torch.no_grad():
        broken.network.head.bias.fill_(torch.nan)
    with pytest.raises(ModelError, match="the loss is nan in epoch 1; take a smaller lr"):
        fit(pixels, val_pixels, SMALL, tmp_path, start=broken)


def test_no_labels(tmp_path, pixels, val_pixels):
    """Validation images without any label are refused."""
    with pytest.raises(InvalidInputError, match="no image has a label"):
        fit(pixels, replace(val_pixels, targets=val_pixels.targets * 0), SMALL, tmp_path)


def test_edited_code(tmp_path, pixels, val_pixels, monkeypatch):
    """A process with other files of multiguard than the main one is refused before anything is trained."""
    monkeypatch.setattr(loop, "gather_object", lambda mine: ["of other files", *mine])
    with pytest.raises(InvalidInputError, match="this process runs other code of multiguard than the main one"):
        fit(pixels, val_pixels, SMALL, tmp_path)
    assert not list(tmp_path.iterdir())


def test_last_epoch(tmp_path, pixels, val_pixels):
    """keep="last" saves the last epoch, although an earlier one was better."""
    steep = SMALL.replace(epochs=2, lr=0.3, keep="last")
    last = fit(pixels, val_pixels, steep, tmp_path)
    assert last.kept["epoch"] == 2
    assert loop.kept_epoch(last.card.history, "best")["epoch"] == 1
    final = last.card.history[-1]["map_noisy"]
    assert noisy_map(load_folder(tmp_path), val_pixels, Gaussian(0.25)) == pytest.approx(final, abs=1e-6)
