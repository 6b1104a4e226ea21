"""A config cannot hold a value that its field does not take; every field of every config has its help."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec.structs import fields

from multiguard.attack.config import AttackConfig
from multiguard.data.config import DataConfig
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, SweepConfig
from multiguard.io.config import Config, Count, Positive, described, described_as, field_types, from_tree, to_tree
from multiguard.io.records import parse_yaml
from multiguard.models.config import ModelConfig
from multiguard.report.config import ReportConfig
from multiguard.serve.config import ServeConfig
from multiguard.smooth.config import PredictConfig, VoteConfig
from multiguard.train.config import TrainConfig
from multiguard.verify.config import VerifyConfig

CONFIGS = (AttackConfig, CertifyConfig, DataConfig, ModelConfig, PredictConfig, ReportConfig, ServeConfig, SweepConfig)
CONFIGS += (TrainConfig, VerifyConfig, VoteConfig)


class Sampling(Config, frozen=True):
    draws: Annotated[Count | Literal["adaptive"], described("How many.")] = 100
    radii: tuple[Positive, ...] = ()
    root: Path | None = None
    rule: Literal["top-k", "threshold"] = "top-k"


class Study(Config, frozen=True):
    name: str
    sampling: Sampling = Sampling()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_help_of_fields(config):
    """Every field says what it means, in one sentence."""
    texts = [described_as(kind)[0] for kind in field_types(config).values()]
    assert len(texts) == len(fields(config))
    assert all(text.endswith(".") for text in texts)


def test_values():
    """Lists become tuples, whole numbers floats and texts paths; a tree gives the same config back."""
    config = Study("a", Sampling("adaptive", [1, 0.5], "images"))
    assert config.sampling == Sampling("adaptive", (1.0, 0.5), Path("images"))
    assert from_tree(Study, to_tree(config)) == config
    assert config.replace(name="b").name == "b"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling(draws=0), "draws is 0; expected a whole number of 1 or more, or adaptive"),
        (lambda: Sampling(draws=True), "draws is True; expected a whole number"),
        (lambda: Sampling(draws=10**20), "draws is a number of too many digits; expected a"),
        (
            lambda: Sampling(radii=[1.0, float("nan")]),
            "radii is nan; expected a number above 0",
        ),
        (lambda: Sampling(radii=[float("inf")]), "radii is inf; expected a finite number"),
        (lambda: Sampling(radii=0.5), r"radii is 0.5; expected a list, such as \[0.5, 1\]"),
        (lambda: Sampling(rule="treshold"), "rule: unknown value 'treshold': did you mean 'threshold'?"),
        (lambda: Sampling(root=""), "root is ''; expected a path"),
        (lambda: Sampling(root="caf\udce9"), "root holds half of a character"),
        (lambda: Sampling(draws="\ud800"), "draws holds half of a character"),
        (lambda: Sampling(root="a/" * 2500), "root is a path of 4,999 characters, a/a/.*; expected 4,096 at most"),
        (lambda: from_tree(Sampling, parse_yaml("draws: 1e400", "x")), "draws is inf; expected a whole number"),
        (lambda: AttackConfig(beta=float("nan")), "beta is nan; expected a number strictly between 0 and 1"),
        (lambda: from_tree(Study, {"name": "a", "sampling": {"drows": 1}}), "unknown key 'sampling.drows': did you"),
        (lambda: from_tree(Study, {"name": "a", "sampling": {"draws": -1}}), "^sampling.draws is -1; expected"),
        (lambda: from_tree(Study, {"sampling": {}}), "^name is missing"),
        (lambda: from_tree(Study, {"name": "a", "sampling": 3}), "^sampling is 3; expected keys such as draws:"),
    ],
)
def test_mistakes(make, message):
    """A value outside the range or type of its field is refused by the field's name."""
    with pytest.raises(InvalidInputError, match=message):
        make()
