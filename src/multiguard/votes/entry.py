"""The entry of a finished shard: a small file beside it, while the run has not ended."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from multiguard.errors import VotesError
from multiguard.votes.manifest import Manifest, Shard, shard_from_json
from multiguard.votes.seal import read_sealed, write_sealed

_FORMAT = "multiguard-votes-shard"
_PREFIX = "votes-"
_MEND = "Vote again with the same command, which makes its shard anew."


def shard_name(index: int) -> str:
    """The name of the file of a shard."""
    return f"{_PREFIX}{index:05d}.parquet"


def entry_path(folder: Path, index: int) -> Path:
    """Where the entry of a shard lies."""
    return folder / Path(shard_name(index)).with_suffix(".json")


def entry_paths(folder: Path) -> Iterator[Path]:
    """All that is called like an entry, in no order."""
    return folder.glob(f"{_PREFIX}*.json")


def is_shard_file(name: str) -> bool:
    """Whether a file is called like a shard or its entry."""
    return name.startswith(_PREFIX) and name.endswith((".parquet", ".json"))


def write_entry(folder: Path, index: int, shard: Shard, run_hash: str) -> None:
    """Say that a shard of this run is whole."""
    write_sealed(entry_path(folder, index), _FORMAT, {"run": run_hash, "shard": asdict(shard)})


def read_entry(path: Path, run: Manifest) -> tuple[int, Shard]:
    """Which shard of this run is whole; an entry of another run, or of another shard, raises `VotesError`."""
    stored = read_sealed(path, _FORMAT, _MEND)
    try:
        index, shard = int(path.stem.removeprefix(_PREFIX)), shard_from_json(stored["shard"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VotesError(f"{path} is damaged: {type(error).__name__}: {error}. {_MEND}") from error
    if stored.get("run") != run.run_hash:
        raise VotesError(f"{path} comes from another run than the manifest beside it; bring back the right one.")
    if entry_path(path.parent, index) != path or not 0 <= index < run.shard_count:
        raise VotesError(f"{path} is no entry of this run, which has {run.shard_count} shards.")
    return index, shard
