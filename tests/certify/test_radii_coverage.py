"""How often claims are false, judged by exact binomial tests: thresholds and predicted sets."""

from collections.abc import Iterable

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from tests.certify.cases import Bands, too_many

from multiguard.certify import Threshold, TopK, certified_radii_batch, exact_radii, label_radii
from multiguard.certify.joint import _ceiling_levels

ALPHA = 0.2
LABELS = 6
THRESHOLD = 0.4
RULE = Threshold(THRESHOLD)


# ------------------------------------------------------------------------------------------------ thresholds


@pytest.fixture(scope="module")
def bands():
    """Random classifiers with their votes, labels, and the shifts at which floors and ceilings truly break."""
    rng = np.random.default_rng(2022)
    cases = []
    for _ in range(1000):
        model = Bands.random(rng, labels=LABELS, sigma=0.5)
        hits = model.hits(0.5 * rng.standard_normal(int(rng.choice([30, 100, 400]))))
        likely = np.argsort(-model.probabilities(np.zeros(1))[0])
        labels = np.sort(likely[: rng.integers(0, 4)])
        cases.append((model, hits, labels, model.breaks(labels, THRESHOLD, furthest=3.0)))
    return cases


def is_false(claim, truth) -> bool:
    """Whether any floor or ceiling is claimed at a radius at which it is truly broken."""
    pairs = zip((claim.true, claim.false), truth, strict=True)
    return any(bool(np.any((radii >= breaks) & np.isfinite(breaks))) for radii, breaks in pairs)


def false_claims(cases, claims: Iterable) -> int:
    return sum(is_false(claim, truth) for claim, (_, _, _, truth) in zip(claims, cases, strict=True))


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_false_sets(bands, method: str) -> None:
    """False floors and ceilings are as rare as promised."""
    _, hits, labels, _ = zip(*bands, strict=True)
    options = {"num_labels": LABELS, "sigma": 0.5, "alpha": ALPHA, "method": method}
    claims = certified_radii_batch(hits, labels, RULE, **options)
    assert too_many(false_claims(bands, claims), len(bands), ALPHA) > 1e-4


def test_false_sets_without_bounds(bands) -> None:
    """Frequencies taken for probabilities are caught."""

    def claims():
        for _, hits, labels, _ in bands[:250]:
            sets, counts = np.unique(hits, axis=0, return_counts=True)
            yield exact_radii(sets, counts / counts.sum(), labels, Threshold(THRESHOLD), sigma=0.5)

    assert too_many(false_claims(bands[:250], claims()), 250, ALPHA) < 1e-6


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_exact_sets(bands, method: str) -> None:
    """With exact probabilities no floor and no ceiling is false."""
    proved = 0
    for model, _, labels, truth in bands[:250]:
        sets, chances = model.distribution()
        if np.any(np.abs(chances @ sets - 1) < 1e-12):
            continue  # a double cannot hold how far such a probability is from 1
        claim = exact_radii(sets, chances, labels, Threshold(THRESHOLD), sigma=0.5, method=method)
        for radii, breaks in zip((claim.true, claim.false), truth, strict=True):
            assert np.all((radii <= breaks + 1e-9) | np.isinf(breaks))
            proved += np.sum(np.isfinite(radii))
    assert proved > 180


@pytest.fixture(scope="module")
def at_the_edge():
    """Label 0 leaves and label 1 enters at distance 0.4, one by its side of a hyperplane, one by the other."""
    rng = np.random.default_rng(12)
    chance = ndtr(ndtri(THRESHOLD) + 0.8), ndtr(ndtri(THRESHOLD) - 0.8)
    return [rng.random((200, 2)) < chance for _ in range(2500)]


def false_at_the_edge(votes, *, alpha: float, method: str) -> int:
    options = {"num_labels": 2, "sigma": 0.5, "alpha": alpha, "method": method}
    claims = certified_radii_batch(votes, [[0]] * len(votes), RULE, **options)
    return sum(claim.true[0] >= 0.4 or claim.false[0] >= 0.4 for claim in claims)


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_spent_error(at_the_edge, method: str) -> None:
    """Where certificates are tight, the error is spent but not exceeded."""
    wrong = false_at_the_edge(at_the_edge, alpha=ALPHA, method=method)
    assert too_many(wrong, len(at_the_edge), ALPHA) > 1e-4
    assert wrong > 0.05 * len(at_the_edge)


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_caught_error(at_the_edge, method: str) -> None:
    """Four times the error is caught."""
    assert too_many(false_at_the_edge(at_the_edge, alpha=4 * ALPHA, method=method), len(at_the_edge), ALPHA) < 1e-6


@pytest.fixture(scope="module")
def nothing_holds():
    """Votes on three labels of L that are out by a hair and on four others that are in: every claim is false."""
    rng = np.random.default_rng(14)
    chance = np.array([THRESHOLD * (1 - 1e-9)] * 3 + [THRESHOLD] * 4)
    return [rng.random((300, 7)) < chance for _ in range(2000)]


def claimed_where_nothing_holds(votes, method: str = "joint") -> int:
    options = {"num_labels": 7, "sigma": 0.5, "alpha": ALPHA, "method": method}
    claims = certified_radii_batch(votes, [range(3)] * len(votes), RULE, **options)
    return sum(bool(np.any(claim.true >= 0) or np.any(claim.false >= 0)) for claim in claims)


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_spent_error_of_all_labels(nothing_holds, method: str) -> None:
    """Where every label may fail, the error is spent but not exceeded."""
    wrong = claimed_where_nothing_holds(nothing_holds, method)
    assert too_many(wrong, len(nothing_holds), ALPHA) > 1e-4
    assert wrong > 0.1 * len(nothing_holds)


