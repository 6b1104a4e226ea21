"""What a deployed classifier misses under attack is bounded by clean votes: exact sums, and worlds attacked exactly.

A world is a law of probabilities p of the one label of an image. The attacker moves it to down(p), as a half-space
does, so a label that needs h of m hits is missed with probability P(Bin(m, down(p)) < h), and no attack does more.
"""

import numpy as np
import pytest
from scipy import stats

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Uniform
from multiguard.evaluate.calibration import Part
from multiguard.evaluate.risk import Risk, fewer_hits

GAUSSIAN = Gaussian(0.5)

NOISES = [
    (Gaussian(0.5), 0.0),
    (Gaussian(0.5), 0.5),
    (Gaussian(0.25), 0.5),
    (Uniform(0.5), 0.2),
    (PixelAblation(40, 1000), 4),
]
FINE = np.unique(
    np.concatenate([np.linspace(0, 1, 801), np.geomspace(1e-7, 0.01, 60), 1 - np.geomspace(1e-7, 0.01, 60)])
)
# Probabilities of a label, and how many of 20 images have each: most are certain, some are close to what is asked for.
LAW = np.repeat([0.999, 0.97, 0.9, 0.6, 0.3, 0.02], [8, 4, 3, 2, 2, 1])


@pytest.mark.parametrize(("noise", "radius"), NOISES)
@pytest.mark.parametrize(("votes_draws", "draws"), [(20, 20), (60, 10), (50, 200), (400, 60)])
def test_gap(noise, radius, votes_draws, draws):
    """By exact binomial sums: the mean of the estimate plus the gap is never below the truth; the gap is small."""
    risk = Risk(votes_draws, draws, noise, radius)
    law = stats.binom.pmf(np.arange(votes_draws + 1), votes_draws, FINE[:, None])
    one = np.arange(votes_draws + 1)[:, None]
    worst = 0.0
    for least in range(1, draws + 1, max(1, draws // 12)):
        missed = law @ risk.missed(one, np.ones_like(one, bool), least)
        worst = max(worst, np.max(stats.binom.cdf(least - 1, draws, noise.down(FINE, radius)) - missed))
        wrong = law @ risk.wrong(one, np.zeros_like(one, bool), least)
        worst = max(worst, np.max(stats.binom.sf(least - 1, draws, noise.up(FINE, radius)) - wrong))
    assert worst <= risk.gap <= 5e-4


def test_bands():
    """Where every band votes nothing is estimated: a patch takes as many hits as it meets bands, or adds as many."""
    risk, hits = Risk(32, 32, BandAblation(4, 32), 5), np.array([[20, 3]])
    true = np.array([[True, False]])
    assert risk.gap == 0
    assert [risk.missed(hits, true, least)[0] for least in (12, 13)] == [0, 1]
    assert [risk.wrong(hits, true, least)[0] for least in (11, 12)] == [1, 0]


def test_most_wrong():
    """No votes have more wrong labels than the bound by which means are scaled."""
    rng, risk = np.random.default_rng(0), Risk(50, 20, Gaussian(0.5), 0.25)
    for k_prime in (1, 3):
        for least in (1, 4, 15):
            most = risk.most_wrong(8, k_prime, least)
            sets = rng.random((400, 8)).argsort(axis=1)[:, :k_prime]
            spread = np.bincount(sets.ravel(), minlength=8)[None] * 50 // 400
            one = np.array([[50] * k_prime + [0] * (8 - k_prime)])
            for hits in (spread, one, one // 2):
                assert risk.wrong(hits, np.zeros((1, 8), bool), least)[0] <= most + 1e-12


def part_of(rng, images, risk, law=LAW):
    """A calibration part of images of one label each, and the hits that the law gives them."""
    chances = rng.choice(law, size=(images, 1))
    hits = rng.binomial(risk.votes_draws, chances).astype(np.int32)
    return Part(hits, hits, np.ones((images, 1), bool), None, risk)


def true_loss(risk, noise, radius, least, law=LAW):
    """The fraction of labels that the worst attack makes a deployed classifier miss."""
    return np.mean(stats.binom.cdf(least - 1, risk.draws, noise.down(law, radius)))


def losses(choose, noise, radius, images, votes_draws, draws, repeats=1500):
    """The true loss under the worst attack after each of many calibrations; `choose` returns h."""
    rng, risk = np.random.default_rng(images), Risk(votes_draws, draws, noise, radius)
    known = [true_loss(risk, noise, radius, least) for least in range(draws + 1)]
    return np.array([known[choose(part_of(rng, images, risk))] for _ in range(repeats)])


@pytest.mark.parametrize(("noise", "radius"), NOISES[1:])
@pytest.mark.parametrize(("images", "votes_draws", "draws"), [(20, 100, 50), (60, 400, 120), (500, 60, 50)])
def test_expected_recall(noise, radius, images, votes_draws, draws):
    """On average over calibrations the loss under the worst attack is no more than promised."""
    found = losses(lambda part: part.most_hits(0.2, None), noise, radius, images, votes_draws, draws, repeats=300)
    assert stats.ttest_1samp(found, 0.2, alternative="greater").pvalue > 1e-4


def test_expected_recall_is_tight():
    """With many images and draws nearly all of what is promised to be missed at most is missed."""
    found = losses(lambda part: part.most_hits(0.2, None), Gaussian(0.5), 0.5, 500, 400, 60, repeats=200)
    assert found.mean() > 0.15


def table(chances, draws):
    """(chances, m + 1) the probability of fewer than h hits, for each h."""
    return np.stack([fewer_hits(np.asarray(chances, np.float64), draws, h) for h in range(draws + 1)], axis=1)


def mean_loss_of(estimate, law, votes_draws, draws, images, added, noise=GAUSSIAN, radius=0.5):
    """The true loss after many calibrations with h the largest whose mean estimate, with `added` to both parts, is 0.2.

    Args:
        estimate: (n + 1, m + 1) what is taken as missed for each count K and each h.
        law: Probabilities of the label of an image, all alike probable.
        votes_draws: n.
        draws: m.
        images: N.
        added: 1 for the image to come, 0 without it.
        noise: The noise.
        radius: The radius.
    """
    rng, true = np.random.default_rng(0), table(noise.down(np.asarray(law), radius), draws).mean(axis=0)
    hits = rng.binomial(votes_draws, rng.choice(law, size=(2000, images)))
    means = np.stack([(estimate[own].sum(axis=0) + added) / (images + added) for own in hits])
    return true[np.sum(means <= 0.2, axis=1) - 1]


def test_without_one_fails():
    """The control: without the image to come the loss is more than promised, with it it is not."""
    law, n, m = np.linspace(0.05, 0.95, 181), 2000, 200
    risk = Risk(n, m, Gaussian(0.5), 0.0)
    one = np.arange(n + 1)[:, None]
    estimate = np.stack([risk.missed(one, np.ones_like(one, bool), h) for h in range(m + 1)], axis=1)
    without, whole = (mean_loss_of(estimate, law, n, m, 10, added, radius=0.0) for added in (0, 1))
    assert stats.ttest_1samp(without, 0.2, alternative="greater").pvalue < 1e-6
    assert stats.ttest_1samp(whole, 0.2 + risk.gap, alternative="greater").pvalue > 1e-3


def test_plug_in_fails():
    """The control: frequencies in place of bounds promise what the worst attack breaks nearly always."""
    noise, n, m = Gaussian(0.5), 10, 60
    plugged = table(noise.down(np.arange(n + 1) / n, 0.5), m)
    assert mean_loss_of(plugged, [0.98], n, m, 500, 1).mean() > 0.7


def test_chosen_on_the_same_images_fails():
    """The control: k' of 20 that is best on the calibration images themselves promises too much."""
    rng, images, missed = np.random.default_rng(1), 20, table(np.linspace(0.05, 0.95, 91), 50)
    own = missed[rng.integers(len(missed), size=(500, 20, images))]
    means = (own.sum(axis=2) + 1) / (images + 1)
    found = missed.mean(axis=0)[np.max(np.sum(means <= 0.2, axis=2), axis=1) - 1]
    assert stats.ttest_1samp(found, 0.2, alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize("images", [60, 300])
def test_confident_recall(images):
    """The loss is more than promised in no more calibrations than the confidence allows."""
    found = losses(lambda part: part.most_hits(0.2, 0.9), Gaussian(0.5), 0.5, images, 200, 60, repeats=400)
    assert stats.binomtest(int(np.sum(found > 0.2)), 400, 0.1, alternative="greater").pvalue > 1e-3
    assert np.mean(found) > 0.05


def test_expectation_is_no_confidence():
    """The control: a promise on average is broken by many of the calibrations alone."""
    found = losses(lambda part: part.most_hits(0.2, None), Gaussian(0.5), 0.5, 60, 200, 60, repeats=400)
    assert stats.binomtest(int(np.sum(found > 0.2)), 400, 0.1, alternative="greater").pvalue < 1e-6


def test_wrong_labels():
    """The wrong labels under the worst attack are more than the bound in no more samples than its confidence allows."""
    rng, noise, least = np.random.default_rng(0), Gaussian(0.5), 8
    risk = Risk(200, 60, noise, 0.25)
    law = np.array([[0.3, 0.05, 0.0, 0.0], [0.02, 0.01, 0.0, 0.0], [0.15, 0.15, 0.001, 0.0]])
    truth = np.mean(stats.binom.sf(least - 1, 60, noise.up(law, 0.25)).sum(axis=1))
    over, bounds = 0, []
    for _ in range(300):
        hits = rng.binomial(200, law[rng.integers(3, size=150)]).astype(np.int32)
        part = Part(hits, hits, np.zeros(hits.shape, bool), 1, risk)
        bounds.append(part.wrong(least, 0.9))
        over += truth > bounds[-1]
    assert stats.binomtest(over, 300, 0.1, alternative="greater").pvalue > 1e-3
    assert np.mean(bounds) < truth + 1
