"""How often the draws can have hit several labels of a set of rivals at once, whichever rivals they are.

Let V be s labels outside L, and T the v of them with the fewest votes. The s - v others of V have at least as many, so
T holds no label that has more votes than the one ranked s - v + 1 outside L: those labels are *ahead*. With B the hits
of a draw outside L that are not ahead, {H_T >= l} implies B >= l. So the number of draws with H_T >= l is at most each
of

    N_v / l,    N_v the sum of the votes ranked s - v + 1, ..., s outside L;
    the number of draws with B >= l;
    M_l / l,    M_l the sum of the v largest, over labels not ahead, of the number of draws that hit it and have B >= l.

The last two need the draws themselves, not their averages, and help where a draw hits several labels outside L.
"""

import numpy as np

from multiguard.certify.arrays import Floats, Ints


def rival_mass(chosen: Ints, weights: Floats | None, mass: Floats, labels: Ints, k: int) -> Floats:
    """(sizes, k, k') the most mass that {H_T >= l} can have, by e - 1, v - 1 and l - 1, where |V| = s = k - e + 1.

    It is 0 where v > s, and for a size that is certain because only s - 1 labels or fewer are outside L.

    Args:
        chosen: (draws, k') the labels of each draw.
        weights: (draws,) the probability of each row, where the rows are all possible votes.
        mass: (num_labels,) the mass of the draws that hit each label.
        labels: (d,) the labels of L.
        k: The number of labels that the smoothed classifier returns.
    """
    outside = np.delete(np.arange(len(mass)), labels)
    ranked = outside[np.argsort(-mass[outside], kind="stable")]
    place = np.full(len(mass), -1)
    place[ranked] = np.arange(len(ranked))
    by_rank = _mass_by_rank(place[chosen], weights, mass[ranked], min(k, len(ranked)))
    most = np.zeros((min(len(labels), k), k, chosen.shape[1]))
    for row, s in enumerate(range(k, k - len(most), -1)):
        if s <= len(ranked):
            v = np.arange(1, s + 1)
            most[row, :s] = by_rank[s - v, v - 1]
    return most


def _mass_by_rank(places: Ints, weights: Floats | None, mass: Floats, most: int) -> Floats:
    """(most, most, k') the least of the three bounds, by the s - v labels ranked before T, v - 1 and l - 1.

    Args:
        places: (draws, k') the rank of each hit outside L, from 0; negative for a hit on L.
        weights: As in `rival_mass`.
        mass: (rivals,) the mass of the labels outside L, downwards.
        most: The largest s.
    """
    draws, k_prime = places.shape
    hits = np.flatnonzero(places >= 0)
    draw, place = hits // k_prime, places.ravel()[hits]
    least, deep = np.zeros((most, most, k_prime)), np.empty(0)
    ahead = np.searchsorted(-mass, -mass[:most])
    for before in range(min(most, int(np.count_nonzero(mass)))):
        if before == 0 or ahead[before] > ahead[before - 1]:
            behind = place >= ahead[before]
            draw, place = draw[behind], place[behind]
            deep = _deep_mass(draw, place, draws, weights, (k_prime, most))
        sums = np.cumsum(mass[before:most])[:, None] / np.arange(1, k_prime + 1)
        least[before, : most - before] = np.minimum(sums, deep[: most - before])
    return least


def _deep_mass(draw: Ints, place: Ints, draws: int, weights: Floats | None, shape: tuple[int, int]) -> Floats:
    """(most, k') the lesser of the mass of B >= l and of M_l / l, by v - 1 and l - 1, from the hits not ahead."""
    k_prime, most = shape
    hits = np.bincount(draw, minlength=draws)
    own = None if weights is None else weights[draw]
    whole = _at_least(np.bincount(hits, weights, minlength=k_prime + 1)[:, None])
    width = int(place.max()) + 1
    table = np.bincount(hits[draw] * width + place, own, minlength=(k_prime + 1) * width)
    largest = np.zeros(shape)
    largest[:, :width] = np.sort(_at_least(table.reshape(-1, width)), axis=1)[:, : -most - 1 : -1]
    return np.minimum(whole, np.cumsum(largest, axis=1) / np.arange(1, k_prime + 1)[:, None]).T


def _at_least(mass: Floats | Ints) -> Floats:
    """The mass of at least 1, 2, ... hits, from that of exactly 0, 1, 2, ... hits along the first axis."""
    return np.cumsum(mass[:0:-1], axis=0, dtype=np.float64)[::-1]
