"""Attacks on the smoothed classifier: what some perturbation of norm R does, beside what is proved that none can do."""

from multiguard.attack.pgd import gradient_error
from multiguard.attack.plan import AttackName, AttackPlan
from multiguard.attack.search import AttackResult, Perturbation, Victim, attack_images

__all__ = ["AttackName", "AttackPlan", "AttackResult", "Perturbation", "Victim", "attack_images", "gradient_error"]
