from dataclasses import replace

import pytest
import torch
from PIL import Image

from multiguard.certify import Gaussian
from multiguard.data import DigitsDataset, load_pixels
from multiguard.errors import InvalidInputError, MultiGuardError
from multiguard.models.backbone import build_backbone
from multiguard.models.model_folder import folder_checksum, load_folder, save_folder
from multiguard.train import Hyperparameters, hyperparameters_for
from multiguard.train.job import TrainJob, open_splits, run_job, start_backbone
from multiguard.train.trainer import noisy_map

ROWS = [(f"{i}.png", "xy"[i % 2], "train" if i < 20 else "val") for i in range(26)]


@pytest.fixture
def job(tmp_path):
    """A job without epochs on a folder of small images."""
    root = tmp_path / "set"
    root.mkdir()
    for name, _, _ in ROWS:
        Image.new("L", (8, 8), 40 * len(name)).save(root / name)
    (root / "labels.csv").write_text("file,labels,split\n" + "".join(f"{','.join(row)}\n" for row in ROWS))
    hyperparameters = Hyperparameters(epochs=0, batch=2, noise="gaussian:0.25")
    return TrainJob("folder", tmp_path / "m", hyperparameters, model="cnn:2", size=8, root=root)


def test_learning(tmp_path):
    """A short run on digits learns to see through the noise it is trained for."""
    hyperparameters = hyperparameters_for("digits", epochs=6, sigma=0.25, batch=16, lr=1e-2, shift=0)
    run_job(TrainJob("digits", tmp_path, hyperparameters, model="cnn:12", size=16, images=800, val_images=100))
    test, model = load_pixels(DigitsDataset("test", images=200, size=16)), load_folder(tmp_path)
    assert noisy_map(model, test, Gaussian(0.25)) > 0.65  # an untrained network has 0.35
    assert noisy_map(model, test, Gaussian(0.25)) > noisy_map(model, test, Gaussian(0.75))


def test_start_from_folder(tmp_path, job):
    """A model folder is a start, with its size and another dropout, but not with other weights or labels."""
    first = run_job(job)
    again = replace(job, out=tmp_path / "n", model=str(job.out), size=None)
    assert run_job(again).card.weights_sha256 == first.card.weights_sha256
    assert again.image_size == 8
    dropped = replace(again, hyperparameters=Hyperparameters(dropout=0.7))
    assert start_backbone(dropped, open_splits(dropped)[0]).network.dropout.p == 0.7
    with pytest.raises(InvalidInputError, match="give one or the other"):
        run_job(replace(again, out=tmp_path / "o", weights="pretrained"))
    with pytest.raises(InvalidInputError, match="was trained for other labels"):
        run_job(TrainJob("digits", tmp_path / "o", job.hyperparameters, model=str(job.out), size=16))


def test_teacher(tmp_path, job):
    """A teacher is a model folder for the same labels and size, and part of the record."""
    run_job(job)
    one_epoch = replace(job.hyperparameters, epochs=1)
    taught = replace(job, out=tmp_path / "n", teacher=job.out, hyperparameters=one_epoch)
    card = run_job(taught).card
    assert card.training["teacher_sha256"] == folder_checksum(job.out)
    with pytest.raises(InvalidInputError, match="teacher_sha256"):
        run_job(replace(taught, teacher=None))
    with pytest.raises(InvalidInputError, match=r"is for images of \(8, 8\)"):
        run_job(replace(taught, out=tmp_path / "o", size=16))
    with pytest.raises(InvalidInputError, match="has other labels than digits"):
        run_job(TrainJob("digits", tmp_path / "o", job.hyperparameters, teacher=job.out, size=16))


def test_half(tmp_path, job):
    """Half precision halves the file, loads as float32 with the rounded weights, and is another run."""
    start, job = run_job(job), replace(job, out=tmp_path / "n", half=True)
    run_job(job)
    first, loaded = load_folder(start.folder), load_folder(job.out)
    for name, tensor in loaded.state_dict().items():
        rounded = first.state_dict()[name].half().float() if tensor.is_floating_point() else tensor
        assert tensor.dtype == rounded.dtype
        assert torch.equal(tensor, rounded) or name in ("mean", "std")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (start.folder, job.out)]
    assert sizes[1] < 0.7 * sizes[0]
    with pytest.raises(InvalidInputError, match="half"):
        run_job(replace(job, half=False))


