"""Loading any kind of base classifier by its spec."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, read_lines
from multiguard.models.card import ModelCard, folder_checksum, read_card
from multiguard.models.classifier import Classifier, ModelOptions, Output, label_tuple
from multiguard.models.code import load_code, wrap_model
from multiguard.models.config import ModelConfig
from multiguard.models.onnx import load_exported, load_onnx, onnx_checksum
from multiguard.models.spec import Kind, parse_spec


def runs_code(spec: str) -> bool:
    """Whether loading this spec imports a Python module that it names; a received file must never trigger that."""
    return parse_spec(spec).kind == "code"


def weights_checksum(spec: str, weights: Path | None = None) -> str | None:
    """The hash of the files that `load` reads, before any of them is taken for a model.

    It equals the `weights_hash` of the classifier; None where code makes the model, or no file of weights is named.
    """
    parsed = parse_spec(spec)
    if parsed.kind in ("timm", "network", "code"):
        return None if weights is None or parsed.kind == "code" else file_checksum(weights)
    if parsed.kind == "hf":
        from multiguard.models.huggingface import hf_checksum

        return hf_checksum(parsed.target)
    return (folder_checksum if parsed.kind == "folder" else onnx_checksum)(parsed.target)


def load_model(config: ModelConfig, *, size: int | None = None) -> Classifier:
    """The classifier of a config; only the user's own code may leave its labels unnamed.

    Args:
        config: Which model, and what it does not say of itself.
        size: Height and width of its images; None for the config's, or the model's own.
    """
    model = config.resolved()
    if None not in (size, model.size) and size != model.size:
        raise InvalidInputError(f"{config.spec} takes images of {model.size}x{model.size}; leave out the size {size}")
    side, kind = size or model.size, parse_spec(model.spec).kind
    labels = None if model.labels is None else tuple(read_lines(model.labels))
    if labels is None and kind in ("timm", "network", "onnx"):
        raise unnamed_labels(config.spec)
    classifier = load(
        model.spec,
        labels=labels,
        weights=model.weights,
        output=model.output,
        mean=model.mean,
        std=model.std,
        image_size=None if side is None or _card_folder(model) is not None else (side, side),
    )
    if model.denoiser is None:
        return classifier
    from multiguard.models.denoiser import denoise_first

    return denoise_first(classifier, model.denoiser)


def unnamed_labels(spec: str) -> InvalidInputError:
    """The error where nothing says which score belongs to which label."""
    file = "give --labels FILE, one name per line in the order of the scores"
    return InvalidInputError(f"{spec} does not say which score belongs to which label; {file}")


def square_size(classifier: Classifier, spec: str, size: int | None) -> int | None:
    """The height and width to resize images to for this classifier; None if it takes any.

    Args:
        classifier: The classifier.
        spec: How it was named.
        size: The requested size; one that the classifier does not take raises `InvalidInputError`.
    """
    own = classifier.image_size
    if own is None and size is None and parse_spec(spec).kind in ("timm", "network"):
        from multiguard.models.backbone import input_size

        return input_size(spec)
    if own is None:
        return size
    if own[0] != own[1]:
        raise InvalidInputError(f"{spec} takes images of {own[0]}x{own[1]}; only square images are supported here")
    if size not in (None, own[0]):
        raise InvalidInputError(f"{spec} takes images of {own[0]}x{own[0]}; leave out the size {size}")
    return own[0]


def folder_card(model: ModelConfig) -> ModelCard | None:
    """The card of the model folder; None if the model is none."""
    folder = _card_folder(model)
    return None if folder is None else read_card(folder)


def chosen_noise(model: ModelConfig, *texts: str | None) -> str:
    """The text of the noise to use: the first that is given, or else that of the model folder."""
    card = folder_card(model)
    own = None if card is None or card.noise is None else str(card.noise)
    chosen = next((text for text in texts if text is not None), own)
    if chosen is None:
        raise InvalidInputError(
            f"no noise given, and {model.spec} does not say which; give --sigma, such as 0.5, or --noise"
        )
    return chosen


def _card_folder(model: ModelConfig) -> Path | None:
    """The model folder whose card says everything, named itself or as the weights of the user's code."""
    parsed = parse_spec(model.spec)
    if parsed.kind == "code" and model.weights is not None and model.weights.is_dir():
        return model.weights
    return Path(parsed.target) if parsed.kind == "folder" else None


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
        model: An object or a name. Objects: a `Classifier`; an `nn.Module`, such as a Hugging Face model; a function of
            a batch, which gets NumPy arrays, or tensors if it fails on arrays or returns a tensor; a scikit-learn
            estimator with `predict_proba` or `decision_function`, whose rows are inputs flattened; an
            `onnxruntime.InferenceSession`.
            Names: a built-in model, such as `coco`; a model folder, or the run folder around it; `timm:NAME`;
            `hf:FOLDER`; `onnx:FILE`; `FILE.yaml`; `module:name` or `file.py:name` for one of the objects above or a
            function without arguments that returns one (only these run your code; its files are hashed).
        labels: The c label names in the order of the scores; None for the model's own, or else indices. `timm:NAME`
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
        The classifier; `num_labels` is None until `ready` has seen an input, if nothing says how many there are.

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
    if spec.kind in ("folder", "yaml"):
        options.refuse_all(spec.target)
    return _load_named(spec.kind, spec.target, options)


def _load_named(kind: Kind, target: str, options: ModelOptions) -> Classifier:
    """The model of a name; torch is imported only where it runs the model."""
    if kind == "onnx":
        return load_onnx(target, options)
    if kind == "code":
        return load_code(target, options)
    if kind == "yaml":
        return load_model(ModelConfig(target))
    if kind == "hf":
        from multiguard.models.huggingface import load_hf

        return load_hf(target, options)
    if kind == "folder":
        if (exported := load_exported(Path(target))) is not None:
            return exported
        from multiguard.models.model_folder import load_folder

        return load_folder(target)
    from multiguard.models.backbone import load_network

    return load_network(f"timm:{target}" if kind == "timm" else target, options)
