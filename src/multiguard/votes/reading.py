"""Votes as they are read: image by image, each for what it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from multiguard.errors import VotesError
from multiguard.io.files import open_parquet
from multiguard.votes.manifest import ImageFailure
from multiguard.votes.provenance import Provenance, Rule
from multiguard.votes.ranked import Ranked
from multiguard.votes.row import DrawVotes, VoteRow, as_hits, as_ranked
from multiguard.votes.shards import Head, read_row, unaltered


@dataclass(frozen=True)
class ReadShard:
    """A shard that was found right: where it lies, the sha256 of its file, and what is known of its images."""

    path: Path
    sha256: str
    heads: Sequence[Head]


class Votes:
    """The votes of a run, whole and unaltered since they were written; read image by image when asked for.

    A shard is held in memory while images of it are read, and its hash is taken of those very bytes: one that is
    replaced after the folder was opened is refused.

    In an adaptive run the votes themselves decided how many draws an image has, so that their number is no fixed n:
    they are handed out only to a caller who names the looks (`looks=votes.looks`), over which alpha must be split.
    Pilot draws have names of their own and are never among the draws that certify.

    Attributes:
        provenance: Where the votes come from.
        manifest_hash: The sha256 of the manifest, which names the hash of every shard.
        ids: The ids of the images that have votes.
        failures: The images that could not be voted on, and why; they have no votes.
    """

    def __init__(
        self,
        provenance: Provenance,
        manifest_hash: str,
        shards: Sequence[ReadShard],
        failures: Sequence[ImageFailure] = (),
    ) -> None:
        self.provenance = provenance
        self.manifest_hash = manifest_hash
        self._places = [(shard, row) for shard in shards for row in range(len(shard.heads))]
        self._heads = [head for shard in shards for head in shard.heads]
        self._open: tuple[ReadShard, pq.ParquetFile] | None = None
        self.ids = tuple(head.image_id for head in self._heads)
        self.failures = tuple(failures)

    @property
    def labels(self) -> tuple[tuple[int, ...], ...]:
        """The label indices of each image, the ground truth; a run without labels raises `VotesError`."""
        if not self.provenance.labelled:
            raise VotesError(
                "these votes carry no ground truth; choose the labels from their pilot draws (certify --no-labels)."
            )
        return tuple(head.labels for head in self._heads)

    @property
    def image_hashes(self) -> tuple[str | None, ...]:
        """The `image_hash` of the image that each image's votes are of; None where it was not told."""
        return tuple(head.image_hash for head in self._heads)

    @property
    def rule(self) -> Rule:
        """Whether votes are ranked ("top-k") or sets ("threshold")."""
        return self.provenance.rule

    @property
    def looks(self) -> tuple[int, ...] | None:
        """The numbers of draws at which an image of an adaptive run may have stopped; None where n is fixed."""
        return self.provenance.looks

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[VoteRow]:
        return (self.row(position) for position in range(len(self)))

    def draws_of(self, position: int) -> int:
        """How many draws certify one image, known without reading its votes."""
        return self._heads[position].draws

    def row(self, position: int, *, looks: tuple[int, ...] | None = None) -> VoteRow:
        """One image: its id, its labels and its votes.

        Args:
            position: Which image.
            looks: The looks over which the caller splits alpha: those of the run, or None where n is fixed.
        """
        self._check_looks(looks)
        return self._row(position)

    def ranked(self, position: int, *, looks: tuple[int, ...] | None = None) -> Ranked:
        """(draws, K'): the labels of each draw, best first; sets raise `VotesError`. Arguments as in `row`."""
        return self.row(position, looks=looks).ranked

    def hits(self, position: int, *, looks: tuple[int, ...] | None = None) -> NDArray[np.bool_]:
        """(draws, c): the set of each draw; ranked votes raise `VotesError`. Arguments as in `row`."""
        return self.row(position, looks=looks).hits

    def pilot_ranked(self, position: int) -> Ranked:
        """(pilot draws, K'): as `ranked`, of the draws that choose labels; a run without them raises `VotesError`."""
        return as_ranked(self._pilot(position))

    def pilot_hits(self, position: int) -> NDArray[np.bool_]:
        """(pilot draws, c): as `hits`, of the draws that choose labels; a run without them raises `VotesError`."""
        return as_hits(self._pilot(position))

    def _pilot(self, position: int) -> DrawVotes:
        pilot = self._row(position).pilot
        if pilot is None:
            raise VotesError("these votes hold no pilot draws to choose labels from; vote again with pilot draws.")
        return pilot

    def _row(self, position: int) -> VoteRow:
        shard, row = self._places[position]
        if self._open is None or self._open[0] is not shard:
            self._open = (shard, open_parquet(unaltered(shard.path, shard.sha256)))
        return read_row(self._open[1], row, self._heads[position], self.provenance)

    def _check_looks(self, looks: tuple[int, ...] | None) -> None:
        if looks == self.looks:
            return
        if looks is None:
            raise VotesError(
                f"these are votes of an adaptive run with looks at {self.looks} draws: their number of draws was not "
                "fixed beforehand, so alpha must be split over the looks; certify them as adaptive (looks=votes.looks)."
            )
        raise VotesError(
            f"these votes have looks {self.looks}, not {looks}; take those of the run (looks=votes.looks)."
        )