def undivided_singles(alpha: float, rivals: int, together: int, depth: int):
    single, each = _ceiling_levels(alpha, rivals, together, depth)
    return rivals * single, [np.append(rivals * single, level[1:]) for level in each]


@pytest.mark.parametrize(
    ("of", "wrong_levels"),
    [
        ("joint.floor_levels", lambda alpha, labels, depth, out: np.full(out, alpha)),
        ("joint.floor_levels", lambda alpha, labels, depth, out: np.append(0.9 * alpha, np.full(out - 1, 1e-9))),
        (
            "joint._ceiling_levels",
            lambda alpha, rivals, most, depth: (alpha, [np.full(s + 1, alpha) for s in range(most)]),
        ),
        ("joint._ceiling_levels", undivided_singles),
    ],
    ids=["all of alpha in U", "singles in L undivided", "all of alpha in V", "singles outside L undivided"],
)
def test_caught_levels(nothing_holds, monkeypatch: pytest.MonkeyPatch, of: str, wrong_levels) -> None:
    """Levels that are not divided as they must be are caught."""
    monkeypatch.setattr(f"multiguard.certify.{of}", wrong_levels)
    assert too_many(claimed_where_nothing_holds(nothing_holds), len(nothing_holds), ALPHA) < 1e-6


def test_single_labels(at_the_edge) -> None:
    """The claim on a label alone spends its error, and no more."""
    options = {"num_labels": 2, "sigma": 0.5, "alpha": ALPHA}
    wrong = sum(label_radii(hits, [0], RULE, **options)[0] >= 0.4 for hits in at_the_edge[:1500])
    assert too_many(int(wrong), 1500, ALPHA) > 1e-4
    assert wrong > 0.1 * 1500


# -------------------------------------------------------------------------------------- without ground truth


@pytest.fixture(scope="module")
def near_ties():
    """Classifiers whose labels are all about equally probable: which are the top k is a matter of a hair."""
    rng = np.random.default_rng(4)
    slots = np.arange(LABELS) + 0.5
    models = []
    for _ in range(400):
        cut = np.sort(ndtri(slots[:-1] / LABELS + 1 / (2 * LABELS)) * 0.5 + 0.002 * rng.standard_normal(LABELS - 1))
        models.append(np.concatenate([[-np.inf], cut, [np.inf]]))
    return models


def false_sets(models, k: int = 3, draws: int = 60) -> int:
    """In how many cases a set chosen by pilot draws is claimed to keep what it truly does not keep."""
    rng = np.random.default_rng(5)
    pilot, fresh = ([np.digitize(0.5 * rng.standard_normal(draws), m[1:-1])[:, None] for m in models] for _ in range(2))
    sets = [np.argsort(-np.bincount(votes.ravel(), minlength=LABELS))[:k] for votes in pilot]
    claims = certified_radii_batch(fresh, sets, TopK(k, 1), num_labels=LABELS, sigma=0.5, alpha=ALPHA, method="joint")
    wrong = 0
    shifts = np.linspace(0, 1.5, 120)
    for ends, chosen, radii in zip(models, sets, claims, strict=True):
        top = [np.argsort(-np.diff(ndtr((ends - s[:, None]) / 0.5)), axis=1)[:, :k] for s in (shifts, -shifts)]
        kept = np.minimum(*(np.isin(found, chosen).sum(axis=1) for found in top))
        wrong += any(np.any(kept[shifts <= radius] < e) for e, radius in enumerate(radii.true, start=1))
    return wrong


def test_chosen_sets(near_ties) -> None:
    """A set chosen by other draws is certified with the promised error."""
    assert too_many(false_sets(near_ties), len(near_ties), ALPHA) > 1e-4


def test_sets_chosen_by_same_draws() -> None:
    """60 labels of the same probability, one hit a draw: the most hit one is no better than any other."""
    rng = np.random.default_rng(6)
    pilots, fresh = (list(rng.integers(0, 60, (600, 40, 1))) for _ in range(2))
    chosen = [np.argsort(-np.bincount(votes.ravel(), minlength=60))[:1] for votes in pilots]

    def false_claims(votes) -> int:
        """The label at rank 60 of 60 need not be in the top 59: any claim that the chosen one is, is unfounded."""
        proved = certified_radii_batch(
            votes, chosen, TopK(59, 1), num_labels=60, sigma=0.5, alpha=ALPHA, method="joint"
        )
        return sum(bool(radii.true[0] >= 0) for radii in proved)

    assert too_many(false_claims(fresh), 600, ALPHA) > 1e-4
    assert too_many(false_claims(pilots), 600, ALPHA) < 1e-6


def test_chosen_threshold_sets(bands) -> None:
    """The same for the threshold rule."""
    rng = np.random.default_rng(7)
    models, fresh, _, _ = zip(*bands[:500], strict=True)
    pilots = [model.hits(0.5 * rng.standard_normal(50)) for model in models]
    chosen = [np.flatnonzero(hits.mean(axis=0) >= THRESHOLD) for hits in pilots]
    claims = certified_radii_batch(fresh, chosen, Threshold(THRESHOLD), num_labels=LABELS, sigma=0.5, alpha=ALPHA)
    truths = [m.breaks(L, THRESHOLD, furthest=2.0, steps=200) for m, L in zip(models, chosen, strict=True)]
    assert too_many(sum(map(is_false, claims, truths)), 500, ALPHA) > 1e-4
