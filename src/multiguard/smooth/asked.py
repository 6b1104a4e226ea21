"""Which smoothed classifier is meant: the k labels of largest p_i, or those with p_i >= t."""

from dataclasses import dataclass

from multiguard.errors import InvalidInputError
from multiguard.smooth.arguments import real_number, whole_number
from multiguard.smooth.settings import Settings
from multiguard.votes import DrawVotes, most_frequent, passing
from multiguard.votes.row import as_hits, as_ranked


@dataclass(frozen=True)
class TopK:
    """f returns k' labels of a draw, g the k labels that f returns most often."""

    k: int
    k_prime: int

    def choice(self, pilot: DrawVotes, num_labels: int) -> tuple[int, ...]:
        """What g would return if the pilot draws were all there are, most frequent first."""
        return most_frequent(as_ranked(pilot), k=self.k, k_prime=self.k_prime, num_labels=num_labels)


@dataclass(frozen=True)
class Passing:
    """f returns the labels whose score passes, g those that f returns with probability at least t."""

    threshold: float

    def choice(self, pilot: DrawVotes, num_labels: int) -> tuple[int, ...]:
        """What g would return if the pilot draws were all there are, most frequent first; there may be none."""
        return passing(as_hits(pilot), threshold=self.threshold)


Asked = TopK | Passing


def checked_asked(
    settings: Settings, labels: int, *, k: int | None, k_prime: int | None, threshold: float | None
) -> Asked:
    """The smoothed classifier that these arguments name, if votes of these settings can tell of it."""
    if settings.k_max is not None:
        if threshold is not None:
            raise InvalidInputError("threshold belongs to rule='threshold'; the top-k rule takes k and k_prime.")
        return _top_k(k, k_prime, settings.k_max, labels)
    if k is not None or k_prime is not None:
        raise InvalidInputError("k and k_prime belong to rule='top-k'; the threshold rule takes threshold.")
    if not 0 < real_number("threshold", threshold) < 1:
        raise InvalidInputError(f"threshold must lie strictly between 0 and 1, not {threshold!r}.")
    return Passing(real_number("threshold", threshold))


def _top_k(k: int | None, k_prime: int | None, k_max: int, labels: int) -> TopK:
    asked = TopK(whole_number("k", k), whole_number("k_prime", k_prime))
    if not 1 <= asked.k <= labels:
        raise InvalidInputError(f"k must lie between 1 and the classifier's {labels} labels, not {k}.")
    if not 1 <= asked.k_prime <= k_max:
        raise InvalidInputError(f"k_prime must be between 1 and k_max = {k_max}, the ranks kept, not {k_prime}.")
    return asked
