import pytest

from multiguard.attack import AttackConfig
from multiguard.errors import InvalidInputError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attacks": ("pgdd",)}, "pgd"),
        ({"attacks": ()}, "each once"),
        ({"attacks": ("pgd", "pgd")}, "attacks must be pgd, random or pgd,random, each once, not 'pgd,pgd'"),
        ({"draws": 0}, "draws is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_mistakes(change, message):
    """The message names the setting and what it takes."""
    with pytest.raises(InvalidInputError, match=message):
        AttackConfig(**change)
