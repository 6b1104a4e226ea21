"""Votes on disk: what smoothing writes and certifying reads. Needs NumPy and pyarrow, never torch."""

from multiguard.votes.folder import read_votes
from multiguard.votes.image_hash import image_hash
from multiguard.votes.manifest import ImageFailure, Manifest, Shard
from multiguard.votes.provenance import Provenance, Rule
from multiguard.votes.ranked import Ranked, vote_dtype
from multiguard.votes.reading import Votes
from multiguard.votes.row import DrawVotes, VoteRow
from multiguard.votes.sets import LabelSets, packed_width
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
    "packed_width",
    "read_votes",
    "vote_dtype",
]
