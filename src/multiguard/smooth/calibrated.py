"""A calibrated classifier: on average its labels hold a fraction of the true ones, even under attack."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import label_radii
from multiguard.errors import InvalidInputError
from multiguard.evaluate.calibration import Calibration, check_classifier, check_size, classifier_facts
from multiguard.io.rounding import plain, plain_percent
from multiguard.models import spec as spec_names
from multiguard.smooth.engine import Image
from multiguard.smooth.prediction import LiveVotes, Prediction

if TYPE_CHECKING:
    from multiguard.smooth.smoother import Smoother


class Calibrated:
    """On average the labels of `predict` hold the promised fraction of the true ones, even under attack.

    The calibration says under which attack, over what the average is, and with which confidence. The attacker may know
    all of it, and the classifier, but not the draws, which are fresh in each call.

    Args:
        smoother: The classifier with the noise that the calibration is of.
        calibration: The calibration; of another classifier or noise, `InvalidInputError`.

    >>> import numpy as np
    >>> from multiguard import Smoother
    >>> draws = np.random.default_rng(0)
    >>> inputs, true = draws.normal(size=(60, 3)), draws.integers(3, size=60)
    >>> inputs[np.arange(60), true] += 4
    >>> smoother = Smoother(lambda rows: rows.copy(), sigma=0.5, labels=["cat", "dog", "emu"])
    >>> options = {"draws": 100, "noise_seed": 0, "progress": False}
    >>> smoother.calibrate((inputs, [[label] for label in true]), recall=0.8, radius=0.5, **options)
    On average the returned labels hold at least 80 % of the true labels of an image, even under any ...
    """

    def __init__(self, smoother: "Smoother", calibration: Calibration) -> None:
        if smoother.classifier.num_labels is None:
            raise InvalidInputError("smoother has no label names yet; give Smoother(..., labels=...) those calibrated")
        check_classifier(calibration, classifier_facts(execution_facts(smoother)), smoother.classifier.label_names)
        self.smoother, self.calibration = smoother, calibration

    def predict(
        self, image: Image, *, alpha: float = 0.001, noise_seed: int | None = None, image_id: str | None = None
    ) -> Prediction:
        """The labels that enough of the fresh draws have, and up to which radius each stays frequent enough.

        The radii of all labels hold at once with probability at least 1 - alpha over the draws: a label stays one that
        the classifier returns in at least about h / m of its draws, as the calibration asks.

        Args:
            image: The image, as for `Smoother.votes`.
            alpha: The probability that any radius is wrong.
            noise_seed: The seed of the noise, for a copy of an earlier answer; by default a random one. What is
                promised holds only if the sender of the image does not know it.
            image_id: The id of the image, which keys the noise; by default the hash of the image.
        """
        live = LiveCalibrated(self, image, alpha=alpha, noise_seed=noise_seed, image_id=image_id)
        live.draw(self.calibration.draws)
        return live.prediction()

    def __repr__(self) -> str:
        own = self.calibration
        return "\n".join(each for each in (own.sentence, own.how, own.expected) if each)


class LiveCalibrated(LiveVotes):
    """The draws of `Calibrated.predict` as they come; `labels` is None before the last of them."""

    def __init__(self, calibrated: Calibrated, image: Image, **options: Any) -> None:
        super().__init__(calibrated.smoother, image, calibrated.calibration.rule, **options)
        self._calibration = calibrated.calibration
        if self._calibration.image_size is not None:
            check_size(self._calibration, np.shape(self._image)[-2:])
        self.most_draws = self._calibration.draws

    def draw(self, draws: int) -> None:
        """Make further draws, but no more than the calibration says in all."""
        own, left = self._calibration, self._calibration.draws - self.draws
        if left > 0:
            self._add("certify", min(draws, left))
        if self.draws == own.draws:
            self.labels = own.chosen(self.hits)

    def prediction(self) -> Prediction:
        """The labels with their radii; all draws must be made."""
        own, labels = self._calibration, self.labels
        if labels is None:
            raise InvalidInputError(f"{self.draws} of the {own.draws} draws are made; draw the others first")
        self.check_state()
        # Each of all c labels has a level, so that the draws that choose some of them may certify these.
        options: dict[str, Any] = {"num_labels": own.num_labels, "noise": self._smoother.noise}
        radii = np.empty(0)
        if labels:
            radii = label_radii(self.votes, labels, own.rule, alpha=self.alpha / own.num_labels, **options)
        return Prediction(
            labels,
            tuple(radii.tolist()),
            tuple((-np.sort(-radii)).tolist()),
            names=tuple(own.label_names[label] for label in labels),
            noise_seed=self.noise_seed,
            image_id=self.image_id,
            draws=self.draws,
            promise=own.sentence,
        )


def execution_facts(smoother: "Smoother") -> SimpleNamespace:
    """What votes of a classifier would record of it and of its execution, as far as a calibration compares it."""
    classifier = smoother.classifier
    hashes = {"weights_hash": classifier.weights_hash, "code_hash": classifier.code_hash}
    return SimpleNamespace(**hashes, classifier_hash=classifier.state_hash(), **vars(smoother.settings))


def shipped_calibrations(spec: str) -> dict[str, Path]:
    """The calibrations that a built-in model has, by their names, such as recall-80-radius-0.5; other models have none.

    Their votes were drawn with the network in torch, in float32 without TF32. The form of the network that needs no
    torch has the same weights, and scores that differ by rounding only: the promise is taken to be about both, and
    `docs/serve.md` says how few draws that decides.
    """
    found = (spec_names.BUILT_IN / spec).glob("calibrations/*.json") if spec in spec_names.built_in_names() else ()
    return {file.stem: file for file in sorted(found)}


def shipped_name(recall: float, radius: float) -> str:
    """The name of a built-in model's calibration.

    >>> shipped_name(0.8, 0.5)
    'recall-80-radius-0.5'
    """
    return f"recall-{plain_percent(recall)}-radius-{plain(radius)}"
