"""False claims of `coupled` where rows are sorted, exactly: one label against one rival, k = k' = 1.

    python -m benchmarks.order

Sorted votes depend on the number of hits alone, N ~ Binomial(n, p), so the probability of a false claim is a sum over
N. The label stays up to r = Phi^-1(p); p is taken a little below Phi(r), so that a claim at r itself is false.
"""

import numpy as np
from scipy.stats import binom, norm

from multiguard.certify import Gaussian, TopK
from multiguard.certify.arrays import Floats
from multiguard.certify.betting import betting_radii, read_bets
from multiguard.certify.draws import read_draws
from multiguard.certify.wealth import fixed_course

RULE, NOISE, ALPHA = TopK(1, 1), Gaussian(1.0), 0.001
WORLDS = (0.02, 0.5, 1.0, 1.5, 2.0)
DRAWS = (100, 300, 1000, 3000)
_NEGLIGIBLE = 1e-9


def false_claims(r: float, draws: int, *, permuted: bool, alpha: float = ALPHA) -> float:
    """The probability that sorted votes of a label that stays up to just below r are claimed to stay up to r."""
    p = float(norm.cdf(r)) - 1e-12
    hits = np.arange(draws + 1)
    chances: Floats = binom.pmf(hits, draws, p)
    likely = hits[chances > _NEGLIGIBLE * alpha]
    claimed = [_claimed(int(count), draws, alpha, permuted=permuted) >= r for count in likely]
    return float(chances[likely][claimed].sum())


def _claimed(hits: int, draws: int, alpha: float, *, permuted: bool) -> float:
    votes = np.repeat([[0], [1]], [hits, draws - hits], axis=0)
    if permuted:
        read, course = read_bets("coupled", votes, [0], RULE, 2)
    else:
        read, course = read_draws(votes, [0], RULE, 2), fixed_course(draws)
    return float(betting_radii(read, RULE, alpha, NOISE, course)[0][0])


def main() -> None:
    """Print the table of docs/theory.md."""
    print("| true radius / sigma | " + " | ".join(f"n = {n:,}" for n in DRAWS) + " |")
    print("|---|" + "--:|" * len(DRAWS))
    for r in WORLDS:
        pairs = [(false_claims(r, n, permuted=False), false_claims(r, n, permuted=True)) for n in DRAWS]
        print(f"| {r} | " + " | ".join(f"{old:.3f} / {new / ALPHA:.2f} alpha" for old, new in pairs) + " |", flush=True)


if __name__ == "__main__":
    main()
