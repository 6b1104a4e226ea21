"""The digits recipe, smaller: its certified recall is what it was when it was first measured, within chance."""

import numpy as np
import pytest
from tests.pipeline.tiny_run import command

from multiguard.certify import certified_size
from multiguard.evaluate import read_certificates

SMALLER = {
    "train.model": "cnn:16",
    "train.images": 3000,
    "train.val_images": 200,
    "data.images": 60,
    "vote.draws": 200,
    "vote.noise_seed": 0,
    "sweep.n": "[]",
}
RADII = np.array([0.0, 0.25, 0.5, 0.75])
RECALL = {
    "joint": [0.783, 0.662, 0.522, 0.387],
    "paper": [0.783, 0.659, 0.479, 0.354],
    "jia": [0.775, 0.647, 0.461, 0.318],
}


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    out = tmp_path_factory.mktemp("golden") / "run"
    changes = [word for key, value in SMALLER.items() for word in ("--set", f"{key}={value}")]
    code, _, err = command("run", "digits", "--out", out, "--until", "certify", *changes)
    assert code == 0, err
    return read_certificates(out / "certificates")


@pytest.mark.parametrize("method", RECALL)
def test_certified_recall(certified, method):
    """Another machine trains a slightly other network; three deviations of the mean over images allow for that."""
    proved = certified.certificates
    shares = np.array(
        [
            certified_size(radii, RADII) / len(true)
            for radii, true in zip(proved.radii[method], proved.labels, strict=True)
        ]
    )
    allowed = 3 * shares.std(axis=0) / np.sqrt(len(shares))
    assert np.all(np.abs(shares.mean(axis=0) - RECALL[method]) <= allowed), (shares.mean(axis=0), allowed)


def test_joint_beats_others(certified):
    """On average: its levels differ, so it may lose an image of the 60 at some radius."""
    recall = {
        curve.method: curve.scores.recall
        for curve in certified.curves
        if curve.config == certified.certificates.config and curve.averaging == "mean"
    }
    for weaker in ("paper", "independent", "jia"):
        assert np.mean(recall["joint"] - recall[weaker]) > 0.01
        assert np.all(recall["joint"] - recall[weaker] >= -0.03)
