"""Writing votes shard by shard; a run that was killed is resumed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from multiguard.errors import ImageFailure, VotesError
from multiguard.votes.folder import remove_stale
from multiguard.votes.provenance import Provenance
from multiguard.votes.shards import (
    MANIFEST_NAME,
    Manifest,
    Shard,
    load_manifest,
    open_shard,
    read_rows,
    read_shard,
    shard_name,
    write_shard,
)
from multiguard.votes.store import Votes, read_votes
from multiguard.votes.types import VoteRow


class VotesWriter:
    """Writes votes so that every shard in their folder is complete, at any moment.

    A folder that holds a run of the same provenance is resumed, bit for bit. A run that has fewer draws and differs in
    nothing else is extended: its shards stay until shards with more draws replace them. Another run's folder is refused
    unless it has no complete shard. With the last shard the manifest, the attribute `manifest`, is finished.
    The draws of an image must be in the order in which they were drawn: a certificate may bet on one after the other.

    Args:
        folder: The folder, created if missing.
        provenance: All that determines the votes.
        shard_images: The number of images per shard.
        keep_failures: Whether a shard with image failures counts as done; otherwise it is voted on again.
        main: Whether this is the one writer that prepares the folder and finishes it; others join it afterwards.
        any_noise_seed: Whether a stored run that differs only in its noise seed is the same run, resumed with its own.
        same_images: Whether a stored run that differs only in its first image voted on the same images; None for never.
        discard: Removes another run's votes, or damaged ones, from the folder; None refuses them.
    """

    def __init__(
        self,
        folder: str | Path,
        provenance: Provenance,
        *,
        shard_images: int = 64,
        keep_failures: bool = True,
        main: bool = True,
        any_noise_seed: bool = False,
        same_images: Callable[[Manifest], bool] | None = None,
        discard: Callable[[Path], None] | None = None,
    ) -> None:
        self._keep_failures, self._main = keep_failures, main
        self._shards: dict[int, Shard] = {}
        self.manifest = Manifest(provenance, shard_images)
        self._folder = Path(folder)
        if main:
            self._folder.mkdir(parents=True, exist_ok=True)
        stored = _stored_manifest(self._folder, main=main, damaged_ok=discard is not None)
        differences: list[str] = []
        if stored is not None:
            mine = _with_open_choices(provenance, stored, any_noise_seed=any_noise_seed, same_images=same_images)
            run = mine.extension_of(stored.provenance) if stored.shard_images == shard_images else None
            if run is None:
                differences = _differences(stored, Manifest(mine, shard_images))
            else:
                self.manifest = _continued(stored, run)
        if discard and (stored is None or differences):
            discard(self._folder)
            stored, differences = None, []
        if main:
            self._prepare(stored, differences)
        elif differences:
            reason = f"this process would not vote as the main one does: {_differ(differences)}"
            raise VotesError(f"{reason}. Use machines and software that are alike.")

    def missing(self) -> list[int]:
        """Return the shards still to be written, in order."""
        return [index for index in range(self.manifest.shard_count) if index not in self._shards]

    def write(self, index: int, rows: Sequence[VoteRow], failures: Sequence[ImageFailure] = ()) -> None:
        """Write one shard atomically: the votes of its images, in order, and its images that failed."""
        self._shards[index] = write_shard(self._folder, self.manifest, index, rows, failures)
        self._finish_if_complete()

    def finish(self) -> None:
        """Check the shards that other writers have written since, and finish the manifest if all are there."""
        for index in self.missing():
            if (self._folder / shard_name(index)).exists():
                with suppress(VotesError) if self.manifest.extends else nullcontext():  # one that is not extended yet
                    self._accept({index: read_shard(self._folder, self.manifest, index)[0]})
        self._finish_if_complete()

    def votes(self) -> Votes:
        """Return the votes, once all shards are there; they pass every check of `read_votes`."""
        return read_votes(self._folder)

    def started(self, index: int) -> dict[str, VoteRow]:
        """Return the rows of a shard in the run that is extended, by image id; none for a new run."""
        with suppress(VotesError):
            if (run := self._extended()) is not None:
                shard, heads = read_shard(self._folder, run, index)
                file, _ = open_shard(self._folder, index, shard.sha256)
                return {row.image_id: row for row in read_rows(file, range(len(heads)), run.provenance)}
        return {}

    def _extended(self) -> Manifest | None:
        """The run that is extended; None for a new run."""
        run = self.manifest.extends
        return None if run is None else Manifest(run, self.manifest.shard_images)

    def _prepare(self, stored: Manifest | None, differences: Sequence[str]) -> None:
        """Find the shards that are complete, and remove all others and partial files.

        Without a manifest no shard counts: its removal was cut short, or the images may have changed since.
        """
        shards = {} if stored is None else _complete_shards(self._folder, stored)
        if stored and differences:
            if stored.finished or shards:
                remedy = "Vote with --force to throw them away, or choose another folder."
                if differences == ["draws"]:
                    draws = stored.provenance.draws
                    remedy = (
                        f"It has {draws} draws, and certify --draws takes the first of them; --force throws them away."
                    )
                raise VotesError(f"{self._folder} holds the votes of another run: {_differ(differences)}. {remedy}")
            stored = None
        begins = stored is None or stored.provenance != self.manifest.provenance
        shards = {} if begins else shards
        earlier = {} if (run := self._extended()) is None else _complete_shards(self._folder, run)
        remove_stale(self._folder, self.manifest, keep={*shards, *earlier})
        self._accept(shards)
        if stored is None or begins or (stored.finished and self.missing()):
            self.manifest.save(self._folder)
        elif stored.finished:
            self.manifest = stored
        self._finish_if_complete()

    def _accept(self, shards: Mapping[int, Shard]) -> None:
        self._shards |= {i: shard for i, shard in shards.items() if self._keep_failures or not shard.failures}

    def _finish_if_complete(self) -> None:
        """Replace the manifest by that of the finished run once all shards are there."""
        if self._main and not self.manifest.finished and not self.missing():
            shards = tuple(self._shards[index] for index in range(self.manifest.shard_count))
            self.manifest = replace(self.manifest, shards=shards, extends=None)
            self.manifest.save(self._folder)


def _stored_manifest(folder: Path, *, main: bool, damaged_ok: bool) -> Manifest | None:
    """The manifest of the folder; None if it has none yet, or a damaged one that may be discarded."""
    if main and not (folder / MANIFEST_NAME).exists():
        return None
    try:
        return load_manifest(folder)
    except VotesError as error:
        if damaged_ok and not isinstance(error.__cause__, OSError):  # an unreadable manifest may be this run's
            return None
        raise


def _complete_shards(folder: Path, run: Manifest) -> dict[int, Shard]:
    """The shards of a run that pass every check."""
    shards = {}
    for index in range(run.shard_count):
        with suppress(VotesError):
            shards[index] = read_shard(folder, run, index)[0]
    return shards


def _with_open_choices(
    run: Provenance, stored: Manifest, *, any_noise_seed: bool, same_images: Callable[[Manifest], bool] | None
) -> Provenance:
    """The run with what it leaves open as in the stored one: its noise seed, and by which of its images it is known."""
    if any_noise_seed:
        run = replace(run, noise_seed=stored.provenance.noise_seed)
    first = replace(run, first_image_hash=stored.provenance.first_image_hash)
    alike = first != run and same_images is not None and first.extension_of(stored.provenance) and same_images(stored)
    return first if alike else run


def _continued(stored: Manifest, run: Provenance) -> Manifest:
    """The manifest of a stored run that is resumed, or extended to more draws."""
    if run == stored.provenance:
        return replace(stored, shards=None)
    if stored.extends is not None:
        raise VotesError(
            f"these votes are being extended to {stored.provenance.draws} draws; finish that first, by the same "
            "command with that number of draws."
        )
    return Manifest(run, stored.shard_images, extends=stored.provenance)


def _differences(one: Manifest, other: Manifest) -> list[str]:
    """The names of the fields in which two runs differ."""
    names = [name for name in one.provenance.differences(other.provenance) if name != "earlier_draws"]
    return names if one.shard_images == other.shard_images else [*names, "shard_images"]


def _differ(names: Sequence[str]) -> str:
    """The names as the subject of a sentence: noise differs; noise, k_max and noise_seed differ."""
    words = {"first_image_hash": "the first image (size or content)"}
    *others, last = [words.get(name, name) for name in names]
    return f"{', '.join(others)} and {last} differ" if others else f"{last} differs"
