"""No attack breaks a certificate inside its radius; and if certificates were false, these attacks would show it."""

import numpy as np
import pytest
from tests.attack.claims import ALPHA, attacked_claims, radii_of, votes_of
from tests.attack.templates import SIGMA, digits_classifier, held_out_images

from multiguard.attack import AttackConfig, Victim, attack_images
from multiguard.certify import Gaussian, Threshold, TopK, certified_radii_batch
from multiguard.smooth import Smoother

IMAGES, DRAWS = 60, 200
RULE, NOISE, NAMES = TopK(4, 2), Gaussian(SIGMA), tuple("0123456789")
PLAN = AttackConfig(steps=5, copies=4, starts=1, tries=6, pick_draws=12, draws=120)


@pytest.fixture(scope="module")
def smoother():
    return Smoother(digits_classifier(), sigma=SIGMA, k_max=RULE.k_prime, device="cpu")


@pytest.fixture(scope="module")
def images():
    return held_out_images(IMAGES)


@pytest.fixture(scope="module")
def radii(smoother, images):
    votes = votes_of(smoother, images, DRAWS)
    labels = [own for _, _, own in images]
    proved = certified_radii_batch(votes, labels, RULE, num_labels=10, sigma=SIGMA, alpha=ALPHA, method="joint")
    return [own.true for own in proved]


def victims(images, claims):
    """Each image at the ends of its own certificates, of most labels and of the first: there they are weakest."""
    for (name, image, labels), own in zip(images, claims, strict=True):
        ends = radii_of(own) or [SIGMA]
        yield Victim(name, image, labels, tuple(sorted({ends[0], ends[-1]})))


def attacked(smoother, images, radii, config):
    """The certificates and what attacks made of them."""
    claims = [{"in": {"joint": own}} for own in radii]
    found = attack_images(smoother, victims(images, claims), RULE, config)
    return attacked_claims(found, claims, RULE, NOISE, config, NAMES)


def test_sound_certificates(smoother, images, radii):
    """pgd and random search break no certificate of sixty images of digits, attacked at the ends of their radii."""
    found = attacked(smoother, images, radii, PLAN)
    certified = sum(int(np.sum((own > 0) & (own < np.inf))) for own in radii)
    assert len(found.images) == IMAGES
    assert certified > IMAGES, "there is something to break"
    assert found.broken("joint") == ()
    assert found.undecidable("joint") == (), "these draws can find each of them broken"


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
    votes = [found.hits() for found in votes_of(sets, some, DRAWS)]
    labels = [own for _, _, own in some]
    proved = certified_radii_batch(votes, labels, rule, num_labels=10, sigma=SIGMA, alpha=ALPHA)
    plan = PLAN.replace(draws=200)
    claims = [{"in": {"joint": own.true}, "out": {"joint": own.false[::-1]}} for own in proved]
    results = list(attack_images(sets, [Victim(name, image, own, (0.2, 1.5)) for name, image, own in some], rule, plan))
    found = attacked_claims(results, claims, rule, NOISE, plan, NAMES)
    assert {each.goal for each in found.images[0].outcomes} == {"in", "out"}
    assert found.broken("joint") == ()
    false = [{goal: {"joint": 20 * own["joint"]} for goal, own in each.items()} for each in claims]
    assert attacked_claims(results, false, rule, NOISE, plan, NAMES).broken("joint"), "and it could be"
