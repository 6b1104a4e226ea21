"""Classifiers whose true behaviour is known exactly: certified scores against the worst that can really happen."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.certify.cases import Bands
from tests.evaluate.votes_cases import THRESHOLD, set_radii, stored_rows
from tests.votes.vote_runs import provenance

from multiguard.certify import Threshold
from multiguard.evaluate import CertifyConfig, make_certificates, set_scores
from multiguard.votes import LabelSets, VoteRow

IMAGES, LABELS, DRAWS, SIGMA, T = 500, 5, 120, 0.5, 0.4
GRID = np.linspace(0, 1, 21)
STOPS = (40, 60, 90, DRAWS)


@cache
def classifiers() -> list[Bands]:
    rng = np.random.default_rng(2)
    return [Bands.random(rng, labels=LABELS, sigma=SIGMA) for _ in range(IMAGES)]


def false_rarely_enough(wrong: int, alpha: float, images: int = IMAGES) -> bool:
    return bool(binomtest(wrong, images, alpha, alternative="greater").pvalue > 1e-4)


def worst_scores(model: Bands, labels: tuple[int, ...]) -> np.ndarray:
    """(3, radii): the least precision, recall and F1 of the true smoothed classifier within each radius."""
    shifts = np.linspace(-GRID[-1], GRID[-1], 401)
    returned = model.probabilities(shifts) >= T
    true = returned[:, list(labels)].sum(axis=1)
    false = returned.sum(axis=1) - true
    precision, recall = true / np.maximum(true + false, 1), true / len(labels)
    scores = np.stack([precision, recall, 2 * true / (true + false + len(labels))])
    return np.stack([scores[:, np.abs(shifts) <= radius + 1e-12].min(axis=1) for radius in GRID], axis=1)


def false_images(votes, alpha: float, method: str, source: str = "truth") -> int:
    """In how many images any certified score, at any radius, is above what can really happen."""
    found = make_certificates(CertifyConfig(threshold=T, alpha=alpha, methods=(method,)), votes, labels=source)
    wrong = claimed = 0
    for model, labels, proved in zip(classifiers(), found.labels, set_radii(found, method), strict=True):
        if not labels:
            continue
        scores = set_scores([proved], Threshold(T), num_true=[len(labels)], radius=GRID)
        certified = np.stack([scores.precision, scores.recall, scores.f1])
        claimed += int(certified.max() > 0)
        wrong += bool(np.any(certified > worst_scores(model, labels) + 1e-12))
    assert claimed > IMAGES / 4
    return wrong


def random_runs(folder, *, adaptive: bool = False, labelled: bool = True, seed: int = 5):
    """Votes of the classifiers. In an adaptive run an image stops where its labels look best: the worst rule."""
    rng = np.random.default_rng(seed)
    stops = {"stops": STOPS, "stopping": {"radii": (0.5,)}} if adaptive else {}
    pilot = {} if labelled else {"labelled": False, "pilot_draws": 40}
    run = provenance(IMAGES, LABELS, draws=DRAWS, sigma=SIGMA, **THRESHOLD | stops | pilot)
    rows = []
    for name, model in zip(run.image_ids, classifiers(), strict=True):
        labels = tuple(np.flatnonzero(model.probabilities(np.zeros(1))[0] >= T).tolist()) if labelled else ()
        hits = model.hits(SIGMA * rng.standard_normal(DRAWS))
        if adaptive and labels:
            hits = hits[: max(STOPS, key=lambda n: hits[:n, list(labels)].mean())]
        chooses = None if labelled else LabelSets.from_hits(model.hits(SIGMA * rng.standard_normal(40)))
        rows.append(VoteRow(name, labels, LabelSets.from_hits(hits), chooses))
    return stored_rows(folder, run, rows)


@pytest.mark.parametrize("method", ["joint", "independent"])
@pytest.mark.parametrize("kind", [{}, {"labelled": False}], ids=["fixed", "pilot"])
def test_false_scores(tmp_path, kind, method) -> None:
    """Certified scores are above the truth as rarely as promised."""
    votes = random_runs(tmp_path, **kind)
    source = "truth" if kind.get("labelled", True) else "pilot"
    assert false_rarely_enough(false_images(votes, 0.02, method, source), 0.02)


def test_false_adaptive_scores(tmp_path) -> None:
    """The same where every image stops at its best moment."""
    assert false_rarely_enough(false_images(random_runs(tmp_path, adaptive=True), 0.02, "betting"), 0.02)


def test_caught_scores(tmp_path) -> None:
    """Claims made with nearly all of the error allowed are found guilty of an error of 0.02."""
    votes = random_runs(tmp_path)
    assert not false_rarely_enough(false_images(votes, 0.999, "independent"), 0.02)


@pytest.mark.parametrize("separate", [True, False], ids=["pilot draws", "the draws that certify"])
def test_labels_of_same_draws(tmp_path, separate) -> None:
    """All labels are equally probable, so that any half of them may be in the top half: every claim is false."""
    alpha, rng, images, draws = 0.2, np.random.default_rng(0), 120, 300
    run = provenance(images, 20, draws=draws, sigma=SIGMA, k_max=1, labelled=False, pilot_draws=draws)
    rows = []
    for name in run.image_ids:
        fresh, other = rng.integers(20, size=(2, draws, 1)).astype(np.uint8)
        rows.append(VoteRow(name, (), fresh, other if separate else fresh))
    found = make_certificates(
        CertifyConfig(10, 1, alpha=alpha, methods=["joint"]), stored_rows(tmp_path, run, rows), labels="pilot"
    )
    claims = zip(found.radii["joint"], found.label_radii, strict=True)
    wrong = sum(bool(max(together.max(), alone.max()) >= 0) for together, alone in claims)
    assert false_rarely_enough(wrong, alpha, images) == separate
