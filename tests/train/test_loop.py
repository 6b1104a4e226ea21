import json
from dataclasses import asdict, replace

import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors.torch import load_file

from multiguard import files
from multiguard.data import DigitsDataset, Pixels, load_pixels
from multiguard.errors import InvalidInputError, ModelError, MultiGuardError
from multiguard.models import folder
from multiguard.models.backbone import build_backbone
from multiguard.models.denoiser import FFDNet
from multiguard.models.folder import load_folder, read_card, save_folder
from multiguard.train import Hyperparameters, hyperparameters_for, loop, noisy_map, state, train
from multiguard.train.job import Job, load_splits, open_splits, run_job, start_backbone
from multiguard.train.settings import new_card
from multiguard.train.trainer import Engine


@pytest.fixture(scope="module")
def pixels():
    return load_pixels(DigitsDataset("train", images=96, size=16))


@pytest.fixture(scope="module")
def val_pixels():
    return load_pixels(DigitsDataset("val", images=60, size=16))


def backbone():
    torch.manual_seed(0)
    return build_backbone("cnn:4", 10, dropout=0.2)


class KilledError(Exception):
    pass


def killed_after(epoch):
    def stop(record):
        if record["epoch"] == epoch:
            raise KilledError

    return stop


RECIPE = hyperparameters_for("digits", epochs=4, batch=16, sigma=0.25, ramp_epochs=2, lr=5e-3)


def test_killed_and_restarted_is_bit_for_bit_the_uninterrupted_run(tmp_path, pixels, val_pixels):
    whole = train(backbone(), pixels, val_pixels, RECIPE, tmp_path / "whole")
    for stop in (1, 3):
        with pytest.raises(KilledError):
            train(backbone(), pixels, val_pixels, RECIPE, tmp_path / "parts", on_epoch=killed_after(stop))
    parts = train(backbone(), pixels, val_pixels, RECIPE, tmp_path / "parts")
    assert parts.card.weights_sha256 == whole.card.weights_sha256
    for file in ("model.safetensors", "state/last.safetensors"):
        one, two = load_file(tmp_path / "whole" / file), load_file(tmp_path / "parts" / file)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    outcomes = [
        [{key: record[key] for key in ("epoch", "sigma", "loss", "map_noisy", "map_clean")} for record in run]
        for run in (whole.card.history, parts.card.history)
    ]
    assert outcomes[0] == outcomes[1]


def test_a_finished_run_is_left_alone(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=1)
    first = train(backbone(), pixels, val_pixels, recipe, tmp_path)
    again = train(backbone(), pixels, val_pixels, recipe, tmp_path, on_epoch=killed_after(1))
    assert again.card == first.card


def test_the_folder_says_everything(tmp_path, pixels, val_pixels):
    result = train(backbone(), pixels, val_pixels, RECIPE, tmp_path)
    card = read_card(tmp_path)
    assert card.sigma == 0.25
    assert card.image_size == (16, 16)
    assert card.label_names == pixels.label_names
    assert card.training["recipe"]["loss"] == "asl"
    assert card.training["train"]["name"] == "digits/train?seed=0"
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2, 3, 4]
    assert [record["sigma"] for record in log] == [0.25 / 3, 0.5 / 3, 0.25, 0.25]
    assert list(card.history) == log
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    best = max(record["map_noisy"] for record in log)
    assert result.kept["map_noisy"] == best
    assert noisy_map(load_folder(tmp_path), val_pixels, 0.25) == pytest.approx(best, abs=1e-6)


def test_another_recipe_does_not_continue_a_run(tmp_path, pixels, val_pixels):
    train(backbone(), pixels, val_pixels, replace(RECIPE, epochs=1), tmp_path)
    with pytest.raises(InvalidInputError, match="holds a run with other settings: "):
        train(backbone(), pixels, val_pixels, replace(RECIPE, epochs=1, sigma=0.5), tmp_path)


