"""A votes folder: it is written shard by shard, a run that was killed is resumed, and files of others stay."""

import os
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.io.files import is_regular, mentions, read_regular, remove_partial_files, sync
from multiguard.io.records import decode_json
from multiguard.io.writer import check_foreign
from multiguard.votes.provenance import Provenance
from multiguard.votes.shards import (
    MANIFEST,
    MANIFEST_NAME,
    SHARD,
    SHARD_NAME,
    Manifest,
    Shard,
    load_manifest,
    open_shard,
    read_rows,
    read_shard,
    shard_name,
    write_shard,
)
from multiguard.votes.types import VoteRow

SOURCE_FILE = "source.json"  # which images and which model
SOURCE_KEYS = {"data", "model", "command", "files"}  # files: the hash of their names, sizes and times


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
        same_images: Whether a stored run that differs only in its first image voted on the same images.
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
        same_images: Callable[[], bool] = lambda: False,
        discard: Callable[[Path], None] | None = None,
    ) -> None:
        self._keep_failures, self._main, self._folder = keep_failures, main, Path(folder)
        self._shards: dict[int, Shard] = {}
        if main:
            self._folder.mkdir(parents=True, exist_ok=True)
        stored = self._stored_manifest(damaged_ok=discard is not None)
        self.manifest, differences = Manifest(provenance, shard_images), list[str]()
        if stored is not None:
            known = stored.provenance.noise_seed
            mine = replace(provenance, noise_seed=known) if any_noise_seed else provenance
            first = replace(mine, first_image_hash=stored.provenance.first_image_hash)
            mine = first if first != mine and first.extension_of(stored.provenance) and same_images() else mine
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
        """The shards still to be written, in order."""
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

    def started(self, index: int) -> dict[str, VoteRow]:
        """The rows of a shard in the run that is extended, by image id; none for a new run."""
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

    def _stored_manifest(self, *, damaged_ok: bool) -> Manifest | None:
        """The manifest of the folder; None if it has none yet, or a damaged one that may be discarded."""
        if self._main and not (self._folder / MANIFEST_NAME).exists():
            return None
        try:
            return load_manifest(self._folder)
        except VotesError as error:
            if damaged_ok and not isinstance(error.__cause__, OSError):  # an unreadable manifest may be this run's
                return None
            raise

    def _prepare(self, stored: Manifest | None, differences: Sequence[str]) -> None:
        """Find the shards that are complete, and remove all others and partial files.

        Without a manifest no shard counts: its removal was cut short, or the images may have changed since.
        """
        shards = _complete_shards(self._folder, stored)
        if stored and differences:
            if stored.finished or shards:
                draws, remedy = (
                    stored.provenance.draws,
                    "Vote with --force to throw them away, or choose another folder.",
                )
                if differences == ["draws"]:
                    remedy = (
                        f"It has {draws} draws, and certify --draws takes the first of them; --force throws them away."
                    )
                raise VotesError(f"{self._folder} holds the votes of another run: {_differ(differences)}. {remedy}")
            stored = None
        begins = stored is None or stored.provenance != self.manifest.provenance
        shards = {} if begins else shards
        remove_stale(self._folder, self.manifest, keep={*shards, *_complete_shards(self._folder, self._extended())})
        self._accept(shards)
        if stored is None or begins or (stored.finished and self.missing()):
            self.manifest.save(self._folder)
        elif stored.finished:
            self.manifest = stored
        self._finish_if_complete()

    def _accept(self, shards: dict[int, Shard]) -> None:
        self._shards |= {i: shard for i, shard in shards.items() if self._keep_failures or not shard.failures}

    def _finish_if_complete(self) -> None:
        """Replace the manifest by that of the finished run once all shards are there."""
        if self._main and not self.manifest.finished and not self.missing():
            shards = tuple(self._shards[index] for index in range(self.manifest.shard_count))
            self.manifest = replace(self.manifest, shards=shards, extends=None)
            self.manifest.save(self._folder)


def _complete_shards(folder: Path, run: Manifest | None) -> dict[int, Shard]:
    """The shards of a run that pass every check."""
    shards = {}
    for index in range(0 if run is None else run.shard_count):
        with suppress(VotesError):
            shards[index] = read_shard(folder, run, index)[0]  # type: ignore[arg-type]
    return shards


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


