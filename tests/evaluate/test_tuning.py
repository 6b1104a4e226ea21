"""Choosing a rule: the best by brute force, on the tuning images alone, which are then left out."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.evaluate.votes_cases import KINDS, random_votes, stored_rows, votes_of_kind

from multiguard.certify import Gaussian, Threshold, TopK, certified_radii
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate import TuneConfig, candidate_rules, read_tuned, tune

RULES = [TopK(6, k_prime) for k_prime in range(1, 6)]


def tuned_by(votes, radius, **more):
    """The choice of k' for k = 6, or of the threshold."""
    k = {"k": 6} if votes[0].rule == "top-k" else {}
    return tune(TuneConfig(radius=radius, **{**k, **more}), votes)


@pytest.fixture
def votes(tmp_path):
    return random_votes(tmp_path / "votes", images=21)


def recall(votes, position, rule, radius, alpha=0.001):
    """By the slow way: one image, one rule."""
    labels, run = votes.labels[position], votes.provenance
    options = {"num_labels": len(run.label_names), "noise": run.noise, "alpha": alpha, "method": "joint"}
    found = certified_radii(votes.ranked(position), labels, rule, **options)
    return np.sum(found.true >= radius) / len(labels)


@pytest.mark.parametrize("radius", [0.0, 0.2, 0.4])
def test_brute_force(votes, radius):
    """The chosen rule has the largest mean over the tuning images that have labels, and so says its score."""
    tuned = tuned_by([votes], radius, images=12, seed=3)
    places = [votes.ids.index(name) for name in tuned.ids if votes.labels[votes.ids.index(name)]]
    means = [np.mean([recall(votes, place, rule, radius) for place in places]) for rule in RULES]
    assert [one.score for one in tuned.candidates] == pytest.approx(means)
    assert tuned.best == tuned.candidates[int(np.argmax(means))]
    assert all(one.low <= one.score <= one.high for one in tuned.candidates)
    assert len(set(means)) > 2


def test_other_images(votes, tmp_path):
    """The votes of images that do not choose have no say: other votes in their place change nothing."""
    tuned = tuned_by([votes], 0.2, seed=1)
    assert len(tuned.ids) == 11
    rows = [row if row.image_id in tuned.ids else replace(row, votes=row.votes[:, ::-1]) for row in votes]
    changed = stored_rows(tmp_path / "changed", votes.provenance, rows)
    again = tuned_by([changed], 0.2, seed=1)
    assert (again.best, again.candidates, again.ids) == (tuned.best, tuned.candidates, tuned.ids)
    assert sorted((*tuned.ids, *tuned.others(votes).ids)) == sorted(votes.ids)


def test_random_sample(votes):
    """Another seed takes other images; more than there are means all."""
    samples = {tuned_by([votes], 0.1, seed=seed).ids for seed in range(4)}
    assert len(samples) == 4
    assert tuned_by([votes], 0.1, images=99).ids == votes.ids


def test_same_pixels(votes, tmp_path):
    """An image with the pixels of a tuning image is left out under any id."""
    hashes = [f"{number:064}" for number in range(len(votes))]
    rows = [replace(row, image_hash=own) for row, own in zip(votes, hashes, strict=True)]
    stored = stored_rows(tmp_path / "hashed", votes.provenance, rows)
    tuned = tuned_by([stored], 0.1)
    names = tuple(f"new {number}" for number in range(len(votes)))
    renamed = [replace(row, image_id=name) for row, name in zip(rows, names, strict=True)]
    other = stored_rows(tmp_path / "renamed", replace(votes.provenance, image_ids=names), renamed)
    kept = {hashes[names.index(name)] for name in tuned.others(other).ids}
    assert kept == set(hashes) - set(tuned.image_hashes)
    assert len(kept) == 10


def test_several_models(votes, tmp_path):
    """Among votes of several models the best rule on the best model is chosen; other votes are then refused."""
    worse = [replace(row, votes=np.roll(row.votes, 3, axis=1)) for row in votes]
    run = replace(votes.provenance, noise=Gaussian(0.25))
    other = stored_rows(tmp_path / "other", run, worse)
    tuned = tuned_by([other, votes], 0.1)
    assert [one.votes for one in tuned.candidates] == [0] * 5 + [1] * 5
    assert (tuned.best.votes, tuned.best.noise) == (1, "gaussian:0.5")
    assert tuned.best.score == max(one.score for one in tuned.candidates)
    with pytest.raises(InvalidInputError, match=r"was chosen for noise gaussian:0\.5, not for that of these votes"):
        tuned.others(other)
    model = stored_rows(tmp_path / "model", replace(votes.provenance, weights_hash="f" * 64), list(votes))
    with pytest.raises(InvalidInputError, match="was chosen for another model"):
        tuned.others(model)


