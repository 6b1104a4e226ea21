"""A file that is replaced while a command runs: what is recorded is the hash of the bytes that were used."""

import hashlib
import shutil

import pytest
from PIL import Image
from tests.evaluate.attack_cases import top_k_attacks
from tests.evaluate.votes_cases import random_votes
from tests.pipeline.cheap_commands import RECIPE

from multiguard.attack import AttackConfig, attack
from multiguard.attack import outcomes as attack_outcomes
from multiguard.certify import Gaussian
from multiguard.errors import InvalidInputError, VotesError
from multiguard.pipeline import certify_job, parse_recipe
from multiguard.pipeline.certify_job import CertifyJob, certify
from multiguard.pipeline.recipe import CertifyPart
from multiguard.pipeline.runner import Observer
from multiguard.pipeline.steps import CertifyStep, Plan, ReportStep
from multiguard.pipeline.verify_job import VerifyJob, verify
from multiguard.results import read_attacks
from multiguard.results.certificate_files import CERTIFICATES_NAME
from multiguard.results.signature_file import Signature
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Predictor
from multiguard.votes import read_votes

PART = CertifyPart(k=3, k_prime=2)


@pytest.fixture
def home(tmp_path):
    """Votes of two runs, one and other, and the certificates of each."""
    for seed, name in enumerate(("one", "other")):
        random_votes(tmp_path / name, images=2, draws=20, seed=seed)
        certify(CertifyJob(tmp_path / name, tmp_path / f"{name}-certificates", PART))
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
    made = certify_job.curves

    def replace_votes(*arguments, **options):
        put_in_place(home / "one", home / "other")
        return made(*arguments, **options)

    job = CertifyJob(home / "one", home / "out", PART)
    with monkeypatch.context() as patch:
        patch.setattr(certify_job, "curves", replace_votes)
        first = certify(job)
    assert first.votes_hash != sha256(home / "other" / "manifest.json")
    with pytest.raises(InvalidInputError, match="made with other settings"):
        certify(job)


def test_votes_replaced_in_a_run(home):
    """A step of a run certifies the votes whose hash is among its inputs, or nothing."""
    plan = Plan(parse_recipe(RECIPE.format(k=3), "recipe.yaml"), home / "run")
    shutil.copytree(home / "one", home / "run" / "votes")
    step = CertifyStep(plan, plan.arms[""])
    assert step.inputs()["votes"] == sha256(home / "one" / "manifest.json")
    put_in_place(home / "run" / "votes", home / "other")
    with pytest.raises(VotesError, match="another checksum than the one in the manifest"):
        step.run(Observer())


def test_certificates_of_a_report(home):
    """The inputs of a report are the certificates that it shows."""
    plan = Plan(parse_recipe(RECIPE.format(k=3), "recipe.yaml"), home / "run")
    shutil.copytree(home / "one-certificates", home / "run" / "certificates")
    shown = plan.certificates(plan.arms[""])
    put_in_place(home / "run" / "certificates", home / "other-certificates")
    assert shown.votes_hash == sha256(home / "one" / "manifest.json")
    assert ReportStep(plan).inputs()["certificates of main"] == sha256(home / "one-certificates" / CERTIFICATES_NAME)


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


def test_signature_of_other_certificates(home, replace_after_reading, monkeypatch):
    """A signature counts for the certificates that are verified, not for those that came in their place."""
    path, other = home / "one-certificates" / CERTIFICATES_NAME, home / "other-certificates" / CERTIFICATES_NAME
    signature = Signature(sha256(other), "00", "00")
    monkeypatch.setattr("multiguard.pipeline.verify_job.read_signature", lambda folder: signature)
    monkeypatch.setattr(Signature, "holds", lambda self: True)
    replace_after_reading(path, other.read_bytes())
    failed = [check.text for check in verify(VerifyJob(path.parent, home / "one")) if not check.passed]
    assert failed[0] == "the signature is of other certificates"


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