def test_a_damaged_state_is_named(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=1)
    train(backbone(), pixels, val_pixels, recipe, tmp_path)
    (tmp_path / "state" / "last.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"last\.safetensors: not a training state"):
        train(backbone(), pixels, val_pixels, recipe, tmp_path)


def test_zero_epochs_validate_and_write_the_network_as_it_is(tmp_path, pixels, val_pixels):
    start = backbone()
    before = {name: tensor.clone() for name, tensor in start.network.state_dict().items()}
    result = train(start, pixels, val_pixels, replace(RECIPE, epochs=0), tmp_path)
    after = load_folder(tmp_path).network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert result.kept["epoch"] == 0
    assert 0 < result.kept["map_noisy"] < 1


def test_an_exploding_loss_is_named(tmp_path, pixels, val_pixels):
    broken = backbone()
    with torch.no_grad():
        broken.network.head.bias.fill_(torch.nan)
    with pytest.raises(ModelError, match="the loss is nan in epoch 1; take a smaller lr"):
        train(broken, pixels, val_pixels, RECIPE, tmp_path)


def other(pixels: Pixels, **changes) -> Pixels:
    return replace(pixels, **changes)


def test_splits_that_do_not_fit_each_other_are_refused(tmp_path, pixels, val_pixels):
    cases = [
        (other(val_pixels, label_names=tuple("abcdefghij")), "same labels"),
        (other(val_pixels, images=val_pixels.images[..., :8]), "one size"),
        (other(val_pixels, targets=val_pixels.targets * 0), "not one image has a label"),
    ]
    for bad, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            train(backbone(), pixels, bad, RECIPE, tmp_path)


def test_a_short_run_on_digits_learns_to_see_through_noise(tmp_path):
    """A short run of the default recipe, at the noise it is made for, on images of test digits."""
    recipe = hyperparameters_for("digits", epochs=3, sigma=0.25, batch=16)
    run_job(Job("digits", tmp_path, recipe, model="cnn:24", images=2000, val_images=200))
    test = load_pixels(DigitsDataset("test", images=300))
    model = load_folder(tmp_path)
    assert noisy_map(model, test, 0.25) > 0.8
    assert noisy_map(model, test, 0.25) > noisy_map(model, test, 0.75)


def test_a_model_folder_is_a_start_and_must_share_the_labels(tmp_path):
    recipe = Hyperparameters(epochs=0, sigma=0.25)
    job = Job("digits", tmp_path / "a", recipe, model="cnn:4", size=16, images=20, val_images=20)
    first = run_job(job)
    again = run_job(replace(job, out=tmp_path / "b", model=str(tmp_path / "a"), size=None))
    assert again.card.weights_sha256 == first.card.weights_sha256
    assert again.card.image_size == (16, 16)
    with pytest.raises(InvalidInputError, match="give one or the other"):
        run_job(replace(job, out=tmp_path / "c", model=str(tmp_path / "a"), weights="pretrained"))


def test_the_denoiser_is_part_of_the_saved_model(tmp_path, ffdnet_weights):
    recipe = hyperparameters_for("digits", epochs=1, sigma=0.5)
    job = Job("digits", tmp_path, recipe, model="cnn:4", images=64, val_images=20, denoiser=ffdnet_weights)
    result = run_job(job)
    assert result.card.denoiser
    assert result.card.sigma == 0.5
    assert result.card.training["recipe"]["sigma"] == 0.5
    loaded = load_folder(tmp_path)
    assert loaded.mean is None
    _, val = load_splits(job, 32)
    assert noisy_map(loaded, val, 0.5) == pytest.approx(result.kept["map_noisy"], abs=1e-6)
    assert noisy_map(loaded.network.classifier, val, 0.5) != pytest.approx(result.kept["map_noisy"], abs=1e-6)


def gradient_images(pixels, val_pixels, sigma, denoiser):
    """What the classifier was shown in one step."""
    recipe = replace(RECIPE, sigma=sigma, val_sigma=0.5)
    network = backbone()
    card = new_card(network, pixels.label_names, (16, 16), {}, recipe, denoiser, {})
    engine = Engine(card.classifier(network.network), pixels, val_pixels, recipe, Accelerator(cpu=True), denoiser)
    shown = []
    engine.module.register_forward_pre_hook(lambda _, given: shown.append(given[0].clone()))
    batch = torch.from_numpy(pixels.images[:4].copy()), torch.from_numpy(pixels.targets[:4].copy())
    engine.step(*batch, sigma, epoch=0, step=0, steps=1)
    return shown[0]


def test_behind_a_denoiser_training_sees_what_smoothing_will_see(pixels, val_pixels):
    denoiser = FFDNet().eval()
    noisy = gradient_images(pixels, val_pixels, 0.5, None)
    with torch.no_grad():
        expected = denoiser(noisy, 0.5).clamp(0, 1)
    torch.testing.assert_close(gradient_images(pixels, val_pixels, 0.5, denoiser), expected)
    clean = gradient_images(pixels, val_pixels, 0.0, None)
    torch.testing.assert_close(gradient_images(pixels, val_pixels, 0.0, denoiser), clean)


def test_the_last_epoch_is_kept_where_asked(tmp_path, pixels, val_pixels):
    steep = replace(RECIPE, epochs=3, lr=3e-2)
    best = train(backbone(), pixels, val_pixels, steep, tmp_path / "best")
    last = train(backbone(), pixels, val_pixels, replace(steep, keep="last"), tmp_path / "last")
    assert last.kept["epoch"] == 3
    assert [r["map_noisy"] for r in last.card.history] == [r["map_noisy"] for r in best.card.history]
    assert noisy_map(load_folder(tmp_path / "last"), val_pixels, RECIPE.sigma) == pytest.approx(
        last.card.history[-1]["map_noisy"], abs=1e-6
    )
    with pytest.raises(InvalidInputError, match="keep was"):
        train(backbone(), pixels, val_pixels, steep, tmp_path / "last")
    with pytest.raises(InvalidInputError, match="unknown keep 'lest'"):
        replace(steep, keep="lest")


def test_a_image_in_both_splits_is_refused(tmp_path, pixels):
    part = other(pixels, name="part", ids=pixels.ids[:20], images=pixels.images[:20], targets=pixels.targets[:20])
    with pytest.raises(InvalidInputError, match="20 images of part, the first 'train-0-00000', are also in digits"):
        train(backbone(), pixels, part, RECIPE, tmp_path)


def spotted(root, rows):
    root.mkdir()
    for name, _, _ in rows:
        Image.new("L", (8, 8), 40 * len(name)).save(root / name)
    (root / "labels.csv").write_text("file,labels,split\n" + "".join(f"{','.join(row)}\n" for row in rows))


def folder_job(tmp_path, **changes):
    recipe = Hyperparameters(epochs=1, batch=2, sigma=0.25)
    return Job("folder", tmp_path / "m", recipe, model="cnn:2", size=8, root=tmp_path / "set", **changes)


ROWS = [(f"{i}.png", "xy"[i % 2], "train" if i < 20 else "val") for i in range(26)]


def test_a_folders_splits_are_kept_apart_by_default(tmp_path):
    spotted(tmp_path / "set", ROWS)
    training, validation = open_splits(folder_job(tmp_path), 8)
    assert (len(training), len(validation)) == (20, 6)
    training, validation = open_splits(folder_job(tmp_path, split="all"), 8)
    assert (len(training), len(validation)) == (23, 3)
    with pytest.raises(InvalidInputError, match=r"6 images of folder:set/val, the first '20\.png'"):
        open_splits(folder_job(tmp_path, split="all", val_split="val"), 8)


def test_trainval_of_voc_holds_out_a_tenth_of_itself(voc_root):
    training, validation = open_splits(Job("voc2007", voc_root, Hyperparameters(), root=voc_root, split="trainval"), 8)
    assert not set(training.ids) & set(validation.ids)
    assert len(validation) == round(0.1 * (len(training) + len(validation)))


def test_relabelled_data_does_not_continue_a_run(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=1)
    train(backbone(), pixels, val_pixels, recipe, tmp_path)
    with pytest.raises(InvalidInputError, match="targets_sha256"):
        train(backbone(), other(pixels, targets=1 - pixels.targets), val_pixels, recipe, tmp_path)
    names = tuple("abcdefghij")
    both = (other(part, label_names=names) for part in (pixels, val_pixels))
    with pytest.raises(InvalidInputError, match="label_names"):
        train(backbone(), *both, recipe, tmp_path)


def test_images_of_another_size_do_not_continue_a_run(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=1)
    train(backbone(), pixels, val_pixels, recipe, tmp_path)
    smaller = (other(part, images=part.images[..., :12, :12]) for part in (pixels, val_pixels))
    with pytest.raises(InvalidInputError, match="image_size"):
        train(backbone(), *smaller, recipe, tmp_path)


def test_another_denoiser_start_or_data_option_does_not_continue_a_run(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=1, sigma=0.0, val_sigma=0.25)
    one, two = FFDNet(), FFDNet()
    train(backbone(), pixels, val_pixels, recipe, tmp_path / "d", denoiser=one)
    with pytest.raises(InvalidInputError, match="denoiser_sha256"):
        train(backbone(), pixels, val_pixels, recipe, tmp_path / "d", denoiser=two)
    spotted(tmp_path / "set", ROWS)
    job = folder_job(tmp_path)
    card = run_job(job).card
    assert card.training["data_options"] == {}
    with pytest.raises(InvalidInputError, match="data_options"):
        run_job(replace(job, options={"separator": "|"}))
    starting = replace(job, out=tmp_path / "n", model=str(tmp_path / "m"))
    assert run_job(starting).card.training["model_sha256"] == card.weights_sha256
    save_folder(tmp_path / "m", card, build_backbone("cnn:2", 2).network)
    with pytest.raises(InvalidInputError, match="model_sha256"):
        run_job(starting)


@pytest.mark.parametrize("lost", ["model.json", "log.jsonl"])
def test_a_kill_between_two_files_is_mended_on_resume(tmp_path, pixels, val_pixels, monkeypatch, lost):
    whole = train(backbone(), pixels, val_pixels, RECIPE, tmp_path / "whole")
    write, seen = files.write_atomically, []

    def killed(path, data):
        seen.append(path.name)
        if path.name == lost and seen.count(lost) == 2:
            raise KilledError
        write(path, data)

    with monkeypatch.context() as patch:
        for room in (folder, loop, state):
            patch.setattr(room, "write_atomically", killed)
        with pytest.raises(KilledError):
            train(backbone(), pixels, val_pixels, RECIPE, tmp_path / "cut")
    parts = train(backbone(), pixels, val_pixels, RECIPE, tmp_path / "cut")
    load_folder(tmp_path / "cut")
    assert parts.card.weights_sha256 == whole.card.weights_sha256
    assert [record["epoch"] for record in parts.card.history] == [1, 2, 3, 4]


def test_a_kill_after_the_last_state_leaves_a_folder_that_the_next_call_writes(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=2)
    before = train(backbone(), pixels, val_pixels, recipe, tmp_path).card
    save_folder(tmp_path, before, build_backbone("cnn:4", 10).network)
    (tmp_path / "model.json").write_text(json.dumps({"format": 1, **asdict(before)}))  # not the weights' card
    with pytest.raises(ModelError, match="do not match"):
        load_folder(tmp_path)
    assert train(backbone(), pixels, val_pixels, recipe, tmp_path).card == before
    load_folder(tmp_path)


def test_no_epochs_do_not_overwrite_a_foreign_model(tmp_path, pixels, val_pixels):
    recipe = replace(RECIPE, epochs=0)
    first = train(backbone(), pixels, val_pixels, recipe, tmp_path).card
    assert train(backbone(), pixels, val_pixels, recipe, tmp_path).card.weights_sha256 == first.weights_sha256
    with pytest.raises(InvalidInputError, match="holds a run with other settings: "):
        train(backbone(), pixels, val_pixels, replace(recipe, sigma=0.5), tmp_path)
    assert read_card(tmp_path) == first


def test_dropout_reaches_a_network_that_comes_from_a_folder(tmp_path):
    job = Job("digits", tmp_path / "a", Hyperparameters(epochs=0), model="cnn:2", size=16, images=8, val_images=8)
    run_job(job)
    again = replace(job, model=str(tmp_path / "a"), hyperparameters=Hyperparameters(epochs=0, dropout=0.7))
    training, _ = open_splits(again, 16)
    assert start_backbone(again, training, 16).network.dropout.p == 0.7


def test_mistakes_are_found_before_any_image_is_decoded(tmp_path, monkeypatch):
    job = Job("digits", tmp_path / "a", Hyperparameters(epochs=0), model="cnn:2", size=16, images=8, val_images=8)
    run_job(job)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("multiguard.train.job.load_pixels", None)  # decoding would be a TypeError
    mistakes = [
        ({"denoiser": tmp_path / "none.pth"}, "no such weights file"),
        ({"hyperparameters": Hyperparameters(epochs=0, sigma=0.1)}, "holds a run with other settings: "),
        ({"out": tmp_path / "file"}, "no folder that can be written to"),
        ({"out": tmp_path / "b", "cache": tmp_path / "file"}, "no folder that can be written to"),
        ({"workers": -1}, "workers is -1"),
    ]
    for change, message in mistakes:
        with pytest.raises(MultiGuardError, match=message):
            run_job(replace(job, **change))
