"""The votes of one image, and what may be read as what."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import VotesError
from multiguard.votes.ranked import Ranked
from multiguard.votes.sets import LabelSets

DrawVotes = Ranked | LabelSets


@dataclass(frozen=True, eq=False)
class VoteRow:
    """The votes of one image.

    Attributes:
        image_id: The id of the image.
        labels: The indices of its labels, the ground truth; none in a run without labels.
        votes: Ranked labels (draws, K'), or for the threshold rule `LabelSets`, of the draws that certify.
        pilot: The same of the draws that choose labels and never certify them; None where there are none.
        image_hash: The `image_hash` of the very image that was voted on; None where it was not told.
    """

    image_id: str
    labels: tuple[int, ...]
    votes: DrawVotes
    pilot: DrawVotes | None = None
    image_hash: str | None = None

    @property
    def draws(self) -> int:
        """The draws that this image took."""
        return len(self.votes)

    @property
    def ranked(self) -> Ranked:
        """(draws, K'): the labels of each draw, best first; votes of the threshold rule raise `VotesError`."""
        return as_ranked(self.votes)

    @property
    def hits(self) -> NDArray[np.bool_]:
        """(draws, c): the set of each draw; votes of the top-k rule raise `VotesError`."""
        return as_hits(self.votes)


def as_ranked(votes: DrawVotes) -> Ranked:
    """Votes of the top-k rule, ranked; those of the threshold rule raise `VotesError`."""
    if isinstance(votes, LabelSets):
        raise VotesError(
            "these are votes of the threshold rule: each draw has a set of labels, unranked, and no k'; "
            "certify them with --rule threshold (Votes.hits)."
        )
    return votes


def as_hits(votes: DrawVotes) -> NDArray[np.bool_]:
    """Votes of the threshold rule, (draws, c) boolean; those of the top-k rule raise `VotesError`."""
    if not isinstance(votes, LabelSets):
        raise VotesError(
            "these are votes of the top-k rule: each draw has its ranked labels, and which of them pass a threshold "
            "is not known; certify them with --rule top-k (Votes.ranked), or vote again with --rule threshold."
        )
    return votes.hits()
