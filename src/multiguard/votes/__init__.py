"""Votes on disk: what smoothing writes and certifying reads. Needs NumPy and pyarrow, never torch."""

from multiguard.votes.provenance import Provenance, Rule
from multiguard.votes.shards import Manifest, Shard
from multiguard.votes.store import Votes, read_votes
from multiguard.votes.types import (
    DrawVotes,
    LabelSets,
    Ranked,
    VoteRow,
    packed_width,
    vote_dtype,
)
from multiguard.votes.writer import VotesWriter

__all__ = [
    "DrawVotes",
    "LabelSets",
    "Manifest",
    "Provenance",
    "Ranked",
    "Rule",
    "Shard",
    "VoteRow",
    "Votes",
    "VotesWriter",
    "packed_width",
    "read_votes",
    "vote_dtype",
]
