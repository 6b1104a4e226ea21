"""A votes folder as it is written: shard by shard, by one process or many, and taken up after any accident."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.files import remove_partial_files
from multiguard.votes.entry import entry_path, entry_paths, is_shard_file, read_entry, shard_name, write_entry
from multiguard.votes.folder import checked_heads, make_up
from multiguard.votes.manifest import MANIFEST_NAME, ImageFailure, Manifest, Shard, load_manifest, save_manifest
from multiguard.votes.provenance import Provenance
from multiguard.votes.row import VoteRow
from multiguard.votes.shards import write_shard


class VotesWriter:
    """Writes a votes folder so that what an entry or the manifest names is always whole.

    A folder that holds a run of the same provenance is taken up where it stopped; another run's is refused, unless it
    failed before its first shard was whole. With the last shard the manifest is sealed.

    Args:
        folder: Where to write; made if it is not there.
        provenance: All that determines the votes.
        shard_images: How many images go into one file.
        keep_failures: Whether a shard with images that failed counts as done; if not, it is still to be written, and
            what is there stays until then.
        main: Whether this is the one writer that prepares the folder and seals it; others join it afterwards, and must
            be of the same run.

    Attributes:
        manifest: The run, and the shards of it that are known to be whole.
    """

    def __init__(
        self,
        folder: str | Path,
        provenance: Provenance,
        *,
        shard_images: int = 64,
        keep_failures: bool = True,
        main: bool = True,
    ) -> None:
        fresh = _checked_run(provenance, shard_images)
        self._folder, self._keep_failures, self._main = Path(folder), keep_failures, main
        self.manifest = self._prepared(fresh) if main else _joined(self._folder, fresh)
        self._seal_if_complete()

    def missing(self) -> list[int]:
        """The shards still to be written, in order."""
        return [index for index in range(self.manifest.shard_count) if index not in self.manifest.shards]

    def write(self, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure] = ()) -> None:
        """Write one shard whole, then its entry.

        Args:
            index: Which shard.
            rows: The votes of its images, in order, but for those that failed.
            failures: The images that failed, in order.
        """
        _check_images(self.manifest, index, rows, failures)
        shard = write_shard(self._folder / shard_name(index), rows, failures, self.manifest)
        write_entry(self._folder, index, shard, self.manifest.run_hash)
        self.manifest = self.manifest.with_shards({**self.manifest.shards, index: shard})
        self._seal_if_complete()

    def finish(self) -> None:
        """Take in the shards that others have written since, and seal the manifest if all are there."""
        others = {}
        for index in self.missing():
            path = entry_path(self._folder, index)
            if path.exists():
                _, shard = read_entry(path, self.manifest)
                others[index] = shard
        kept = {index: shard for index, shard in others.items() if self._keep_failures or not shard.failures}
        if kept:
            self.manifest = self.manifest.with_shards({**self.manifest.shards, **kept})
            self._seal_if_complete()

    def _prepared(self, fresh: Manifest) -> Manifest:
        self._folder.mkdir(parents=True, exist_ok=True)
        return _taken_up(self._folder, fresh, self._keep_failures)

    def _seal_if_complete(self) -> None:
        """With all shards there, let the manifest name them; then their entries are of no more use."""
        if not (self._main and self.manifest.complete):
            return
        if not self.manifest.sealed:
            self.manifest = replace(self.manifest, sealed=True)
            save_manifest(self._folder, self.manifest)
        for path in entry_paths(self._folder):
            path.unlink()


def _checked_run(provenance: Provenance, shard_images: int) -> Manifest:
    if shard_images < 1:
        raise InvalidInputError(f"shard_images must be at least 1, not {shard_images}.")
    if len(set(provenance.image_ids)) < len(provenance.image_ids):
        raise InvalidInputError("image ids must be different: two images of one id would share their noise.")
    return Manifest(provenance, shard_images, {})


def _check_images(manifest: Manifest, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure]) -> None:
    wanted = manifest.ids(index)
    if not make_up(wanted, [row.image_id for row in rows], [failure.image_id for failure in failures]):
        raise InvalidInputError(f"shard {index} must hold the images {wanted}, in this order, each once.")


def _joined(folder: Path, fresh: Manifest) -> Manifest:
    """This run, after it has been found to be the one that the folder was prepared for."""
    stored = load_manifest(folder)
    others = _differences(stored, fresh)
    if others:
        raise VotesError(
            f"this process would not vote as the main one does: {_differ(others)}. "
            "Take machines and software that are alike."
        )
    return fresh


def _taken_up(folder: Path, fresh: Manifest, keep_failures: bool) -> Manifest:
    """The manifest to go on from, with the shards that are done; what the folder holds beside them is cleared.

    Entries without a manifest are what a removal left that was cut short: none of them counts.
    """
    stored = load_manifest(folder) if (folder / MANIFEST_NAME).exists() else None
    run = stored or fresh
    named = {} if stored is None else run.shards if run.sealed else _entries(folder, run)
    others = _differences(run, fresh)
    if others and named:
        raise VotesError(
            f"{folder} holds the votes of another run: {_differ(others)}. "
            "Vote with --force to throw them away, or choose another folder."
        )
    known = replace(fresh, shards={} if others else named)
    whole = {index: shard for index, shard in known.shards.items() if _whole(folder, known, index)}
    done = {index: shard for index, shard in whole.items() if keep_failures or not shard.failures}
    sealed = run.sealed and len(done) == fresh.shard_count
    if run.sealed and not sealed:
        _write_entries(folder, replace(fresh, shards=whole))
    _clear(folder, whole)
    if not sealed and (stored is None or stored.sealed or others):
        save_manifest(folder, fresh)
    return replace(fresh.with_shards(done), sealed=sealed)


def _differences(one: Manifest, other: Manifest) -> list[str]:
    """The names of what tells two runs apart."""
    more = [] if one.shard_images == other.shard_images else ["shard_images"]
    return one.provenance.differences(other.provenance) + more


def holds_other_run(folder: Path, provenance: Provenance, shard_images: int) -> bool:
    """Whether a run of this provenance could not go on in the folder: its manifest is another run's, or none."""
    try:
        stored = load_manifest(folder)
    except VotesError as error:
        if isinstance(error.__cause__, OSError):  # it may be this run's all the same
            raise
        return True
    return bool(_differences(stored, _checked_run(provenance, shard_images)))


