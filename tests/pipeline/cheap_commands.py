"""Every command that writes a result, with the config k, on two images or six."""

import torch

from multiguard.attack import AttackConfig, attack
from multiguard.data.config import DataConfig
from multiguard.evaluate import CalibrateConfig, CertifyConfig, calibrate, certify_votes, read_certificates
from multiguard.models.config import ModelConfig
from multiguard.report import ReportConfig, report
from multiguard.run import parse_recipe, run
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.vote import vote
from multiguard.votes import read_votes

MODEL = f"{__name__}:linear_model"
RECIPE = f"""
data: {{{{name: digits, images: 2, size: 16}}}}
sigma: 0.5
model: {{{{spec: "{MODEL}", output: logits}}}}
vote: {{{{draws: {{k}}, shard_images: 1, noise_seed: 0, device: cpu}}}}
certify: {{{{k: {{k}}, k_prime: 2}}}}
report: {{{{images: false, gallery: 0}}}}
"""


def linear_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


class Commands:
    """Each writes into a folder: what k decides differs between two k, and nothing else does."""

    def __init__(self, inputs) -> None:
        self._inputs = inputs  # `votes` of two images, `certificates-3` and `certificates-4`, and `more`, other votes

    def certify(self, out, k, *, force=False):
        certify_votes(CertifyConfig(k=k, k_prime=2), read_votes(self._inputs / "votes"), out=out, force=force)

    def report(self, out, k, *, force=False):
        found = read_certificates(self._inputs / f"certificates-{k}")
        report(ReportConfig(images=False, gallery=0), {"": found}, out=out, force=force)

    def attack(self, out, k, *, force=False):
        attack(AttackConfig(), self._inputs / f"certificates-{k}", out=out, force=force)

    def vote(self, out, k, *, force=False):
        source, part = (
            DataConfig("digits", images=2, size=16),
            VoteConfig(draws=k, shard_images=1, noise_seed=0, device="cpu"),
        )
        vote(part, source, ModelConfig(MODEL, output="logits"), noise="gaussian:0.5", out=out, force=force)

    def calibrate(self, out, k, *, force=False):
        config = CalibrateConfig(recall=k / 10, radius=0, k_prime=(3,), draws=10)
        calibrate(config, [read_votes(self._inputs / "more")], out=out / "calibration.json", force=force)

    def compare(self, out, k, *, force=False):
        found = read_certificates(self._inputs / f"certificates-{k}")
        report(ReportConfig(), {"one": found, "other": found}, out=out, force=force)

    def run(self, out, k, *, force=False):
        run(parse_recipe(RECIPE.format(k=k), "recipe.yaml"), out=out, force=force)