def test_thresholds(tmp_path):
    """Votes of sets choose a threshold; recall prefers the smallest that certifies anything, F1 need not."""
    votes = votes_of_kind(tmp_path / "sets", images=12, **KINDS["threshold"])
    rules = candidate_rules(votes.provenance)
    assert (rules[0], rules[-1], len(rules)) == (Threshold(0.05), Threshold(0.95), 19)
    by_recall, by_f1 = tuned_by([votes], 0.0, metric="recall", alpha=0.1), tuned_by([votes], 0.0, alpha=0.1)
    assert by_f1.config.metric == "f1"
    scores = [one.score for one in by_recall.candidates]
    assert scores == sorted(scores, reverse=True)
    assert by_f1.best.config.threshold > by_recall.best.config.threshold


def test_candidates(votes):
    """k' ends at k, and at the ranks that the votes keep."""
    assert candidate_rules(votes.provenance, 3) == [TopK(3, 1), TopK(3, 2), TopK(3, 3)]
    assert candidate_rules(votes.provenance, 9)[-1] == TopK(9, 5)
    with pytest.raises(InvalidInputError, match="k is missing"):
        candidate_rules(votes.provenance)


def test_progress(votes):
    """Progress counts candidates, over all votes."""
    seen = []
    tune(TuneConfig(radius=0, k=2), [votes, votes], progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)


def test_refusals(votes, tmp_path):
    """What cannot be compared, or would be compared unfairly, is refused."""
    with pytest.raises(InvalidInputError, match="none of the 5 candidates certifies anything at radius 9"):
        tuned_by([votes], 9)
    with pytest.raises(InvalidInputError, match="metric: unknown value 'recal'"):
        tuned_by([votes], 0, metric="recal")
    with pytest.raises(InvalidInputError, match="nothing to choose from"):
        tune(TuneConfig(radius=0), [])
    with pytest.raises(InvalidInputError, match="radius is -1"):
        tuned_by([votes], -1)
    with pytest.raises(VotesError, match="adaptive: their draws went where one rule needed them"):
        tuned_by([votes_of_kind(tmp_path / "adaptive", **KINDS["adaptive"])], 0)
    with pytest.raises(VotesError, match="need the true labels"):
        tuned_by([votes_of_kind(tmp_path / "unlabelled", **KINDS["unlabelled"])], 0)
    with pytest.raises(VotesError, match="different labels or rules"):
        tuned_by([votes, votes_of_kind(tmp_path / "sets", **KINDS["threshold"])], 0)
    other = stored_rows(tmp_path / "labels", votes.provenance, [replace(row, labels=(19,)) for row in votes])
    with pytest.raises(VotesError, match="has other labels in one of the votes folders"):
        tuned_by([votes, other], 0)
    whole = tuned_by([votes], 0.0, images=21)
    with pytest.raises(InvalidInputError, match="all 21 images of these votes chose"):
        whole.others(votes)


@pytest.mark.parametrize("kind", ["top-k", "threshold"])
def test_round_trip(tmp_path, kind):
    """Every field of either rule comes back."""
    votes, path = votes_of_kind(tmp_path / "votes", **KINDS[kind]), tmp_path / "tuned.json"
    tuned = tune(TuneConfig(radius=0, k=3 if kind == "top-k" else None, alpha=0.1), [votes], out=path)
    assert msgspec.to_builtins(read_tuned(path)) == msgspec.to_builtins(tuned)
    assert read_tuned(path).others(votes).ids == tuned.others(votes).ids


def test_replaced_record(votes, tmp_path):
    """The same choice again is found; another one needs force; a file of somebody else is never replaced."""
    path, other = tmp_path / "tuned.json", TuneConfig(radius=0.1, k=7)
    first, again = (tune(TuneConfig(radius=0.1, k=6), [votes], out=path) for _ in range(2))
    assert msgspec.to_builtins(again) == msgspec.to_builtins(first)
    with pytest.raises(InvalidInputError, match="holds another choice already"):
        tune(other, [votes], out=path)
    tune(other, [votes], out=path, force=True)
    assert read_tuned(path).best.config.k == 7
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(path)
    for name in ("mine.json", "link.json"):
        with pytest.raises(InvalidInputError, match="is not as multiguard wrote it"):
            tune(other, [votes], out=tmp_path / name, force=True)
    assert (tmp_path / "mine.json").read_text() == "{}"


def test_damaged_record(votes, tmp_path):
    """An edited record is refused: a tuning image that is struck out would be certified."""
    path = tmp_path / "tuned.json"
    tune(TuneConfig(radius=0.1, k=6), [votes], out=path)
    whole = json.loads(path.read_text())
    for name, value in (("ids", whole["ids"][1:]), ("chosen", 7), ("version", 1)):
        path.write_text(json.dumps({**whole, name: value}))
        with pytest.raises(DataError, match=r"tuned\.json cannot be used: "):
            read_tuned(path)
    path.write_bytes(b"\xff")
    for place, message in ((path, "cannot be used"), (tmp_path / "none.json", "No such file"), (tmp_path, "cannot")):
        with pytest.raises(DataError, match=message):
            read_tuned(place)
