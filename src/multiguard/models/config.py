"""A model that exists, as a config."""

from pathlib import Path
from typing import Annotated, Literal

from multiguard.errors import InvalidInputError
from multiguard.io.config import Config, described

_CHANNELS = 3


class ModelConfig(Config, frozen=True):
    """A model that exists, and what it does not say of itself.

    >>> ModelConfig("onnx:model.onnx", output="logits").spec
    'onnx:model.onnx'
    """

    spec: Annotated[
        str, described("coco-0.5, a model folder, FILE.onnx, timm:NAME, hf:FOLDER or module:function.", "model")
    ]
    labels: Annotated[Path | None, described("Label names, one per line, in score order [the model's].")] = None
    weights: Annotated[Path | None, described("A weights file (timm, module), or a trained folder (module).")] = None
    output: Annotated[Literal["logits", "probabilities"] | None, described("What the scores are, for thresholds.")] = (
        None
    )
    mean: Annotated[tuple[float, ...] | None, described("Channel means, as in 0.48,0.46,0.41 [the model's].")] = None
    std: Annotated[
        tuple[float, ...] | None, described("Channel standard deviations, as in 0.23,0.22,0.23 [the model's].")
    ] = None
    denoiser: Annotated[Path | None, described("FFDNet weights for a denoiser in front of the model.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, _CHANNELS):
                raise InvalidInputError(f"{name} has {len(values)} numbers; images have {_CHANNELS} channels")
