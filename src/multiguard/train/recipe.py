"""The recipe of a training run: one documented set of defaults, and what the embedded digits change in it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name
from multiguard.train.augment import Augmentation
from multiguard.train.loss import find_loss

Keep = Literal["best", "last"]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the outcome of training beside the data and the network.

    Attributes:
        sigma: Deviation of the noise on every training image, in pixels of [0, 1]; 0 trains without noise.
        val_sigma: Deviation of the noise on validation images; None for `sigma`.
        epochs: Passes over the training images; 0 validates and writes the model as it is.
        batch: Images a step, all processes together.
        lr: Adam's learning rate at the peak of the one-cycle schedule.
        warmup: The share of the steps in which the rate climbs.
        weight_decay: Adam's L2 on convolution and linear weights.
        dropout: The share of the head's inputs that a step leaves out.
        loss: "asl" or "bce".
        ramp_epochs: Epochs in which sigma climbs in a straight line; 0 for none.
        ema: The slowest decay of the weights' moving average.
        clip: The largest gradient norm; longer gradients are shortened to it.
        crop: The least share of the area that a random crop keeps; 1 for no crop.
        shift: The most pixels an image is moved each way.
        flip: Whether images are mirrored at random.
        keep: Which epoch's weights are left: "best", of the highest noisy validation mAP, or "last", so that the
            validation images have no part in the model.
        seed: Decides the order, the crops, the noise and the first weights.
    """

    sigma: float = 0.5
    val_sigma: float | None = None
    epochs: int = 45
    batch: int = 32
    lr: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 1e-4
    dropout: float = 0.0
    loss: str = "asl"
    ramp_epochs: int = 0
    ema: float = 0.999
    clip: float = 1.0
    crop: float = 0.5
    shift: int = 0
    flip: bool = True
    keep: Keep = "best"
    seed: int = 0

    def __post_init__(self) -> None:
        find_loss(self.loss)
        if self.keep not in get_args(Keep):
            raise InvalidInputError(unknown_name("keep", self.keep, get_args(Keep)))
        for name, holds, rule in self._rules():
            if not holds:
                raise InvalidInputError(f"{name} is {getattr(self, name)}; it must be {rule}")

    @property
    def validation_sigma(self) -> float:
        """The noise on validation images: what the model is chosen by, and made for."""
        return self.sigma if self.val_sigma is None else self.val_sigma

    @property
    def augmentation(self) -> Augmentation:
        """What happens to a training image before the noise."""
        return Augmentation(least_area=self.crop, shift=self.shift, flip=self.flip)

    def _rules(self) -> list[tuple[str, bool, str]]:
        return [
            ("sigma", 0 <= self.sigma < math.inf, "0 or more, and finite"),
            ("val_sigma", 0 <= self.validation_sigma < math.inf, "0 or more, and finite"),
            ("epochs", self.epochs >= 0, "0 or more"),
            ("batch", self.batch >= 1, "1 or more"),
            ("lr", 0 < self.lr < math.inf, "above 0, and finite"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or more, and finite"),
            ("warmup", 0 <= self.warmup < 1, "in [0, 1)"),
            ("dropout", 0 <= self.dropout < 1, "in [0, 1)"),
            ("ema", 0 <= self.ema < 1, "in [0, 1)"),
            ("clip", self.clip > 0, "above 0"),
            ("crop", 0 < self.crop <= 1, "in (0, 1]"),
            ("ramp_epochs", self.ramp_epochs >= 0, "0 or more"),
            ("shift", self.shift >= 0, "0 or more"),
            ("seed", 0 <= self.seed < 2**63, "0 or more, and below 2**63"),
        ]


_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "digits": {"epochs": 4, "lr": 2e-3, "crop": 1.0, "shift": 2, "flip": False},
}


def recipe_for(data: str, **chosen: Any) -> Recipe:
    """The default recipe for this dataset with the caller's choices over it; None is no choice."""
    known = {field.name for field in fields(Recipe)}
    for name in chosen:
        if name not in known:
            raise InvalidInputError(unknown_name("recipe option", name, known))
    made = {name: value for name, value in chosen.items() if value is not None}
    return Recipe(**{**_CHANGES.get(data, {}), **made})
