"""Votes at the edges of what floating point can hold, and the check of radii by fifty digits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray
from tests.certify import fifty_digits
from tests.certify.fifty_digits import DIGITS, Ballot, Claim

from multiguard.certify import Gaussian, Noise, Rule, Threshold, TopK, Uniform
from multiguard.certify.bounds import ClopperPearson
from multiguard.certify.draws import VoteCounts, count_votes
from multiguard.certify.radii import solve

# How much further than its radius a claim may still be true: the bounds are sought for (1 - 1e-7) of their level.
LOOSE = 1e-6
# The code asks that the left side exceed the right by 1 + 1e-11, which counts where both are nearly 1.
MARGIN = 1 + 1e-10
CLAIMS: dict[str, Callable[..., list[Claim | None]]] = {
    "joint": fifty_digits.joint,
    "paper": fifty_digits.paper,
    "independent": lambda *args: fifty_digits.paper(*args, second_terms=False),
    "jia": fifty_digits.jia,
}


NoiseOf = Callable[[float], Noise]


def half_uniform(sigma: float) -> Noise:
    """Uniform noise whose radii are sigma times D."""
    return Uniform(sigma / 2)


def moved(p: mpf, by: mpf) -> mpf:
    """`fifty_digits.shifted` for noise that moves probabilities by D; no bound from draws is 1, only the side of t."""
    return mpf(1) if p >= 1 else min(mpf(1), max(mpf(0), p + by))


@dataclass(frozen=True)
class Case:
    """The votes of one image and what is certified from them."""

    ballot: Ballot
    labels: tuple[int, ...]
    k: int
    k_prime: int
    sigma: float
    alpha: float


def votes(num_labels: int, *kinds: tuple[Sequence[int], int]) -> Ballot:
    """Votes from pairs of a set of labels and how often it came."""
    return Ballot(tuple(frozenset(chosen) for chosen, _ in kinds), tuple(times for _, times in kinds), num_labels)


def ballot_of(hits: NDArray[np.bool_]) -> Ballot:
    """Draws as votes."""
    sets, times = np.unique(hits, axis=0, return_counts=True)
    return votes(hits.shape[1], *((np.flatnonzero(row).tolist(), int(n)) for row, n in zip(sets, times, strict=True)))


def as_hits(ballot: Ballot) -> NDArray[np.bool_]:
    return np.array([[label in chosen for label in range(ballot.num_labels)] for chosen in ballot.sets])


def counts_of(ballot: Ballot, labels: Sequence[int], rule: Rule) -> VoteCounts:
    """What the code keeps of these votes, without writing out a hundred million draws."""
    weights = np.array(ballot.times, dtype=np.float64)
    counts = count_votes(as_hits(ballot), labels, rule, ballot.num_labels, weights)
    draws = float(ballot.draws)
    suspects = None if counts.suspects is None else replace(counts.suspects, draws=draws)
    return replace(counts, draws=draws, suspects=suspects)


# ------------------------------------------------------------------------------------ checked by fifty digits


def check_claims(claims: Sequence[Claim | None], needed: int, radius: float, sigma: float) -> None:
    """Passes if `needed` of the claims hold at the radius, in exact arithmetic, and fewer a little further."""
    with mp.workdps(DIGITS):
        if radius == np.inf:
            assert claims.count(None) >= needed, "only what is certain has no end"
        elif radius == -np.inf:
            assert holding(claims, mpf(0), 1 + LOOSE) < needed, "far too careful"
        else:
            r = mpf(radius) / mpf(sigma)
            assert holding(claims, r) >= needed, f"{radius!r} is not proved"
            assert holding(claims, r * (1 + LOOSE) + LOOSE, MARGIN) < needed, "far too careful"


def holding(claims: Sequence[Claim | None], r: mpf, factor: float = 1) -> int:
    """How many of the claims hold at r; what is None is certain."""
    sides = [claim.sides(r) for claim in claims if claim is not None]
    return sum(1 for left, right in sides if left > right * factor) + claims.count(None)


def top_k_radii(case: Case, method: str, noise: NoiseOf = Gaussian) -> NDArray[np.float64]:
    rule = TopK(case.k, case.k_prime)
    counts = counts_of(case.ballot, case.labels, rule)
    return solve([counts], rule, ClopperPearson(), noise(case.sigma), case.alpha, method)[0].true  # type: ignore[arg-type]


def check_top_k(case: Case, method: str, noise: NoiseOf = Gaussian) -> None:
    """Check the radius of every size: all claims up to it must hold, or for jia as many of the labels' own."""
    radii = top_k_radii(case, method, noise)
    with mp.workdps(DIGITS):
        claims = CLAIMS[method](case.ballot, case.labels, case.k, case.k_prime, mpf(case.alpha))
    assert len(radii) == min(len(case.labels), case.k)
    for size, radius in enumerate(radii, start=1):
        check_claims(claims if method == "jia" else claims[:size], size, float(radius), case.sigma)


