"""What a deployed classifier misses and wrongly returns under the worst attack, bounded by votes of clean images.

The classifier takes m fresh draws at the image that it receives and returns each label that at least h of them hit. A
label of probability p at the clean image, K of whose n draws hit it, is missed under any perturbation up to R with
probability at most miss_h(p) = P(Bin(m, down(p)) < h), estimated by miss_h(lo(K)), lo the Clopper-Pearson bound at
a level a. With gap = max over h, p of miss_h(p) - E miss_h(lo(K)), which n, m, a and R decide, miss_h(p) is at most the
mean of the estimate + gap. A wrong label is returned with probability at most P(Bin(m, up(p)) >= h): as up(p) =
1 - down(1 - p), that is miss_{m-h+1}(1 - p), and the same gap serves. `docs/calibration.md` has the proofs.
"""

from functools import cache

import numpy as np
import scipy

from multiguard.certify.arguments import Bools, Floats, Ints
from multiguard.certify.bounds import clopper_pearson_lower
from multiguard.certify.noise import Noise, parse_noise

# Levels of the bounds lo, tried in this order: the first with a small gap. No gap is larger than its level.
_LEVELS, _SMALL_GAP = (0.3, 0.2, 0.1, 0.05, 0.02, 0.005, 0.0005), 5e-4
# Of the search for the gap: the first intervals of p, the parts of one that is cut, intervals at once, and how often.
_INTERVALS, _PARTS, _AT_ONCE, _MOST_PARTS = 512, 8, 256, 300
_RESOLVED = 5e-5  # intervals whose bound is within this of a value that is reached are not cut again
_BINS = 1 << 10  # of counts K
_ROUNDING = 1e-9  # many times the error of the sums


class Risk:
    """Bounds for n draws per clean image, m fresh draws, one noise and one radius; `gap` is to be added to means.

    >>> from multiguard.certify import Gaussian
    >>> risk = Risk(1000, 120, Gaussian(0.5), 0.5)
    >>> hits, true = np.array([[990, 300, 2]]), np.array([[True, True, False]])
    >>> risk.missed(hits, true, 12).round(3), risk.wrong(hits, true, 12).round(3)
    (array([0.473]), array([0.022]))
    >>> 0 <= risk.gap <= 0.0005
    True
    """

    def __init__(self, votes_draws: int, draws: int, noise: Noise, radius: float) -> None:
        self.votes_draws, self.draws = votes_draws, draws
        self.gap, self._low = _bounds(votes_draws, draws, str(noise), radius)

    def missed(self, hits: Ints, true: Bools, least: int) -> Floats:
        """(images,) the fraction of its labels that an image misses if a label needs `least` hits, from 0 to m.

        `hits`, (images, c), says in how many of the n draws each label was returned, `true` the labels of each image.
        """
        chances = self._chances(least)[hits]
        return np.asarray(np.sum(chances, axis=1, where=true) / true.sum(axis=1))

    def wrong(self, hits: Ints, true: Bools, least: int) -> Floats:
        """(images,) how many labels an image does not have and gets; arguments as in `missed`."""
        chances = self._chances(self.draws - least + 1)[self.votes_draws - hits]
        return np.asarray(np.sum(chances, axis=1, where=~true))

    def most_wrong(self, labels: int, k_prime: int | None, least: int) -> float:
        """The largest value of `wrong` that any votes can have, if each draw returns k' of the labels."""
        chances = self._chances(self.draws - least + 1)[::-1]
        if k_prime is None:
            return float(labels)
        steepest = np.max((chances[1:] - chances[0]) / np.arange(1, len(chances)))
        return min(float(labels), labels * float(chances[0]) + k_prime * self.votes_draws * float(steepest))

    def _chances(self, least: int) -> Floats:
        """(n + 1,) the probability that fewer than `least` fresh draws hit a label that K of the n draws hit."""
        return fewer_hits(self._low, self.draws, least)


def fewer_hits(chance: Floats | Ints, draws: int, least: int) -> Floats:
    """P(Bin(draws, chance) < least); where a draw is enumerated (chance is a count of them) whether it is less.

    >>> fewer_hits(np.array([0.5]), 2, 1)
    array([0.25])
    """
    if chance.dtype.kind == "i":
        return (chance < least).astype(np.float64)
    if least <= 0:
        return np.zeros(chance.shape)
    if least > draws:
        return np.ones(chance.shape)
    return np.asarray(scipy.special.betaincc(least, draws - least + 1, chance), dtype=np.float64)


@cache
def _bounds(votes_draws: int, draws: int, noise_text: str, radius: float) -> tuple[float, Floats | Ints]:
    """The gap, and (n + 1,) the least probability under attack of a label that K draws hit; of bands, their count."""
    noise, counts = parse_noise(noise_text), np.arange(votes_draws + 1)
    if noise.enumerated:
        return 0.0, counts - int(noise.met(radius))
    for level in _LEVELS:
        low = noise.down(clopper_pearson_lower(counts, votes_draws, level), radius)
        gap = min(level, _gap(low, draws, noise, radius))
        if gap <= _SMALL_GAP:
            break
    return gap, low


def _gap(low: Floats, draws: int, noise: Noise, radius: float) -> float:
    """At least the largest miss_h(p) - E miss_h(lo(K)) over all p and h, not negative; 1 if that is not small.

    Both fall in p: between p and p' the difference is at most miss_h(p) - E' miss_h(lo(K)), E' at p'.
    """
    most = len(low) - 1
    edges = np.unique(np.ceil(most * np.sin(np.linspace(0, np.pi / 2, _BINS)) ** 2).astype(np.int64))
    estimates = _every_least(low[edges], draws)  # of the largest K of each bin: no more than of the others
    angles = np.linspace(0, np.pi / 2, _INTERVALS + 1)
    todo = list(np.array_split(np.stack([angles[:-1], angles[1:]]), -(-_INTERVALS // _AT_ONCE), axis=1))
    gap = reached = 0.0
    for rounds in range(_MOST_PARTS):
        if not todo or reached > _SMALL_GAP:
            break
        part = todo.pop()
        left, right = np.sin(part) ** 2
        target = _every_least(noise.down(left, radius), draws)
        bound = np.max(target - _expected(right, edges, estimates), axis=1)
        reached = max(reached, float(np.max(target - _expected(left, edges, estimates))))
        cut = (bound > reached + _RESOLVED) & (rounds < _MOST_PARTS - len(todo) - 1)
        gap = max(gap, float(np.max(bound, initial=0.0, where=~cut)))
        if np.any(cut):
            finer = np.linspace(part[0, cut], part[1, cut], _PARTS + 1)
            halves = np.stack([finer[:-1].ravel(), finer[1:].ravel()])
            todo += np.array_split(halves, -(-halves.shape[1] // _AT_ONCE), axis=1)
    return 1.0 if todo else gap + _ROUNDING


def _every_least(chance: Floats, draws: int) -> Floats:
    """(chances, m) `fewer_hits` for each number of hits 1, ..., m."""
    least = np.arange(1, draws + 1)
    return np.asarray(scipy.special.betaincc(least, draws - least + 1, chance[:, None]), dtype=np.float64)


def _expected(chance: Floats, edges: Ints, estimates: Floats) -> Floats:
    """(chances, m) at most the mean of the estimate that each K has, K ~ Bin(n, chance)."""
    below = scipy.special.bdtr(edges, int(edges[-1]), chance[:, None])
    return np.asarray(np.diff(below, axis=1, prepend=0.0) @ estimates)
