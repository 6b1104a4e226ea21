"""Certificates of a votes folder are what certify proves of each image."""

import subprocess
import sys

import numpy as np
import pytest
from tests.evaluate.votes_cases import assert_same_certificates, random_votes, stored_votes
from tests.shared_data import COCO_VOTES

from multiguard.certify import Gaussian, TopK, certified_radii, hits_from_ranked
from multiguard.evaluate import CertifyConfig, SweepConfig, certification, certify_votes, curves, make_certificates


@pytest.fixture
def votes(tmp_path):
    return random_votes(tmp_path / "votes")


def hits_of(votes, position: int, config: CertifyConfig) -> np.ndarray:
    return hits_from_ranked(votes.ranked(position)[: config.draws], k_prime=config.rule.k_prime, num_labels=20)


@pytest.mark.parametrize("n", [None, 150])
def test_images_alone(votes, n) -> None:
    """Every claim is that of the image alone."""
    config = CertifyConfig(3, 2, alpha=0.01, draws=n)
    methods = ("jia", "joint", "paper")
    found = make_certificates(config.replace(methods=tuple(methods)), votes)
    assert found.methods == methods
    assert found.config.draws == (n or 200)
    assert (found.ids, found.labels, found.noise) == (votes.ids, votes.labels, Gaussian(0.5))
    options = {"rule": TopK(3, 2), "sigma": 0.5, "alpha": 0.01}
    finite = 0
    for position, true in enumerate(votes.labels):
        hits = hits_of(votes, position, found.config)
        for method in methods if true else ():
            expected = certified_radii(hits, true, method=method, **options).true
            np.testing.assert_array_equal(found.radii[method][position], expected)
            finite += int(np.isfinite(expected).sum())
        assert found.label_radii[position].shape == (len(true),)
        for label, radius in zip(true, found.label_radii[position], strict=True):
            assert radius == certified_radii(hits, [label], method="joint", **options).true[0]
        ranked = votes.ranked(position)[: found.config.draws]
        assert found.predicted[position] == TopK(3, 2).returned(ranked, 20)
        assert found.predicted_hits[position] == tuple(hits.sum(axis=0)[list(found.predicted[position])])
    assert finite > 20
    assert () in votes.labels


def test_ties(tmp_path) -> None:
    """Of equal hits the smaller label comes first, and a label without a hit is not predicted."""
    ranked = np.array([[207, 2], [2, 207], [5, 9], [9, 5], [5, 9]])
    found = make_certificates(CertifyConfig(250, 2), stored_votes(tmp_path, [ranked], [[2]], labels=300))
    assert found.predicted == ((5, 9, 2, 207),)
    assert found.predicted_hits == ((3, 3, 2, 2),)


def test_label_order(tmp_path) -> None:
    """The radii of labels are in the order of the labels."""
    ranked = np.random.default_rng(0).permutation([[0, 1]] * 180 + [[0, 2]] * 20)
    there = make_certificates(CertifyConfig(2, 2), stored_votes(tmp_path / "a", [ranked], [[0, 1]]))
    back = make_certificates(CertifyConfig(2, 2), stored_votes(tmp_path / "b", [ranked], [[1, 0]]))
    assert there.label_radii[0][0] > there.label_radii[0][1] > 0
    assert there.label_radii[0].tolist() == back.label_radii[0][::-1].tolist()


@pytest.mark.parametrize("limit", [("_IMAGES_AT_A_TIME", 3), ("_BYTES_AT_A_TIME", 1)])
def test_portions(votes, monkeypatch, limit) -> None:
    """Portions change nothing, and progress never goes back."""
    config, methods = CertifyConfig(3, 2), ("joint", "paper")
    whole = make_certificates(config.replace(methods=tuple(methods)), votes)
    monkeypatch.setattr(certification, *limit)
    told = []
    parts = make_certificates(
        config.replace(methods=tuple(methods)), votes, progress=lambda done, total: told.append((done, total))
    )
    assert_same_certificates(parts, whole)
    assert told == sorted(told)
    assert told[-1] == (11, 11)
    assert len(told) > 6
    assert (11, 11) not in told[:-1]


def test_single_read(votes) -> None:
    """Every image is read once, for a sweep too."""
    read, of_file = [], votes._read
    votes._read = lambda positions: (read.extend(positions), of_file(positions))[1]
    certify_votes(CertifyConfig(3, 2, methods=("joint", "paper", "jia")), votes)
    assert read == list(range(11))
    certify_votes(CertifyConfig(3, 2), votes, sweep=SweepConfig(k=(1, 2, 4), n=(10, 20)))
    assert read == list(range(11)) * 2


def test_size(votes) -> None:
    """What is kept of an image are columns of its numbers: less than half a kilobyte, however many images there are."""
    found = make_certificates(CertifyConfig(3, 2, methods=("joint", "paper")), votes)
    assert found.table.nbytes < 500 * len(found)
    assert all(column.num_chunks == 1 for column in found.table.columns)


def test_light_import() -> None:
    """Importing evaluate imports neither torch nor pyarrow nor Pillow."""
    code = "import sys, multiguard.evaluate; sys.exit(any(name in sys.modules for name in ('torch', 'pyarrow', 'PIL')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not COCO_VOTES.exists(), reason="the COCO votes are not beside the repository")
def test_coco_recall(tmp_path) -> None:
    """Certified recall of the COCO votes is what it was."""
    with np.load(COCO_VOTES) as stored:
        ranked, labels = stored["votes"], [np.flatnonzero(row).tolist() for row in stored["labels"]]
    votes = stored_votes(tmp_path, list(ranked), labels, labels=80)
    found = make_certificates(CertifyConfig(10, 3, methods=["joint"]), votes)
    mean, pooled = curves(found, 0.5 * np.array([0, 0.5, 1, 1.5, 2, 2.5]))
    assert (mean.averaging, pooled.averaging) == ("mean", "pooled")
    assert (mean.scores.images, mean.scores.without_labels) == (500, 0)
    np.testing.assert_allclose(100 * mean.scores.recall, [57.2, 50.8, 44.2, 39.5, 33.6, 29.0], atol=0.06)
