"""A file that is replaced while a command runs: what is recorded is the hash of the bytes that were used."""

import hashlib
import shutil

import pytest
from PIL import Image
from tests.evaluate.attack_cases import top_k_attacks
from tests.evaluate.votes_cases import random_votes

from multiguard.attack import AttackConfig, attack
from multiguard.attack import outcomes as attack_outcomes
from multiguard.certify import Gaussian
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, certification, certify_votes, read_attacks
from multiguard.evaluate.results import CERTIFICATES_NAME
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Predictor
from multiguard.votes import read_votes

PART = CertifyConfig(k=3, k_prime=2)


@pytest.fixture
def home(tmp_path):
    """Votes of two runs, one and other, and the certificates of each."""
    for seed, name in enumerate(("one", "other")):
        random_votes(tmp_path / name, images=2, draws=20, seed=seed)
        certify_votes(PART, read_votes(tmp_path / name), out=tmp_path / f"{name}-certificates")
    return tmp_path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def put_in_place(folder, other):
    """Replace a folder by a copy of another one."""
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def test_manifest(home, replace_after_reading):
    """Votes have the hash of the manifest that they were read by."""
    path = home / "one" / "manifest.json"
    expected = sha256(path)
    replace_after_reading(path, (home / "other" / "manifest.json").read_bytes())
    assert read_votes(home / "one").manifest_hash == expected


def test_votes_replaced_while_certifying(home, monkeypatch):
    """Certificates of one run are not recorded as finished for the votes that came in its place."""
    made = certification.curves

    def replace_votes(*arguments, **options):
        put_in_place(home / "one", home / "other")
        return made(*arguments, **options)

    votes = read_votes(home / "one")
    with monkeypatch.context() as patch:
        patch.setattr(certification, "curves", replace_votes)
        first = certify_votes(PART, votes, out=home / "out")
    assert first.votes_hash != sha256(home / "other" / "manifest.json")
    with pytest.raises(InvalidInputError, match="made with other settings"):
        certify_votes(PART, read_votes(home / "one"), out=home / "out")


def test_certificates_replaced_while_attacking(home, monkeypatch):
    """An attack on certificates is not recorded as finished for those that came in their place."""

    def prepare(config, *_):
        put_in_place(home / "one-certificates", home / "other-certificates")
        return config, None, None

    monkeypatch.setattr(attack_outcomes, "_prepare", prepare)
    monkeypatch.setattr(attack_outcomes, "attack_results", lambda *_: top_k_attacks())
    monkeypatch.setattr(attack_outcomes, "draw_attack", lambda attacks, folder: None)
    expected = sha256(home / "one-certificates" / CERTIFICATES_NAME)
    attack(AttackConfig(), home / "one-certificates", out=home / "attack")
    assert read_attacks(home / "attack").certificates_hash == expected
    with pytest.raises(InvalidInputError, match="made with other settings"):
        attack(AttackConfig(), home / "one-certificates", out=home / "attack")


def test_image_replaced_while_predicting(tmp_path, replace_after_reading, monkeypatch):
    """The hash in a prediction, which keys its noise, is that of the image that was predicted."""
    for name, colour in (("one", "red"), ("other", "blue")):
        Image.new("RGB", (4, 4), colour).save(tmp_path / f"{name}.png")
    expected = sha256(tmp_path / "one.png")
    replace_after_reading(tmp_path / "one.png", (tmp_path / "other.png").read_bytes())
    seen = {}

    class Smoother:
        """Records what it is given."""

        noise = Gaussian(0.5)

        def predict(self, image, rule, *, image_id, **how):
            seen.update(image=image, image_id=image_id)

    Predictor(Smoother(), None, None, "model", PredictConfig()).predict(tmp_path / "one.png")
    assert seen["image"][:, 0, 0].tolist() == [255, 0, 0]
    assert seen["image_id"] == expected
