"""The betting certificate: one number per draw, for a fixed number of draws (coupled) or for every one (betting).

If fewer than e labels of L survive, some pair (U, V) is broken: U in L with |U| = d - e + 1 is out, V outside L with
|V| = k - e + 1 is in. Each draw is a bet against the pair, chosen from earlier draws, whose payoff has mean at most 1
while the pair is broken at r. So K, the product of the payoffs, ever reaches 1/a with probability at most a (Ville).
Size e is claimed at r once K has reached 1 / (f_e alpha) for every pair, at r and at every smaller r of a list fixed
beforehand; f_e is the fraction of alpha that the first draws give to the size. `docs/theory.md` has the proof.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import Bools, Floats, check_alpha, check_radii, each_image
from multiguard.certify.bets import Claim, Game, scores_of, smoothed
from multiguard.certify.draws import MOST_SUBSET_LABELS, Draws, check_order, fixed_permutation, read_draws
from multiguard.certify.noise import Noise, SampledNoise, check_sampled, resolve_noise
from multiguard.certify.rules import Method, Rule, Threshold, TopK
from multiguard.certify.wealth import (
    ANYTIME,
    BETTING_CUTS,
    MOST_TOGETHER,
    Block,
    Course,
    bets_of,
    fixed_course,
    likely_end,
    reachable_radii,
    settle,
    wealth,
)

# The methods that bet: for a number of draws fixed beforehand, and for any number of draws.
BETTING_METHODS: tuple[Method, ...] = ("coupled", "betting")
# log K must exceed what is needed by this much, and by so much more per draw: far more than rounding can add.
_SLACK, _SLACK_PER_DRAW = 1e-8, 1e-12
# Of forecasts: a claim may have been made where this multiple of the growth expected would have been enough; nothing is
# claimed so far beyond the last r of the list; draws of each law that were never seen.
_HOPE, _BEYOND, _UNSEEN = 4.0, 5.0, 0.4
# Claims about one image from the weakest to the strongest, each implied by the next, and what a draw is worth in them.
Staircase = tuple[Game, list[Claim]]
# Whether log K has reached what a claim or a stronger one needs, what the weakest pair still lacks, and the square root
# of the growth that is expected per draw to come; each (radii,).
Standing = tuple[Bools, Floats, Floats]


def betting_radii(
    draws: Draws, rule: Rule, alpha: float, noise: SampledNoise, course: Course = ANYTIME
) -> tuple[Floats, Floats | None]:
    """The r, (sizes,), up to which each size is claimed, and for `Threshold` (c - d,) the ceilings."""
    if isinstance(rule, TopK):
        certain = np.full(certain_sizes(draws, rule), np.inf)
        return np.concatenate([certain, claimed(draws, top_k_sizes(draws, rule, alpha, noise), noise, course)]), None
    stay, enter = staircases(draws, rule, alpha, noise, course)
    others = np.full(draws.rivals, -np.inf)
    others[[claim.into - 1 for claim in enter[1]]] = claimed(draws, enter, noise, course)
    return claimed(draws, stay, noise, course), np.maximum.accumulate(others)


def label_r(draws: Draws, rule: Rule, alpha: float, noise: SampledNoise, course: Course) -> float:
    """The r up to which a single label is returned, the only one in L."""
    if isinstance(rule, TopK):
        return float(betting_radii(draws, rule, alpha, noise, course)[0][0])
    return float(claimed(draws, floors(draws, rule, alpha, noise), noise, course)[0])


def read_bets(method: Method, votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int) -> tuple[Draws, Course]:
    """The draws of one image in the order in which a method bets on them, and the course of its bets.

    The order of the rows must not depend on their content. `coupled` takes them in a permutation fixed by n: sorted
    rows are mixed, which was measured to keep the error below alpha but is no theorem. `betting` may stop anywhere, so
    rows in an order that independent draws hardly ever have raise `InvalidInputError`.
    """
    given = np.atleast_1d(votes)
    if method != "coupled":
        check_order(given, rule, num_labels)
        return read_draws(given, labels, rule, num_labels), ANYTIME
    return read_draws(given[fixed_permutation(len(given))], labels, rule, num_labels), fixed_course(len(given))


def staircases(draws: Draws, rule: Rule, alpha: float, noise: SampledNoise, course: Course) -> list[Staircase]:
    """The sizes of `TopK`; the floors and the ceilings of `Threshold`, each with half of alpha."""
    if isinstance(rule, TopK):
        return [top_k_sizes(draws, rule, alpha, noise)]
    return [floors(draws, rule, alpha / 2, noise), ceilings(draws, rule, alpha / 2, noise, course)]


def top_k_sizes(draws: Draws, rule: TopK, alpha: float, noise: SampledNoise) -> Staircase:
    """The sizes that have to be proved, each with the same fraction of alpha."""
    d, sizes = draws.num_true, range(certain_sizes(draws, rule) + 1, min(draws.num_true, rule.k) + 1)
    game = Game(min(rule.k_prime, _most_subset(d)), min(rule.k_prime, rule.k), rule.k_prime, shift=noise.shift)
    return game, [_claim(d - e + 1, rule.k - e + 1, alpha * (1 / len(sizes))) for e in sizes]


def certain_sizes(draws: Draws, rule: TopK) -> int:
    """How many sizes cannot fail: the labels outside L are too few to push them out."""
    return min(draws.num_true, rule.k, max(0, rule.k - draws.rivals))


def floors(draws: Draws, rule: Threshold, alpha: float, noise: SampledNoise) -> Staircase:
    """At least 1, 2, ..., d labels of L stay in, each with the same fraction of alpha."""
    d = draws.num_true
    game = Game(rule.hits_at_most(_most_subset(d)), 0, rule.hits_at_most(d), rule.t, noise.shift)
    return game, [_claim(d - e, 0, alpha * (1 / d)) for e in range(d)]


def ceilings(draws: Draws, rule: Threshold, alpha: float, noise: SampledNoise, course: Course) -> Staircase:
    """At most ..., 1, 0 labels outside L come in, but for what is certain; fractions of alpha like ..., 1/6, 1/2.

    Where V must hold labels that were not hit before the first cut, only one size is tested.
    """
    most = rule.hits_at_most(min(draws.rivals, MOST_TOGETHER))
    seen = len(np.unique(draws.rival[: np.searchsorted(draws.draw, course.cuts[0])]))
    last = min(draws.rivals, rule.most_returned(draws.num_true + draws.rivals), seen + MOST_TOGETHER)
    sizes = [*range(1, min(seen + MOST_TOGETHER // 2 + 1, last)), last][: draws.rivals]
    part = (1 - 1e-12) * (1 + 1 / max(1, len(sizes)))
    claims = [_claim(0, into, alpha * (part / (i * (i + 1)))) for i, into in enumerate(sizes, start=1)]
    return Game(0, most, most, rule.t, noise.shift), claims[::-1]


def _claim(out: int, into: int, alpha: float) -> Claim:
    return Claim(out, into, float(-np.log(alpha)))


def is_proved(log_k: Floats, needed: float, draws: int) -> Bools:
    """Whether the wealth of the weakest pair suffices."""
    return log_k >= needed + _SLACK + _SLACK_PER_DRAW * draws


def claimed(draws: Draws, staircase: Staircase, noise: SampledNoise, course: Course) -> Floats:
    """The r of each claim, never rising: a claim implies all weaker ones, which need bets at larger r alone."""
    game, claims = staircase
    if not claims:
        return np.empty(0)
    radii, blocks = noise.betting_r, course.blocks(draws, game, claims)
    reached = [0]  # how many of the radii, from the strongest claim on
    claims = settle(blocks, claims, course)
    for claim, bets in reversed(list(zip(claims, bets_of(blocks, claims, course), strict=True))):
        proved, end = reached[-1], reachable_radii(bets, radii)
        for stop in (min(likely_end(bets, radii, proved), end), end):
            log_k = wealth(bets, radii, np.arange(proved, stop), end)
            proved += int(np.logical_and.accumulate(is_proved(log_k, claim.needed, draws.count)).sum())
            if proved < stop:
                break
        reached.append(proved)
    return np.append(-np.inf, radii)[reached[:0:-1]]


def _most_subset(num_true: int) -> int:
    """The most labels that a set S can have."""
    return num_true if num_true <= MOST_SUBSET_LABELS else 1


def settled_by_betting(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    draws: int,
    forecast_margin: float,
    num_labels: int,
    radii: Sequence[float],
    sigma: float | None = None,
    noise: Noise | None = None,
    alpha: float = 0.001,
) -> list[bool]:
    """For each image whether each claim is proved, or out of reach with `draws` in all: a forecast, never a proof.

    Further draws are taken to be `forecast_margin` standard deviations better than expected, at the requested `radii`.
    `votes` are all votes so far; the other arguments are as in `certified_radii_batch`.

    >>> from multiguard.certify import TopK
    >>> mixed = np.random.default_rng(0).permutation
    >>> clear, open_, hopeless = [[0]] * 400, mixed([[0]] * 75 + [[1]] * 25), mixed([[0], [1]] * 200)
    >>> options = {"num_labels": 2, "sigma": 0.5, "radii": [0.2], "draws": 10_000, "forecast_margin": 2}
    >>> settled_by_betting([clear, open_, hopeless], [[0]] * 3, TopK(k=1, k_prime=1), **options)
    [True, False, True]
    """
    rule.check(num_labels)
    sampled, level = check_sampled(resolve_noise(sigma, noise)), check_alpha(alpha)
    r = needed_r(check_radii(radii), sampled)

    def is_settled(given: ArrayLike, true: ArrayLike) -> bool:
        image = read_draws(given, true, rule, num_labels)
        found = standings(image, rule, level, sampled, r)
        return not any(reachable(each, image.count, draws, forecast_margin).any() for each in found)

    return list(each_image(votes, labels, is_settled))


def needed_r(radii: Floats, noise: SampledNoise) -> Floats:
    """(radii,) the least r of the list that is enough for each radius; far beyond its end where none is."""
    listed = np.append(noise.betting_r, noise.betting_r[-1] + _BEYOND)
    return listed[np.searchsorted(noise.radii(noise.betting_r), radii)]


def reachable(standing: Standing, now: int, draws: int, forecast_margin: float) -> Bools:
    """(radii,) where a claim is not made by `now`, but would be by `draws` in all, if these are that favourable."""
    claimed, missing, pace = standing
    left = max(0, draws - now)
    if left == 0 or forecast_margin == math.inf:
        return ~claimed & np.bool_(left > 0)
    pace = np.maximum(pace + forecast_margin / np.sqrt(2 * now), 0.0)
    return np.asarray(~claimed & (pace**2 * left + forecast_margin * pace * np.sqrt(2 * left) >= missing))


def standings(draws: Draws, rule: Rule, alpha: float, noise: SampledNoise, r: Floats) -> Iterator[Standing]:
    """Where the claims about one image stand at each r: of each staircase from the strongest claim to the weakest.

    Each is found when it is asked for: the first that is within reach settles that more draws are worth it.
    """
    rising, back = np.unique(r, return_inverse=True)
    places = np.searchsorted(noise.betting_r, rising)
    for game, given in staircases(draws, rule, alpha, noise, ANYTIME):
        if not given:
            continue
        blocks, made = ANYTIME.blocks(draws, game, given), np.zeros(len(rising), np.bool_)
        seen = Block(draws, (draws.count, draws.count), draws.count, game, given)
        for claim in reversed(settle(blocks, given, ANYTIME)):
            pace, log_k = _pace(seen, claim, rising), np.zeros(len(rising))
            expected = max(0.0, pace.max()) ** 2 * max(0, draws.count - BETTING_CUTS[0])
            if _HOPE * expected >= claim.needed:  # others have hardly any wealth
                left = ~made & (places < len(noise.betting_r))
                log_k[left] = wealth(bets_of(blocks, [claim], ANYTIME)[0], noise.betting_r, places[left])
            made = made | is_proved(log_k, claim.needed, draws.count)  # a claim implies all weaker ones
            yield made[back], (claim.needed - log_k)[back], pace[back]


def _pace(block: Block, claim: Claim, radii: Floats) -> Floats:
    """(radii,) about the square root of the growth of log K per draw to come; negative beyond hope.

    It is the best mean of a bet, in standard deviations, over sqrt(2), for the U whose labels of L came last.
    """
    weakest = np.zeros((1, len(block.order)), np.int64)
    weakest[0, block.order[len(block.order) - claim.out :]] = 1
    _, ladder, counts, _ = block.counted(block.into(claim), np.flatnonzero(block.within(weakest)[0]))
    gaps, least, law = ladder.gaps, ladder.least, smoothed(counts, ladder.possible, _UNSEEN)
    shift, r = block.game.shift, radii[:, None, None]
    scores = shift.kept(scores_of(law, shift))
    means = least + (gaps * shift.moved(scores, -r)).sum(axis=2)
    h = np.zeros((len(radii), *law.shape))
    np.cumsum(gaps * shift.slopes(scores, r), axis=2, out=h[:, :, 1:])
    h -= (law * h).sum(axis=2, keepdims=True)
    best: Floats = (means / np.sqrt(2 * np.maximum((law * h**2).sum(axis=2), 1e-12))).max(axis=1)
    return best
