"""A votes folder: which of its files are of votes, and may be replaced or removed; and the source of the votes."""

import os
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.files import is_regular, mentions, read_regular, remove_partial_files, sync
from multiguard.io.records import decode_json
from multiguard.io.writer import check_foreign
from multiguard.votes.shards import MANIFEST, MANIFEST_NAME, SHARD, SHARD_NAME, Manifest, load_manifest, shard_name

SOURCE_FILE = "source.json"  # which images and which model
SOURCE_KEYS = {"data", "model", "command", "files"}  # files: the hash of their names, sizes and times


def read_source(folder: Path) -> dict[str, Any]:
    """Which images and which model a votes folder names; empty where it names none, or the file is damaged."""
    try:
        return decode_json(read_regular(folder / SOURCE_FILE), dict[str, Any])
    except (OSError, ValueError):
        return {}


def discard_votes(folder: Path) -> None:
    """Remove the files that voting writes; the manifest goes first, so that no later run resumes the shards."""
    _check_votes(folder)
    shards = own_shards(folder)
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
        ours = [folder / SOURCE_FILE, *own_shards(folder)]
        check_foreign([folder], ours.__contains__)


def own_shards(folder: Path) -> list[Path]:
    """The files that are shards of any run: as their content says, or as their manifest says."""
    try:
        listed = {shard_name(index) for index in range(load_manifest(folder).shard_count)}
    except VotesError:
        listed = set()
    return [path for path in sorted(folder.iterdir()) if (path.name in listed and is_regular(path)) or _is_shard(path)]


def remove_stale(folder: Path, run: Manifest, keep: Collection[int]) -> None:
    """Remove all shards but those to keep, and the partial files of killed processes.

    A file that is no shard and lies where this run would write one raises `VotesError` before anything is removed.
    """
    ours = own_shards(folder)
    for path in (folder / shard_name(index) for index in range(run.shard_count)):
        if os.path.lexists(path) and path not in ours:
            raise VotesError(f"{path} is not a shard of votes, so it is not replaced; move it, or name another folder.")
    names = {shard_name(index) for index in keep}
    for path in ours:
        if path.name not in names:
            path.unlink()
    remove_partial_files(folder, lambda name: name == MANIFEST_NAME or SHARD_NAME.fullmatch(name) is not None)


def _check_votes(folder: Path) -> None:
    manifest, source = folder / MANIFEST_NAME, folder / SOURCE_FILE
    ours = {manifest: _is_own_manifest(manifest), source: read_source(folder).keys() == SOURCE_KEYS}
    for path, is_own in ours.items():
        if os.path.lexists(path) and not (is_own and is_regular(path)):
            raise InvalidInputError(
                f"{path} is not of votes, so it is not replaced; move it, or name another folder with --out"
            )


def _is_own_manifest(path: Path) -> bool:
    """Whether it is a manifest of votes, of any run, damaged or not: its content says so, or shards lie next to it."""
    return mentions(path, MANIFEST["format"]) or (is_regular(path) and any(map(_is_shard, path.parent.iterdir())))


def _is_shard(path: Path) -> bool:
    """Whether the content says that it is a shard, of any run or version."""
    return SHARD_NAME.fullmatch(path.name) is not None and mentions(path, SHARD["format"])


def with_seeds(command: str, *, seed: int, noise_seed: int) -> str:
    """The command of a vote or a run with its seeds named, that of the sample of images and that of the noise.

    Any other command stays as it is.

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
