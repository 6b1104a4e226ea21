"""Where the claims about an image stand, recomputed in full: all claims and all radii of the list at once."""

from dataclasses import dataclass

import numpy as np

from multiguard.certify import Rule, betting
from multiguard.certify import wealth as wealth_module
from multiguard.certify.betting import is_proved, needed_r, reachable, staircases, standings
from multiguard.certify.draws import read_draws
from multiguard.certify.noise import Noise, check_sampled
from multiguard.certify.wealth import ANYTIME, bets_of, settle, wealth


@dataclass
class Outlook:
    """(claims, radii), of each staircase from the weakest claim to the strongest."""

    draws: int
    claimed: np.ndarray
    missing: np.ndarray
    pace: np.ndarray

    def reachable(self, draws: int, forecast_margin: float) -> np.ndarray:
        return reachable((self.claimed, self.missing, self.pace), self.draws, draws, forecast_margin)


def outlooks(votes, labels, rule: Rule, *, num_labels: int, radii, noise: Noise, alpha: float = 0.001) -> list[Outlook]:
    """Every claim of every image, and what is claimed is what all of K at once says."""
    sampled, found = check_sampled(noise), []
    r = needed_r(np.asarray(radii, np.float64), sampled)
    for given, true in zip(votes, labels, strict=True):
        draws, rows = read_draws(given, true, rule, num_labels), []
        lazy = list(standings(draws, rule, alpha, sampled, r))
        for game, claims in staircases(draws, rule, alpha, sampled, ANYTIME):
            if not claims:
                continue
            own, lazy = lazy[: len(claims)][::-1], lazy[len(claims) :]
            proved = full_claims(draws, game, claims, sampled, r)
            found_claimed = np.stack([claimed for claimed, _, _ in own])
            np.testing.assert_array_equal(found_claimed, proved)
            rows += own
        empty = np.empty((0, len(r)))
        claimed, missing, pace = (np.stack(each) for each in zip(*rows, strict=True)) if rows else (empty,) * 3
        found.append(Outlook(draws.count, claimed.astype(np.bool_), missing, pace))
    return found


def full_claims(draws, game, claims, noise, r) -> np.ndarray:
    """(claims, radii) what is claimed, from the wealth of every claim with hope at every radius of the list."""
    blocks, listed = ANYTIME.blocks(draws, game, claims), noise.betting_r
    claims = settle(blocks, claims, ANYTIME)
    every = [wealth(bets, listed, np.arange(len(listed))) for bets in bets_of(blocks, claims, ANYTIME)]
    whole = np.append(np.array(every), np.zeros((len(claims), 1)), axis=1)  # nothing is claimed beyond the list
    log_k = whole[:, np.searchsorted(listed, r)]
    seen = wealth_module.Block(draws, (draws.count, draws.count), draws.count, game, claims)
    for own, claim in zip(log_k, claims, strict=True):
        best = max(0.0, betting._pace(seen, claim, r).max())
        own *= betting._HOPE * best**2 * max(0, draws.count - wealth_module.BETTING_CUTS[0]) >= claim.needed
    proved = np.stack([is_proved(own, claim.needed, draws.count) for own, claim in zip(log_k, claims, strict=True)])
    return np.logical_or.accumulate(proved[::-1])[::-1]
