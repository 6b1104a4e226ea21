"""No attack breaks a certificate inside its radius; and were certificates false, these attacks would show it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.attack.templates import SIGMA, digits_classifier, held_out_images

from multiguard.attack import AttackPlan, Victim, attack_images
from multiguard.certify import certified_radii_batch, threshold_radii_batch
from multiguard.evaluate import AttackedImage, Attacks, Reached, Setting, ThresholdSetting, judged_size
from multiguard.smooth import Smoother

IMAGES, DRAWS, JUDGES = 100, 200, 200
K, K_PRIME, ALPHA, BETA = 4, 2, 0.001, 0.001
PLAN = AttackPlan(steps=6, copies=4, starts=1, tries=8, pick_draws=16, judge_draws=JUDGES)


@pytest.fixture(scope="module")
def smoother():
    return Smoother(digits_classifier(), sigma=SIGMA, k_max=K_PRIME, device="cpu")


@pytest.fixture(scope="module")
def images():
    return held_out_images(IMAGES)


@pytest.fixture(scope="module")
def radii(smoother, images):
    votes = [found for _, found in smoother.stream(((name, image) for name, image, _ in images), DRAWS, seed=0)]
    labels = [own for _, _, own in images]
    return certified_radii_batch(
        votes, labels, TopK(K, K_PRIME), num_labels=10, sigma=SIGMA, alpha=ALPHA, method="joint"
    )


def victims(images, radii):
    """Each image at the ends of its own certificates, of most labels and of the first: there they are weakest."""
    for (name, image, labels), own in zip(images, radii, strict=True):
        ends = sorted(radius for radius in own.tolist() if 0 < radius < np.inf) or [SIGMA]
        yield Victim(name, image, labels, tuple(sorted({ends[0], ends[-1]})))


def attacked(smoother, images, radii, plan):
    """The certificates and what the plan's attacks made of them."""
    setting = Setting(K, K_PRIME, ALPHA, DRAWS)
    found = attack_images(smoother, victims(images, radii), setting, plan)
    judged = [_image(each, {"in": {"joint": own}}, setting, plan) for each, own in zip(found, radii, strict=True)]
    return _attacks(setting, judged, plan)


def _image(found, proved, setting, plan):
    level = BETA / len(found.changes)
    reached = []
    for change in found.changes:
        sizes = judged_size(change.counts, plan.judge_draws, found.victim.labels, setting, change.goal, beta=level)
        assert change.norm <= change.radius
        reached.append(Reached(change.attack, change.goal, change.radius, change.norm, *sizes))
    return AttackedImage(found.victim.id, found.victim.labels, proved, tuple(reached))


def _attacks(setting, images, plan):
    return Attacks(
        setting,
        SIGMA,
        tuple("0123456789"),
        True,
        ("joint",),
        (0.0,),
        plan.attacks,
        BETA,
        plan.judge_draws,
        tuple(images),
        0,
    )


def inflated(image, factor):
    """The same changes beside certificates whose radii were multiplied."""
    proved = {goal: {m: factor * r for m, r in by.items()} for goal, by in image.proved.items()}
    return replace(image, proved=proved)


def test_pgd_and_random_search_break_no_certificate_of_a_hundred_digits(smoother, images, radii):
    found = attacked(smoother, images, radii, PLAN)
    certified = sum(int(np.sum((own > 0) & (own < np.inf))) for own in radii)
    assert len(found.images) == IMAGES
    assert certified > IMAGES, "there is something to break"
    assert found.broken("joint") == ()


def test_certificates_three_times_too_large_are_broken(smoother, images, radii):
    """The test above can fail: attacked at radii that nobody proved, certificates that claim them fall."""
    plan = replace(PLAN, attacks=("pgd",), steps=10, judge_draws=400)
    false = [3 * own for own in radii[:50]]
    found = attacked(smoother, images[:50], false, plan)
    assert len(found.broken("joint")) >= 3
    assert found.chance(len(found.broken("joint")), "joint") < 1e-3, "not what alpha and beta allow"


def test_the_threshold_rule_holds_on_both_sides(smoother, images):
    """Neither fewer true labels than the floor nor more wrong ones than the ceiling."""
    sets = Smoother(smoother.classifier, sigma=SIGMA, rule="threshold", score_threshold=0.6, device="cpu")
    some = images[:12]
    votes = [found.hits() for _, found in sets.stream(((name, image) for name, image, _ in some), DRAWS, seed=0)]
    labels = [own for _, _, own in some]
    proved = certified_radii_batch(votes, labels, Threshold(0.5), num_labels=10, sigma=SIGMA, alpha=ALPHA)
    setting = ThresholdSetting(0.5, ALPHA, DRAWS)
    sought = [Victim(name, image, own, (0.2, 1.5)) for name, image, own in some]
    found = attack_images(sets, sought, setting, PLAN)
    judged = [
        _image(each, {"in": {"joint": own.true}, "out": {"joint": own.false[::-1]}}, setting, PLAN)
        for each, own in zip(found, proved, strict=True)
    ]
    assert {each.goal for each in judged[0].reached} == {"in", "out"}
    assert _attacks(setting, judged, PLAN).broken("joint") == ()
    assert _attacks(setting, [inflated(each, 20) for each in judged], PLAN).broken("joint"), "and it could be"
