"""Writing a votes folder, shard by shard, by one process or many; a run that was killed is resumed."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from multiguard.errors import ImageFailure, VotesError
from multiguard.io.files import remove_partial_files, write_atomically
from multiguard.votes.provenance import Provenance
from multiguard.votes.shards import (
    MANIFEST_NAME,
    Manifest,
    Shard,
    encode_shard,
    is_shard_file,
    load_manifest,
    read_shard,
    save_manifest,
    shard_name,
)
from multiguard.votes.types import VoteRow


class VotesWriter:
    """Writes a votes folder in which every shard is complete, at any moment.

    A folder that holds a run of the same provenance is resumed, bit for bit; another run's folder is refused unless it
    has no complete shard. With the last shard the manifest is finished.

    Args:
        folder: The folder; created if missing.
        provenance: All that determines the votes.
        shard_images: The number of images per shard.
        keep_failures: Whether a shard with image failures counts as done; otherwise it is still to be written, and the
            old one stays until then.
        main: Whether this is the one writer that prepares the folder and finishes it; others join it afterwards, and
            must be of the same run.
        same_images: Whether a stored run that differs only in its first image voted on the same images; then it is
            the same run. None for never.
        discard: Removes another run's votes, or damaged ones, from the folder; None refuses them.

    Attributes:
        manifest: The manifest of the run.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> writer = VotesWriter(folder, run, shard_images=2)  # `run` is a Provenance of 5 images
        >>> for shard in writer.missing():
        ...     writer.write(shard, [vote(run, position) for position in writer.manifest.positions(shard)])
        >>> writer.missing(), sorted(path.name for path in Path(folder).iterdir())[:2]
        ([], ['manifest.json', 'votes-00000.parquet'])
    """

    def __init__(
        self,
        folder: str | Path,
        provenance: Provenance,
        *,
        shard_images: int = 64,
        keep_failures: bool = True,
        main: bool = True,
        same_images: Callable[[Manifest], bool] | None = None,
        discard: Callable[[Path], None] | None = None,
    ) -> None:
        self._folder, self._keep_failures, self._main = Path(folder), keep_failures, main
        self._shards: dict[int, Shard] = {}
        self.manifest = Manifest(provenance, shard_images)
        if main:
            self._folder.mkdir(parents=True, exist_ok=True)
        stored = _stored_manifest(self._folder, main=main, damaged_ok=discard is not None)
        if (
            stored
            and same_images
            and _differences(stored, self.manifest) == ["first_image_hash"]
            and same_images(stored)
        ):
            self.manifest = Manifest(stored.provenance, shard_images)
        if discard is not None and (stored is None or _differences(stored, self.manifest)):
            discard(self._folder)
            stored = None
        if main:
            self._prepare(stored)
        elif stored is not None:
            _check_joins(stored, self.manifest)

    def missing(self) -> list[int]:
        """Return the shards still to be written, in order."""
        return [index for index in range(self.manifest.shard_count) if index not in self._shards]

    def write(self, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure] = ()) -> None:
        """Write one shard atomically.

        Args:
            index: Which shard.
            rows: The votes of its images, in order, without those that failed.
            failures: The images that failed, in order.
        """
        content = encode_shard(self.manifest, index, rows, failures)
        write_atomically(self._folder / shard_name(index), lambda file: file.write(content))
        self._shards[index] = Shard(hashlib.sha256(content).hexdigest(), tuple(failures))
        self._finish_if_complete()

    def finish(self) -> None:
        """Check the shards that other writers have written since, and finish the manifest if all are there."""
        for index in self.missing():
            if (self._folder / shard_name(index)).exists():
                self._accept({index: read_shard(self._folder, self.manifest, index).shard})
        self._finish_if_complete()

    def _prepare(self, stored: Manifest | None) -> None:
        """Find the shards that are complete, and remove all others and partial files.

        Without a manifest no shard counts: its removal was cut short, or the images may have changed since.
        """
        shards = {} if stored is None else _complete_shards(self._folder, stored)
        if stored is not None and (differences := _differences(stored, self.manifest)):
            if stored.finished or shards:
                raise VotesError(
                    f"{self._folder} holds the votes of another run: {_differ(differences)}. "
                    "Vote with --force to throw them away, or choose another folder."
                )
            stored = None
        _remove_all_but(self._folder, {shard_name(index) for index in shards})
        self._accept(shards)
        if stored is None or (stored.finished and self.missing()):
            save_manifest(self._folder, self.manifest)
        elif stored.finished:
            self.manifest = stored
        self._finish_if_complete()

    def _accept(self, shards: Mapping[int, Shard]) -> None:
        self._shards |= {i: shard for i, shard in shards.items() if self._keep_failures or not shard.failures}

    def _finish_if_complete(self) -> None:
        """Replace the manifest by that of the finished run once all shards are there."""
        if self._main and not self.manifest.finished and not self.missing():
            shards = tuple(self._shards[index] for index in range(self.manifest.shard_count))
            self.manifest = replace(self.manifest, shards=shards)
            save_manifest(self._folder, self.manifest)


def _stored_manifest(folder: Path, *, main: bool, damaged_ok: bool) -> Manifest | None:
    """The manifest of the folder; None if it has none yet, or a damaged one that may be discarded."""
    if main and not (folder / MANIFEST_NAME).exists():
        return None
    try:
        return load_manifest(folder)
    except VotesError as error:
        if damaged_ok and not isinstance(error.__cause__, OSError):  # one that cannot be read may be this run's
            return None
        raise


def _complete_shards(folder: Path, manifest: Manifest) -> dict[int, Shard]:
    """The shards of the run that pass every check."""
    shards = {}
    for index in range(manifest.shard_count):
        with suppress(VotesError):
            shards[index] = read_shard(folder, manifest, index).shard
    return shards


def _remove_all_but(folder: Path, names: Collection[str]) -> None:
    """Remove all other shards, and the partial files of killed processes."""
    for path in [path for path in folder.iterdir() if is_shard_file(path.name) and path.name not in names]:
        path.unlink()
    remove_partial_files(folder, lambda name: name == MANIFEST_NAME or is_shard_file(name))


def _check_joins(stored: Manifest, run: Manifest) -> None:
    """Raises `VotesError` unless the folder was prepared for this run."""
    differences = _differences(stored, run)
    if differences:
        raise VotesError(
            f"this process would not vote as the main one does: {_differ(differences)}. "
            "Use machines and software that are alike."
        )


def _differences(one: Manifest, other: Manifest) -> list[str]:
    """The names of the fields in which two runs differ."""
    more = [] if one.shard_images == other.shard_images else ["shard_images"]
    return one.provenance.differences(other.provenance) + more


_IN_WORDS = {"first_image_hash": "the first image (size or content)"}


def _differ(names: Sequence[str]) -> str:
    """The names as the subject of a sentence: sigma differs; sigma, k_max and seed differ."""
    *others, last = [_IN_WORDS.get(name, name) for name in names]
    return f"{', '.join(others)} and {last} differ" if others else f"{last} differs"
