"""Votes on disk: what smoothing writes and certifying reads. Needs NumPy and pyarrow, never torch."""

from multiguard.votes.folder import Votes, VotesWriter, read_votes
from multiguard.votes.manifest import Manifest, Provenance, Shard
from multiguard.votes.ranked import Ranked, vote_dtype
from multiguard.votes.shards import VoteRow

__all__ = [
    "Manifest",
    "Provenance",
    "Ranked",
    "Shard",
    "VoteRow",
    "Votes",
    "VotesWriter",
    "read_votes",
    "vote_dtype",
]
