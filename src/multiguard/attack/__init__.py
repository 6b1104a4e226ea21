"""Attacks on multi-label classifiers: what some perturbation does, beside what is proved that none can do."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.attack.direct import pgd, random_search
    from multiguard.attack.goals import Add, AdversarialBatch, AttackGoal, Change, Hide
    from multiguard.attack.plan import AttackName, AttackPlan
    from multiguard.attack.search import AttackResult, Perturbation, Victim, attack_images
    from multiguard.attack.target import gradient_error
    from multiguard.attack.threats import Attacker

__all__ = [
    "Add",
    "AdversarialBatch",
    "AttackGoal",
    "AttackName",
    "AttackPlan",
    "AttackResult",
    "Attacker",
    "Change",
    "Hide",
    "Perturbation",
    "Victim",
    "attack_images",
    "gradient_error",
    "pgd",
    "random_search",
]

__getattr__ = lazy_names(
    __name__,
    {
        "direct": ["pgd", "random_search"],
        "goals": ["Add", "AdversarialBatch", "AttackGoal", "Change", "Hide"],
        "plan": ["AttackName", "AttackPlan"],
        "search": ["AttackResult", "Perturbation", "Victim", "attack_images"],
        "target": ["gradient_error"],
        "threats": ["Attacker"],
    },
)
