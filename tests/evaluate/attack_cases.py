"""Attacks made by hand: two rules, small enough to count on paper."""

from dataclasses import replace

import numpy as np

from multiguard.certify import Gaussian
from multiguard.evaluate import AttackedImage, AttackOutcome, Attacks, CertifyConfig
from multiguard.evaluate.attacks import attack_stage, stage_attacks


def top_k_attacks() -> Attacks:
    """Two images of two and one labels, attacked at 0, 0.5 and 1; nothing broken."""
    first = AttackedImage(
        "first",
        (0, 1),
        {"in": {"joint": np.array([0.8, 0.3]), "paper": np.array([0.6, -np.inf])}},
        (
            AttackOutcome("none", "in", 0.0, 0.0, 2, 2),
            AttackOutcome("pgd", "in", 0.5, 0.49, 1, 2),
            AttackOutcome("pgd", "in", 1.0, 0.99, 1, 1),
            AttackOutcome("random", "in", 0.5, 0.5, 2, 2),
            AttackOutcome("random", "in", 1.0, 1.0, 0, 1),
        ),
    )
    second = AttackedImage(
        "second",
        (2,),
        {"in": {"joint": np.array([np.inf]), "paper": np.array([0.2])}},
        (
            AttackOutcome("none", "in", 0.0, 0.0, 1, 1),
            AttackOutcome("pgd", "in", 0.5, 0.5, 1, 1),
            AttackOutcome("pgd", "in", 1.0, 1.0, 1, 1),
            AttackOutcome("random", "in", 0.5, 0.5, 1, 1),
            AttackOutcome("random", "in", 1.0, 1.0, 1, 1),
        ),
    )
    return Attacks(
        config=CertifyConfig(2, 1, alpha=0.001, draws=100),
        noise=Gaussian(0.5),
        label_names=("cat", "dog", "=cmd", "emu"),
        labelled=True,
        methods=("joint", "paper"),
        radii=(0.0, 0.5, 1.0),
        names=("pgd", "random"),
        beta=0.001,
        draws=200,
        images=(first, second),
        without_labels=1,
        plan={"box": False, "seed": 0},
    )


def threshold_attacks() -> Attacks:
    """One image of one label, four labels in all: floors and ceilings, attacked by gradients alone."""
    image = AttackedImage(
        "only",
        (1,),
        {"in": {"joint": np.array([0.4])}, "out": {"joint": np.array([0.9, 0.5, 0.1])}},
        (
            AttackOutcome("none", "in", 0.0, 0.0, 1, 1),
            AttackOutcome("none", "out", 0.0, 0.0, 3, 3),
            AttackOutcome("pgd", "in", 0.5, 0.5, 0, 0),
            AttackOutcome("pgd", "out", 0.5, 0.5, 2, 3),
        ),
    )
    return Attacks(
        config=CertifyConfig(threshold=0.5, alpha=0.001, draws=100),
        noise=Gaussian(0.5),
        label_names=("a", "b", "c", "d"),
        labelled=False,
        methods=("joint",),
        radii=(0.0, 0.5),
        names=("pgd",),
        beta=0.01,
        draws=50,
        images=(image,),
        without_labels=0,
        failed=2,
        adaptive=True,
        flat=1,
    )


def write_attacks(folder, attacks: Attacks, *, force: bool = False, **origin) -> None:
    """An attack folder with these attacks."""
    with attack_stage(folder, force=force) as stage:
        stage_attacks(stage, replace(attacks, **origin))
