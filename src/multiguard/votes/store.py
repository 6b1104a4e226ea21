"""The votes of a run as they are read: image by image, ranked or as sets, whichever they are."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from multiguard.certify.rules import RuleName
from multiguard.errors import VotesError
from multiguard.io.ragged import Ragged, RaggedBuilder
from multiguard.io.records import checksum
from multiguard.votes.shards import (
    Head,
    Manifest,
    OpenManifest,
    ReadShard,
    open_manifest,
    read_rows,
    read_shard,
    shard_name,
)
from multiguard.votes.types import DrawVotes, Ranked, VoteRow, as_hits, as_ranked

# Whose votes are read together: more gain nothing, and the votes of so many with 100,000 draws take 16 MB.
_IMAGES_AT_A_TIME = 16


def read_votes(folder: str | Path, *, partial: bool = False) -> "Votes":
    """Return the votes of a finished run, after every shard has passed its checks; damage raises `VotesError`.

    Args:
        folder: A folder written by `VotesWriter`.
        partial: Whether to accept a run that has not finished, and read the shards that are there.

    Example:
        >>> votes = read_votes(folder)  # a folder with the votes of 5 images
        >>> len(votes), votes.ranked(0).shape
        (5, (7, 3))
    """
    return open_votes(open_manifest(Path(folder)), partial=partial)


def open_votes(opened: OpenManifest, *, partial: bool = False) -> "Votes":
    """Return the votes of a run whose manifest is open already; as in `read_votes`."""
    folder, manifest = opened.folder, opened.manifest
    indices = [i for i in range(manifest.shard_count) if manifest.finished or (folder / shard_name(i)).exists()]
    if not (manifest.finished or partial):
        remedy = "Vote again with the same command to resume it."
        present = f"{len(indices)} of {manifest.shard_count} shards"
        raise VotesError(f"{folder} holds {present}: its run has not finished. {remedy}")
    return Votes(manifest, opened.sha256, _shards(folder, manifest, indices))


def _shards(folder: Path, manifest: Manifest, indices: Sequence[int]) -> Iterator[tuple[ReadShard, list[Head]]]:
    for index in indices:
        with suppress(VotesError) if manifest.extends else nullcontext():  # a shard that is not extended yet
            yield read_shard(folder, manifest, index)


class Votes:
    """The votes of a run, unaltered since they were written; an image is read when it is needed.

    A shard stays in memory while its images are read, and its checksum is computed from those very bytes: a shard that
    is replaced after the folder was opened is refused.

    In an adaptive run the votes themselves decided how many draws an image has, so their number is not a fixed n: only
    the method betting may certify them, and they are returned only to a caller who passes `adaptive=True`. Pilot draws
    have methods of their own and are never among the draws that certify.

    Example:
        >>> votes = read_votes(folder)  # a folder with the votes of 5 images
        >>> votes.ids[1], votes.labels[1], votes.draws_of(1)
        ('image-é-1', (0,), 7)
        >>> [row.image_id for row in votes] == list(votes.ids)
        True
        >>> votes.hits(1)
        Traceback (most recent call last):
        multiguard.errors.VotesError: these are votes of the top-k rule: ...
    """

    def __init__(self, manifest: Manifest, digest: str, shards: Iterable[tuple[ReadShard, Sequence[Head]]]) -> None:
        self.provenance = manifest.provenance  # all that determines the votes
        self._shards, lengths = list[ReadShard](), list[int]()
        ids, labels, hashes = RaggedBuilder(str), RaggedBuilder(np.uint16), RaggedBuilder(str)
        self._draws = array("q")
        for shard, heads in shards:
            self._shards.append(shard)
            lengths.append(len(heads))
            ids.extend(head.image_id for head in heads)
            labels.extend(head.labels for head in heads)
            hashes.extend(head.image_hash for head in heads)
            self._draws.extend(head.draws for head in heads)
        self._shard_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)  # of each image
        self._row_of = np.concatenate([np.empty(0, np.int32), *(np.arange(n, dtype=np.int32) for n in lengths)])
        self._open: tuple[ReadShard, pq.ParquetFile] | None = None
        self._labels: Ragged[tuple[int, ...]] = labels.build()
        self.ids: Ragged[str] = ids.build()  # of the images that have votes
        self.image_hashes: Ragged[str | None] = hashes.build()  # of what was voted on; None where it is unknown
        self.failures = tuple(failure for one in self._shards for failure in one.shard.failures)  # without votes
        stored = {one.path.name: one.shard.sha256 for one in self._shards}
        # The sha256 of the manifest, which holds the checksum of every shard once the run has finished.
        self.manifest_hash = digest if manifest.finished else checksum({"manifest": digest, "shards": stored})

    @property
    def labels(self) -> Ragged[tuple[int, ...]]:
        """The label indices of each image, the ground truth; a run without labels raises `VotesError`."""
        if not self.provenance.labelled:
            remedy = "choose the labels from their pilot draws (certify --no-labels)"
            raise VotesError(f"these votes carry no ground truth; {remedy}.")
        return self._labels

    @property
    def rule(self) -> RuleName:
        """Whether votes are ranked ("top-k") or sets ("threshold")."""
        return self.provenance.rule

    @property
    def adaptive(self) -> bool:
        """Whether the votes decided how many draws each image has; False for a fixed n."""
        return self.provenance.stops is not None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        run = self.provenance
        draws = f"{run.draws} draws" if not self.adaptive else f"up to {run.draws} draws"
        return f"Votes({run.model}, {len(self)} images, {self.rule}, {draws}, noise={run.noise})"

    def __iter__(self) -> Iterator[VoteRow]:
        return self.rows()

    def rows(self, *, adaptive: bool = False) -> Iterator[VoteRow]:
        """Return all images in order, read some at a time, several times as fast as one by one; `adaptive` as in `row`.

        Example:
            >>> [row.image_id for row in read_votes(folder).rows()][:2]  # a folder with the votes of 5 images
            ['image-é-0', 'image-é-1']
        """
        self._check_adaptive(adaptive)
        for _, positions in groupby(range(len(self)), key=lambda position: int(self._shard_of[position])):
            own = list(positions)
            for start in range(0, len(own), _IMAGES_AT_A_TIME):
                yield from self._read(own[start : start + _IMAGES_AT_A_TIME])

    def subset(self, ids: Collection[str]) -> "Votes":
        """Return the votes of these images only, failed ones among them, in the same order.

        Example:
            >>> votes = read_votes(folder)  # a folder with the votes of 5 images
            >>> votes.subset({"image-é-3", "image-é-1"}).ids
            Texts('image-é-1', 'image-é-3')
        """
        part = copy(self)
        kept = [position for position, name in enumerate(self.ids) if name in ids]
        part._shard_of, part._row_of = self._shard_of[kept], self._row_of[kept]
        part._draws = array("q", (self._draws[position] for position in kept))
        part.ids, part._labels = self.ids.take(kept), self._labels.take(kept)
        part.image_hashes = self.image_hashes.take(kept)
        part.failures = tuple(failure for failure in self.failures if failure.image_id in ids)
        return part

    def draws_of(self, position: int) -> int:
        """Return how many draws certify one image, without reading its votes."""
        return self._draws[position]

    def row(self, position: int, *, adaptive: bool = False) -> VoteRow:
        """Return one image; `adaptive` says that the caller certifies by the method betting, at any number of draws."""
        self._check_adaptive(adaptive)
        return self._read([position])[0]

    def ranked(self, position: int, *, adaptive: bool = False) -> Ranked:
        """Return (draws, K'): the labels of each draw, best first; sets raise `VotesError`. Arguments as in `row`."""
        return self.row(position, adaptive=adaptive).ranked

    def hits(self, position: int, *, adaptive: bool = False) -> NDArray[np.bool_]:
        """Return (draws, c): the set of each draw; ranked votes raise `VotesError`. Arguments as in `row`."""
        return self.row(position, adaptive=adaptive).hits

    def pilot_ranked(self, position: int) -> Ranked:
        """Return (pilot draws, K') of the draws that choose labels; a run without them raises `VotesError`."""
        return as_ranked(self._pilot(position))

    def pilot_hits(self, position: int) -> NDArray[np.bool_]:
        """Return (pilot draws, c) of the draws that choose labels; a run without them raises `VotesError`."""
        return as_hits(self._pilot(position))

    def _pilot(self, position: int) -> DrawVotes:
        pilot = self._read([position])[0].pilot
        if pilot is None:
            raise VotesError("these votes hold no pilot draws to choose labels from; vote again with pilot draws.")
        return pilot

    def _check_adaptive(self, adaptive: bool) -> None:
        if self.adaptive and not adaptive:
            raise VotesError(
                "these are votes of an adaptive run: they decided themselves how many draws an image has, so only the "
                "method 'betting' may certify them; to do so, read them with adaptive=True."
            )

    def _read(self, positions: Sequence[int]) -> list[VoteRow]:
        """The images at these positions, all of one shard."""
        shard = self._shards[self._shard_of[positions[0]]]
        if self._open is None or self._open[0] is not shard:
            self._open = (shard, shard.open())
        rows, heads = self._row_of[positions].tolist(), [self._head(position) for position in positions]
        return read_rows(self._open[1], rows, heads, self.provenance)

    def _head(self, position: int) -> Head:
        return Head(self.ids[position], self._labels[position], self._draws[position], self.image_hashes[position])
