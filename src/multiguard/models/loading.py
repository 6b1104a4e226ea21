"""Loading any kind of base classifier by its spec."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum
from multiguard.models.backbone import load_timm
from multiguard.models.classifier import Classifier, ModelOptions, Output, label_tuple
from multiguard.models.huggingface import hf_checksum, load_hf
from multiguard.models.model_folder import folder_checksum, load_folder
from multiguard.models.onnx_file import load_onnx, onnx_checksum
from multiguard.models.python_code import load_code
from multiguard.models.python_object import wrap_model
from multiguard.models.spec import Kind, parse_spec


def runs_code(spec: str) -> bool:
    """Whether loading this spec imports a Python module that it names; a received file must never trigger that."""
    return parse_spec(spec).kind == "code"


def weights_checksum(spec: str, weights: Path | None = None) -> str | None:
    """The hash of the files that `load` reads, before any of them is taken for a model.

    It equals the `weights_hash` of the classifier; None where code makes the model, or no file of weights is named.
    """
    parsed = parse_spec(spec)
    if parsed.kind == "folder":
        return folder_checksum(Path(parsed.target))
    if parsed.kind == "timm":
        return None if weights is None else file_checksum(weights)
    if parsed.kind in ("code", "network"):
        return None
    return hf_checksum(parsed.target) if parsed.kind == "hf" else onnx_checksum(parsed.target)


def load(
    model: Any,
    *,
    labels: Sequence[str] | None = None,
    weights: str | Path | None = None,
    output: Output | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    image_size: tuple[int, int] | None = None,
    name: str | None = None,
) -> Classifier:
    """A base classifier of any kind, loaded without running code from any weights file.

    A `Classifier` and a model folder determine all options themselves: any option given with them raises `ModelError`.
    An object that is given is used, not copied. Inputs may have any shape (B, ...).

    Args:
        model: An object or a name. Objects: a `Classifier`; an `nn.Module`; a Hugging Face model (whose output has
            `logits`); a function of a batch, which takes tensors or NumPy arrays and returns either; a scikit-learn
            estimator with `predict_proba` or `decision_function`, pipelines included, whose rows are inputs flattened;
            an `onnxruntime.InferenceSession`. Names: a built-in model, such as `coco-0.5`; a model folder, or the run
            folder around it; `timm:NAME`; `hf:FOLDER`; `onnx:FILE`; `module:name` or `file.py:name` for one of the
            objects above or a function without arguments that returns one (the only names that run your code, whose
            files are hashed for the record).
        labels: The c label names in the order of the scores; None for the model's own. A Hugging Face model has them,
            a scikit-learn estimator has its `classes_`; those of another object are named by their indices. `timm:NAME`
            requires them.
        weights: For `timm:NAME`, a .safetensors or .pth file.
        output: "logits" or "probabilities", never guessed from values. timm and Hugging Face models return logits,
            `predict_proba` returns probabilities; for others a score threshold requires it, and a ranking does not.
        mean: Per-channel mean of the normalisation; timm and Hugging Face names have their own.
        std: Per-channel standard deviation of the normalisation.
        image_size: (height, width) of the model's input; None for any size.
        name: The model's name in records; its type or `model` itself by default. `vote_dataset` requires one for
            objects without weights of their own: it must change when the function does.

    Returns:
        The classifier. Where neither `labels` nor the model says how many labels there are, `num_labels` is None until
        `find_labels` has seen an input.

    >>> from torch import nn
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))
    >>> classifier = load(network, labels=["cat", "dog"], output="logits", mean=[0.5], std=[0.25])
    >>> classifier.label_names, classifier.name
    (('cat', 'dog'), 'Sequential')
    >>> load(lambda rows: rows[:, :2]).num_labels is None
    True
    """
    names = None if labels is None else label_tuple(labels)
    options = ModelOptions(names, None if weights is None else Path(weights), output, mean, std, image_size, name)
    if not isinstance(model, str):
        return wrap_model(model, options)
    spec = parse_spec(model)
    return _LOADERS[spec.kind](spec.target, options)


def _load_folder(folder: str, options: ModelOptions) -> Classifier:
    options.refuse_all(folder)
    return load_folder(folder)


def _load_network(name: str, options: ModelOptions) -> Classifier:
    raise ModelError(f"{name} is a network to train, without weights; name the model folder that training wrote")


_LOADERS: dict[Kind, Callable[[str, ModelOptions], Classifier]] = {
    "folder": _load_folder,
    "network": _load_network,
    "timm": load_timm,
    "hf": load_hf,
    "onnx": load_onnx,
    "code": load_code,
}
