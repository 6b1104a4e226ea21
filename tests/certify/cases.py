"""Votes and classifiers that tests draw from, and the classifiers' true behaviour in closed form."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import binomtest

Floats = NDArray[np.float64]


def too_many(wrong: int, cases: int, alpha: float) -> float:
    """The p-value of this number of false claims where each may be false with probability alpha."""
    return float(binomtest(wrong, cases, alpha, alternative="greater").pvalue)


def random_ranked(rng: np.random.Generator, *, labels: int, depth: int, draws: int, spread: float) -> NDArray[np.int64]:
    """Ranked votes (draws, depth): a fixed random score for each label, plus noise on every draw."""
    scores = spread * rng.standard_normal(labels) + rng.standard_normal((draws, labels))
    return np.argsort(-scores, axis=1)[:, :depth]


def random_distribution(rng: np.random.Generator, *, labels: int, k_prime: int) -> tuple[NDArray[np.bool_], Floats]:
    """Every set of k' labels, as boolean rows, and a random probability for each."""
    sets = np.array([[j in chosen for j in range(labels)] for chosen in combinations(range(labels), k_prime)])
    return sets, rng.dirichlet(np.full(len(sets), rng.choice([0.05, 0.2, 1.0])))


def interval_probabilities(ends: Floats) -> Floats:
    """The standard normal probability between consecutive ends, also far out in the upper tail."""
    low, high = ends[..., :-1], ends[..., 1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


@dataclass(frozen=True, eq=False)
class Lines:
    """A linear classifier whose scores are slope_i t + offset_i, t the projection of the input on a unit vector.

    Its answer depends on t alone, so the label probabilities around any t are sums of Gaussian interval
    probabilities, and the worst perturbation of norm R moves t by some shift within [-R, R].
    """

    slopes: Floats
    offsets: Floats
    k_prime: int
    sigma: float

    @staticmethod
    def random(rng: np.random.Generator, *, labels: int, k_prime: int, sigma: float) -> "Lines":
        return Lines(rng.standard_normal(labels), 0.5 * rng.standard_normal(labels), k_prime, sigma)

    def ranked(self, t: Floats) -> NDArray[np.int64]:
        """(len(t), k') the labels returned at each t."""
        return np.argsort(-(t[:, None] * self.slopes + self.offsets), axis=1)[:, : self.k_prime]

    def pieces(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The ends of the intervals on which the answer is constant, and the answer (intervals, labels) on each."""
        i, j = np.triu_indices(len(self.slopes), 1)
        cuts = np.sort((self.offsets[j] - self.offsets[i]) / (self.slopes[i] - self.slopes[j]))
        inside = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2, [cuts[-1] + 1]])
        answers = np.zeros((len(inside), len(self.slopes)), dtype=np.bool_)
        np.put_along_axis(answers, self.ranked(inside), True, axis=1)
        return np.concatenate([[-np.inf], cuts, [np.inf]]), answers

    def probabilities(self, t: Floats) -> Floats:
        """(len(t), labels) the exact label probabilities around each t."""
        ends, answers = self.pieces()
        return interval_probabilities((ends - t[:, None]) / self.sigma) @ answers

    def break_radii(self, labels: NDArray[np.int64], k: int, *, furthest: float, steps: int = 600) -> Floats:
        """(min(d, k),) for each size a shift at which fewer labels survive (inf if none is found up to `furthest`).

        The shifts tried are a grid, so the true least shift can be smaller, never larger.
        """
        shifts = np.linspace(0, furthest, steps)
        top = [np.argsort(-self.probabilities(sign * shifts), axis=1)[:, :k] for sign in (1, -1)]
        kept = np.minimum(*(np.isin(answer, labels).sum(axis=1) for answer in top))
        return np.array(
            [shifts[kept < e][0] if np.any(kept < e) else np.inf for e in range(1, min(len(labels), k) + 1)]
        )


@dataclass(frozen=True, eq=False)
class Pairs:
    """The linear classifier with scores x_1 .. x_m, -x_1 .. -x_m and k' = m: of each pair it returns the positive one.

    Label i is returned where x_i > 0 and label m + i where x_i < 0, so p_i = Phi(x_i / sigma), p_{m+i} = 1 - p_i.
    """

    point: Floats
    sigma: float

    @property
    def values(self) -> Floats:
        return np.concatenate([self.point, -self.point])

    def distribution(self) -> tuple[NDArray[np.bool_], Floats]:
        """The 2^m sets that can be returned and their exact probabilities."""
        m = len(self.point)
        signs = (np.arange(1 << m)[:, None] >> np.arange(m)) & 1 == 1
        chances = np.where(signs, ndtr(self.point / self.sigma), ndtr(-self.point / self.sigma))
        return np.concatenate([signs, ~signs], axis=1), chances.prod(axis=1)

    def least_break(self, labels: tuple[int, ...], k: int, e: int) -> float:
        """The exact least norm of a perturbation after which fewer than e of the labels need be among the top k."""
        others = [j for j in range(2 * len(self.point)) if j not in labels]
        out, into = len(labels) - e + 1, k - e + 1
        if into > len(others):
            return np.inf
        pairs = ((U, V) for U in combinations(labels, out) for V in combinations(others, into))
        return min(self._least_move(U, V) for U, V in pairs)

    def _least_move(self, U: tuple[int, ...], V: tuple[int, ...]) -> float:
        """The least norm that takes every label of U to at most a common level and every label of V to at least it."""
        m = len(self.point)

        # In terms of the coordinate: a label's value is +x or -x; each asks for an interval of it.
        def squared(level: float) -> float:
            low, high = np.full(m, -np.inf), np.full(m, np.inf)
            for label, below in [*((u, True) for u in U), *((v, False) for v in V)]:
                i, positive = label % m, label < m
                bound = level if positive else -level
                if below == positive:
                    high[i] = min(high[i], bound)
                else:
                    low[i] = max(low[i], bound)
            if np.any(low > high):
                return 1e9
            return float(np.sum((np.clip(self.point, low, high) - self.point) ** 2))

        reach = float(np.abs(self.point).max()) + 1e-9
        candidates = np.concatenate([[0.0], self.values, np.linspace(-reach, reach, 41)])
        best = min(candidates, key=squared)
        if squared(best) == 1e9:
            return np.inf
        around = minimize_scalar(
            squared, bounds=(best - reach / 20, best + reach / 20), method="bounded", options={"xatol": 1e-10}
        )
        return float(np.sqrt(min(squared(best), around.fun)))


@dataclass(frozen=True, eq=False)
class Bands:
    """A classifier that returns label i where the projection t of the input lies between low_i and high_i.

    Any number of labels at a time; p_i around any t is one Gaussian interval, and the worst perturbation of norm R
    moves t by some shift within [-R, R].
    """

    low: Floats
    high: Floats
    sigma: float

    @staticmethod
    def random(rng: np.random.Generator, *, labels: int, sigma: float) -> "Bands":
        centre, width = rng.standard_normal(labels), 0.2 + 1.5 * rng.random(labels)
        low, high = centre - width, centre + width
        side = rng.integers(0, 3, labels)
        return Bands(np.where(side == 1, -np.inf, low), np.where(side == 2, np.inf, high), sigma)

    def hits(self, t: Floats) -> NDArray[np.bool_]:
        """(len(t), labels) the labels returned at each t."""
        return (t[:, None] > self.low) & (t[:, None] <= self.high)

    def distribution(self) -> tuple[NDArray[np.bool_], Floats]:
        """The sets that can be returned and their exact probabilities around 0."""
        ends = np.unique(np.concatenate([self.low, self.high, [-np.inf, np.inf]]))
        return self.hits(ends[1:]), interval_probabilities(ends / self.sigma)

    def probabilities(self, t: Floats) -> Floats:
        """(len(t), labels) the exact label probabilities around each t."""
        ends = np.stack([self.low, self.high], axis=-1) - t[:, None, None]
        return interval_probabilities(ends / self.sigma)[..., 0]

    def breaks(
        self, labels: NDArray[np.int64], threshold: float, *, furthest: float, steps: int = 400
    ) -> tuple[Floats, Floats]:
        """For each floor and each ceiling a shift at which it is broken (inf if none is found up to `furthest`).

        The shifts tried are a grid, so the true least shift can be smaller, never larger.
        """
        shifts = np.linspace(0, furthest, steps)
        inside = [self.probabilities(sign * shifts) >= threshold for sign in (1, -1)]
        others = np.setdiff1d(np.arange(len(self.low)), labels)
        kept = np.minimum(*(found[:, labels].sum(axis=1) for found in inside))
        entered = np.maximum(*(found[:, others].sum(axis=1) for found in inside))
        floors = [first_shift(shifts, kept < e) for e in range(1, len(labels) + 1)]
        ceilings = [first_shift(shifts, entered > m) for m in range(len(others))]
        return np.array(floors), np.array(ceilings)


def first_shift(shifts: Floats, broken: NDArray[np.bool_]) -> float:
    """The first of the shifts that is broken, inf if none is."""
    return float(shifts[broken][0]) if np.any(broken) else np.inf


def random_sets(rng: np.random.Generator, *, labels: int, draws: int, spread: float) -> NDArray[np.bool_]:
    """Votes that are sets (draws, labels): a fixed random score for each label, plus a common and an own noise."""
    scores = spread * rng.standard_normal(labels) + rng.standard_normal((draws, 1)) * rng.standard_normal(labels)
    return scores + rng.standard_normal((draws, labels)) > 0


def votes_and_labels(rng: np.random.Generator, images: int, draws) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Ranked votes of images over 10 labels, and for each image some of its most hit labels."""
    ranked = [random_ranked(rng, labels=10, depth=3, draws=int(rng.choice(draws)), spread=2.0) for _ in range(images)]
    popular = [np.argsort(-np.bincount(votes[:, :2].ravel(), minlength=10)) for votes in ranked]
    return ranked, [order[: rng.integers(0, 5)] for order in popular]
