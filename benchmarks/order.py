"""False claims of `coupled` where rows are sorted, exactly: one label against one rival, k = k' = 1.

    python -m benchmarks.order

Sorted votes depend on the number of hits alone, N ~ Binomial(n, p), so the probability of a false claim is a sum over
N. The label stays up to r = Phi^-1(p); p is taken a little below Phi(r), so that a claim at r itself is false.
"""

import numpy as np
from scipy.stats import binom, norm

from multiguard.certify import Gaussian, Method, TopK, certified_radii
from multiguard.certify.arguments import Floats
from multiguard.certify.betting import betting_radii, read_bets
from multiguard.certify.draws import read_draws
from multiguard.certify.wealth import fixed_course

RULE, NOISE, ALPHA = TopK(1, 1), Gaussian(1.0), 0.001
WORLDS = (0.02, 0.5, 1.0, 1.5, 2.0)
DRAWS = (100, 300, 1000, 3000)
EVERY = range(80, 201)
_NEGLIGIBLE = 1e-9


def false_claims(r: float, draws: int, *, permuted: bool, method: Method | None = "coupled") -> float:
    """The probability that sorted votes of a label that stays up to just below r are claimed to stay up to r.

    `method` is "coupled", with its permutation or without, or None, the default.
    """
    p = float(norm.cdf(r)) - 1e-12
    hits = np.arange(draws + 1)
    chances: Floats = binom.pmf(hits, draws, p)
    likely = hits[chances > _NEGLIGIBLE * ALPHA]
    claimed = [_claimed(int(count), draws, permuted, method) >= r for count in likely]
    return float(chances[likely][claimed].sum())


def _claimed(hits: int, draws: int, permuted: bool, method: Method | None) -> float:
    votes = np.repeat([[0], [1]], [hits, draws - hits], axis=0)
    if method is None:
        return float(certified_radii(votes, [0], RULE, noise=NOISE, alpha=ALPHA, num_labels=2).true[0])
    if permuted:
        read, course = read_bets("coupled", votes, [0], RULE, 2)
    else:
        read, course = read_draws(votes, [0], RULE, 2), fixed_course(draws)
    return float(betting_radii(read, RULE, ALPHA, NOISE, course)[0][0])


def main() -> None:
    """Print the tables of docs/results/order.csv and order-80-200.csv."""
    print("| true radius / sigma | " + " | ".join(f"n = {n:,}" for n in DRAWS) + " |")
    print("|---|" + "--:|" * len(DRAWS))
    for r in WORLDS:
        pairs = [(false_claims(r, n, permuted=False), false_claims(r, n, permuted=True)) for n in DRAWS]
        print(f"| {r} | " + " | ".join(f"{old:.3f} / {new / ALPHA:.2f} alpha" for old, new in pairs) + " |", flush=True)
    print("Every n from 80 to 200, mean and most: of `coupled`, and by default")
    for r in WORLDS:
        found = [[false_claims(r, n, permuted=True, method=m) / ALPHA for n in EVERY] for m in ("coupled", None)]
        print(f"| {r} | " + " | ".join(f"{np.mean(each):.2f} / {max(each):.2f} alpha" for each in found) + " |")


if __name__ == "__main__":
    main()
