"""The noises, one for each attacker: l2-norm, l1-norm, changed pixels, one square patch."""

from multiguard.certify.ablation import HIDDEN, BandAblation, PixelAblation
from multiguard.certify.additive import Gaussian, Uniform
from multiguard.certify.noise_model import Sampler
from multiguard.errors import InvalidInputError

__all__ = ["HIDDEN", "BandAblation", "Gaussian", "Noise", "PixelAblation", "SampledNoise", "Sampler", "Uniform"]

SampledNoise = Gaussian | Uniform | PixelAblation
Noise = SampledNoise | BandAblation
NOISES: dict[str, type[Noise]] = {noise.kind: noise for noise in (Gaussian, Uniform, PixelAblation, BandAblation)}


def check_sampled(noise: Noise) -> SampledNoise:
    """The noise, if its draws are a random sample."""
    if isinstance(noise, BandAblation):
        raise InvalidInputError(
            f"the noise {noise} has all {noise.columns} positions of the band and no random draws; only the method "
            "'enumerated' certifies it, from the votes of every position"
        )
    return noise
