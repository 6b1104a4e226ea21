"""One config object: its parameters, and what a run of votes can provide."""

import pytest
from tests.votes.vote_runs import provenance

from multiguard.certify import Threshold, TopK
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig

CONFIG = CertifyConfig(TopK(5, 2), 0.01)


def test_parameters():
    """The parameters are those of the rule, n and alpha; each can be varied."""
    assert CONFIG.parameters == {"k": 5, "k_prime": 2, "n": None, "alpha": 0.01}
    assert CertifyConfig(Threshold(0.5)).parameters == {"threshold": 0.5, "n": None, "alpha": 0.001}
    for name, value in {"k": 3, "k_prime": 1, "n": 7, "alpha": 0.5}.items():
        varied = CONFIG.vary(name, value)
        assert varied.parameters == {**CONFIG.parameters, name: value}
        assert varied.vary(name, CONFIG.parameters[name]) == CONFIG


def test_record():
    """The record has the names of the files."""
    assert CONFIG.record == {"k": 5, "k_prime": 2, "alpha": 0.01, "draws": None}
    assert CertifyConfig(Threshold(0.5), n=9).record == {"threshold": 0.5, "alpha": 0.001, "draws": 9}


def test_resolved_n():
    """n is a number after the config was resolved, and before only if it was given."""
    run = provenance(draws=7)
    assert CONFIG.resolve(run) == CertifyConfig(TopK(5, 2), 0.01, 7)
    assert CONFIG.vary("n", 3).resolve(run).draws == 3
    with pytest.raises(InvalidInputError, match="n is None"):
        _ = CONFIG.draws
    for n in (0, 8, 1.5, True):
        with pytest.raises(InvalidInputError, match=f"n = {n}, but these votes hold 7 draws"):
            CONFIG.vary("n", n).resolve(run)
