"""Images that could not be voted on, in the files: listed, counted everywhere, and no one can remove them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.evaluate.votes_cases import config_of, votes_of_kind
from tests.results.stored_metadata import edit_metadata, load_metadata

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import certify_votes, curves, label_scores, sweep
from multiguard.results import read_certificates, read_curves, write_certificates

RADII = np.array([0.0, 0.25, 0.5])
FAILED = {1: "the file is empty", 4: "draw 7: the classifier returned a score that is NaN or infinite", 8: "gone"}


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """Votes with three image failures, their certificates, and the curves and sweeps of these."""
    votes = votes_of_kind(tmp_path_factory.mktemp("run") / "votes", failed=FAILED)
    config = config_of(votes)
    certificates = certify_votes(votes, config)
    return votes, certificates, curves(certificates, RADII) + sweep(votes, config, {"k": [2, 4], "n": [100]}, RADII)


@pytest.fixture
def folder(certified, tmp_path):
    votes, certificates, made = certified
    write_certificates(tmp_path / "certificates", certificates, made, radius=RADII, votes=votes)
    return tmp_path / "certificates"


def test_failures_in_files(certified, folder):
    """Every file of the folder counts the failures."""
    _, certificates, made = certified
    found = read_certificates(folder)
    assert found.certificates.failures == certificates.failures
    assert len(made) == 8
    assert {curve.failed for curve in read_curves(folder / "curves.csv")} == {3}
    assert {label.failed for label in found.labels} == {3} == {one.failed for one in label_scores(certificates, RADII)}
    stored = load_metadata(folder / "certificates.parquet")["failures"]
    assert stored == [{"image_id": failure.image_id, "reason": failure.reason} for failure in certificates.failures]


def test_removed_failure(folder):
    """A failure cannot be removed from the list."""
    stored = load_metadata(folder / "certificates.parquet")
    del stored["failures"][0]
    edit_metadata(folder / "certificates.parquet", stored)
    with pytest.raises(DataError, match="edited"):
        read_certificates(folder)


def test_other_failures(certified, tmp_path):
    """Certificates and curves that count other failures are refused."""
    votes, certificates, made = certified
    fewer = replace(certificates, failures=certificates.failures[1:])
    with pytest.raises(InvalidInputError, match="not of the images of these votes"):
        write_certificates(tmp_path / "other", fewer, made, radius=RADII, votes=votes)
    wrong = [replace(made[0], failed=0), *made[1:]]
    with pytest.raises(InvalidInputError, match="the number of failed images is 0, in the certificates 3"):
        write_certificates(tmp_path / "other", certificates, wrong, radius=RADII, votes=votes)