def _entries(folder: Path, run: Manifest) -> dict[int, Shard]:
    """The shards of this run that have an entry."""
    found: dict[int, Shard] = {}
    for path in entry_paths(folder):
        with suppress(VotesError):
            index, found_shard = read_entry(path, run)
            found[index] = found_shard
    return found


def _write_entries(folder: Path, manifest: Manifest) -> None:
    for index, shard in manifest.shards.items():
        write_entry(folder, index, shard, manifest.run_hash)


def _clear(folder: Path, whole: Mapping[int, Shard]) -> None:
    """Remove the entries of all other shards than these, and halves of files that a killed process left."""
    kept = {entry_path(folder, index) for index in whole}
    for path in entry_paths(folder):
        if path not in kept:
            path.unlink()
    remove_partial_files(folder, lambda name: name == MANIFEST_NAME or is_shard_file(name))


def _whole(folder: Path, manifest: Manifest, index: int) -> bool:
    try:
        checked_heads(folder, manifest, index)
    except VotesError:
        return False
    return True


_IN_WORDS = {"first_image_hash": "the first image (size or content)"}


def _differ(names: Sequence[str]) -> str:
    """The names as the subject of a sentence: sigma differs; sigma, k_max and seed differ."""
    *others, last = [_IN_WORDS.get(name, name) for name in names]
    return f"{', '.join(others)} and {last} differ" if others else f"{last} differs"
