"""Votes on disk: what smoothing writes and certifying reads. Needs NumPy and pyarrow, never torch."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.votes.folder import VotesWriter
    from multiguard.votes.provenance import Provenance
    from multiguard.votes.shards import Manifest
    from multiguard.votes.store import Votes, read_votes
    from multiguard.votes.types import DrawVotes, LabelSets, VoteRow

__all__ = ["DrawVotes", "LabelSets", "Manifest", "Provenance", "VoteRow", "Votes", "VotesWriter", "read_votes"]

__getattr__ = lazy_names(
    __name__,
    {
        "provenance": ["Provenance"],
        "folder": ["VotesWriter"],
        "shards": ["Manifest"],
        "store": ["Votes", "read_votes"],
        "types": ["DrawVotes", "LabelSets", "VoteRow"],
    },
)
