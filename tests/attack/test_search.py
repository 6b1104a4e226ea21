"""The search: seeded, independent of the other images, and evaluated by draws that nothing else uses."""

import numpy as np
import pytest
import torch
from tests.attack.templates import SIGMA, digits_classifier, held_out_images

from multiguard.attack import AttackConfig, Victim, attack_images
from multiguard.attack.target import SmoothedTarget
from multiguard.certify import Threshold, TopK
from multiguard.errors import InvalidInputError
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother

RULE = TopK(4, 2)
SHORT = {"steps": 2, "copies": 2, "starts": 2, "tries": 4, "pick_draws": 8, "draws": 20}


@pytest.fixture(scope="module")
def smoother():
    return Smoother(digits_classifier(), sigma=SIGMA, k_max=2, device="cpu")


def victims(count, *radii):
    return [Victim(name, image, labels, radii) for name, image, labels in held_out_images(count)]


@pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
def test_noisy_copies(smoother, source):
    """Copies carry the noise of their draws, whatever else is in the batch."""
    source = Smoother(smoother.classifier, sigma=SIGMA, k_max=2, device="cpu", noise_source=source)
    target = SmoothedTarget(source, RULE, noise_seed=0)
    images, keys = torch.zeros(2, 3, 16, 16), (b"a" * 16, b"b" * 16)
    both = target.noisy(images, keys, 5, 4)
    alone = target.noisy(images[1:], keys[1:], 6, 2)
    assert torch.equal(both[5:7], alone)
    assert abs(float(both.std()) - SIGMA) < 0.01


def test_seed(smoother):
    """The same seed finds the same perturbations, another seed finds others."""

    def search(seed):
        results = attack_images(smoother, victims(2, 0.4), RULE, AttackConfig(**SHORT, seed=seed))
        return [(p.image.tobytes(), p.counts.tolist()) for result in results for p in result.perturbations]

    first = search(0)
    assert search(0) == first
    assert search(1) != first


def test_fresh_draws(smoother):
    """The counts are of the evaluation stream at the perturbed image, which anyone can draw again."""
    for result in attack_images(smoother, victims(2, 0.4), RULE, AttackConfig(**SHORT, seed=3)):
        for each in result.perturbations:
            again = smoother.votes(each.image, 20, noise_seed=3, image_id=result.victim.id, stream="judge")
            assert np.bincount(again.ravel(), minlength=10).tolist() == each.counts.tolist()


def test_independent_images(smoother):
    """What pgd finds does not depend on the other images."""
    plan = AttackConfig(**{**SHORT, "steps": 3}, attacks=("pgd",))
    together = list(attack_images(smoother, victims(3, 0.3), RULE, plan))
    alone = list(attack_images(smoother, victims(3, 0.3)[1:2], RULE, plan))
    np.testing.assert_allclose(together[1].perturbations[1].image, alone[0].perturbations[1].image, atol=1e-5)


def test_box(smoother):
    """A box keeps images in [0, 1]."""
    clamped = Smoother(smoother.classifier, sigma=SIGMA, k_max=2, device="cpu", clamp=True)
    for result in attack_images(clamped, victims(2, 1.0), RULE, AttackConfig(**SHORT, box=True)):
        for each in result.perturbations:
            assert each.image.min() >= 0
            assert each.image.max() <= 1


def test_other_rules(smoother):
    """The rule must be one that the smoother's votes can be counted by."""
    for rule, message in (
        (Threshold(0.5), "votes are ranked labels"),
        (TopK(4, 3), "keep 2 labels per draw"),
        (TopK(11, 2), "k "),
    ):
        with pytest.raises(InvalidInputError, match=message):
            next(attack_images(smoother, [], rule, AttackConfig()))
