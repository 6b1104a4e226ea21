"""Every certificate once more, with fifty digits and more: the formulas of docs/theory.md, word by word.

Nothing here is shared with `multiguard.certify`. SciPy only gives a first guess, from which
Newton's method goes on until nothing changes in fifty digits. `r` is R / sigma. Votes are sets of labels with how often
each came, so that a hundred million draws are a short list.

A certificate is a pair of sides, left and right: what is claimed holds where left > right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

from mpmath import mp, mpf
from scipy.special import betaincinv, ndtri

DIGITS = 60
_BITS = 260


@dataclass(frozen=True)
class Ballot:
    """Votes: the sets of labels that draws returned, and how often each of them came."""

    sets: tuple[frozenset[int], ...]
    times: tuple[int, ...]
    num_labels: int

    @property
    def draws(self) -> int:
        return sum(self.times)

    @property
    def commonest(self) -> frozenset[int]:
        return max(zip(self.times, self.sets, strict=True), key=lambda kind: kind[0])[1]

    def count(self, label: int) -> int:
        return sum(times for chosen, times in zip(self.sets, self.times, strict=True) if label in chosen)

    def at_least(self, labels: Sequence[int], hits: int) -> int:
        """In how many draws at least `hits` of these labels were hit."""
        among = frozenset(labels)
        return sum(times for chosen, times in zip(self.sets, self.times, strict=True) if len(chosen & among) >= hits)

    def others(self, labels: Sequence[int]) -> list[int]:
        return [label for label in range(self.num_labels) if label not in labels]


# ------------------------------------------------------------------------------------------------ bounds


def tail(hits: int, draws: int, p: mpf) -> tuple[mpf, mpf]:
    """Pr(at least `hits` of `draws`), and its slope in p."""
    first = mp.exp(
        mp.loggamma(draws + 1)
        - mp.loggamma(hits + 1)
        - mp.loggamma(draws - hits + 1)
        + hits * mp.log(p)
        + (draws - hits) * mp.log1p(-p)
    )
    odds, total = int(mp.floor(p / (1 - p) * mpf(2) ** _BITS)), 0
    term = 1 << _BITS
    for i in range(hits, draws + 1):
        total += term
        term = (term * (draws - i) * odds >> _BITS) // (i + 1)
        if term == 0:
            break
    return first * mpf(total) / mpf(2) ** _BITS, first * hits / p


@cache
def lower(hits: int, draws: int, level: mpf) -> mpf:
    """The Clopper-Pearson lower bound: where Pr(at least `hits`) is `level`."""
    if hits == 0:
        return mpf(0)
    guess = float(betaincinv(hits, draws - hits + 1, float(level)))
    odds = 1 / (1 / mpf(min(guess, 1 - 2**-53) if guess > 0 else hits / (draws + 1)) - 1)
    for _ in range(200):
        p = odds / (1 + odds)
        found, slope = tail(hits, draws, p)
        step = found / (slope * p * (1 - p)) * mp.log(level / found)
        odds *= mp.exp(step)
        if abs(step) < mpf(10) ** -45:
            return odds / (1 + odds)
    raise AssertionError(f"no root found for {hits} of {draws} at {level}")


def upper(hits: int, draws: int, level: mpf) -> mpf:
    """The Clopper-Pearson upper bound: one minus the lower bound of what did not happen."""
    return 1 - lower(draws - hits, draws, level)


@cache
def score(p: mpf) -> mpf:
    """Phi^-1(p)."""
    if p > mpf(1) / 2:
        return -score(1 - p)
    z = mpf(float(ndtri(float(p))))
    for _ in range(12):
        below = mp.ncdf(z)
        step = below / mp.npdf(z) * mp.log(p / below)
        z += step
        if abs(step) < mpf(10) ** -45:
            return z
    raise AssertionError(f"no score found for {p}")


def shifted(p: mpf, by: mpf) -> mpf:
    """Phi(Phi^-1(p) + by)."""
    return p if p <= 0 or p >= 1 else mp.ncdf(score(p) + by)


def layered(probabilities: Sequence[mpf], by: mpf) -> mpf:
    return mp.fsum(shifted(p, by) for p in probabilities)


# --------------------------------------------------------------------------------------------- Theorem 1


@dataclass(frozen=True)
class Claim:
    """One claim: the layers on each side, weighted; the left side is the largest, the right side the smallest.

    `left` is one list of terms for each U that must be refuted; the claim needs all of them.
    """

    left: tuple[tuple[tuple[mpf, tuple[mpf, ...]], ...], ...]
    right: tuple[tuple[tuple[mpf, tuple[mpf, ...]], ...], ...]

    def sides(self, r: mpf) -> tuple[mpf, mpf]:
        left = min(max(weight * layered(layers, -r) for weight, layers in terms) for terms in self.left)
        right = max(min(weight * layered(layers, r) for weight, layers in terms) for terms in self.right)
        return left, right


def theorem_one(
    lows: Sequence[mpf], ups: Sequence[mpf], e: int, k: int, k_prime: int, second_terms: bool = True
) -> Claim | None:
    """Size e by Theorem 1; None where it is certain."""
    a, b, s = sorted(lows, reverse=True), sorted(ups, reverse=True), k - e + 1
    if s > len(b):
        return None
    left, right = [(mpf(1), (a[e - 1],))], [(mpf(1), (b[s - 1],))]
    if second_terms:
        cap = k_prime - mp.fsum(a)
        for u in range(1, len(a) - e + 2):
            left.append((mpf(k_prime) / u, (min(mp.fsum(a[e - 1 : e - 1 + u]) / k_prime, mpf(1)),)))
        for v in range(1, s + 1):
            right.append((mpf(k_prime) / v, (max(min(mp.fsum(b[s - v : s]), cap) / k_prime, mpf(0)),)))
    return Claim((tuple(left),), (tuple(right),))


def paper(
    ballot: Ballot, labels: Sequence[int], k: int, k_prime: int, alpha: mpf, second_terms: bool = True
) -> list[Claim | None]:
    level = alpha / ballot.num_labels
    lows = [lower(ballot.count(i), ballot.draws, level) for i in labels]
    ups = [upper(ballot.count(j), ballot.draws, level) for j in ballot.others(labels)]
    return [theorem_one(lows, ups, e, k, k_prime, second_terms) for e in range(1, min(len(labels), k) + 1)]


def jia(ballot: Ballot, labels: Sequence[int], k: int, k_prime: int, alpha: mpf) -> list[Claim | None]:
    """One claim for each label of L; size e holds where e of them do."""
    return [paper(ballot, [label], k, k_prime, alpha)[0] for label in labels]


# ------------------------------------------------------------------------------------------------- joint


def joint(ballot: Ballot, labels: Sequence[int], k: int, k_prime: int, alpha: mpf) -> list[Claim | None]:
    sizes = min(len(labels), k)
    uncertain = [e for e in range(1, sizes + 1) if k - e + 1 <= ballot.num_labels - len(labels)]
    each = alpha / max(1, len(uncertain))
    side = every_subset if len(labels) <= 12 else labels_and_layers
    found: list[Claim | None] = []
    for e in range(1, sizes + 1):
        if k - e + 1 > ballot.num_labels - len(labels):
            found.append(None)
        else:
            left = side(ballot, labels, e, k_prime, each / 2)
            found.append(Claim(tuple(left), (tuple(rivals(ballot, labels, e, k, k_prime, each)),)))
    return found


def every_subset(ballot: Ballot, labels: Sequence[int], e: int, k_prime: int, spent: mpf) -> Iterator[tuple]:
    """For every U the A(S) of every S in it."""
    size = len(labels) - e + 1
    for U in combinations(labels, size):
        terms = []
        for u in range(1, size + 1):
            level = spent / (size * comb(size, u) * min(k_prime, u))
            for S in combinations(U, u):
                layers = (
                    lower(ballot.at_least(S, deep), ballot.draws, level) for deep in range(1, min(k_prime, u) + 1)
                )
                terms.append((mpf(1) / u, tuple(layers)))
        yield tuple(terms)


def labels_and_layers(ballot: Ballot, labels: Sequence[int], e: int, k_prime: int, spent: mpf) -> Iterator[tuple]:
    """For more than 12 labels: single labels of the worst U, and the layers of L from e on."""
    out, deep = len(labels) - e + 1, max(0, min(k_prime, len(labels)) - e + 1)
    share = spent / (2 if deep else 1)
    lows = sorted((lower(ballot.count(i), ballot.draws, share / out) for i in labels), reverse=True)[e - 1 :]
    terms = []
    for u in range(1, out + 1):
        m = min(k_prime, u)
        terms.append((mpf(m) / u, (min(mp.fsum(lows[:u]) / m, mpf(1)),)))
    if deep:
        layers = (lower(ballot.at_least(labels, e + i), ballot.draws, share / deep) for i in range(deep))
        terms.append((mpf(1) / out, tuple(layers)))
    yield tuple(terms)


def rivals(ballot: Ballot, labels: Sequence[int], e: int, k: int, k_prime: int, alpha: mpf) -> Iterator[tuple]:
    """The terms of B_s, one for each v."""
    s, n = k - e + 1, ballot.draws
    counts = sorted((ballot.count(j) for j in ballot.others(labels)), reverse=True)[:s]
    bars = [upper(count, n, alpha * 4 / 10 / s**2) for count in counts]
    deep = min(k_prime, s)
    Q = [upper(n - ballot.at_least(labels, k_prime - i), n, alpha / 10 / deep) for i in range(deep)]
    for v in range(1, s + 1):
        level, votes = alpha * 4 / 10 / (s * comb(s, v) * min(k_prime, v)), sum(counts[s - v :])
        layers = (min(votes // deep, most_hits(ballot, labels, s, v, deep)) for deep in range(1, min(k_prime, v) + 1))
        caps = [min(upper(min(n, hits), n, level), q) for hits, q in zip(layers, Q, strict=False)]
        yield mpf(1) / v, tuple(most_equal(caps, mp.fsum(bars[s - v :])))


def most_hits(ballot: Ballot, labels: Sequence[int], s: int, v: int, deep: int) -> int:
    """The most draws that hit `deep` labels of any T, the v labels with the fewest votes of s labels outside L."""
    others = sorted(ballot.others(labels), key=lambda j: -ballot.count(j))
    behind = frozenset(j for j in others if ballot.count(j) <= ballot.count(others[s - v]))
    draws = [
        (chosen & behind, times)
        for chosen, times in zip(ballot.sets, ballot.times, strict=True)
        if len(chosen & behind) >= deep
    ]
    on_labels = sorted((sum(times for hit, times in draws if j in hit) for j in behind), reverse=True)
    return min(sum(times for _, times in draws), sum(on_labels[:v]) // deep)


def most_equal(caps: Sequence[mpf], total: mpf) -> list[mpf]:
    """The layers min(cap, w) that add up to `total`, or the caps where those are less; one cap after the other."""
    if mp.fsum(caps) <= total:
        return list(caps)
    left, ascending = total, sorted(caps)
    for i, cap in enumerate(ascending):
        even = left / (len(caps) - i)
        if even <= cap:
            return [min(cap, even) for cap in caps]
        left -= cap
    raise AssertionError("the caps add up to more than the total")


# --------------------------------------------------------------------------------------------- threshold


def floors(ballot: Ballot, labels: Sequence[int], t: mpf, alpha: mpf, most: int) -> list[Claim]:
    """Floor e = 1..d, each from its own bounds; a floor proves all smaller ones. A draw hits at most `most` labels."""
    side = many_floor if len(labels) > 12 else subset_floor
    return [Claim(side(ballot, labels, e, alpha, most), (((t, (mpf(1),)),),)) for e in range(1, len(labels) + 1)]


def subset_floor(ballot: Ballot, labels: Sequence[int], e: int, alpha: mpf, most: int) -> tuple:
    d, n, sides = len(labels), ballot.draws, []
    size = d - e + 1
    for U in combinations(labels, size):
        terms = []
        for u in range(1, size + 1):
            if d == 1:
                level = alpha
            elif u == 1:
                level = alpha * 9 / (10 * d)
            else:
                level = alpha / (10 * (d - 1)) / ((size - 1) * comb(size, u) * min(most, u))
            for S in combinations(U, u):
                layers = tuple(lower(ballot.at_least(S, deep), n, level) for deep in range(1, min(most, u) + 1))
                terms.append((mpf(1) / u, layers))
        sides.append(tuple(terms))
    return tuple(sides)


def many_floor(ballot: Ballot, labels: Sequence[int], e: int, alpha: mpf, most: int) -> tuple:
    d, n, deep = len(labels), ballot.draws, min(most, len(labels))
    lows = sorted((lower(ballot.count(i), n, alpha * 9 / (10 * d)) for i in labels), reverse=True)[e - 1 :]
    terms = []
    for u in range(1, d - e + 2):
        m = min(deep, u)
        terms.append((mpf(m) / u, (min(mp.fsum(lows[:u]) / m, mpf(1)),)))
    layers = tuple(lower(ballot.at_least(labels, hits), n, alpha / (10 * deep)) for hits in range(e, deep + 1))
    return ((*terms, (mpf(1) / (d - e + 1), layers)),)


def ceilings(ballot: Ballot, labels: Sequence[int], t: mpf, alpha: mpf, most: int, suspects: int = 6) -> list[Claim]:
    """Ceiling m = 0..c-d-1, each from its own bounds; a ceiling proves all larger ones."""
    others, n = ballot.others(labels), ballot.draws
    ordered = sorted(others, key=lambda j: -ballot.count(j))
    together = min(suspects, len(others))
    single = alpha if len(others) == 1 else alpha * 7 / (10 * max(1, len(others)))
    found = []
    for m in range(len(others)):
        if m >= together:
            right = [((mpf(1), (upper(ballot.count(ordered[m]), n, single),)),)]
        else:
            right = few_rivals(ballot, ordered, m + 1, together, single, alpha, most)
        found.append(Claim((((t, (mpf(1),)),),), tuple(right)))
    return found


def few_rivals(
    ballot: Ballot, ordered: Sequence[int], size: int, together: int, single: mpf, alpha: mpf, most: int
) -> list:
    own = alpha * 3 / 10 * (1 + mpf(1) / together) / (size * (size + 1))
    if len(ordered) == 1:
        own = alpha
    level = {v: own / (size * comb(size, v) * min(most, v)) for v in range(1, size + 1)}
    level[1], n = max(single, level[1]), ballot.draws
    sides = []
    for V in combinations(ordered[:together], size):
        terms = []
        for v in range(1, size + 1):
            for T in combinations(V, v):
                layers = tuple(upper(ballot.at_least(T, deep), n, level[v]) for deep in range(1, min(most, v) + 1))
                terms.append((mpf(1) / v, layers))
        sides.append(tuple(terms))
    if len(ordered) > together:
        sides.append(((mpf(1), (upper(ballot.count(ordered[together]), n, level[1]),)),))
    return sides
