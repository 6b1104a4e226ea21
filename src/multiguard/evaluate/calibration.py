"""A calibration: how many draws must hit a label so that the returned labels keep a recall under attack.

`docs/calibration.md` says what is promised, over which randomness, and proves it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from multiguard.certify.arguments import Ints
from multiguard.certify.noise import parse_noise
from multiguard.errors import DataError, InvalidInputError
from multiguard.io.config import Config, Count, Fraction, NotNegative, Whole, described, from_tree, to_tree
from multiguard.io.files import read_regular
from multiguard.io.records import decode_checked, encode_checked
from multiguard.io.rounding import plain_percent, round_up
from multiguard.io.writer import staged

CALIBRATION_NAME = "calibration.json"
NOT_PROMISED = (
    "This is no promise for one image alone, for images unlike the calibration images, or for an attacker who also "
    "chooses which images are sent."
)
_FORMAT = "multiguard-calibration"
_VERSION = 1
_MOST = 1 << 24  # bytes of a file


class Calibration(Config, frozen=True):
    """The labels that `threshold` of `draws` fresh draws hit hold at least `recall` of the true ones, on average.

    That holds under every perturbation up to the radius, even one chosen with knowledge of everything but the draws.
    The average is over new images like the calibration images, the draws, and, where `confidence` is None, the
    calibration images; otherwise it holds with that confidence over the calibration images.

    >>> import numpy as np
    >>> calibration = Calibration(
    ...     recall=0.8, radius=0.5, k_prime=4, threshold=67, draws=1000, noise="gaussian:0.5", images=400,
    ...     votes_draws=1000, label_names=("cat", "dog"), model="m", classifier_hash="c", images_hash="i", seed=0,
    ... )
    >>> calibration.chosen(np.array([66, 67]))
    (1,)
    >>> calibration.sentence
    'On average the returned labels hold at least 80 % of the true labels of an image, even if ...'
    """

    recall: Annotated[Fraction, described("The fraction of the true labels that is promised.")]
    radius: Annotated[NotNegative, described("The largest perturbation under which it is promised.")]
    k_prime: Annotated[Count, described("Labels that the model returns per draw.")]
    threshold: Annotated[Count, described("A label is returned if at least this many draws hit it.")]
    draws: Annotated[Count, described("The draws of each image, m.")]
    noise: Annotated[str, described("The noise, as in votes.")]
    images: Annotated[Count, described("The calibration images with labels, N.")]
    votes_draws: Annotated[Count, described("The draws of each calibration image, n.")]
    label_names: Annotated[tuple[str, ...], described("The names of all labels, in index order.")]
    model: Annotated[str, described("The name of the model.")]
    classifier_hash: Annotated[str, described("The checksum of all its weights as it ran.")]
    images_hash: Annotated[str, described("The checksum of the pixel hashes of the calibration images.")]
    seed: Annotated[Whole, described("The seed of the split of the images.")]
    weights_hash: Annotated[str | None, described("The checksum of its weights file.")] = None
    code_hash: Annotated[str | None, described("The checksum of the code that makes it.")] = None
    confidence: Annotated[Fraction | None, described("Over the calibration images [in expectation].")] = None
    wrong: Annotated[NotNegative | None, described("Wrong labels at most, on average, under attack.")] = None
    wrong_confidence: Annotated[Fraction | None, described("The confidence of that number.")] = None
    returned: Annotated[NotNegative | None, described("Labels returned without attack, on average.")] = None
    achieved: Annotated[NotNegative | None, described("Recall without attack on images that had no part.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_noise(self.noise)
        if self.threshold > self.draws:
            raise InvalidInputError(f"threshold is {self.threshold}, more than the {self.draws} draws")

    @property
    def num_labels(self) -> int:
        """How many labels there are, c."""
        return len(self.label_names)

    def chosen(self, hits: Ints) -> tuple[int, ...]:
        """The labels that enough of the draws hit, most hits first, ties by index.

        Args:
            hits: (c,) in how many of the `draws` draws the model returned each label among its top k'.
        """
        given = np.asarray(hits)
        if given.shape != (self.num_labels,) or given.dtype.kind not in "iu":
            raise InvalidInputError(f"hits must be {self.num_labels} whole numbers, one per label; got {given.shape}")
        if given.min() < 0 or given.max() > self.draws:
            raise InvalidInputError(f"hits must lie between 0 and {self.draws}, the number of draws")
        order = np.argsort(-given.astype(np.int64), kind="stable")
        return tuple(int(label) for label in order if given[label] >= self.threshold)

    @property
    def sentence(self) -> str:
        """What is promised, as a sentence."""
        allowed = parse_noise(self.noise).threat_words(self.radius)
        sure = f", with {plain_percent(self.confidence)} % confidence" if self.confidence is not None else ""
        words = (
            f"On average the returned labels hold at least {plain_percent(self.recall)} % of the true labels of an "
            f"image, even if {allowed} was made{sure}"
        )
        return f"{words}{self._wrong_words}."

    @property
    def _wrong_words(self) -> str:
        if self.wrong is None:
            return ""
        other = None if self.wrong_confidence == self.confidence else self.wrong_confidence
        sure = f" ({plain_percent(other)} % confidence)" if other is not None else ""
        return f"; at most {round_up(self.wrong, 2)} of them are wrong on average{sure}"


def write_calibration(path: str | Path, calibration: Calibration, *, force: bool = False) -> None:
    """Write a calibration to a file, which `read_calibration` reads; another one is replaced only with `force`."""
    path, tree = Path(path), to_tree(calibration)
    with staged(path, tree, kind="another calibration", folders=(), force=force) as stage:
        if stage is not None:
            (stage / path.name).write_bytes(encode_checked(tree, format=_FORMAT, version=_VERSION))


def read_calibration(path: str | Path) -> Calibration:
    """A calibration as it was written; a damaged or edited file raises `DataError`."""
    try:
        return from_tree(Calibration, decode_checked(read_regular(Path(path), _MOST), format=_FORMAT, version=_VERSION))
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be read: {reason}; `multiguard calibrate` writes it") from error
    except (ValueError, InvalidInputError) as error:
        raise DataError(f"{path} cannot be used: {error}; calibrate again to write it") from error
