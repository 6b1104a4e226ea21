"""Plans that make no sense are refused."""

import pytest

from multiguard.attack import AttackPlan
from multiguard.errors import InvalidInputError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attacks": ("pgdd",)}, "pgd"),
        ({"attacks": ()}, "each once"),
        ({"attacks": ("pgd", "pgd")}, "each once"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"evaluation_draws": 0}, r"--draws \(evaluation_draws\) must be at least 1, not 0"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_refused_plans(change, message):
    """The message names the option and what it must be."""
    with pytest.raises(InvalidInputError, match=message):
        AttackPlan(**change)
