"""What no certificate can do: the largest probability of a claim from n draws, over all certificates.

A claim of size e at r is wrong for every classifier that breaks there, so on n draws from the law Q of such a
classifier any certificate makes it with probability at most alpha. Let P be the law that the draws really have. By
Neyman and Pearson no certificate then makes the claim with a larger probability than the most powerful test of Q^n
against P^n at the level alpha has. Every Q gives such a bound; here are those that change little of P.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, xlogy
from scipy.stats import binom

from benchmarks.results.sources import ALPHA, Source, hits_of, kept_rows
from multiguard.certify import TopK
from multiguard.certify.arguments import Floats
from multiguard.io.rounding import percent_value, plain

_GRID, _STEPS, _MOST_BAD, _CUTS, _TRIED = 16, 24, 0.7, 6, 4
_LAST = (1, 2, 3, 5)
_AT = (0.5, 1.0)


def ceiling_block(source: Source, rules: Sequence[TopK]) -> dict[str, str]:
    """The recall that any certificate can expect at most from as many draws, next to that of `coupled`."""
    said = []
    for rule in rules:
        ours = source.scores(rule, "coupled", radius=_AT).recall.tolist()
        most = [percent_value(_ceiling(source, rule, radius), ROUND_CEILING) for radius in _AT]
        at = [f"{m} at R = {plain(r)} (`coupled`: {percent_value(c)})" for m, r, c in zip(most, _AT, ours, strict=True)]
        said.append(f"{' and '.join(at)} for k' = {rule.k_prime}, k = {rule.k}")
    words = f"From {source.draws:,} draws of a classifier with the frequencies of these votes, any certificate can"
    return {"ceiling": f"{words} expect at most this recall in percent: {'; '.join(said)}."}


def _ceiling(source: Source, rule: TopK, radius: float) -> float:
    path = source.path("ceiling", repr(rule), plain(radius))
    rows, _ = kept_rows(path, lambda: [_image_ceiling(source, i, rule, radius) for i in range(len(source))])
    return float(np.mean(rows))


def _image_ceiling(source: Source, image: int, rule: TopK, radius: float) -> Floats:
    own, hits = source.labels[image], hits_of(source, image, rule.k_prime)
    sizes, r = range(1, min(len(own), rule.k) + 1), radius / source.sigma
    claims = [claim_chance(hits, own, rule, size, r, source.draws, ALPHA) for size in sizes]
    return np.array([sum(claims) / len(own)])


def claim_chance(
    hits: NDArray[np.bool_],
    labels: Sequence[int],
    rule: TopK,
    size: int,
    r: float,
    draws: int,
    alpha: float,
    *,
    coin: bool = True,
) -> float:
    """At most this is the probability of a claim of `size` at r from so many draws, whatever the certificate.

    Args:
        hits: (votes, c) which labels each vote has; their frequencies are the law P of one draw.
        labels: The true labels.
        rule: k and k'.
        size: How many of the true labels are claimed to stay.
        r: R / sigma.
        draws: n.
        alpha: The error allowed.
        coin: Whether a claim may be made at random, or depends only on how many draws are of which kind.
    """
    if rule.k - size + 1 > hits.shape[1] - len(labels):
        return 1.0
    attacks = [attack for pair in _pairs(hits, labels, rule, size) for attack in _attacks(hits, *pair, rule.k_prime)]
    if any(attack.cut == 0 and attack.breaks_as_is(r) for attack in attacks):
        return alpha if coin else 0.0
    return min(attack.claim_chance(r, draws, alpha, coin=coin) for attack in attacks)


@dataclass(frozen=True)
class Attack:
    """A family of laws: rare draws that a perturbation finds first become more frequent, and new ones come.

    On a half-space of probability y the classifier returns labels of V alone, by turns. Draws of the levels below `cut`
    lie next to it, those of the other levels behind them; x is the probability of the former, in place of that in P.

    Attributes:
        mass: (levels,) the probability of each level in P, from the first that the perturbation finds.
        out: (levels, |U|) how often a draw of each level hits each label of U.
        into: (levels, |V|) the same for V.
        cut: How many levels are made more frequent.
        turns: How many labels of V a new draw has.
    """

    mass: Floats
    out: Floats
    into: Floats
    cut: int
    turns: int

    def breaks_as_is(self, r: float) -> bool:
        """Whether a classifier of the law P itself breaks."""
        return bool(self._broken(np.zeros(1) + self.mass[: self.cut].sum(), np.zeros(1), r)[0])

    def claim_chance(self, r: float, draws: int, alpha: float, *, coin: bool = True) -> float:
        """The least power over the family, of the most powerful test against P."""
        own = float(self.mass[: self.cut].sum())
        x = np.geomspace(own, _MOST_BAD, _GRID) if self.cut else np.zeros(1)
        y = self._least_new(x, r)
        x, y = x[np.isfinite(y)], y[np.isfinite(y)]
        apart = -xlogy(own, np.maximum(x, 1e-300)) - (1 - own) * np.log(1 - x - y)
        tried = np.argsort(apart)[:_TRIED]  # those that are the least apart from P are the hardest to tell from it
        return min((_power(own, float(x[i]), float(y[i]), draws, alpha, coin=coin) for i in tried), default=1.0)

    def _least_new(self, x: Floats, r: float) -> Floats:
        """For each x the least y that breaks; inf if none does."""
        low, high = np.zeros_like(x), 1 - x - 1e-9
        broken = self._broken(x, high, r)
        at_once = self._broken(x, low, r)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            enough = self._broken(x, middle, r)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(at_once, 0.0, np.where(broken, high, np.inf))

    def _broken(self, x: Floats, y: Floats, r: float) -> NDArray[np.bool_]:
        """Whether no label of U is above any of V after a perturbation of norm r sigma."""
        own = self.mass[: self.cut].sum()
        factors = np.where(
            np.arange(len(self.mass)) < self.cut, x[:, None] / max(own, 1e-300), (1 - x - y)[:, None] / (1 - own)
        )
        ends = np.cumsum(np.concatenate([y[:, None], factors * self.mass], axis=1), axis=1)
        moved = ndtr(ndtri(np.clip(ends, 0.0, 1.0)) + r)
        levels = np.diff(moved, axis=1)
        return np.asarray((levels @ self.out).max(axis=1) <= _raised(levels @ self.into, moved[:, 0], self.turns))


def _raised(values: Floats, new: Floats, turns: int) -> Floats:
    """(rows,) the least value after `turns` times `new` has been shared out, each value taking at most `new`."""
    ordered = np.sort(values, axis=1)
    filled = (np.cumsum(ordered, axis=1) + turns * new[:, None]) / np.arange(1, values.shape[1] + 1)
    return np.minimum(filled.min(axis=1), ordered[:, 0] + new)


def _power(own: float, x: float, y: float, draws: int, alpha: float, *, coin: bool) -> float:
    """The power of the best test: it claims if no draw is new and at most so many are bad, at random at the limit."""
    bad = np.arange(draws + 1)
    seen = binom.pmf(bad, draws, x / (1 - y)) * (1 - y) ** draws if y < 1 else np.zeros(draws + 1)
    wrong, right = np.cumsum(seen), binom.pmf(bad, draws, own)
    last = int(np.searchsorted(wrong, alpha))
    if last > draws:
        return 1.0
    if not coin:
        return float(right[:last].sum())
    part = (alpha - (wrong[last - 1] if last else 0.0)) / seen[last] if seen[last] > 0 else 1.0
    return float(min(right[:last].sum() + part * right[last], 1.0))


def _pairs(
    hits: NDArray[np.bool_], labels: Sequence[int], rule: TopK, size: int
) -> Iterator[tuple[list[int], list[int]]]:
    """The weakest labels, against the strongest rivals and against those of the draws that lack some of them."""
    total = hits.sum(axis=0)
    out = sorted(labels, key=lambda label: (total[label], label))[: len(labels) - size + 1]
    rivals = np.setdiff1d(np.arange(hits.shape[1]), labels)
    bad = hits[~hits[:, out].any(axis=1)].sum(axis=0)
    orders = (np.lexsort((rivals, -total[rivals])), np.lexsort((rivals, -total[rivals], -bad[rivals])))
    for into in dict.fromkeys(tuple(rivals[order][: rule.k - size + 1].tolist()) for order in orders):
        yield out, list(into)


def _attacks(hits: NDArray[np.bool_], out: list[int], into: list[int], k_prime: int) -> Iterator[Attack]:
    """Perturbations that find draws in the order of their hits, first those that lack the strongest labels of U.

    Of V the labels that come last count: the others need less, and so do draws that hit them.
    """
    leads = [hits[:, out[len(out) - u :]].mean(axis=1) for u in range(1, len(out) + 1)]
    rivals = [hits[:, into[len(into) - v :]].mean(axis=1) for v in sorted({*_LAST, len(into)}) if v <= len(into)]
    for lead, rival in product(leads, rivals):
        levels, place = np.unique(np.round(lead - rival, 9), return_inverse=True)
        counts = np.bincount(place, minlength=len(levels))
        means = [
            np.stack([np.bincount(place, hits[:, i], len(levels)) for i in own], axis=1) / counts[:, None]
            for own in (out, into)
        ]
        mass = counts / len(hits)
        most = int(np.searchsorted(np.cumsum(mass), _MOST_BAD / 2))
        for cut in range(min(most, _CUTS) + 1):
            yield Attack(mass, means[0], means[1], cut, min(k_prime, len(into)))
