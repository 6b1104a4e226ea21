"""A calibrated classifier: on average its labels hold a fraction of the true ones, even under attack."""

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import label_radii
from multiguard.certify.arguments import Bools, check_alpha
from multiguard.errors import InvalidInputError
from multiguard.evaluate.calibration import Calibration, check_classifier, classifier_facts
from multiguard.smooth.engine import Image, content_id
from multiguard.smooth.noise_source import resolve_seed
from multiguard.smooth.prediction import Prediction
from multiguard.votes.types import LabelSets

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
        classifier = smoother.classifier
        run = SimpleNamespace(
            weights_hash=classifier.weights_hash,
            code_hash=classifier.code_hash,
            classifier_hash=classifier.state_hash(),
            **vars(smoother.settings),
        )
        check_classifier(calibration, classifier_facts(run), classifier.label_names)
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
        check_alpha(alpha)
        name, seed = content_id(image) if image_id is None else image_id, resolve_seed(noise_seed)
        votes = self.smoother.votes(image, self.calibration.draws, noise_seed=seed, image_id=name)
        sets = self.calibration.rule.sets(
            votes.hits() if isinstance(votes, LabelSets) else votes, self.calibration.num_labels
        )
        return replace(self.prediction(sets, alpha), noise_seed=seed, image_id=name)

    def prediction(self, sets: Bools, alpha: float) -> Prediction:
        """The prediction from the labels of each draw, boolean (m, c)."""
        own, noise = self.calibration, self.smoother.noise
        labels = own.chosen(sets.sum(axis=0))
        # Each of all c labels has a level, so that the draws that choose some of them may certify these.
        options: dict[str, Any] = {"num_labels": own.num_labels, "noise": noise, "alpha": alpha / own.num_labels}
        radii = label_radii(sets, labels, own.rule, **options) if labels else np.empty(0)
        return Prediction(
            labels,
            tuple(radii.tolist()),
            tuple((-np.sort(-radii)).tolist()),
            names=tuple(own.label_names[label] for label in labels),
            draws=len(sets),
            promise=own.sentence,
        )

    def __repr__(self) -> str:
        own = self.calibration
        return "\n".join(each for each in (own.sentence, own.how, own.expected) if each)
