"""Runs of every kind with reproducible rows, and edits of their files, for the tests of votes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from multiguard.certify import Gaussian
from multiguard.io.files import file_checksum
from multiguard.io.records import checksum
from multiguard.votes import DrawVotes, LabelSets, Provenance, VoteRow, VotesWriter
from multiguard.votes.types import vote_dtype


def provenance(images: int = 5, labels: int = 20, **changes) -> Provenance:
    fields = {
        "model": "linear",
        "weights_hash": None,
        "classifier_hash": "0" * 64,
        "code_hash": None,
        "trained_noise": "gaussian:0.25",
        "output": "logits",
        "label_names": tuple(f"label {i}" for i in range(labels)),
        "labelled": True,
        "truth_hash": "2" * 64,
        "dataset": "generated[images=5,seed=0]",
        "image_ids": tuple(f"image-é-{i}" for i in range(images)),
        "first_image_hash": "1" * 64,
        "noise": Gaussian(0.1 + 0.2),
        "rule": "top-k",
        "k_max": 3,
        "score_threshold": None,
        "draws": 7,
        "pilot_draws": 0,
        "earlier_draws": (),
        "stops": None,
        "stopping": None,
        "noise_seed": 1 << 70,
        "noise_source": "dice",
        "precision": "float32",
        "channels_last": False,
        "compiled": False,
        "noise_compiled": False,
        "tf32_matmul": False,
        "tf32_convolution": True,
        "clamp": False,
        "device": "cpu",
        "versions": {"numpy": np.__version__},
    }
    if "sigma" in changes:
        changes["noise"] = Gaussian(changes.pop("sigma"))
    return Provenance(**{**fields, **changes})


THRESHOLD = {"rule": "threshold", "k_max": None, "score_threshold": 0.5}
ADAPTIVE = {
    "draws": 7,
    "stops": (2, 4, 7),
    "stopping": {"radii": (0.25, 0.5), "alpha": 0.001, "k": 2, "k_prime": 1},
}
UNLABELLED = {"labelled": False, "pilot_draws": 5}
KINDS = {
    "top-k": {},
    "pilot": {"pilot_draws": 5},
    "threshold": THRESHOLD,
    "threshold, pilot": {**THRESHOLD, "pilot_draws": 5},
    "unlabelled": UNLABELLED,
    "adaptive": ADAPTIVE,
    "adaptive, unlabelled, threshold": {
        **THRESHOLD,
        **UNLABELLED,
        **ADAPTIVE,
        "stopping": {"radii": (0.5,), "alpha": 0.01, "threshold": 0.5},
    },
}


def edit_manifest(folder, change) -> None:
    """Edit a manifest as a forger could who also knows how to compute every checksum, in the shards too."""
    path = folder / "manifest.json"
    stored = json.loads(path.read_text())
    change(stored)
    run = checksum({"provenance": stored["provenance"], "shard_images": stored["shard_images"]})
    for index, shard in enumerate(stored["shards"] or ()):
        if shard_path(folder, index).is_file() and isinstance(shard, dict):
            edit_metadata(folder, index, run=run)
            shard["sha256"] = file_checksum(shard_path(folder, index))
    path.write_text(json.dumps({**stored, "sha256": checksum(stored)}))


def edit_metadata(folder, shard: int, **changes) -> None:
    """Edit the metadata of a shard, with the right checksum."""
    table = pq.read_table(shard_path(folder, shard))
    stored = {**json.loads(table.schema.metadata[b"multiguard"]), **changes}
    stored["sha256"] = checksum(stored)
    rewrite(folder, shard, table.replace_schema_metadata({b"multiguard": json.dumps(stored)}))


def edit_cell(folder, column: str, change) -> None:
    """Edit one column of the first image of the first shard."""
    table = pq.read_table(shard_path(folder, 0))
    values, at = table.column(column).to_pylist(), table.schema.get_field_index(column)
    values[0] = change(values[0])
    rewrite(folder, 0, table.set_column(at, column, pa.array(values, table.schema.types[at])))


def rewrite(folder, index: int, table) -> None:
    pq.write_table(table, shard_path(folder, index), row_group_size=1)


def shard_path(folder, index: int):
    return folder / f"votes-{index:05d}.parquet"


def contents(folder):
    """The content of every file, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def draws_of(run: Provenance, position: int) -> int:
    return run.stops[position % len(run.stops)] if run.stops else run.draws


def votes_of(run: Provenance, draws: int, seed: int) -> DrawVotes:
    labels, rng = len(run.label_names), np.random.default_rng(seed)
    if run.rule == "threshold":
        return LabelSets.from_hits(rng.random((draws, labels)) < 0.3)
    ranked = np.stack([rng.permutation(labels)[: run.k_max] for _ in range(draws)])
    return ranked.astype(vote_dtype(labels))


def row(run: Provenance, position: int) -> VoteRow:
    votes = votes_of(run, draws_of(run, position), position)
    pilot = votes_of(run, run.pilot_draws, 1000 + position) if run.pilot_draws else None
    labels = tuple(range(position % 3)) if run.labelled else ()
    bare = votes_of(run, 1, 2000 + position) if position % 2 == 0 else None
    return VoteRow(run.image_ids[position], labels, votes, pilot, f"{position:064x}", bare)


def write(folder, run: Provenance, shards=None, shard_images: int = 2) -> VotesWriter:
    writer = VotesWriter(folder, run, shard_images=shard_images)
    for index in writer.missing() if shards is None else shards:
        writer.write(index, [row(run, position) for position in writer.manifest.positions(index)])
    return writer


def same(one, other) -> bool:
    if isinstance(one, LabelSets):
        return np.array_equal(one.packed, other.packed) and one.num_labels == other.num_labels
    return (one is None and other is None) or (one.dtype == other.dtype and np.array_equal(one, other))
