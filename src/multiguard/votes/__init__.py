"""Votes on disk: what smoothing writes and certifying reads. Needs NumPy and pyarrow, never torch."""

from multiguard.votes.choice import most_frequent, passing
from multiguard.votes.provenance import Provenance, Rule
from multiguard.votes.shards import Manifest, Shard
from multiguard.votes.store import Votes, read_votes
from multiguard.votes.types import (
    DrawVotes,
    ImageFailure,
    LabelSets,
    Ranked,
    VoteRow,
    image_hash,
    packed_width,
    vote_dtype,
)
from multiguard.votes.writer import VotesWriter

__all__ = [
    "DrawVotes",
    "ImageFailure",
    "LabelSets",
    "Manifest",
    "Provenance",
    "Ranked",
    "Rule",
    "Shard",
    "VoteRow",
    "Votes",
    "VotesWriter",
    "image_hash",
    "most_frequent",
    "packed_width",
    "passing",
    "read_votes",
    "vote_dtype",
]
