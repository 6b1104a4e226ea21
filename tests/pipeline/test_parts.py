"""Every field of a part has its help, and its defaults agree with what it configures."""

from dataclasses import fields
from pathlib import Path

import pytest

from multiguard.attack import AttackPlan
from multiguard.errors import InvalidInputError
from multiguard.pipeline import (
    AttackPart,
    CertifyPart,
    DataPart,
    ModelPart,
    PredictPart,
    ReportPart,
    SweepPart,
    TrainPart,
    VotePart,
)
from multiguard.pipeline.attack_job import AttackJob
from multiguard.pipeline.part_fields import field_help

PARTS = (AttackPart, CertifyPart, DataPart, ModelPart, PredictPart, ReportPart, SweepPart, TrainPart, VotePart)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_help_of_fields(part):
    """Every field says what it means, in one sentence."""
    texts = field_help(part)
    assert list(texts) == [one.name for one in fields(part)]
    assert all(declared.text.endswith(".") for declared in texts.values())


def test_attack_defaults():
    """The defaults of the attack command are those of the attack."""
    assert AttackJob(Path("certificates"), Path("attack")).plan == AttackPlan()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VotePart(draws=0), "draws is 0; expected 1 to 100,000,000"),
        (lambda: VotePart(rule="threshold", score_threshold=1.0), "score_threshold is 1.0; expected strictly between"),
        (lambda: CertifyPart(radius_to=0.0), "radius_to is 0.0; expected a number above 0"),
        (lambda: SweepPart(n=(10, 0)), "n is 0; expected 1 or more"),
        (lambda: AttackPart(beta=float("nan")), "beta is nan; expected strictly between 0 and 1"),
    ],
)
def test_ranges(make, message):
    """A number outside the range of its field is refused, NaN too."""
    with pytest.raises(InvalidInputError, match=message):
        make()
