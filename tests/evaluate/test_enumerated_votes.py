"""Votes of every band: certified exactly, whoever chose the labels, without draws to choose."""

import numpy as np
import pytest
from tests.evaluate.votes_cases import UNLABELLED, random_votes, votes_of_kind

from multiguard.certify import TopK, certified_radii, label_radii
from multiguard.certify.noise import BandAblation
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, certify_votes, curves, sweep

BANDS = BandAblation(3, 24)
CONFIG = CertifyConfig(TopK(k=3, k_prime=2))


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    return random_votes(tmp_path_factory.mktemp("bands"), draws=BANDS.columns, noise=BANDS)


def test_certificates(votes):
    """The radii are those of the enumerated certificate, whole numbers, for any alpha."""
    found = certify_votes(votes, CONFIG)
    assert found.methods == ("enumerated",)
    assert found.noise == BANDS
    other = certify_votes(votes, CertifyConfig(CONFIG.rule, alpha=0.5))
    for index, labels in enumerate(votes.labels):
        radii = found.radii["enumerated"][index]
        if labels:
            options = {"noise": BANDS, "num_labels": 20, "method": "enumerated"}
            expected = certified_radii(votes.ranked(index), labels, CONFIG.rule, **options)
            assert radii.tolist() == expected.true.tolist()
        assert radii.tolist() == other.radii["enumerated"][index].tolist()
        assert np.all((radii == np.floor(radii)) | np.isinf(radii))


def test_chosen_labels(tmp_path):
    """Without ground truth the votes themselves choose the labels, and every label has its own exact radius."""
    kind = UNLABELLED | {"pilot_draws": 0, "noise": BANDS, "draws": BANDS.columns}
    votes = votes_of_kind(tmp_path, **kind)
    found = certify_votes(votes, CONFIG, labels="pilot")
    for index, labels in enumerate(found.labels):
        ranked = votes.ranked(index)
        assert labels == CONFIG.rule.returned(ranked, 12)
        own = label_radii(ranked, labels, CONFIG.rule, noise=BANDS, num_labels=12, method="enumerated")
        assert found.label_radii[index].tolist() == own.tolist()


def test_refusals(votes):
    """Other methods, fewer bands, sweeps of n and alpha, and half a pixel are refused."""
    with pytest.raises(InvalidInputError, match="needs random draws"):
        certify_votes(votes, CONFIG, methods=["joint"])
    with pytest.raises(InvalidInputError, match="must vote; leave n out"):
        certify_votes(votes, CertifyConfig(CONFIG.rule, n=10))
    for vary in ({"n": [10]}, {"alpha": [0.1]}):
        with pytest.raises(InvalidInputError, match="nothing is random"):
            sweep(votes, CONFIG, vary, [0.0])
    with pytest.raises(InvalidInputError, match="give whole numbers"):
        curves(certify_votes(votes, CONFIG), [0.0, 1.5])


def test_sampled_votes(tmp_path):
    """Votes of random draws are not certified by bands."""
    with pytest.raises(InvalidInputError, match="is for band noise"):
        certify_votes(random_votes(tmp_path, draws=40), CONFIG, methods=["enumerated"])
