"""On a linear classifier the exact robust radius is known: the attack breaks just outside it, and never inside."""

import numpy as np
import pytest
import torch

from multiguard.attack import AttackPlan, Victim, attack_images, gradient_fault
from multiguard.evaluate import Setting, ThresholdSetting, judged_size
from multiguard.models import load_classifier
from multiguard.smooth import Smoother

SIGMA, DRAWS = 0.5, 4000
WEIGHTS = torch.randn(48, 2, generator=torch.Generator().manual_seed(0))
PLAN = AttackPlan(attacks=("pgd",), steps=12, copies=8, starts=2, pick_draws=64, judge_draws=DRAWS)


def smoother(function=lambda images: images.flatten(1) @ WEIGHTS, **how):
    classifier = load_classifier(function, labels=["a", "b"], output="logits", name="linear")
    return Smoother(classifier, sigma=SIGMA, device="cpu", **({"k_max": 1} | how))


def linear_victims(radius_of, factors, least=0.4):
    """Images whose exact radius is large enough for the noise of judging, attacked a little inside and outside it."""
    found = []
    for number in range(40):
        image = np.random.default_rng(number).random((3, 4, 4), dtype=np.float32)
        label, radius = radius_of(torch.from_numpy(image).flatten())
        if radius > least:
            found.append(Victim(f"image-{number}", image, (label,), tuple(factor * radius for factor in factors)))
    return found[:12]


def sizes(smooth, victims, setting, plan=PLAN):
    """(images, changes), what is left after each change."""
    return np.array(
        [
            [
                judged_size(change.counts, DRAWS, each.victim.labels, setting, "in", beta=0.01)[0]
                for change in each.changes
                if change.goal == "in"
            ]
            for each in attack_images(smooth, victims, setting, plan)
        ]
    )


def first_label(pixels):
    """p_a >= p_b exactly while (w_a - w_b) x >= 0: the distance to that plane is the radius."""
    slope = WEIGHTS[:, 0] - WEIGHTS[:, 1]
    margin = float(pixels @ slope)
    return (0 if margin > 0 else 1), abs(margin) / float(slope.norm())


def test_pgd_breaks_the_top_label_just_outside_the_exact_radius():
    victims = linear_victims(first_label, (0.93, 1.07))
    found = sizes(smoother(), victims, Setting(1, 1))
    assert len(victims) == 12
    assert found.tolist() == [[1, 1, 0]] * 12


def test_pgd_breaks_the_threshold_rule_just_outside_the_exact_radius():
    """Label a passes in a share Phi((w x + 6) / (sigma |w|)) of the draws, its score limit being 0."""

    def passing(pixels):
        return 0, (float(pixels @ WEIGHTS[:, 0]) + 6) / float(WEIGHTS[:, 0].norm())

    victims = linear_victims(passing, (0.93, 1.07))
    how = {"rule": "threshold", "k_max": None, "score_threshold": 0.5}
    raised = smoother(lambda images: images.flatten(1) @ WEIGHTS + 6, **how)
    found = sizes(raised, victims, ThresholdSetting(0.5))
    assert len(victims) == 12
    assert found.tolist() == [[1, 1, 0]] * 12


def test_random_search_comes_near_without_gradients():
    """In 48 dimensions it needs a larger ball than gradients do, and finds the way without asking for one."""
    victims = linear_victims(first_label, (0.97, 3.0))
    plan = AttackPlan(attacks=("random",), tries=60, judge_draws=DRAWS)
    no_slope = smoother(lambda images: images.detach().flatten(1) @ WEIGHTS)
    found = sizes(no_slope, victims, Setting(1, 1), plan)
    assert np.all(found[:, :2] == 1)
    assert found[:, 2].mean() <= 0.25


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda images: images.detach().flatten(1) @ WEIGHTS, "carry none"),
        (lambda images: torch.from_numpy(images.numpy().reshape(len(images), -1) @ WEIGHTS.numpy()), "numpy"),
        (lambda images: images.flatten(1).round() @ WEIGHTS, "0 everywhere"),
    ],
)
def test_a_model_without_gradients_is_told_from_one_with(function, reason):
    image = np.zeros((3, 4, 4), dtype=np.uint8)
    assert gradient_fault(smoother(), [image]) is None
    assert reason in gradient_fault(smoother(function), [image])


def test_a_model_with_gradients_at_some_images_has_them():
    """Probabilities, which add up to 1, and a network that is flat at a dark image."""
    dark, light = np.zeros((3, 4, 4), dtype=np.uint8), np.full((3, 4, 4), 255, dtype=np.uint8)
    half = smoother(lambda images: (images - 0.5).relu().flatten(1) @ WEIGHTS)
    assert gradient_fault(half, [dark]) == "they are 0 everywhere"
    assert gradient_fault(half, [dark, light]) is None
    assert gradient_fault(smoother(lambda images: (images.flatten(1) @ WEIGHTS).softmax(1)), [light]) is None


def test_images_whose_steps_lead_nowhere_are_told():
    plan = AttackPlan(attacks=("pgd",), steps=2, starts=1, copies=2, judge_draws=4, pick_draws=2)
    for flat, own in ((True, smoother(lambda images: images.flatten(1).round() @ WEIGHTS)), (False, smoother())):
        (found,) = attack_images(own, linear_victims(first_label, (0.5,))[:1], Setting(1, 1), plan)
        assert found.flat == flat
