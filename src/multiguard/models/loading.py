"""One door to every kind of base classifier."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.models.classifier import UNNAMED, Classifier, Output
from multiguard.models.folder import load_folder
from multiguard.models.from_code import load_function, wrap
from multiguard.models.from_hf import load_hf
from multiguard.models.from_onnx import load_onnx
from multiguard.models.from_timm import load_timm
from multiguard.models.options import ModelOptions

Loader = Callable[[str, ModelOptions], Classifier]

# What stands before the colon; anything else before a colon is a Python module.
LOADERS: dict[str, Loader] = {"timm": load_timm, "hf": load_hf, "onnx": load_onnx}


def runs_code(spec: str) -> bool:
    """Whether loading this would import a module that it names; a file that someone sent must never decide that."""
    return not Path(spec).is_dir() and spec.partition(":")[0] not in LOADERS


def load_classifier(
    spec: str | nn.Module | Callable[[Tensor], Tensor],
    *,
    labels: Sequence[str] | None = None,
    weights: str | Path | None = None,
    output: Output | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    image_size: tuple[int, int] | None = None,
    name: str | None = None,
) -> Classifier:
    """A base classifier whose weights were loaded without running code from any weights file.

    Args:
        spec: The folder that training wrote, `timm:NAME`, `hf:FOLDER`, `onnx:FILE`, `module:function` (called
            without arguments, it returns a model; the only form that runs your code, whose files are hashed for the
            record), a `Classifier`, an
            `nn.Module`, or any callable (B, ...) in [0, 1] -> (B, c).
        labels: The c label names; a Hugging Face folder and a `Classifier` bring their own.
        weights: For `timm:NAME`, a .safetensors or .pth file.
        output: "logits" or "probabilities". Needed for ONNX, modules and callables; timm and Hugging Face
            models give logits. It is never guessed from values.
        mean: Per-channel mean of the normalisation; timm and Hugging Face models bring their own.
        std: Per-channel deviation of the normalisation.
        image_size: (height, width) that the model takes; None if any will do.
        name: What to call the model in records; by default `spec`. Votes on a dataset ask for one where a plain
            function is given: it must change when the function does.

    A model folder and a `Classifier` say everything themselves: any option beside them raises `ModelError`.
    """
    place = None if weights is None else Path(weights)
    options = ModelOptions(labels, place, output, mean, std, image_size, name)
    if not isinstance(spec, str):
        return wrap(spec, options, type(spec).__name__ if isinstance(spec, nn.Module) else UNNAMED)
    kind, colon, rest = spec.partition(":")
    if Path(spec).is_dir():
        options.refuse_all(spec)
        return load_folder(spec)
    if not colon or not rest:
        raise ModelError(
            f"{spec!r} is no model: expected the folder of a trained model, "
            f"{', '.join(f'{key}:...' for key in LOADERS)}, module:function."
        )
    return LOADERS[kind](rest, options) if kind in LOADERS else load_function(spec, options)
