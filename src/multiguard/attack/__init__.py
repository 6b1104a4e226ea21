"""Attacks on multi-label classifiers: what some perturbation does, next to what is proved that none can do."""

from typing import TYPE_CHECKING

from multiguard.attack.config import AttackConfig
from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.attack.direct import (
        Add,
        AdversarialBatch,
        AttackGoal,
        AttackResult,
        Change,
        Hide,
        Perturbation,
        Victim,
        attack_images,
        perturb,
        pgd,
        random_search,
    )
    from multiguard.attack.outcomes import attack
    from multiguard.attack.target import gradient_error
    from multiguard.attack.threats import Attacker

__all__ = [
    "Add",
    "AdversarialBatch",
    "AttackConfig",
    "AttackGoal",
    "AttackResult",
    "Attacker",
    "Change",
    "Hide",
    "Perturbation",
    "Victim",
    "attack",
    "attack_images",
    "gradient_error",
    "perturb",
    "pgd",
    "random_search",
]

__getattr__ = lazy_names(
    __name__,
    {
        "direct": [
            *("Add", "AdversarialBatch", "AttackGoal", "AttackResult", "Change", "Hide", "Perturbation", "Victim"),
            *("attack_images", "perturb", "pgd", "random_search"),
        ],
        "outcomes": ["attack"],
        "target": ["gradient_error"],
        "threats": ["Attacker"],
    },
)
