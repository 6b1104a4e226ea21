"""Votes folders of known content, and what two results must agree in."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.certify.cases import random_ranked, random_sets
from tests.votes.vote_runs import provenance

from multiguard.certify import Gaussian, Radii
from multiguard.errors import ImageFailure
from multiguard.evaluate import Certificates, CertifyConfig, Curve, LabelSource
from multiguard.io.records import Rows
from multiguard.votes import DrawVotes, LabelSets, Provenance, VoteRow, Votes, VotesWriter, read_votes
from multiguard.votes.types import vote_dtype


def stored_votes(folder: Path, ranked: Sequence[np.ndarray], true: Sequence[Sequence[int]], **changes) -> Votes:
    """These ranked votes as a finished run in a folder."""
    draws, k_max = ranked[0].shape
    fields = {"images": len(ranked), "draws": draws, "k_max": k_max, "noise": Gaussian(0.5), "labels": 20, **changes}
    run = provenance(**fields)
    dtype = vote_dtype(len(run.label_names))
    rows = zip(run.image_ids, true, ranked, strict=True)
    return stored_rows(folder, run, [VoteRow(name, tuple(own), votes.astype(dtype)) for name, own, votes in rows])


def stored_rows(folder: Path, run: Provenance, rows: Sequence[VoteRow | ImageFailure]) -> Votes:
    """These rows, and failures in the place of rows, as a finished run in a folder."""
    writer = VotesWriter(folder, run, shard_images=4)
    for shard in writer.missing():
        own = [rows[position] for position in writer.manifest.positions(shard)]
        failed = [row for row in own if isinstance(row, ImageFailure)]
        writer.write(shard, [row for row in own if isinstance(row, VoteRow)], failed)
    return read_votes(folder)


def random_votes(
    folder: Path, *, images: int = 11, draws: int = 200, labels: int = 20, seed: int = 0, **changes
) -> Votes:
    """Random votes of which some images have no label, and most have a few that are often hit."""
    rng = np.random.default_rng(seed)
    ranked = [random_ranked(rng, labels=labels, depth=5, draws=draws, spread=3.0) for _ in range(images)]
    true = []
    for image, votes in enumerate(ranked):
        often = np.argsort(-np.bincount(votes[:, :2].ravel(), minlength=labels))[:6]
        true.append(rng.permutation(often)[: image % 5].tolist())
    return stored_votes(folder, ranked, true, labels=labels, **changes)


THRESHOLD = {"rule": "threshold", "k_max": None, "score_threshold": 0.5}
UNLABELLED = {"labelled": False, "pilot_draws": 60}
ADAPTIVE = {"stops": (40, 100, 200), "stopping": {"radii": (0.5,), "alpha": 0.001}}
KINDS = {
    "top-k": {},
    "threshold": THRESHOLD,
    "unlabelled": UNLABELLED,
    "unlabelled threshold": THRESHOLD | UNLABELLED,
    "adaptive": ADAPTIVE,
    "adaptive threshold": THRESHOLD | ADAPTIVE,
    "adaptive unlabelled": UNLABELLED | ADAPTIVE,
    "adaptive unlabelled threshold": THRESHOLD | UNLABELLED | ADAPTIVE,
}


def votes_of_kind(
    folder: Path,
    *,
    images: int = 9,
    labels: int = 12,
    seed: int = 0,
    failed: Mapping[int, str] | None = None,
    **kind,
) -> Votes:
    """Random votes of any kind; in an adaptive run the images have stopped at each of the stops.

    The images at the places `failed` have failed for these reasons; the others are the same whichever these are.
    """
    rng = np.random.default_rng(seed)
    fields = {"images": images, "labels": labels, "draws": 200, "noise": Gaussian(0.5), "k_max": 4, **kind}
    run = provenance(**fields)
    rows: list[VoteRow | ImageFailure] = []
    for position, name in enumerate(run.image_ids):
        draws = run.stops[position % len(run.stops)] if run.stops else run.draws
        votes, shares = _image(rng, run, draws + run.pilot_draws)
        own = tuple(rng.permutation(np.argsort(-shares)[:5])[: position % 5].tolist()) if run.labelled else ()
        rows.append(VoteRow(name, own, votes(0, draws), votes(draws, None) if run.pilot_draws else None))
    for position, reason in (failed or {}).items():
        rows[position] = ImageFailure(run.image_ids[position], reason)
    return stored_rows(folder, run, rows)


def _image(rng: np.random.Generator, run: Provenance, draws: int) -> tuple[Callable[..., DrawVotes], np.ndarray]:
    """An image's votes from one draw to another, and how often each label is hit."""
    labels = len(run.label_names)
    if run.rule == "threshold":
        hits = random_sets(rng, labels=labels, draws=draws, spread=2.0)
        return lambda start, end: LabelSets.from_hits(hits[start:end]), hits.mean(axis=0)
    ranked = random_ranked(rng, labels=labels, depth=run.k_max, draws=draws, spread=3.0).astype(vote_dtype(labels))
    return lambda start, end: ranked[start:end], np.bincount(ranked[:, :2].ravel(), minlength=labels)


def config_of(votes: Votes, **changes) -> CertifyConfig:
    """A config that fits these votes."""
    rule = {"threshold": 0.4} if votes.rule == "threshold" else {"k": 3, "k_prime": 2}
    return CertifyConfig(**{**rule, "alpha": 0.01, **changes})


def set_radii(certificates: Certificates, method: str) -> list[Radii]:
    """For each image what this method proves of L as a set."""
    true, false = certificates.radii[method], certificates.false_radii
    return [Radii(*each) for each in zip(true, [None] * len(true) if false is None else false[method], strict=True)]


def source_of(votes: Votes) -> LabelSource:
    return "truth" if votes.provenance.labelled else "pilot"


def assert_same_certificates(found: Certificates, expected: Certificates) -> None:
    assert found.config == expected.config
    assert as_lists(found) == as_lists(expected)


def assert_same_curves(found: Sequence[Curve], expected: Sequence[Curve]) -> None:
    assert [as_lists(curve) for curve in found] == [as_lists(curve) for curve in expected]


def as_lists(value: object) -> object:
    """A dataclass as plain values that compare by ==."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list | Rows):
        return [as_lists(each) for each in value]
    if isinstance(value, Mapping):
        return [(key, as_lists(each)) for key, each in value.items()]
    if isinstance(value, pa.Table):
        return value.to_pylist()
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_lists(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
