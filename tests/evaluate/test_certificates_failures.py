"""Images that could not be voted on: nothing is claimed of them, no average has them, every summary counts them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.evaluate.votes_cases import KINDS, as_lists, config_of, source_of, votes_of_kind

from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate import certify_votes, curves, label_scores, sweep
from multiguard.results import read_certificates, read_curves, write_certificates

RADII = np.array([0.0, 0.25, 0.5])
FAILED = {1: "the file is empty", 4: "draw 7: the classifier returned a score that is NaN or infinite", 8: "gone"}


@pytest.mark.parametrize("kind", ["top-k", "adaptive", "unlabelled threshold"])
def test_other_images(tmp_path, kind):
    """The other images are certified and averaged as if the failed ones had never been there."""
    some = votes_of_kind(tmp_path / "some", failed=FAILED, **KINDS[kind])
    every = votes_of_kind(tmp_path / "every", **KINDS[kind])
    asked, source = config_of(some), source_of(some)
    found, whole = (certify_votes(votes, asked, labels=source) for votes in (some, every))
    kept = [place for place in range(9) if place not in FAILED]
    assert found.ids == tuple(whole.ids[place] for place in kept)
    for name in ("labels", "label_radii", "predicted", "predicted_hits", "draws"):
        assert as_lists(getattr(found, name)) == [as_lists(getattr(whole, name)[place]) for place in kept]
    assert as_lists(found.radii["joint"]) == [as_lists(whole.radii["joint"][place]) for place in kept]
    assert found.failures == tuple(ImageFailure(some.provenance.image_ids[i], reason) for i, reason in FAILED.items())
    made = curves(found, RADII)
    assert [curve.failed for curve in made] == [3, 3]
    assert all(curve.scores.images + curve.scores.without_labels == 6 for curve in made)
    recall = next(curve.scores.recall for curve in made if curve.averaging == "mean")
    fractions = [np.searchsorted(-radii, -RADII, side="right") / len(own) for radii, own in certified(found)]
    np.testing.assert_allclose(recall, np.mean(fractions, axis=0))


def certified(found):
    """The radii and labels of each image that has labels."""
    images = zip(found.radii["joint"], found.labels, strict=True)
    return [(np.maximum.accumulate(radii[::-1])[::-1], own) for radii, own in images if own]


@pytest.fixture
def written(tmp_path):
    votes = votes_of_kind(tmp_path / "votes", failed=FAILED)
    asked = config_of(votes)
    proved = certify_votes(votes, asked)
    made = [*curves(proved, RADII), *sweep(votes, asked, {"k": [2, 4], "n": [100]}, RADII)]
    write_certificates(tmp_path / "certificates", proved, made, radius=RADII, votes=votes)
    return votes, proved, made, tmp_path / "certificates"


def test_failures_in_files(written):
    """Every file of the folder counts the failures."""
    _, proved, made, folder = written
    found = read_certificates(folder)
    assert found.certificates.failures == proved.failures
    assert len(made) == 8
    assert {curve.failed for curve in read_curves(folder / "curves.csv")} == {3}
    assert {label.failed for label in found.labels} == {3} == {label.failed for label in label_scores(proved, RADII)}


def test_other_failures(written, tmp_path):
    """Certificates and curves that count other failures are refused."""
    votes, proved, made, _ = written
    fewer = replace(proved, failures=proved.failures[1:])
    with pytest.raises(InvalidInputError, match="not of the images of these votes"):
        write_certificates(tmp_path / "other", fewer, made, radius=RADII, votes=votes)
    wrong = [replace(made[0], failed=0), *made[1:]]
    with pytest.raises(InvalidInputError, match="failed images is 0, in the certificates 3"):
        write_certificates(tmp_path / "other", proved, wrong, radius=RADII, votes=votes)


def test_only_failures(tmp_path):
    """Votes of nothing but failures certify nothing."""
    votes = votes_of_kind(tmp_path, images=2, failed={0: "gone", 1: "gone"})
    with pytest.raises(InvalidInputError, match="nothing to certify: all 2 images failed"):
        certify_votes(votes, config_of(votes))
