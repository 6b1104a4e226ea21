"""No attack breaks a certificate of any noise; and if certificates were false, these attacks would show it."""

import numpy as np
import pytest
import torch
from tests.attack.claims import ALPHA, DRAWS, attacked_claims, radii_of, votes_of
from tests.attack.mosaics import NAMES, SIDE, ColourCounts, mosaics

from multiguard.attack import AttackConfig, Victim, attack_images
from multiguard.attack.search import ImageGroup, Objective, Search
from multiguard.attack.target import SmoothedTarget
from multiguard.attack.threats import THREATS
from multiguard.certify import BandAblation, PixelAblation, Threshold, TopK, Uniform, certified_radii_batch
from multiguard.smooth import Smoother

IMAGES = 8
PLAN = AttackConfig(steps=6, copies=8, starts=2, tries=16, pick_draws=16, draws=200)
PIXELS, BANDS, UNIFORM = PixelAblation(24, SIDE * SIDE), BandAblation(2, SIDE), Uniform(0.5)


def images_of(noise):
    """Mosaics for ablations; for additive noise rows of six numbers, two of them large."""
    if noise.whole:
        return ColourCounts(), mosaics(IMAGES)
    rng, rows = np.random.default_rng(0), []
    for number in range(IMAGES):
        labels = tuple(sorted(rng.choice(6, 2, replace=False).tolist()))
        row = np.zeros(6, dtype=np.float32)
        row[list(labels)] = rng.uniform(0.6, 1.4, 2)
        rows.append((f"row {number}", row, labels))
    return (lambda x: 2 * x), rows


def certified(noise, rule):
    """The smoother, the images, and what is proved of each."""
    model, images = images_of(noise)
    votes = (
        {"k_max": rule.k_prime} if rule.ranked else {"score_threshold": 0.95 if noise.whole else 0.6}
    )  # three pixels, or 0.2
    smoother = Smoother(model, noise=noise, labels=NAMES, output="logits", device="cpu", **votes)
    draws = noise.positions or DRAWS
    drawn = votes_of(smoother, images, draws)
    votes = [each if isinstance(each, np.ndarray) else each.hits() for each in drawn]
    method = "enumerated" if noise.enumerated else "joint"
    labels = [own for *_, own in images]
    return (
        smoother,
        images,
        certified_radii_batch(votes, labels, rule, num_labels=6, noise=noise, alpha=ALPHA, method=method),
    )


def attacked(noise, rule, factor, config=PLAN):
    """Certificates whose radii were multiplied, attacked at the last of them."""
    smoother, images, proved = certified(noise, rule)
    claims = [{"in": {"joint": factor * own.true}} for own in proved]
    if rule.has_ceilings:
        claims = [
            {**each, "out": {"joint": factor * own.false[::-1]}} for each, own in zip(claims, proved, strict=True)
        ]
    victims = []
    for (name, image, labels), own in zip(images, claims, strict=True):
        ends, most = radii_of(own) or [1.0], SIDE if noise.enumerated else np.inf
        victims.append(Victim(name, image, labels, tuple(sorted({min(each, most) for each in (ends[0], ends[-1])}))))
    return attacked_claims(attack_images(smoother, victims, rule, config), claims, rule, noise, config, NAMES)


def test_hidden_pixels():
    """A pixel has a slope only in the copies that show it."""
    smoother = Smoother(ColourCounts(), noise=PixelAblation(1, SIDE * SIDE), labels=NAMES, k_max=2, device="cpu")
    target, (name, image, _) = SmoothedTarget(smoother, TopK(2, 2), noise_seed=0), mosaics(1)[0]
    aim = torch.ones(1, len(NAMES), dtype=torch.bool)
    group = ImageGroup((name,), 0, torch.from_numpy(image)[None], aim)
    search = Search("pgd", target, THREATS["pixels"], Objective(TopK(2, 2), "hide"), AttackConfig(copies=3))
    _, slope = search.gradients(group, group.clean, 0)
    assert 0 < int((slope[0] != 0).any(dim=0).sum()) <= 3


@pytest.mark.parametrize(
    ("noise", "rule"),
    [(UNIFORM, TopK(2, 2)), (PIXELS, TopK(2, 2)), (BANDS, TopK(2, 2)), (BANDS, Threshold(0.5))],
    ids=lambda each: str(each).partition("(")[0],
)
def test_certificates(noise, rule):
    """Gradients and scores break no certificate at the ends of its radii; radii that are too large are broken."""
    sound = attacked(noise, rule, 1)
    assert len(sound.tested("joint")) >= IMAGES / 2, "there is something to break"
    assert sound.broken("joint") == ()
    harder = PLAN.replace(attacks=("pgd",), draws=300)
    false = attacked(noise, rule, {"uniform": 6, "pixels": 20, "band": 3}[noise.kind], harder)
    assert len(false.broken("joint")) >= 3
    assert false.chance(len(false.broken("joint")), "joint") < 1e-6, "not what alpha and beta allow"