def check_threshold(
    ballot: Ballot,
    labels: Sequence[int],
    t: float,
    sigma: float,
    alpha: float,
    noise: NoiseOf = Gaussian,
    suspects: int = 6,
    k_prime: int | None = None,
) -> None:
    """Check every floor and every ceiling: each holds by its own bounds or by the bounds of one that implies it."""
    rule, most = Threshold(t, k_prime), k_prime or ballot.num_labels
    counts = counts_of(ballot, labels, rule)
    found = solve([counts], rule, ClopperPearson(), noise(sigma), alpha, "joint")[0]
    assert found.false is not None
    with mp.workdps(DIGITS):
        floors = fifty_digits.floors(ballot, labels, mpf(t), mpf(alpha) / 2, most)
        ceilings = fifty_digits.ceilings(ballot, labels, mpf(t), mpf(alpha) / 2, most, suspects)
    assert len(found.true) == len(floors)
    assert len(found.false) == len(ceilings)
    for e, radius in enumerate(found.true):
        check_claims(floors[e:], 1, float(radius), sigma)
    for m, radius in enumerate(found.false):
        check_claims(ceilings[: m + 1], 1, float(radius), sigma)


# ----------------------------------------------------------------------------------------- cases by chance


def random_ballot(rng: np.random.Generator, num_labels: int, k_prime: int | None, draws: int) -> Ballot:
    """A few kinds of draws whose numbers range over all orders of magnitude, one of them nearly all."""
    kinds: dict[frozenset[int], int] = {}
    for _ in range(int(rng.integers(1, 6))):
        size = k_prime if k_prime is not None else int(rng.integers(0, num_labels + 1))
        chosen = frozenset(rng.choice(num_labels, size, replace=False).tolist())
        kinds[chosen] = kinds.get(chosen, 0) + int(np.exp(rng.uniform(0, np.log(draws + 1)))) - 1
    first = next(iter(kinds))
    missing = draws - sum(kinds.values())
    if missing < 0:
        kinds = {first: draws}
    else:
        kinds[first] += missing
    return Ballot(tuple(kinds), tuple(kinds.values()), num_labels)


def random_case(seed: int, most_draws: float = 1e8) -> Case:
    """A case by chance; the labels are mostly from the commonest draw, so that there is something to prove."""
    rng = np.random.default_rng(seed)
    num_labels = int(rng.integers(2, 9))
    k_prime = int(rng.integers(1, min(4, num_labels) + 1))
    ballot = random_ballot(rng, num_labels, k_prime, int(np.exp(rng.uniform(0, np.log(most_draws)))))
    weights = np.array([1.0 + 30 * (label in ballot.commonest) for label in range(num_labels)])
    num_true = int(rng.integers(1, min(4, num_labels) + 1))
    labels = rng.choice(num_labels, num_true, replace=False, p=weights / weights.sum())
    few = max(1, num_labels - num_true)
    return Case(
        ballot,
        tuple(sorted(labels.tolist())),
        k=int(rng.integers(1, (few if rng.random() < 0.8 else num_labels) + 1)),
        k_prime=k_prime,
        sigma=float(10 ** rng.uniform(-6, 6)),
        alpha=random_alpha(rng),
    )


def random_alpha(rng: np.random.Generator) -> float:
    """Common, tiny, or nearly as small as is allowed."""
    return float(10 ** rng.choice([rng.uniform(-0.5, -0.01), rng.uniform(-12, -1), rng.uniform(-200, -12)]))


def random_sets_case(seed: int) -> tuple[Ballot, tuple[int, ...], float, float, float]:
    """Votes of the threshold rule by chance: the ballot, L, t, sigma and alpha."""
    rng = np.random.default_rng(seed)
    num_labels = int(rng.integers(1, 9))
    ballot = random_ballot(rng, num_labels, None, int(np.exp(rng.uniform(0, np.log(1e8)))))
    weights = np.array([1.0 + 30 * (label in ballot.commonest) for label in range(num_labels)])
    labels = rng.choice(
        num_labels, int(rng.integers(0, min(4, num_labels) + 1)), replace=False, p=weights / weights.sum()
    )
    near = 10 ** rng.uniform(-9, -1)
    t = float(rng.choice([rng.uniform(0.01, 0.99), near, 1 - near]))
    return ballot, tuple(sorted(labels.tolist())), t, float(10 ** rng.uniform(-6, 6)), random_alpha(rng)
