"""The digits recipe, a smaller network and more images: each attacked at every certified radius, with much effort."""

import pytest
from tests.pipeline.tiny_run import command

from multiguard.evaluate import read_attacks

SMALLER = {"data.images": 120, "train.model": "cnn:16", "train.images": 3000, "certify.methods": "[joint]"}
EFFORT = ["--set", "steps=30", "--draws", "400"]


@pytest.mark.soak
def test_long_attack(tmp_path):
    """A long attack on the digits recipe breaks no certificate."""
    changes = [word for key, value in SMALLER.items() for word in ("--set", f"{key}={value}")]
    code, _, err = command("run", "digits", "--out", tmp_path / "run", "--until", "certify", *changes)
    assert code == 0, err
    code, out, err = command(
        "attack", tmp_path / "run", "--set", "own_radii=true", "--radius", "0.5", "--radius", "1.5", *EFFORT
    )
    assert code == 0, out + err
    attacks = read_attacks(tmp_path / "run" / "attack")
    assert len(attacks.images) == 120
    assert attacks.broken("joint") == ()
    at_an_end = [
        image.id
        for image in attacks.images
        if any(found.radius in image.proved["in"]["joint"] for found in image.outcomes if found.attack == "pgd")
    ]
    assert len(at_an_end) >= 100
