"""Each noise end to end, from the sampler to the claim: a classifier that loses exactly what `down` allows."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from toy import streamed

from multiguard.certify import (
    BandAblation,
    Gaussian,
    PixelAblation,
    Threshold,
    TopK,
    Uniform,
    certified_radii,
    certified_radii_batch,
)
from multiguard.certify.noise import HIDDEN, Noise
from multiguard.smooth import Smoother
from multiguard.votes.types import as_array

IMAGES, DRAWS, ALPHA, SIZE = 200, 120, 0.2, 4
SHOWN = [5, 6, 7]  # pixels that let the classifier return its label, apart from the first


def below(x: torch.Tensor) -> torch.Tensor:
    """Label 0 where the first value is below 0.2, by logits; label 1 elsewhere."""
    first = x.flatten(1)[:, 0] < 0.2
    return torch.stack([first, ~first], dim=1) * 20.0 - 10.0


def sees(x: torch.Tensor) -> torch.Tensor:
    """Label 0 where the first pixel is shown and dark, or is hidden and one of three others is shown."""
    seen, dark = x.flatten(2)[:, 0] != HIDDEN, x.flatten(2)[:, 0] < 0.5
    first = torch.where(seen[:, 0], dark[:, 0], seen[:, SHOWN].any(dim=1))
    return torch.stack([first, ~first], dim=1) * 20.0 - 10.0


def dark(x: torch.Tensor) -> torch.Tensor:
    """Label 0 where every shown pixel is dark, label 1 elsewhere."""
    first = (x.flatten(1) < 0.5).all(dim=1)
    return torch.stack([first, ~first], dim=1) * 20.0 - 10.0


@dataclass(frozen=True)
class Case:
    """A noise, a classifier that loses D exactly, and the attack that does it."""

    noise: Noise
    classifier: object
    radius: float  # of the attack
    before: float  # the probability of label 0, and after the attack
    after: float

    def image(self, attacked: bool = False) -> np.ndarray:
        """A black image; the attack moves its first value, or turns its first pixel white."""
        image = np.zeros((3, SIZE, SIZE), np.float32)
        if attacked:
            image[(slice(None), 0, 0) if self.noise.whole else (0, 0, 0)] = 1.0 if self.noise.whole else self.radius
        return image


@cache
def votes_of(case: Case, images: int, draws: int, attacked: bool = False) -> list[np.ndarray]:
    """(draws, 2) the labels of each draw, for each image."""
    options = {"labels": ["a", "b"], "output": "logits", "score_threshold": 0.5, "device": "cpu"}
    smoother = Smoother(case.classifier, noise=case.noise, **options)
    named = ((str(number), case.image(attacked)) for number in range(images))
    return [found.hits() for found in streamed(smoother, named, draws, noise_seed=1).values()]


# Of 16 pixels 4 stay. The first is hidden in 3/4 of the draws, and then one of three others is shown in
# 1 - C(12, 4)/C(15, 4) of them.
_OTHERS = 0.75 * (1 - 495 / 1365)
CASES = [
    Case(Gaussian(0.5), below, 0.3, 0.6554217, 0.4207403),  # Phi(0.4), Phi(-0.2)
    Case(Uniform(0.5), below, 0.3, 0.7, 0.4),
    Case(PixelAblation(4, SIZE * SIZE), sees, 1, 0.25 + _OTHERS, _OTHERS),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.noise.kind)


@each_case
def test_equality(case: Case) -> None:
    """The classifier loses what `down` says that it may: by closed form, and as the sampler draws."""
    assert float(case.noise.down(case.before, case.radius)) == pytest.approx(case.after, abs=1e-6)
    for attacked, probability in ((False, case.before), (True, case.after)):
        (votes,) = votes_of(case, 1, 20_000, attacked)
        assert binomtest(int(votes[:, 0].sum()), 20_000, probability).pvalue > 1e-4


@each_case
def test_false_claims(case: Case) -> None:
    """The label leaves by a hair under the attack: that it stays is claimed as rarely as promised, and not never."""
    wrong = false_claims(case, case.noise)
    assert binomtest(wrong, IMAGES, ALPHA, alternative="greater").pvalue > 1e-4
    assert wrong >= ALPHA / 10 * IMAGES


@pytest.mark.parametrize(
    ("case", "noise"),
    [(CASES[0], Gaussian(1.0)), (CASES[1], Uniform(1.0)), (CASES[2], PixelAblation(2, SIZE * SIZE))],
    ids=["gaussian", "uniform", "pixels"],
)
def test_caught_claims(case: Case, noise: Noise) -> None:
    """Certified as if the noise were stronger, the same votes make far too many false claims."""
    wrong = false_claims(case, noise)
    assert binomtest(wrong, IMAGES, ALPHA, alternative="greater").pvalue < 1e-6


def false_claims(case: Case, noise: Noise) -> int:
    """In how many images label 0 is claimed to stay above a t that it falls below."""
    rule, votes = Threshold(round(case.after + 0.001, 4)), votes_of(case, IMAGES, DRAWS)
    options = {"num_labels": 2, "noise": noise, "alpha": ALPHA, "method": "joint"}
    found = certified_radii_batch(votes, [[0]] * IMAGES, rule, **options)
    return sum(radii.true[0] >= case.radius for radii in found)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("rule", [TopK(1, 1), Threshold(0.5), Threshold(0.25)], ids=str)
def test_bands(rule: TopK | Threshold, width: int) -> None:
    """Of bands every claim is true, and a patch one larger than is claimed does break it."""
    options = {"k_max": 1} if isinstance(rule, TopK) else {"score_threshold": 0.5}
    noise = BandAblation(width, 12)
    smoother = Smoother(dark, noise=noise, labels=["a", "b"], output="logits", device="cpu", **options)

    def votes(side: int, first: int = 0) -> np.ndarray:
        image = np.zeros((3, 12, 12), np.float32)
        image[:, :side, first : first + side] = 1.0
        return as_array(smoother.votes(image, noise.columns, noise_seed=0, image_id="one"), rule)

    claimed = int(certified_radii(votes(0), [0], rule, noise=noise, num_labels=2).true[0])
    assert claimed >= 1
    returned = [rule.returned(votes(claimed, first), 2) for first in range(12 - claimed + 1)]
    assert all(0 in labels for labels in returned)
    hits = rule.hits(votes(claimed + 1), 2)
    assert hits[0] <= hits[1] if isinstance(rule, TopK) else hits[0] < rule.needed(12)