def test_held_out(job):
    """The training split as the validation split holds a part of it out: a tenth, or fewer if fewer are validated."""
    for val_images, expected in ((None, (18, 2)), (1, (19, 1)), (30, (18, 2))):
        parts = open_splits(replace(job, val_split="train", split="train", val_images=val_images))
        assert tuple(map(len, parts)) == expected


def test_other_start(tmp_path, job):
    """Other data options or other weights in the folder to start from do not resume a run."""
    card = run_job(job).card
    assert card.training["data_options"] == {}
    with pytest.raises(InvalidInputError, match="data_options"):
        run_job(replace(job, options={"separator": "|"}))
    starting = replace(job, out=tmp_path / "n", model=str(job.out))
    assert run_job(starting).card.training["model_sha256"] == card.weights_sha256
    save_folder(job.out, card, build_backbone("cnn:2", 2).network)
    with pytest.raises(InvalidInputError, match="model_sha256"):
        run_job(starting)


def test_denoiser(tmp_path, ffdnet_weights):
    """The denoiser is part of the saved model."""
    hyperparameters = hyperparameters_for("digits", epochs=1, sigma=0.5)
    job = TrainJob(
        "digits", tmp_path, hyperparameters, model="cnn:4", images=64, val_images=20, denoiser=ffdnet_weights
    )
    result = run_job(job)
    assert result.card.denoiser
    assert str(result.card.noise) == result.card.training["recipe"]["noise"] == "gaussian:0.5"
    loaded, validation = load_folder(tmp_path), load_pixels(open_splits(job)[1])
    assert loaded.mean is None
    assert noisy_map(loaded, validation, Gaussian(0.5)) == pytest.approx(result.kept["map_noisy"], abs=1e-6)
    bare = loaded.network.classifier
    assert noisy_map(bare, validation, Gaussian(0.5)) != pytest.approx(result.kept["map_noisy"], abs=1e-6)


def test_default_splits(job):
    """A folder's splits are used by default; training on all holds out a tenth; a common image is refused."""
    assert [len(split) for split in open_splits(job)] == [20, 6]
    everything = replace(job, split="all")
    assert [len(split) for split in open_splits(everything)] == [23, 3]
    with pytest.raises(InvalidInputError, match=r"6 images of folder set, split val, the first '20\.png'"):
        open_splits(replace(everything, val_split="val"))


def test_held_out_tenth(voc_root):
    """Trainval of VOC holds out a tenth of itself."""
    job = TrainJob("voc2007", voc_root, Hyperparameters(), size=8, root=voc_root, split="trainval")
    training, validation = open_splits(job)
    assert not set(training.ids) & set(validation.ids)
    assert len(validation) == round(0.1 * (len(training) + len(validation)))


def test_early_mistakes(tmp_path, job, monkeypatch):
    """Mistakes are found before any image is decoded."""
    run_job(job)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("multiguard.train.job.load_pixels", None)  # decoding would be a TypeError
    mistakes = [
        ({"denoiser": tmp_path / "none.pth"}, "no such weights file"),
        ({"hyperparameters": Hyperparameters(epochs=0, noise="gaussian:0.1")}, "holds a run with other settings: "),
        ({"out": tmp_path / "file"}, "no folder that can be written to"),
        ({"out": tmp_path / "b", "cache": tmp_path / "file"}, "no folder that can be written to"),
        ({"hyperparameters": Hyperparameters(epochs=2, denoise_epochs=1)}, "no U-Net in front"),
        ({"hyperparameters": Hyperparameters(drop_path=0.1)}, "only lite networks can skip blocks"),
        ({"workers": -1}, "workers is -1"),
        ({"model": None, "size": None}, "no model given for 'folder'"),
    ]
    for change, message in mistakes:
        with pytest.raises(MultiGuardError, match=message):
            run_job(replace(job, **change))
