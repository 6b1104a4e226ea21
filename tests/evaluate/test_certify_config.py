"""One config: its rule and parameters, and what a run of votes can provide."""

import pytest
from tests.votes.vote_runs import provenance

from multiguard.certify import BandAblation, Threshold, TopK
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate import CertifyConfig, SweepConfig

CONFIG = CertifyConfig(5, 2, alpha=0.01)
RUN = provenance(draws=7, k_max=2)
SETS = provenance(draws=7, rule="threshold", k_max=None, score_threshold=0.5)
ADAPTIVE = provenance(draws=7, stops=(3, 7), stopping={"radii": (0.5,)})


def test_rules():
    """The options say which rule it is."""
    assert (CONFIG.rule, CertifyConfig(threshold=0.5).rule) == (TopK(5, 2), Threshold(0.5))
    assert CONFIG.with_rule(Threshold(0.3)) == CertifyConfig(threshold=0.3, alpha=0.01)
    with pytest.raises(InvalidInputError, match="k is missing"):
        _ = CertifyConfig().rule
    with pytest.raises(InvalidInputError, match="threshold is missing"):
        CertifyConfig().resolve(SETS)
    with pytest.raises(InvalidInputError, match="threshold belongs to the threshold rule"):
        CertifyConfig(5, 2, threshold=0.5).resolve(RUN)


def test_resolved():
    """Draws and methods are named once the config was resolved."""
    assert CONFIG.resolve(RUN) == CONFIG.replace(draws=7, methods=("joint",))
    assert CONFIG.vary("n", 3).resolve(RUN).draws == 3
    assert CertifyConfig(5, 2, methods=("all",)).resolve(provenance(draws=100)).methods[:2] == ("coupled", "joint")
    assert CertifyConfig(5, 2, methods=("paper", "all", "paper")).resolve(RUN).methods[0] == "joint"
    assert CertifyConfig(5, 2, methods=("all",)).resolve(ADAPTIVE).methods == ("betting",)


@pytest.mark.parametrize(
    ("make", "run", "message"),
    [
        (lambda: CertifyConfig(5, 2, alpha=0.0), RUN, "alpha is the error allowed"),
        (lambda: CertifyConfig(5, 2, draws=0), RUN, "draws is 0; expected"),
        (lambda: CertifyConfig(5, 2, draws=1.5), RUN, r"draws is 1\.5; expected"),
        (lambda: CertifyConfig(5, 2, draws=8), RUN, "draws is 8, but these votes hold 7 draws"),
        (lambda: CertifyConfig(5, 3), RUN, "k_prime = 3, but these votes keep 2 labels per draw"),
        (lambda: CertifyConfig(99, 2), RUN, "k must be .* at most the number of labels"),
        (lambda: CertifyConfig(5, 2, methods=("jont",)), RUN, "did you mean 'joint'"),
        (lambda: CertifyConfig(5, 2, methods="joint"), RUN, "methods is 'joint'; expected a list"),
        (lambda: CertifyConfig(5, 2, methods=("enumerated",)), RUN, "is for band noise"),
        (lambda: CertifyConfig(threshold=0.5, methods=("paper",)), SETS, "unknown method of the threshold rule"),
        (lambda: CertifyConfig(threshold=0.5), RUN, "k_prime is missing; of ranked votes the threshold rule"),
        (lambda: CertifyConfig(5, 2), SETS, "votes of the threshold rule.*--threshold"),
        (lambda: CertifyConfig(5, 2, draws=3), ADAPTIVE, "draws is 3, but these votes are adaptive"),
        (lambda: CertifyConfig(5, 2, methods=("betting", "joint")), ADAPTIVE, "'joint' needs a number of draws fixed"),
    ],
)
def test_refusals(make, run, message):
    """What the votes cannot provide is refused."""
    with pytest.raises((InvalidInputError, VotesError), match=message):
        make().resolve(run)


def test_bands():
    """Every band votes: nothing is random, and no n can be chosen."""
    run = provenance(draws=24, noise=BandAblation(3, 24), k_max=2)
    assert CONFIG.resolve(run).methods == ("enumerated",)
    for config, message in ((CONFIG.vary("n", 10), "must vote; leave draws out"), (CONFIG, "nothing is random")):
        with pytest.raises(InvalidInputError, match=message):
            SweepConfig(n=(10,)).configs(config, run)
    with pytest.raises(InvalidInputError, match="needs random draws"):
        CONFIG.replace(methods=("joint",)).resolve(run)


def test_sweep_configs():
    """Each point once, without the base; where no method is named, each with the default of its own draws."""
    many = provenance(draws=200, k_max=2)
    assert [one.methods for one in SweepConfig(n=(20, 100)).configs(CONFIG, many)] == [("joint",), ("coupled",)]
    named = CONFIG.replace(methods=("coupled",))
    assert [one.methods for one in SweepConfig(n=(20,)).configs(named, many)] == [("coupled",)]
    found = SweepConfig(k=(1, 5, 1), n=(3, 7), alpha=(0.1,)).configs(CONFIG, RUN)
    base = CONFIG.resolve(RUN)
    assert found == [base.vary("k", 1), base.vary("n", 3), base.vary("alpha", 0.1)]
    with pytest.raises(InvalidInputError, match=r"sweep\.threshold: the top-k rule has no threshold"):
        SweepConfig(threshold=(0.5,)).configs(CONFIG, RUN)
    with pytest.raises(InvalidInputError, match="draws is 3, but these votes are adaptive"):
        SweepConfig(n=(3,)).configs(CONFIG, ADAPTIVE)
    with pytest.raises(InvalidInputError, match="alpha"):
        SweepConfig(alpha=(1.0,))
