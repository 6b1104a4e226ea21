"""Attacks on the smoothed classifier: how much a change of norm R is known to do, beside what is proved it cannot."""

from multiguard.attack.eot import gradient_fault
from multiguard.attack.plan import AttackName, AttackPlan
from multiguard.attack.search import Attacked, Change, Victim, attack_images

__all__ = ["AttackName", "AttackPlan", "Attacked", "Change", "Victim", "attack_images", "gradient_fault"]
