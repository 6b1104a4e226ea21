"""The joint certificate between the paper's and the exact limit."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.certify.cases import random_distribution
from tests.certify.limit import limit_radius

from multiguard.certify import Gaussian, TopK, exact_radii
from multiguard.certify.bounds import ClopperPearson, Exact
from multiguard.certify.draws import VoteCounts, count_votes
from multiguard.certify.radii import solve


def random_case(seed: int, *, c: int, k_prime: int, d: int):
    rng = np.random.default_rng(seed)
    sets, chances = random_distribution(rng, labels=c, k_prime=k_prime)
    chances = 0.99 * chances + 0.01 / len(sets)
    ranking = np.argsort(-(chances @ sets))
    # Mostly the probable labels, now and then an improbable one.
    labels = (
        sorted(int(i) for i in ranking[:d]) if seed % 3 else sorted(int(i) for i in ranking[[*range(d - 1), d + 1]])
    )
    return sets, chances, labels


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("k_prime", [1, 2, 3])
def test_joint_above_paper(d: int, k_prime: int) -> None:
    """With exact probabilities joint is never below paper, and paper never below independent."""
    strictly = 0
    for seed in range(20):
        sets, chances, labels = random_case(seed, c=8, k_prime=k_prime, d=d)
        for k in (1, 2, 4, 6):
            joint, paper, independent = (
                exact_radii(sets, chances, labels, TopK(k, k_prime), sigma=1.0, method=m).true
                for m in ("joint", "paper", "independent")
            )
            # Beyond 6 sigma doubles cannot tell a probability from 1.
            assert np.all(joint >= np.minimum(paper, 6) - 1e-9)
            assert np.all(paper >= np.minimum(independent, 6) - 1e-9)
            strictly += np.any((joint > paper + 1e-3) & (joint < 6))
    assert (strictly > 0) == (k_prime > 1)  # one label a draw has one layer: then the two are the same


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "counts"])
@pytest.mark.parametrize("k_prime", [1, 2, 3])
def test_rival_layers(k_prime: int, exact: bool) -> None:
    """Draws that hit several rivals at once prove at least what the votes of single labels prove, and in part more."""
    found, before = [], []
    for seed, d in product(range(20), (1, 2, 4)):
        sets, chances, labels = random_case(seed, c=8, k_prime=k_prime, d=d)
        weights = chances if exact else np.random.default_rng(seed).multinomial(2000, chances).astype(np.float64)
        for k in (2, 3, 5):
            bounds, rule = Exact(chances) if exact else ClopperPearson(), TopK(k, k_prime)
            counts = replace(count_votes(sets, labels, rule, 8, weights), draws=1 if exact else 2000)
            plain = replace(counts, rival_mass=votes_alone(counts, rule))
            assert np.all(counts.rival_mass <= plain.rival_mass + 1e-12)
            solved = solve([counts, plain], rule, bounds, Gaussian(1), 0.01, "joint")
            ours, theirs = (each.true for each in solved)
            found, before = [*found, *ours], [*before, *theirs]
    more = np.array(found) > np.array(before) + 1e-3
    assert np.all(np.array(found) >= np.array(before) - 1e-9)
    assert np.any(more) == (k_prime > 1)


def votes_alone(counts: VoteCounts, rule: TopK) -> np.ndarray:
    """N_v / l in place of the least of three counts."""
    votes = np.sort(np.delete(counts.label_mass, counts.labels))[::-1]
    most = np.zeros_like(counts.rival_mass)
    for e, v, layer in np.ndindex(most.shape):
        s = rule.k - e
        if v < s <= len(votes):
            most[e, v, layer] = votes[s - v - 1 : s].sum() / (layer + 1)
    return most


@pytest.mark.parametrize("k_prime", [1, 3, 14])
def test_many_labels_above_paper(k_prime: int) -> None:
    """The same for more than 12 labels, where not every subset is tried."""
    rng = np.random.default_rng(k_prime)
    strictly = 0
    for _ in range(20):
        scores = rng.exponential(size=20) ** 2
        sets = np.zeros((60, 20), dtype=np.bool_)
        np.put_along_axis(sets, np.argsort(-scores * rng.random((60, 20)), axis=1)[:, :k_prime], True, axis=1)
        chances = rng.dirichlet(np.full(60, 0.3))
        labels = np.argsort(-(chances @ sets))[:14]
        for k in (3, 5):
            joint, paper = (
                exact_radii(sets, chances, labels, TopK(k, k_prime), sigma=1.0, method=m).true
                for m in ("joint", "paper")
            )
            assert np.all(joint >= paper - 1e-9)
            strictly += np.any(joint > paper + 1e-3)
    assert strictly > 0


def test_exact_limit() -> None:
    """Also reports how close: the mean ratio of the radius to the limit, over sizes that have a finite one."""
    ratios = {"joint": [], "paper": []}
    for seed in range(6):
        c, k_prime, d, k = [(6, 2, 2, 2), (5, 1, 2, 2), (6, 2, 3, 3), (5, 2, 1, 2), (6, 3, 2, 2)][seed % 5]
        sets, chances, labels = random_case(seed, c=c, k_prime=k_prime, d=d)
        radii = {m: exact_radii(sets, chances, labels, TopK(k, k_prime), sigma=1.0, method=m).true for m in ratios}
        for e, proved in enumerate(radii["joint"], start=1):
            if not np.isfinite(proved):
                continue
            limit = limit_radius(sets, chances, labels, k=k, e=e)
            assert proved <= limit + 1e-6, (seed, e)
            if np.isfinite(limit) and limit > 0.05:
                for method, found in ratios.items():
                    found.append(max(float(radii[method][e - 1]), 0.0) / limit)
    joint, paper = (np.mean(found) for found in ratios.values())
    assert len(ratios["joint"]) >= 6
    assert joint > paper
    assert joint > 0.9


def test_tight_limit() -> None:
    """For one label against one rival in one dimension the certificate is tight, so anything above it is broken."""
    sets, chances = np.array([[True, False], [False, True]]), np.array([0.9, 0.1])
    proved = exact_radii(sets, chances, [0], TopK(1, 1), sigma=1.0, method="joint").true[0]
    limit = limit_radius(sets, chances, [0], k=1, e=1)
    assert proved <= limit < proved + 0.06


@pytest.mark.parametrize("k_prime", [1, 2, 3])
def test_overlap_below_subsets(k_prime: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every subset proves at least what single labels and the overlap with L prove, and in part more."""
    cases = [random_case(seed, c=7, k_prime=k_prime, d=d) for seed in range(20) for d in (2, 3, 5)]
    all_subsets = [
        [exact_radii(*case, TopK(k, k_prime), sigma=1.0, method="joint").true for k in (1, 2, 3)] for case in cases
    ]
    monkeypatch.setattr("multiguard.certify.joint.MOST_SUBSET_LABELS", 0)
    monkeypatch.setattr("multiguard.certify.draws.MOST_SUBSET_LABELS", 0)
    overlaps = [
        [exact_radii(*case, TopK(k, k_prime), sigma=1.0, method="joint").true for k in (1, 2, 3)] for case in cases
    ]
    best, found = (np.concatenate([np.concatenate(radii) for radii in side]) for side in (all_subsets, overlaps))
    assert np.all(found <= best + 1e-9)
    assert np.mean(found == best) > 0.2
