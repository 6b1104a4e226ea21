"""Attacks on a linear classifier, whose robust radius is known: they succeed just outside it, and never inside."""

import numpy as np
import pytest
import torch

from multiguard.attack import AttackConfig, Victim, attack_images, gradient_error
from multiguard.certify import TopK
from multiguard.evaluate import evaluated_size
from multiguard.models import load
from multiguard.smooth import Smoother

SIGMA, DRAWS, IMAGES = 0.5, 3000, 5
WEIGHTS = torch.randn(48, 2, generator=torch.Generator().manual_seed(0))
PLAN = AttackConfig(attacks=("pgd",), steps=12, copies=8, starts=2, pick_draws=64, draws=DRAWS)


def smoother(function=lambda images: images.flatten(1) @ WEIGHTS, **options):
    classifier = load(function, labels=["a", "b"], output="logits", name="linear")
    return Smoother(classifier, sigma=SIGMA, device="cpu", **({"k_max": 1} | options))


def linear_victims(radius_of, factors, least=0.4):
    """Images whose exact radius is large enough for the evaluation noise, attacked a little inside and outside it."""
    found = []
    for number in range(40):
        image = np.random.default_rng(number).random((3, 4, 4), dtype=np.float32)
        label, radius = radius_of(torch.from_numpy(image).flatten())
        if radius > least:
            found.append(Victim(f"image-{number}", image, (label,), tuple(factor * radius for factor in factors)))
    return found[:IMAGES]


def sizes(smooth, victims, rule, plan=PLAN):
    """(images, perturbations), what is left after each."""
    return np.array(
        [
            [
                evaluated_size(each.counts, DRAWS, result.victim.labels, rule, "in", beta=0.01)[0]
                for each in result.perturbations
                if each.goal == "in"
            ]
            for result in attack_images(smooth, victims, rule, plan)
        ]
    )


def first_label(pixels):
    """p_a >= p_b exactly while (w_a - w_b) x >= 0: the distance to that plane is the radius."""
    slope = WEIGHTS[:, 0] - WEIGHTS[:, 1]
    margin = float(pixels @ slope)
    return (0 if margin > 0 else 1), abs(margin) / float(slope.norm())


def test_top_k_radius():
    """pgd breaks the top label just outside the exact radius, and not inside."""
    victims = linear_victims(first_label, (0.93, 1.07))
    found = sizes(smoother(), victims, TopK(1, 1))
    assert len(victims) == IMAGES
    assert found.tolist() == [[1, 1, 0]] * IMAGES


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda images: images.detach().flatten(1) @ WEIGHTS, "carry no gradient"),
        (lambda images: torch.from_numpy(images.numpy().reshape(len(images), -1) @ WEIGHTS.numpy()), "numpy"),
        (lambda images: images.flatten(1).round() @ WEIGHTS, "0 everywhere"),
    ],
)
def test_missing_gradients(function, reason):
    """A model without gradients is recognized, and why it has none."""
    image = np.zeros((3, 4, 4), dtype=np.uint8)
    assert gradient_error(smoother(), [image]) is None
    assert reason in gradient_error(smoother(function), [image])


def test_gradients_at_some_images():
    """A network that is flat at a dark image has gradients, and so have probabilities that add up to 1."""
    dark, light = np.zeros((3, 4, 4), dtype=np.uint8), np.full((3, 4, 4), 255, dtype=np.uint8)
    half = smoother(lambda images: (images - 0.5).relu().flatten(1) @ WEIGHTS)
    assert gradient_error(half, [dark]) == "gradients are 0 everywhere"
    assert gradient_error(half, [dark, light]) is None
    assert gradient_error(smoother(lambda images: (images.flatten(1) @ WEIGHTS).softmax(1)), [light]) is None


def test_flat_images():
    """Images whose steps lead nowhere are marked."""
    plan = AttackConfig(attacks=("pgd",), steps=2, starts=1, copies=2, draws=4, pick_draws=2)
    for flat, own in ((True, smoother(lambda images: images.flatten(1).round() @ WEIGHTS)), (False, smoother())):
        (result,) = attack_images(own, linear_victims(first_label, (0.5,))[:1], TopK(1, 1), plan)
        assert result.flat == flat
