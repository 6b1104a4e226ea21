"""The votes of a run, in memory or in a folder: image by image, ranked or as sets, whichever they are."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from multiguard.certify.rules import RuleName
from multiguard.errors import ImageFailure, VotesError
from multiguard.io.records import Rows, checksum
from multiguard.votes.folder import read_source
from multiguard.votes.provenance import Provenance
from multiguard.votes.shards import (
    HEAD,
    TYPES,
    Shard,
    open_manifest,
    open_shard,
    read_rows,
    read_shard,
    shard_name,
)
from multiguard.votes.types import Ranked, VoteRow, check_rows, record_of

# Images whose votes are read together: more gain nothing, and 100,000 draws of these take 16 MB.
_IMAGES_AT_A_TIME = 16


class Votes:
    """The votes of a run, unaltered since they were made; of those in a folder an image is read when it is needed.

    A shard that is replaced after the folder was opened raises `VotesError`. In an adaptive run the votes themselves
    decided how many draws an image has: only the method betting may certify them, and they are returned only to a
    caller who passes `adaptive=True`. Pilot draws (`VoteRow.pilot`) are never among those that certify.

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

    provenance: Provenance  # all that determines the votes
    ids: Rows[str]  # of the images that have votes
    image_hashes: Rows[str | None]  # of what was voted on; None where it is unknown
    failures: tuple[ImageFailure, ...]  # the images without votes
    image_size: tuple[int, int] | None = None  # height and width of every image; None if they differ or are unknown

    def __init__(self, provenance: Provenance, heads: pa.Table, read: Callable[[Sequence[int]], list[VoteRow]]) -> None:
        self.provenance, self.failures = provenance, ()
        self._set_heads(heads)
        self._read, self._positions = read, np.arange(len(heads), dtype=np.int32)

    @staticmethod
    def of(provenance: Provenance, rows: Sequence[VoteRow], failures: Sequence[ImageFailure] = ()) -> "Votes":
        """Votes in memory; rows that do not fit the run, or other images, raise `InvalidInputError`.

        Args:
            provenance: All that determines the votes.
            rows: The votes of its images, in order.
            failures: Those of its images that have no votes, in order.
        """
        check_rows(rows, failures, provenance.image_ids, provenance)
        votes = Votes(provenance, _heads_of(rows), lambda positions: [rows[position] for position in positions])
        votes.failures = tuple(failures)
        return votes

    def _set_heads(self, heads: pa.Table) -> None:
        self._heads = heads.combine_chunks()
        ids, labels, draws, hashes = (self._heads[name].combine_chunks() for name in HEAD)
        self.ids, self._labels, self.image_hashes = Rows[str](ids), Rows[tuple[int, ...]](labels), Rows(hashes)
        self._draws: NDArray[np.int64] = draws.to_numpy()

    @cached_property
    def manifest_hash(self) -> str:
        """The sha256 of the manifest, which covers every shard; of votes in memory, that of everything in them."""
        digest, failures = hashlib.sha256(), [[one.image_id, one.reason] for one in self.failures]
        for row in self.rows(adaptive=True):
            digest.update(repr(record_of(row)).encode())
        return checksum({"provenance": self.provenance, "rows": digest.hexdigest(), "failures": failures})

    @property
    def labels(self) -> Rows[tuple[int, ...]]:
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
        """All images in order, read some at a time, which is faster; `adaptive` as in `row`."""
        self._check_adaptive(adaptive)
        for start in range(0, len(self), _IMAGES_AT_A_TIME):
            yield from self._read(self._positions[start : start + _IMAGES_AT_A_TIME].tolist())

    def subset(self, ids: Collection[str]) -> "Votes":
        """The votes of these images only, failed ones among them, in the same order."""
        part = copy(self)
        kept = np.array([position for position, name in enumerate(self.ids) if name in ids], np.int64)
        part._set_heads(self._heads.take(kept))
        part._positions = self._positions[kept]
        part.failures = tuple(failure for failure in self.failures if failure.image_id in ids)
        return part

    def draws_of(self, position: int) -> int:
        """How many draws certify one image, without reading its votes."""
        return int(self._draws[position])

    def row(self, position: int, *, adaptive: bool = False) -> VoteRow:
        """One image; `adaptive` says that the caller certifies by the method betting, at any number of draws."""
        self._check_adaptive(adaptive)
        return self._read([int(self._positions[position])])[0]

    def ranked(self, position: int, *, adaptive: bool = False) -> Ranked:
        """(draws, K'): the labels of each draw, best first; sets raise `VotesError`. Arguments as in `row`."""
        return self.row(position, adaptive=adaptive).ranked

    def hits(self, position: int, *, adaptive: bool = False) -> NDArray[np.bool_]:
        """(draws, c): the set of each draw; ranked votes raise `VotesError`. Arguments as in `row`."""
        return self.row(position, adaptive=adaptive).hits

    def _check_adaptive(self, adaptive: bool) -> None:
        if self.adaptive and not adaptive:
            raise VotesError(
                "these are votes of an adaptive run: they decided themselves how many draws an image has, so only the "
                "method 'betting' may certify them; to do so, read them with adaptive=True."
            )


