"""Labels alone: each is the certificate of L = {label}, in the order of the labels."""

import numpy as np
import pytest
from tests.certify.cases import random_ranked

from multiguard.certify import Threshold, TopK, certified_radii, hits_from_ranked, label_radii
from multiguard.errors import InvalidInputError

OPTIONS = {"num_labels": 9, "sigma": 0.5}


@pytest.mark.parametrize("k_prime", [1, 3])
def test_certificate_of_one(k_prime: int) -> None:
    """The radius of a label is that of the set that holds it alone, its draws with several rivals included."""
    ranked = random_ranked(np.random.default_rng(3), labels=9, depth=3, draws=400, spread=6.0)
    labels = np.argsort(np.bincount(ranked[:, :k_prime].ravel(), minlength=9))[-2:]
    found = label_radii(ranked, labels, TopK(4, k_prime), **OPTIONS)
    alone = [certified_radii(ranked, [label], TopK(4, k_prime), method="joint", **OPTIONS).true[0] for label in labels]
    np.testing.assert_array_equal(found, alone)
    assert np.any(found > 0)


@pytest.mark.parametrize("rule", [TopK(4, 2), Threshold(0.4)], ids=str)
def test_refusals(rule: TopK | Threshold) -> None:
    """Labels named twice are refused, and so are bad votes, even where no label is asked about."""
    ranked = random_ranked(np.random.default_rng(4), labels=9, depth=2, draws=30, spread=2.0)
    votes = ranked if isinstance(rule, TopK) else hits_from_ranked(ranked, k_prime=2, num_labels=9)
    assert label_radii(votes, [], rule, **OPTIONS).shape == (0,)
    with pytest.raises(InvalidInputError, match="labels"):
        label_radii(votes, [1, 1], rule, **OPTIONS)
    with pytest.raises(InvalidInputError):
        label_radii(votes.astype(np.float64), [], rule, **OPTIONS)
