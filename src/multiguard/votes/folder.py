"""A votes folder: written shard by shard, resumable, and read only where its hashes agree."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from multiguard.errors import InvalidInputError, VotesError
from multiguard.files import file_hash
from multiguard.votes.manifest import MANIFEST_NAME, Manifest, Provenance, load_manifest, save_manifest
from multiguard.votes.ranked import Ranked
from multiguard.votes.shards import VoteRow, read_labels, read_row, write_shard


class VotesWriter:
    """Writes a votes folder so that what the manifest names is always whole.

    A folder that holds a run of the same provenance is taken up where it stopped; another run's is refused.

    Args:
        folder: Where to write; made if it is not there.
        provenance: All that determines the votes.
        shard_images: How many images go into one file.
    """

    def __init__(self, folder: str | Path, provenance: Provenance, *, shard_images: int = 64) -> None:
        if shard_images < 1:
            raise InvalidInputError(f"shard_images must be at least 1, not {shard_images}.")
        if len(set(provenance.image_ids)) < len(provenance.image_ids):
            raise InvalidInputError("image ids must be different: two images of one id would share their noise.")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.manifest = _taken_up(self._folder, Manifest(provenance, shard_images, {}))
        save_manifest(self._folder, self.manifest)

    def missing(self) -> list[int]:
        """The shards still to be written, in order."""
        return [index for index in range(self.manifest.shard_count) if index not in self.manifest.shards]

    def write(self, index: int, rows: Sequence[VoteRow]) -> None:
        """Write one shard whole, then name it in the manifest."""
        provenance = self.manifest.provenance
        wanted = [provenance.image_ids[position] for position in self.manifest.positions(index)]
        if [row.image_id for row in rows] != wanted:
            raise InvalidInputError(f"shard {index} must hold the images {wanted}, in this order.")
        shard = write_shard(self._folder / f"votes-{index:05d}.parquet", rows, provenance)
        self.manifest = replace(self.manifest, shards={**self.manifest.shards, index: shard})
        save_manifest(self._folder, self.manifest)


class Votes:
    """The votes of a run, whole and unaltered since they were written; read image by image when asked for.

    Attributes:
        provenance: Where the votes come from.
        ids: The ids of the images.
        labels: The label indices of each image, the ground truth.
        manifest_hash: The sha256 of the manifest, which names the hash of every shard.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.provenance = manifest.provenance
        self.manifest_hash = file_hash(folder / MANIFEST_NAME)
        self._places: list[tuple[Path, int]] = []
        self._open: tuple[Path, pq.ParquetFile] | None = None
        self.ids: tuple[str, ...] = ()
        self.labels: tuple[tuple[int, ...], ...] = ()
        for index in sorted(manifest.shards):
            path, rows = folder / manifest.shards[index].file, _checked_labels(folder, manifest, index)
            self._places += [(path, row) for row in range(len(rows))]
            self.ids += tuple(image_id for image_id, _ in rows)
            self.labels += tuple(labels for _, labels in rows)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[VoteRow]:
        return (self.row(position) for position in range(len(self)))

    def row(self, position: int) -> VoteRow:
        """One image: its id, its labels and its ranked votes."""
        path, row = self._places[position]
        if self._open is None or self._open[0] != path:
            self._open = (path, pq.ParquetFile(path))
        return read_row(self._open[1], row, self.provenance)

    def ranked(self, position: int) -> Ranked:
        """(draws, K'): the labels of each draw of one image, best first."""
        return self.row(position).ranked


def read_votes(folder: str | Path, *, partial: bool = False) -> Votes:
    """The votes of a finished run, after the hash and the images of every shard have been found right.

    Args:
        folder: What `VotesWriter` wrote.
        partial: Whether to accept a run that has not finished, and to read the shards that are whole.
    """
    place = Path(folder)
    manifest = load_manifest(place)
    if not manifest.complete and not partial:
        raise VotesError(
            f"{place} holds {len(manifest.shards)} of {manifest.shard_count} shards: its run has not ended. "
            "Run it again to go on, or pass partial=True to read what is whole."
        )
    return Votes(place, manifest)


def _taken_up(folder: Path, fresh: Manifest) -> Manifest:
    """The manifest to go on from: of what the folder names, the shards that are still whole."""
    if not (folder / MANIFEST_NAME).exists():
        return fresh
    stored = load_manifest(folder)
    differences = stored.provenance.differences(fresh.provenance)
    if stored.shard_images != fresh.shard_images:
        differences.append("shard_images")
    if differences:
        raise VotesError(
            f"{folder} holds the votes of another run: {', '.join(differences)} differ. "
            "Choose another folder, or remove this one."
        )
    return replace(stored, shards={i: s for i, s in stored.shards.items() if _whole(folder, stored, i)})


def _whole(folder: Path, manifest: Manifest, index: int) -> bool:
    try:
        _checked_labels(folder, manifest, index)
    except VotesError:
        return False
    return True


def _checked_labels(folder: Path, manifest: Manifest, index: int) -> list[tuple[str, tuple[int, ...]]]:
    """The ids and labels of a shard, whose file is as it was written and holds the images that belong there."""
    _check_file(folder, manifest, index)
    path = folder / manifest.shards[index].file
    rows = read_labels(path)
    belong = [manifest.provenance.image_ids[position] for position in manifest.positions(index)]
    if [image_id for image_id, _ in rows] != belong:
        raise VotesError(
            f"{path} does not hold the {len(belong)} images of shard {index} in their order: the manifest was altered. "
            "Run the sampling again to make the shard anew."
        )
    return rows


def _check_file(folder: Path, manifest: Manifest, index: int) -> None:
    shard = manifest.shards[index]
    path = folder / shard.file
    if Path(shard.file).name != shard.file:
        raise VotesError(f"{folder / MANIFEST_NAME} names {shard.file!r}, which does not lie in its folder.")
    if not path.is_file():
        raise VotesError(f"{path} is missing; run the sampling again to make it anew.")
    if file_hash(path) != shard.sha256:
        raise VotesError(
            f"{path} is damaged: its sha256 is not the manifest's. Run the sampling again to make it anew."
        )
    if shard.rows != len(manifest.positions(index)):
        raise VotesError(f"{path} holds {shard.rows} images where {len(manifest.positions(index))} belong.")
