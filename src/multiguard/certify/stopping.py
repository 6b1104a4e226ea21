"""When to stop drawing: nothing more to gain at the radii that were asked for."""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from multiguard.certify.looks import Looks
from multiguard.certify.types import Method, ThresholdMethod


class StoppingRule:
    """Says of pictures, after each of their looks, whether more draws could still raise their certified size.

    A picture is decided when its certified size at every asked radius is at its maximum, or cannot be expected to rise
    by the last look, or no look is left. The radii of `adaptive_radii` hold whatever this rule says.

    Args:
        looks: The looks, fixed before the draws.
        radii: The radii asked for, in the unit of sigma.
        num_labels: c, the number of labels there are.
        k: As in `certified_radii`.
        k_prime: As in `certified_radii`.
        sigma: As in `certified_radii`.
        alpha: As in `certified_radii`, for all looks together.
        method: As in `certified_radii`.
    """

    def __init__(
        self,
        looks: Looks,
        *,
        radii: Sequence[float],
        num_labels: int,
        k: int,
        k_prime: int,
        sigma: float,
        alpha: float = 0.001,
        method: Method = "joint",
    ) -> None:
        self.looks = looks

    def decided(self, ranked: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> list[bool]:
        """For each picture whether its draws may end; the draws of each must be one of `looks.draws`.

        Args:
            ranked: For each picture all its votes so far, (draws, K') as `certified_radii_batch` takes them.
            labels: For each picture the indices of L. One without labels is decided at once.
        """
        raise NotImplementedError


class ThresholdStoppingRule:
    """Says of pictures under the threshold rule whether more draws could still raise a floor or lower a ceiling.

    As `StoppingRule`, with the arguments of `threshold_radii` in place of those of `certified_radii`.
    """

    def __init__(
        self,
        looks: Looks,
        *,
        radii: Sequence[float],
        num_labels: int,
        threshold: float,
        sigma: float,
        alpha: float = 0.001,
        method: ThresholdMethod = "joint",
    ) -> None:
        self.looks = looks

    def decided(self, hits: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> list[bool]:
        """For each picture whether its draws may end; the draws of each must be one of `looks.draws`.

        Args:
            hits: For each picture all its votes so far, boolean (draws, num_labels).
            labels: For each picture the indices of L.
        """
        raise NotImplementedError
