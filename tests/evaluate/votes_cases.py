"""Votes folders of known content, and what two results must agree in."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.certify.cases import random_ranked
from tests.votes.vote_runs import provenance

from multiguard.evaluate import Certificates, Curve
from multiguard.votes import VoteRow, Votes, VotesWriter, read_votes, vote_dtype


def stored_votes(folder: Path, ranked: Sequence[np.ndarray], true: Sequence[Sequence[int]], **changes) -> Votes:
    """These votes as a finished run in a folder."""
    draws, k_max = ranked[0].shape
    changes = {"sigma": 0.5, "labels": 20, **changes}
    run = provenance(images=len(ranked), draws=draws, k_max=k_max, **changes)
    writer = VotesWriter(folder, run, shard_images=4)
    dtype = vote_dtype(len(run.label_names))
    rows = [
        VoteRow(name, tuple(labels), votes.astype(dtype))
        for name, labels, votes in zip(run.image_ids, true, ranked, strict=True)
    ]
    for shard in writer.missing():
        writer.write(shard, [rows[position] for position in writer.manifest.positions(shard)])
    return read_votes(folder)


def random_votes(
    folder: Path, *, images: int = 11, draws: int = 200, labels: int = 20, seed: int = 0, **changes
) -> Votes:
    """Random votes of which some pictures have no label, and most have a few that are often hit."""
    rng = np.random.default_rng(seed)
    ranked = [random_ranked(rng, labels=labels, depth=5, draws=draws, spread=3.0) for _ in range(images)]
    true = []
    for picture, votes in enumerate(ranked):
        often = np.argsort(-np.bincount(votes[:, :2].ravel(), minlength=labels))[:6]
        true.append(rng.permutation(often)[: picture % 5].tolist())
    return stored_votes(folder, ranked, true, labels=labels, **changes)


def assert_same_certificates(found: Certificates, expected: Certificates) -> None:
    for name in ("setting", "sigma", "label_names", "ids", "labels", "methods", "predicted", "predicted_hits"):
        assert getattr(found, name) == getattr(expected, name), name
    for method in expected.methods:
        assert [each.tolist() for each in found.radii[method]] == [each.tolist() for each in expected.radii[method]]
    assert [each.tolist() for each in found.label_radii] == [each.tolist() for each in expected.label_radii]


def assert_same_curves(found: Sequence[Curve], expected: Sequence[Curve]) -> None:
    assert [as_lists(curve) for curve in found] == [as_lists(curve) for curve in expected]


def as_lists(value: object) -> object:
    """A dataclass as plain values that compare by ==."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [as_lists(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_lists(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
