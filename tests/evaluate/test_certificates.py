"""Certificates of a votes folder are what certify proves of each image."""

import subprocess
import sys

import numpy as np
import pytest
from tests.evaluate.votes_cases import assert_same_certificates, random_votes, stored_votes
from tests.shared_data import COCO_VOTES

from multiguard.certify import TopK, certified_radii, hits_from_ranked
from multiguard.certify.noise import Gaussian
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, certificates, certify_votes, curves


@pytest.fixture
def votes(tmp_path):
    return random_votes(tmp_path / "votes")


def hits_of(votes, position: int, config: CertifyConfig) -> np.ndarray:
    return hits_from_ranked(votes.ranked(position)[: config.n], k_prime=config.rule.k_prime, num_labels=20)


@pytest.mark.parametrize("n", [None, 150])
def test_images_alone(votes, n) -> None:
    """Every claim is that of the image alone."""
    config = CertifyConfig(TopK(3, 2), alpha=0.01, n=n)
    methods = ("jia", "joint", "paper")
    found = certify_votes(votes, config, methods=methods)
    assert found.methods == methods
    assert found.config.n == (n or 200)
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
        ranked = votes.ranked(position)[: found.config.n]
        assert found.predicted[position] == TopK(3, 2).returned(ranked, 20)
        assert found.predicted_hits[position] == tuple(hits.sum(axis=0)[list(found.predicted[position])])
    assert finite > 20
    assert () in votes.labels


def test_ties(tmp_path) -> None:
    """Of equal hits the smaller label comes first, and a label without a hit is not predicted."""
    ranked = np.array([[207, 2], [2, 207], [5, 9], [9, 5], [5, 9]])
    found = certify_votes(stored_votes(tmp_path, [ranked], [[2]], labels=300), CertifyConfig(TopK(250, 2)))
    assert found.predicted == ((5, 9, 2, 207),)
    assert found.predicted_hits == ((3, 3, 2, 2),)


def test_label_order(tmp_path) -> None:
    """The radii of labels are in the order of the labels."""
    ranked = np.array([[0, 1]] * 180 + [[0, 2]] * 20)
    there = certify_votes(stored_votes(tmp_path / "a", [ranked], [[0, 1]]), CertifyConfig(TopK(2, 2)))
    back = certify_votes(stored_votes(tmp_path / "b", [ranked], [[1, 0]]), CertifyConfig(TopK(2, 2)))
    assert there.label_radii[0][0] > there.label_radii[0][1] > 0
    assert there.label_radii[0].tolist() == back.label_radii[0][::-1].tolist()


@pytest.mark.parametrize("limit", [("_IMAGES_AT_A_TIME", 3), ("_BYTES_AT_A_TIME", 1)])
def test_portions(votes, monkeypatch, limit) -> None:
    """Portions change nothing, and progress never goes back."""
    config, methods = CertifyConfig(TopK(3, 2)), ("joint", "paper")
    whole = certify_votes(votes, config, methods=methods)
    monkeypatch.setattr(certificates, *limit)
    told = []
    parts = certify_votes(votes, config, methods=methods, progress=lambda done, total: told.append((done, total)))
    assert_same_certificates(parts, whole)
    assert told == sorted(told)
    assert told[-1] == (11, 11)
    assert len(told) > 6
    assert (11, 11) not in told[:-1]


def test_single_read(votes, monkeypatch) -> None:
    """Every image is read once."""
    read, of_file = [], votes._read
    monkeypatch.setattr(votes, "_read", lambda positions: (read.extend(positions), of_file(positions))[1])
    certify_votes(votes, CertifyConfig(TopK(3, 2)), methods=("joint", "paper", "jia"))
    assert read == list(range(11))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CertifyConfig(TopK(3, 6)), r"k_prime = 6, but these votes keep 5 labels per draw"),
        (CertifyConfig(TopK(21, 2)), r"k must be .* at most the number of labels, 20"),
        (CertifyConfig(TopK(3, 2), alpha=0.0), r"alpha"),
        (CertifyConfig(TopK(3, 2), n=201), r"n = 201, but these votes hold 200 draws"),
        (CertifyConfig(TopK(3, 2), n=0), r"n = 0, .* use 1 to 200"),
        (CertifyConfig(TopK(3, 2), n=1.5), r"n = 1\.5"),
        (CertifyConfig(TopK(3, 2), n=True), r"n = True"),
    ],
)
def test_refused_configs(votes, config, message) -> None:
    """Configs that the votes cannot provide are refused."""
    with pytest.raises(InvalidInputError, match=message):
        certify_votes(votes, config)


@pytest.mark.parametrize(
    ("methods", "message"),
    [((), "at least one"), ("joint", "a list of methods"), (("jont",), "did you mean 'joint'")],
)
def test_refused_methods(votes, methods, message) -> None:
    """Unknown methods are refused."""
    with pytest.raises(InvalidInputError, match=message):
        certify_votes(votes, CertifyConfig(TopK(3, 2)), methods=methods)


def test_plain_numbers(votes) -> None:
    """A config holds plain numbers, however they were given."""
    given = CertifyConfig(TopK(np.int64(3), np.int8(2)), alpha=np.float64(0.01), n=np.int64(100))
    config = certify_votes(votes, given).config
    numbers = (config.rule.k, config.rule.k_prime, config.alpha, config.n)
    assert [type(value) for value in numbers] == [int, int, float, int]
    assert config == CertifyConfig(TopK(3, 2), 0.01, 100)


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
    found = certify_votes(votes, CertifyConfig(TopK(10, 3)), methods=["joint"])
    mean, pooled = curves(found, 0.5 * np.array([0, 0.5, 1, 1.5, 2, 2.5]))
    assert (mean.averaging, pooled.averaging) == ("mean", "pooled")
    assert (mean.scores.images, mean.scores.without_labels) == (500, 0)
    np.testing.assert_allclose(100 * mean.scores.recall, [57.2, 50.8, 44.2, 39.5, 33.6, 29.0], atol=0.06)
