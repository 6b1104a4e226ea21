"""When to stop: whether more draws can be expected to claim more, and what a number of draws can prove at best."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.additive import Gaussian
from multiguard.certify.arguments import Bools, Floats, Ints, check_alpha, check_radii, each_image
from multiguard.certify.bets import Claim, Game, scores_of, smoothed
from multiguard.certify.betting import is_proved, staircases
from multiguard.certify.draws import Draws, fixed_permutation, read_draws
from multiguard.certify.noise import Noise, SampledNoise, check_sampled, resolve_noise
from multiguard.certify.radii import certified_radii
from multiguard.certify.rules import Method, Rule
from multiguard.certify.wealth import ANYTIME, BETTING_CUTS, Block, bets_of, prepare, settle, wealth
from multiguard.io.names import short_repr

# A claim may have been made where this multiple of the growth expected would have been enough.
_HOPE = 4.0
# Nothing is claimed so far beyond the last r of the list.
_BEYOND = 5.0
# Draws of each law that were never seen.
_UNSEEN = 0.4


@dataclass(frozen=True, eq=False)
class Outlook:
    """Where the claims about one image stand at the requested radii. A forecast, never a proof.

    All arrays are (claims, radii). The claims of `TopK` are the sizes that can fail, from the smallest; of
    `Threshold` the floors, then the ceilings, each from the weakest.

    Attributes:
        draws: The draws so far.
        claimed: Whether log K of every pair has reached what this claim or a stronger one needs.
        missing: What log K of the weakest pair still lacks.
        pace: The square root of the growth of log K that is expected per draw to come.
    """

    draws: int
    claimed: Bools
    missing: Floats
    pace: Floats

    __repr__ = short_repr

    def reachable(self, draws: int, forecast_margin: float) -> Bools:
        """What is not claimed yet, but would be by this number of draws in all if they are favourable.

        Draws are taken to be `forecast_margin` standard deviations better than expected.
        """
        left = max(0, draws - self.draws)
        if left == 0 or forecast_margin == np.inf:
            return ~self.claimed & np.bool_(left > 0)
        pace = np.maximum(self.pace + forecast_margin / np.sqrt(2 * self.draws), 0.0)
        gain = pace**2 * left + forecast_margin * pace * np.sqrt(2 * left)
        return np.asarray(~self.claimed & (gain >= self.missing))


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
    """For each image whether no claim is reachable with `draws` in all, by the forecast of `Outlook.reachable`.

    Further draws are taken to be `forecast_margin` standard deviations better than expected, at the requested `radii`.
    `votes` are all votes so far; the other arguments are as in `certified_radii_batch`.

    >>> from multiguard.certify import TopK
    >>> mixed = np.random.default_rng(0).permutation
    >>> clear, open_, hopeless = [[0]] * 400, mixed([[0]] * 75 + [[1]] * 25), mixed([[0], [1]] * 200)
    >>> options = {"num_labels": 2, "sigma": 0.5, "radii": [0.2], "draws": 10_000, "forecast_margin": 2}
    >>> settled_by_betting([clear, open_, hopeless], [[0]] * 3, TopK(k=1, k_prime=1), **options)
    [True, False, True]
    """

    def is_open(outlook: Outlook) -> bool:
        return bool(outlook.reachable(draws, forecast_margin).any())

    options: dict[str, Any] = {"num_labels": num_labels, "radii": radii, "alpha": alpha}
    found = outlooks(votes, labels, rule, noise=resolve_noise(sigma, noise), is_enough=is_open, **options)
    return [not is_open(each) for each in found]


def outlooks(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    radii: Sequence[float],
    noise: Noise,
    alpha: float = 0.001,
    is_enough: Callable[[Outlook], bool] = lambda _: False,
) -> list[Outlook]:
    """For each image where its claims stand; of the claims that have hardly begun alone, if that is enough."""
    rule.check(num_labels)
    sampled, alpha = check_sampled(noise), check_alpha(alpha)
    r = needed_r(check_radii(radii), sampled)

    def read(given: ArrayLike, true: ArrayLike) -> Outlook:
        return _outlook(read_draws(given, true, rule, num_labels), rule, alpha, sampled, r, is_enough)

    return list(each_image(votes, labels, read))


def needed_r(radii: Floats, noise: SampledNoise) -> Floats:
    """(radii,) the least r of the list that is enough for each radius; far beyond its end where none is."""
    listed = np.append(noise.betting_r, noise.betting_r[-1] + _BEYOND)
    return listed[np.searchsorted(noise.radii(noise.betting_r), radii)]


def _outlook(
    draws: Draws, rule: Rule, alpha: float, noise: SampledNoise, r: Floats, is_enough: Callable[[Outlook], bool]
) -> Outlook:
    rising, back = np.unique(r, return_inverse=True)
    empty = np.empty((0, len(rising)))
    claimed, missing, paces = [empty.astype(np.bool_)], [empty], [empty]
    for game, all_claims in staircases(draws, rule, alpha, noise, ANYTIME):
        if not all_claims:
            continue
        blocks = ANYTIME.blocks(draws, game, all_claims)
        claims = settle(blocks, all_claims, ANYTIME)
        needed = np.array([claim.needed for claim in claims])[:, None]
        paces.append(_paces(draws, game, claims, rising))
        expected = np.maximum(paces[-1], 0.0).max(axis=1) ** 2 * max(0, draws.count - BETTING_CUTS[0])
        likely = np.flatnonzero(_HOPE * expected >= needed[:, 0])  # the other claims have hardly any wealth
        later = slice(int(likely.max(initial=-1)) + 1, None)  # no claim that implies these has begun
        begun = np.zeros_like(paces[-1][later], dtype=np.bool_)
        early = Outlook(draws.count, begun, np.broadcast_to(needed[later], begun.shape), paces[-1][later])
        if is_enough(early):
            return early
        log_k = _wealth_of(likely, blocks, claims, rising, noise.betting_r)
        proved = is_proved(log_k, needed, draws.count)
        claimed.append(np.logical_or.accumulate(proved[::-1])[::-1])  # a claim implies all weaker ones
        missing.append(needed - log_k)
    columns = [np.concatenate(each)[:, back] for each in (missing, paces)]
    return Outlook(draws.count, np.concatenate(claimed)[:, back], *columns)


def _wealth_of(likely: Ints, blocks: Sequence[Block], claims: Sequence[Claim], radii: Floats, every: Floats) -> Floats:
    """(claims, radii) as `wealth`, but 0 for a claim that is not likely to have any, and for all stronger ones."""
    log_k, listed = np.zeros((len(claims), len(radii))), radii <= every[-1]
    for i in likely if listed.any() else ():
        whole = wealth(bets_of(blocks, [claims[i]], ANYTIME)[0], every)
        log_k[i, listed] = whole[np.searchsorted(every, radii[listed])]
        if not whole.any():
            break
    return log_k


def _paces(draws: Draws, game: Game, claims: Sequence[Claim], radii: Floats) -> Floats:
    """(claims, radii) about the square root of the growth of log K per draw to come; negative beyond hope.

    With n draws seen it has a standard deviation of about 1 / sqrt(2 n).
    """
    block = Block(draws, (draws.count, draws.count), draws.count, game, claims)
    prepare([(block, block.into(claim)) for claim in claims])
    return np.stack([_pace(block, claim, radii) for claim in claims])


def _pace(block: Block, claim: Claim, radii: Floats) -> Floats:
    """(radii,) for the U whose labels of L came last: the best mean of a bet, in standard deviations, over sqrt(2)."""
    options, weakest = block.options(claim), np.zeros((1, len(block.order)), np.int64)
    weakest[0, block.order[len(block.order) - claim.out :]] = 1
    rows = np.repeat(block.within(weakest)[0], len(options.sizes))
    possible, gaps, least = options.ladder.possible[rows], options.ladder.gaps[rows], options.ladder.least[rows]
    law = smoothed(options.counts[rows], possible, _UNSEEN)
    shift, r = block.game.shift, radii[:, None, None]
    scores = shift.kept(scores_of(law, shift))
    means = least + (gaps * shift.moved(scores, -r)).sum(axis=2)
    h = np.zeros((len(radii), *law.shape))
    np.cumsum(gaps * shift.slopes(scores, r), axis=2, out=h[:, :, 1:])
    h -= (law * h).sum(axis=2, keepdims=True)
    best: Floats = (means / np.sqrt(2 * np.maximum((law * h**2).sum(axis=2), 1e-12))).max(axis=1)
    return best


def largest_radius(
    draws: int, rule: Rule, num_labels: int, noise: Noise, alpha: float, method: Method | None = None
) -> float:
    """The radius that this number of draws proves if all of them agree on one label; -inf if they prove nothing.

    `method` is the one that will certify them; None for the default of this number of draws.

    >>> from multiguard.certify import TopK
    >>> round(largest_radius(1000, TopK(k=1, k_prime=1), 10, Gaussian(0.5), 0.001), 2)
    1.22
    """
    hits = np.zeros((draws, num_labels), bool)
    hits[:, 0] = True
    others, each = (rule.k_prime or 1) - 1, np.arange(draws)
    for place in range(others):
        hits[each, 1 + (each * others + place) % (num_labels - 1)] = True
    rows = hits if noise.enumerated else hits[fixed_permutation(draws)]
    radius = float(certified_radii(rows, [0], rule, noise=noise, alpha=alpha, method=method).true[0])
    return radius if radius >= 0 else -math.inf


def fewest_draws(rule: Rule, num_labels: int, alpha: float, method: Method | None = None) -> int:
    """The fewest draws that prove anything by a method if all of them agree on one label.

    >>> from multiguard.certify import TopK
    >>> fewest_draws(TopK(k=1, k_prime=1), 10, 0.001), fewest_draws(TopK(k=1, k_prime=1), 10, 0.001, "coupled")
    (12, 30)
    """
    fewest = 1
    while largest_radius(fewest, rule, num_labels, Gaussian(1.0), alpha, method) < 0:
        fewest += 1
    return fewest


def nothing_words(draws: int, rule: Rule, num_labels: int, alpha: float, method: Method | None = None) -> str:
    """Why this number of draws proves nothing, and how many would."""
    fewest = fewest_draws(rule, num_labels, alpha, method)
    by = "" if method is None else f" by the method {method}"
    return (
        f"{draws} draws prove nothing{by}, even if all of them agree: at alpha = {alpha:g} "
        f"({rule.text}) it takes {fewest} draws or more"
    )
