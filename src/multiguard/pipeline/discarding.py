"""Throwing an old model or old votes away, and nothing else that lies in their folder."""

from pathlib import Path

from multiguard.pipeline.certifying import SOURCE_FILE
from multiguard.votes.entry import entry_paths, is_shard_file
from multiguard.votes.manifest import MANIFEST_NAME

_MODEL = ("model.json", "model.safetensors", "log.jsonl", "curve.png", "state/last.safetensors")


def discard_model(folder: Path) -> None:
    """Remove what training writes; the card goes first, so that no half of a model is taken for one."""
    for name in _MODEL:
        (folder / name).unlink(missing_ok=True)


def discard_votes(folder: Path) -> None:
    """Remove what voting writes; what names shards goes before them, so that a later run takes up none of them."""
    entries = sorted(entry_paths(folder))
    shards = sorted(path for path in folder.iterdir() if is_shard_file(path.name))
    for path in (*entries, folder / MANIFEST_NAME, folder / SOURCE_FILE, *shards):
        path.unlink(missing_ok=True)
