from dataclasses import replace
from shutil import copytree

import pytest
from tests.train.runs import SMALL, fit

from multiguard.errors import InvalidInputError, ModelError

ONCE = SMALL.replace(epochs=1, noise="none", val_noise="gaussian:0.25")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pixels, val_pixels):
    """A run of one epoch."""
    out = tmp_path_factory.mktemp("run")
    fit(pixels, val_pixels, ONCE, out)
    return out


def test_other_settings(folder, pixels, val_pixels):
    """Other hyperparameters, labels or images do not resume a run; the message names them."""
    out, splits = folder, (pixels, val_pixels)
    renamed = [replace(split, label_names=tuple("abcdefghij")) for split in splits]
    smaller = [replace(split, images=split.images[..., :12, :12]) for split in splits]
    relabelled = [replace(pixels, targets=1 - pixels.targets), val_pixels]
    cases = [
        (splits, ONCE.replace(noise="uniform:0.5"), 'settings: noise was "none" and is "uniform:0.5"'),
        (splits, ONCE.replace(keep="last"), 'keep was "best" and is "last"'),
        (relabelled, ONCE, "targets_sha256"),
        (renamed, ONCE, "label_names"),
        (smaller, ONCE, "image_size"),
    ]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for data, hyperparameters, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            fit(*data, hyperparameters, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def flip(content):
    return content[:-1000] + bytes([content[-1000] ^ 1]) + content[-999:]


@pytest.mark.parametrize(("damage", "message"), [(lambda _: b"nothing", "not a training state"), (flip, "damaged")])
def test_damaged_state(tmp_path, folder, pixels, val_pixels, damage, message):
    """A state that is no longer one, or in which one bit was flipped, does not resume to another model."""
    copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy/state/last.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match=rf"last\.safetensors: {message}"):
        fit(pixels, val_pixels, ONCE, tmp_path / "copy")
