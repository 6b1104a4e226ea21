"""The whole digits recipe, every picture at every one of its certified radii, with all the effort of a real attack."""

import pytest
from tests.pipeline.tiny import command

from multiguard.evaluate import read_attacks


@pytest.mark.soak
def test_a_long_attack_on_the_digits_recipe_breaks_no_certificate(tmp_path):
    code, _, err = command("run", "digits", "--out", tmp_path / "run", "--until", "certify")
    assert code == 0, err
    effort = ["--steps", "40", "--starts", "3", "--copies", "8", "--tries", "60", "--draws", "500"]
    code, out, err = command("attack", tmp_path / "run", "--own-radii", *effort)
    assert code == 0, out + err
    attacks = read_attacks(tmp_path / "run" / "attack").attacks
    assert len(attacks.pictures) == 120
    for method in attacks.methods:
        assert attacks.broken(method) == ()
    with_certificate = [
        p for p in attacks.pictures if any(r.attack == "pgd" and r.radius not in attacks.radii for r in p.reached)
    ]
    assert len(with_certificate) >= 100
