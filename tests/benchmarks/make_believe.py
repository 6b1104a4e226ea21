"""An evidence folder of made-up votes: every file that the results page is made of, under the names that it has."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.evaluate.attack_cases import write_attacks
from tests.evaluate.votes_cases import stored_rows
from tests.votes.vote_runs import provenance

from multiguard.certify import Gaussian
from multiguard.evaluate import AttackedImage, AttackOutcome, Attacks, CertifyConfig
from multiguard.votes import Provenance, VoteRow

STOPS = {"stops": (50, 100), "stopping": {"radii": (0.5, 1.0), "alpha": 0.001, "k": 10, "k_prime": 3}}


def write_evidence(home: Path, ranked: np.ndarray, truth: np.ndarray, draws: int) -> None:
    """The votes (images, 2 draws, K') on images with this truth, in every place.

    Args:
        home: The folder.
        ranked: The votes; those at sigma 0.5 have all of them.
        truth: (images, labels) of bool.
        draws: How many draws the others have.
    """
    some = np.random.default_rng(0).permutation(len(ranked))[: len(ranked) // 2]
    run = _run(ranked, truth)
    for sigma in (0.25, 0.5, 1.0):
        own = replace(run, noise=Gaussian(sigma))
        _store(home / f"sigma-{sigma:g}" / "votes", own, ranked[:, : 2 * draws if sigma == 0.5 else draws], truth)
    for name in ("noise", "clean"):
        _store(home / name / "votes", run, ranked[:, :draws], truth)
    adaptive = replace(run, **STOPS | {"draws": 100})
    few = [votes[: 50 + 50 * (i % 2)] for i, votes in enumerate(ranked)]
    _store(home / "sigma-0.5" / "votes-adaptive", adaptive, few, truth)
    _write_attack(home / "sigma-0.5" / "attack", run, truth, some)
    printed = "a device\nsampler" + 20 * " " + "100 draws/s  \n  sampler / bare" + 20 * " " + "0.980  >= 0.97\n"
    (home / "sampler.txt").write_text(printed, encoding="utf-8")


def _run(ranked: np.ndarray, truth: np.ndarray) -> Provenance:
    return provenance(images=len(ranked), labels=truth.shape[1], k_max=ranked.shape[2], noise=Gaussian(0.5))


def _store(home: Path, run: Provenance, votes, truth: np.ndarray) -> None:
    ids = run.image_ids[: len(votes)]
    run = replace(run, image_ids=ids, draws=max(map(len, votes)))
    rows = [
        VoteRow(name, tuple(np.flatnonzero(own).tolist()), each, bare=each[:1])
        for name, own, each in zip(ids, truth, votes, strict=True)
    ]
    stored_rows(home, run, rows)


def _write_attack(home: Path, run: Provenance, truth: np.ndarray, places: np.ndarray) -> None:
    """Every second image loses all its labels at R = 1, and nobody loses any at R = 0.5."""
    images = []
    for place in places.tolist():
        own = tuple(np.flatnonzero(truth[place]).tolist())
        left = len(own) * (place % 2)
        outcomes = (
            AttackOutcome("none", "in", 0.0, 0.0, len(own), len(own)),
            AttackOutcome("pgd", "in", 0.5, 0.5, len(own), len(own)),
            AttackOutcome("pgd", "in", 1.0, 1.0, left, left),
        )
        proved = {"in": {"joint": np.full(len(own), -np.inf)}}
        images.append(AttackedImage(run.image_ids[place], own, proved, outcomes))
    config, radii = CertifyConfig(3, 3, draws=100), (0.0, 0.5, 1.0)
    attacks = Attacks(
        config, Gaussian(0.5), run.label_names, True, ("joint",), radii, ("pgd",), 0.001, 300, tuple(images), 0
    )
    write_attacks(home, attacks, certificates_hash="0" * 64)
