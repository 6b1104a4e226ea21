"""Every command that writes a result, with the config k, on two images or six."""

from functools import cache

import torch

from multiguard.attack import AttackConfig, attack
from multiguard.data.config import DataConfig
from multiguard.evaluate import tune
from multiguard.models.config import ModelConfig
from multiguard.pipeline import parse_recipe, run_recipe
from multiguard.pipeline.certify_job import CertifyJob, certify
from multiguard.pipeline.recipe import CertifyPart
from multiguard.pipeline.tune_job import TuneJob, tune_votes
from multiguard.report import ReportConfig, report
from multiguard.results import read_certificates
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


@cache
def _choice(rules, folder):
    return tune([read_votes(folder)], rules, 0.0, images=6)


class Commands:
    """Each writes into a folder: what k decides differs between two k, and nothing else does."""

    def __init__(self, inputs) -> None:
        self._inputs = inputs  # `votes` of two images, `certificates-3` and `certificates-4`, and `tuning`, other votes

    def certify(self, out, k, *, force=False):
        certify(CertifyJob(self._inputs / "votes", out, CertifyPart(k=k, k_prime=2), force=force))

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

    def tune(self, out, k, *, force=False):
        votes, part = (self._inputs / "tuning",), CertifyPart(k=k)
        tune_votes(TuneJob(votes, out / "tuned.json", 0, part, images=6, force=force))

    def choice(self, votes, rules, *_, **__):
        """What `tune` chooses from these rules, made once."""
        return _choice(tuple(rules), self._inputs / "tuning")

    def compare(self, out, k, *, force=False):
        found = read_certificates(self._inputs / f"certificates-{k}")
        report(ReportConfig(), {"one": found, "other": found}, out=out, force=force)

    def run(self, out, k, *, force=False):
        run_recipe(parse_recipe(RECIPE.format(k=k), "recipe.yaml"), out, force=force)
