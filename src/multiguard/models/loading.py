"""Loading any kind of base classifier by its spec."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum
from multiguard.models.backbone import load_timm
from multiguard.models.classifier import UNNAMED, Classifier, ModelOptions, Output
from multiguard.models.huggingface import hf_checksum, load_hf
from multiguard.models.model_folder import folder_checksum, load_folder
from multiguard.models.onnx_file import load_onnx, onnx_checksum
from multiguard.models.python_code import load_function, wrap_model

LOADERS = {"timm": load_timm, "hf": load_hf, "onnx": load_onnx}  # by prefix; any other is a Python module


def runs_code(spec: str) -> bool:
    """Whether loading this spec imports a Python module that it names; a received file must never trigger that."""
    return not Path(spec).is_dir() and spec.partition(":")[0] not in LOADERS


def weights_checksum(spec: str, weights: Path | None = None) -> str | None:
    """The hash of the files that `load_classifier` reads, before any of them is taken for a model.

    It equals the `weights_hash` of the classifier; None where code makes the model, or no file of weights is named.
    """
    kind, _, rest = spec.partition(":")
    if Path(spec).is_dir():
        return folder_checksum(Path(spec))
    if kind == "timm":
        return None if weights is None else file_checksum(weights)
    return {"hf": hf_checksum, "onnx": onnx_checksum}[kind](rest) if kind in LOADERS else None


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

    A model folder and a `Classifier` determine all options themselves: any option given with them raises `ModelError`.

    Args:
        spec: The folder that training wrote, `timm:NAME`, `hf:FOLDER`, `onnx:FILE`, `module:function` (called
            without arguments, it returns a model; the only form that runs your code, whose files are hashed for the
            record), a `Classifier`, an `nn.Module`, or any callable (B, ...) in [0, 1] -> (B, c).
        labels: The c label names; a Hugging Face folder has its own.
        weights: For `timm:NAME`, a .safetensors or .pth file.
        output: "logits" or "probabilities". Required for ONNX, modules and callables; timm and Hugging Face
            models return logits. It is never guessed from values.
        mean: Per-channel mean of the normalisation; timm and Hugging Face models have their own.
        std: Per-channel standard deviation of the normalisation.
        image_size: (height, width) of the model's input; None for any size.
        name: The model's name in records; `spec` by default. `vote_dataset` requires one for a plain function: it must
            change when the function does.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
    >>> classifier = load_classifier(network, labels=["cat", "dog"], output="logits", mean=[0.5], std=[0.25])
    >>> classifier.label_names, classifier.name
    (('cat', 'dog'), 'Sequential')
    """
    options = ModelOptions(labels, None if weights is None else Path(weights), output, mean, std, image_size, name)
    if not isinstance(spec, str):
        return wrap_model(spec, options, type(spec).__name__ if isinstance(spec, nn.Module) else UNNAMED)
    if Path(spec).is_dir():
        options.refuse_all(spec)
        return load_folder(spec)
    kind, _, rest = spec.partition(":")
    if not rest:
        kinds = ", ".join(f"{key}:..." for key in LOADERS)
        raise ModelError(f"unknown model {spec!r}: expected the folder of a trained model, {kinds} or module:function.")
    return LOADERS[kind](rest, options) if kind in LOADERS else load_function(spec, options)
