"""No attack breaks a certificate inside its radius; and if certificates were false, these attacks would show it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.attack.templates import SIGMA, digits_classifier, held_out_images

from multiguard.attack import AttackConfig, Victim, attack_images
from multiguard.certify import Threshold, TopK, certified_radii_batch
from multiguard.certify.noise import Gaussian
from multiguard.evaluate import AttackedImage, AttackOutcome, Attacks, CertifyConfig, evaluated_size
from multiguard.smooth import Smoother

IMAGES, DRAWS = 60, 200
RULE, ALPHA, BETA = TopK(4, 2), 0.001, 0.001
PLAN = AttackConfig(steps=5, copies=4, starts=1, tries=6, pick_draws=12, draws=120)


@pytest.fixture(scope="module")
def smoother():
    return Smoother(digits_classifier(), sigma=SIGMA, k_max=RULE.k_prime, device="cpu")


@pytest.fixture(scope="module")
def images():
    return held_out_images(IMAGES)


@pytest.fixture(scope="module")
def radii(smoother, images):
    votes = [found for _, found in smoother.stream(((name, image) for name, image, _ in images), DRAWS, noise_seed=0)]
    labels = [own for _, _, own in images]
    proved = certified_radii_batch(votes, labels, RULE, num_labels=10, sigma=SIGMA, alpha=ALPHA, method="joint")
    return [own.true for own in proved]


def victims(images, radii):
    """Each image at the ends of its own certificates, of most labels and of the first: there they are weakest."""
    for (name, image, labels), own in zip(images, radii, strict=True):
        ends = sorted(radius for radius in own.tolist() if 0 < radius < np.inf) or [SIGMA]
        yield Victim(name, image, labels, tuple(sorted({ends[0], ends[-1]})))


def attacked(smoother, images, radii, plan):
    """The certificates and what the plan's attacks made of them."""
    results = attack_images(smoother, victims(images, radii), RULE, plan)
    outcomes = [_image(each, {"in": {"joint": own}}, RULE, plan) for each, own in zip(results, radii, strict=True)]
    return _attacks(RULE, outcomes, plan)


def _image(result, proved, rule, plan):
    beta, labels, draws = BETA / len(result.perturbations), result.victim.labels, plan.draws
    outcomes = []
    for each in result.perturbations:
        assert each.norm <= each.radius
        sizes = evaluated_size(each.counts, draws, labels, rule, each.goal, beta=beta)
        outcomes.append(AttackOutcome(each.attack, each.goal, each.radius, each.norm, *sizes))
    return AttackedImage(result.victim.id, labels, proved, tuple(outcomes))


def _attacks(rule, images, plan):
    return Attacks(
        config=CertifyConfig(alpha=ALPHA, draws=DRAWS).with_rule(rule),
        noise=Gaussian(SIGMA),
        label_names=tuple("0123456789"),
        labelled=True,
        methods=("joint",),
        radii=(0.0,),
        names=plan.attacks,
        beta=BETA,
        draws=plan.draws,
        images=tuple(images),
        without_labels=0,
    )


def inflated(image, factor):
    """The same perturbations beside certificates whose radii were multiplied."""
    proved = {goal: {m: factor * r for m, r in by.items()} for goal, by in image.proved.items()}
    return replace(image, proved=proved)


def test_sound_certificates(smoother, images, radii):
    """pgd and random search break no certificate of sixty images of digits, attacked at the ends of their radii."""
    found = attacked(smoother, images, radii, PLAN)
    certified = sum(int(np.sum((own > 0) & (own < np.inf))) for own in radii)
    assert len(found.images) == IMAGES
    assert certified > IMAGES, "there is something to break"
    assert found.broken("joint") == ()
    assert found.undecidable("joint") == (), "so many draws can find each of them broken"


def test_enlarged_radii(smoother, images, radii):
    """The test above can fail: certificates four times too large are broken."""
    plan = PLAN.replace(attacks=("pgd",), steps=10, pick_draws=16, draws=400)
    false = [4 * own for own in radii[:30]]
    found = attacked(smoother, images[:30], false, plan)
    assert len(found.broken("joint")) >= 3
    assert found.chance(len(found.broken("joint")), "joint") < 1e-3, "not what alpha and beta allow"


def test_threshold_rule(smoother, images):
    """Neither fewer true labels than the floor nor more false ones than the ceiling; enlarged radii are broken."""
    sets = Smoother(smoother.classifier, sigma=SIGMA, score_threshold=0.6, device="cpu")
    some, rule = images[:8], Threshold(0.5)
    votes = [found.hits() for _, found in sets.stream(((name, image) for name, image, _ in some), DRAWS, noise_seed=0)]
    labels = [own for _, _, own in some]
    proved = certified_radii_batch(votes, labels, rule, num_labels=10, sigma=SIGMA, alpha=ALPHA)
    plan = PLAN.replace(draws=200)
    results = attack_images(sets, [Victim(name, image, own, (0.2, 1.5)) for name, image, own in some], rule, plan)
    outcomes = [
        _image(each, {"in": {"joint": own.true}, "out": {"joint": own.false[::-1]}}, rule, plan)
        for each, own in zip(results, proved, strict=True)
    ]
    assert {each.goal for each in outcomes[0].outcomes} == {"in", "out"}
    assert _attacks(rule, outcomes, plan).broken("joint") == ()
    assert _attacks(rule, [inflated(each, 20) for each in outcomes], plan).broken("joint"), "and it could be"