def read_votes(folder: str | Path, *, partial: bool = False) -> "Votes":
    """The votes of a finished run, after every shard has passed its checks; damage raises `VotesError`.

    Args:
        folder: A folder written by `VotesWriter`.
        partial: Whether to accept a run that has not finished, and read the shards that are there.

    Example:
        >>> votes = read_votes(folder)  # a folder with the votes of 5 images
        >>> len(votes), votes.ranked(0).shape
        (5, (7, 3))
    """
    folder = Path(folder)
    manifest, sha256 = open_manifest(folder)
    indices = [i for i in range(manifest.shard_count) if manifest.finished or (folder / shard_name(i)).exists()]
    if not (manifest.finished or partial):
        remedy = "Vote again with the same command to resume it."
        present = f"{len(indices)} of {manifest.shard_count} shards"
        raise VotesError(f"{folder} holds {present}: its run has not finished. {remedy}")
    shards, heads = dict[int, Shard](), [_heads_of([])]
    for index in indices:
        with suppress(VotesError) if manifest.extends else nullcontext():  # a shard that is not extended yet
            shards[index], table = read_shard(folder, manifest, index)
            heads.append(table)
    votes = Votes(
        manifest.provenance, pa.concat_tables(heads), _shard_reader(folder, shards, heads[1:], manifest.provenance)
    )
    votes.failures = tuple(failure for shard in shards.values() for failure in shard.failures)
    side = dict(read_source(folder).get("data", {})).get("size")
    votes.image_size = (side, side) if side else None
    stored = {shard_name(index): shard.sha256 for index, shard in shards.items()}
    # The manifest holds the checksum of every shard once the run has finished.
    votes.manifest_hash = sha256 if manifest.finished else checksum({"manifest": sha256, "shards": stored})
    return votes


def _heads_of(rows: Iterable[VoteRow]) -> pa.Table:
    """What is known of images without their votes, as `read_shard` returns it."""
    heads = [(row.image_id, row.labels, row.draws, row.image_hash) for row in rows]
    return pa.table([pa.array([head[i] for head in heads], TYPES[name]) for i, name in enumerate(HEAD)], HEAD)


def _shard_reader(
    folder: Path, shards: Mapping[int, Shard], heads: Sequence[pa.Table], run: Provenance
) -> Callable[[Sequence[int]], list[VoteRow]]:
    """What reads images of shards; the last shard stays in memory while its images are read."""
    stored, ends = [(index, one.sha256) for index, one in shards.items()], np.cumsum([len(table) for table in heads])
    opened = lru_cache(1)(lambda place: open_shard(folder, *stored[place])[0])

    def read(positions: Sequence[int]) -> list[VoteRow]:
        rows = list[VoteRow]()
        for place, group in groupby(positions, key=lambda each: int(np.searchsorted(ends, each, "right"))):
            file = opened(place)
            start = int(ends[place]) - file.num_row_groups
            rows += read_rows(file, [position - start for position in group], run)
        return rows

    return read
