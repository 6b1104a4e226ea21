"""Votes of every band: certified exactly, whoever chose the labels, without draws to choose."""

import numpy as np
import pytest
from tests.evaluate.votes_cases import UNLABELLED, random_votes, votes_of_kind

from multiguard.certify import BandAblation, certified_radii, label_radii
from multiguard.evaluate import CertifyConfig, make_certificates

BANDS = BandAblation(3, 24)
CONFIG = CertifyConfig(k=3, k_prime=2)


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    return random_votes(tmp_path_factory.mktemp("bands"), draws=BANDS.columns, noise=BANDS)


def test_certificates(votes):
    """The radii are those of the enumerated certificate, whole numbers, for any alpha."""
    found = make_certificates(CONFIG, votes)
    assert found.methods == ("enumerated",)
    assert found.noise == BANDS
    other = make_certificates(CertifyConfig(alpha=0.5).with_rule(CONFIG.rule), votes)
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
    found = make_certificates(CONFIG, votes, labels="pilot")
    for index, labels in enumerate(found.labels):
        ranked = votes.ranked(index)
        assert labels == CONFIG.rule.returned(ranked, 12)
        own = label_radii(ranked, labels, CONFIG.rule, noise=BANDS, num_labels=12, method="enumerated")
        assert found.label_radii[index].tolist() == own.tolist()