def read_source(folder: Path) -> dict[str, Any]:
    """Which images and which model a votes folder names; empty where it names none, or the file is damaged."""
    try:
        return decode_json(read_regular(folder / SOURCE_FILE), dict[str, Any])
    except (OSError, ValueError):
        return {}


def discard_votes(folder: Path) -> None:
    """Remove the files that voting writes; the manifest goes first, so that no later run resumes the shards."""
    _check_votes(folder)
    shards = _own_shards(folder)
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    sync(folder)  # before a power cut can lose the source alone, which tells that images have changed
    for path in (folder / SOURCE_FILE, *shards):
        path.unlink(missing_ok=True)


def check_votes_folder(folder: Path, *, force: bool) -> None:
    """Raises `InvalidInputError` if a folder without votes holds something else; `force` allows it.

    A manifest or a source that is not of votes is never replaced.
    """
    _check_votes(folder)
    if not force and folder.is_dir() and not (folder / MANIFEST_NAME).exists():
        check_foreign([folder], [folder / SOURCE_FILE, *_own_shards(folder)].__contains__)


def remove_stale(folder: Path, run: Manifest, keep: Collection[int]) -> None:
    """Remove all shards but those to keep, and the partial files of killed processes.

    A file that is no shard and lies where this run would write one raises `VotesError` before anything is removed.
    """
    ours = _own_shards(folder)
    for path in (folder / shard_name(index) for index in range(run.shard_count)):
        if os.path.lexists(path) and path not in ours:
            raise VotesError(f"{path} is not a shard of votes, so it is not replaced; move it, or name another folder.")
    for path in {*ours} - {folder / shard_name(index) for index in keep}:
        path.unlink()
    remove_partial_files(folder, lambda name: name == MANIFEST_NAME or SHARD_NAME.fullmatch(name) is not None)


def _own_shards(folder: Path) -> list[Path]:
    """The files that are shards of any run: as their content says, or as their manifest says."""
    try:
        listed = {shard_name(index) for index in range(load_manifest(folder).shard_count)}
    except VotesError:
        listed = set()
    return [path for path in sorted(folder.iterdir()) if (path.name in listed and is_regular(path)) or _is_shard(path)]


def _check_votes(folder: Path) -> None:
    """Raises unless the manifest and the source, where there are any, are of votes, of any run, damaged or not."""
    manifest, source = folder / MANIFEST_NAME, folder / SOURCE_FILE
    is_manifest = is_regular(manifest) and any(map(_is_shard, folder.iterdir()))
    ours = {
        manifest: is_manifest or mentions(manifest, MANIFEST["format"]),
        source: is_regular(source) and read_source(folder).keys() == SOURCE_KEYS,
    }
    for path, is_own in ours.items():
        if os.path.lexists(path) and not is_own:
            raise InvalidInputError(
                f"{path} is not of votes, so it is not replaced; move it, or name another folder with --out"
            )


def _is_shard(path: Path) -> bool:
    """Whether the content says that it is a shard, of any run or version."""
    return SHARD_NAME.fullmatch(path.name) is not None and mentions(path, SHARD["format"])


def with_seeds(command: str, *, seed: int, noise_seed: int) -> str:
    """The command of a vote or a run with its seeds named, of the sample of images and of the noise; others as it is.

    >>> with_seeds("multiguard vote --data coco --seed 3 --out votes", seed=3, noise_seed=71)
    'multiguard vote --data coco --seed 3 --out votes --noise-seed 71'
    >>> with_seeds("multiguard run digits", seed=0, noise_seed=71)
    'multiguard run digits --set data.seed=0 --set vote.noise_seed=71'
    """
    words = shlex.split(command)
    if words[1:2] == ["vote"]:
        named = {word.partition("=")[0] for word in words}
        for option, number in (("--seed", seed), ("--noise-seed", noise_seed)):
            words += [] if option in named else [option, str(number)]
    elif words[1:2] == ["run"]:
        for change in (f"data.seed={seed}", f"vote.noise_seed={noise_seed}"):
            words += [] if change in words else ["--set", change]
    return shlex.join(words)
