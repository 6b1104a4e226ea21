"""The base classifier f: images in [0, 1] to one score per label, with its normalisation inside; without torch."""

import copy
import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import InvalidInputError, ModelError

if TYPE_CHECKING:
    from multiguard.models.torch_model import TorchClassifier

Output = Literal["logits", "probabilities"]
Takes = Literal["arrays", "tensors"]  # the batches that a network is called with
UNNAMED = "the callable"  # the name of a function whose caller gave it none
_CACHED_VALUES = 1 << 19
_EXPECTED = "expected one score per input and label, bare or as `logits`; pick them in a function of your own"


class ArrayNetwork(ABC):
    """A network that runs outside torch: batches and scores are NumPy arrays."""

    checksum = ""  # of all that it computes with, where it knows that
    feature_names: tuple[str, ...] | None = None
    has_torch_form = False  # whether `torch_form` returns the same classifier in torch
    engine = "arrays"  # what runs it, for records
    lanes = 1  # how many threads of its own run rows of a batch
    precisions: tuple[str, ...] = ("float32",)  # in which arithmetic it can run
    verified = False  # whether its files are known to hold a fixed function of one row

    def fitted(self, inputs: NDArray[np.float32], precision: str) -> "ArrayNetwork":
        """The same network as it runs inputs like these fastest; asked once, before the first draw."""
        return self

    @abstractmethod
    def __call__(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """One score per row and label."""

    def check_unchanged(self, weights_hash: str | None) -> None:  # noqa: B027
        """Raises a `MultiGuardError` if it is not the network any more whose hash was recorded."""

    def torch_form(self) -> "TorchClassifier":
        """The same classifier in torch, with gradients and on any device."""
        raise NotImplementedError


class Classifier:
    """A base classifier whose input is the image itself, so that a radius is always measured in pixels in [0, 1].

    Inputs that are no images (rows of a table, sound, embeddings) are taken in their own unit.
    A function gets NumPy arrays. If it fails on the first input as an array, or returns a tensor, it gets tensors.
    torch modules are a subclass, `TorchClassifier`.

    Args:
        network: Any function (B, *input_shape) -> (B, c).
        label_names: The c label names, in the order of the scores; None if only the first input will count them.
        output: Whether the scores are logits or probabilities, never guessed from values; None if undeclared: the
            ranking of labels does not need it, a score threshold does.
        mean: Per-channel mean subtracted inside the classifier, after the noise; None for none.
        std: Per-channel standard deviation divided by inside the classifier; None for none.
        image_size: (height, width) the network expects; None for any size.
        name: The model's name in records.
        weights_hash: sha256 of the weights file; None if there is none (a plain callable).
        trained_noise: The noise in training, as text, "none" for none; None if it is unknown. Behind a denoiser it is
            that of the classifier alone.
        code_hash: sha256 of the user's source files that define the network; None if there are none, or if the network
            was given as an object.

    >>> means = Classifier(lambda images: images.mean((2, 3)), ["r", "g", "b"], output="logits", name="means")
    >>> means.scores(np.ones((1, 3, 4, 4), np.float32))
    array([[1., 1., 1.]], dtype=float32)
    """

    def __init__(
        self,
        network: Callable[[Any], Any],
        label_names: Sequence[str] | None,
        *,
        output: Output | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        image_size: tuple[int, int] | None = None,
        name: str,
        weights_hash: str | None = None,
        trained_noise: str | None = None,
        code_hash: str | None = None,
    ) -> None:
        self.network = network
        self._label_names: tuple[str, ...] | None = None
        if label_names is not None:
            self.name_labels(label_names)
        self.output, self.image_size = output, image_size
        self.name, self.trained_noise = name, trained_noise
        self.weights_hash, self.code_hash = weights_hash, code_hash
        self.mean, self.std = _channels(mean), _channels(std)
        self.takes: Takes | None = "arrays" if isinstance(network, ArrayNetwork) else None  # None until the first input

    @property
    def num_labels(self) -> int | None:
        """The number of labels c; None where only the first input will tell (`ready`)."""
        return None if self._label_names is None else len(self._label_names)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The c label names, in the order of the scores; `ModelError` where their number is not known yet."""
        if self._label_names is None:
            raise ModelError(
                f"{self.name}: how many labels it has is unknown before its first input; give labels=[...]"
            )
        return self._label_names

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns that a scikit-learn estimator was fitted on, in its order; None if it has none."""
        return getattr(self.network, "feature_names", None)

    def ready(self, inputs: NDArray[np.float32], device: Any = None) -> "Classifier":
        """The classifier that runs: its labels are counted, and it is known whether a function takes tensors.

        >>> classifier = Classifier(lambda rows: rows[:, :2], None, name="first two")
        >>> classifier.num_labels, classifier.ready(np.zeros((1, 5), np.float32)).label_names, classifier.takes
        (None, ('0', '1'), 'arrays')
        """
        chosen = self if self.takes else self._chosen(inputs, device)
        if chosen.num_labels is None:
            chosen.count_labels(inputs)
        self._label_names = chosen.label_names
        return chosen

    def _chosen(self, inputs: NDArray[np.float32], device: Any) -> "Classifier":
        """This classifier of arrays, or that of tensors; black inputs decide if the first ones are to blame."""
        if is_module(self.network):
            return self.module()
        problem: Exception | None = None
        for batch in (inputs, 0 * inputs):
            try:
                found = self.network(self.normalise(batch.copy()))
            except Exception as error:  # a function of tensors may raise anything
                problem = problem or error
            else:
                if not _is_tensor(found):
                    self.takes = "arrays"
                    return self
            if find_spec("torch") is not None and (module := self.module()).runs(batch, device):
                return module
        if find_spec("torch") is not None and isinstance(problem, TypeError | AttributeError | RuntimeError):
            return self.module()  # its error on a tensor is the one to show
        self.takes = "arrays"
        return self

    def fitted(self, inputs: NDArray[np.float32], precision: str) -> "Classifier":
        """The same classifier as it runs inputs like these fastest; see `ArrayNetwork.fitted`."""
        if not isinstance(self.network, ArrayNetwork) or self.takes == "tensors":
            return self
        network = self.network.fitted(inputs, precision)
        if network is self.network:
            return self
        found = copy.copy(self)
        found.network = network
        return found

    def count_labels(self, inputs: NDArray[np.float32]) -> None:
        """Name the labels by their indices, as many as one forward pass returns scores."""
        try:
            scores = self.eval().scores(inputs)
        except Exception as error:  # a model may raise anything
            shape, what = tuple(inputs.shape[1:]), " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(f"{self.name} failed on an input of shape {shape}: {what}") from error
        if scores.ndim != 2 or len(scores) != len(inputs):
            what = f"shape {scores.shape} for {len(inputs)} inputs"
            raise ModelError(f"{self.name} returned {what}; one row of scores per input")
        self._label_names = index_names(scores.shape[1])

    def name_labels(self, names: Sequence[str]) -> None:
        """Name the labels of a classifier whose number of labels is unknown; a name given twice raises `ModelError`."""
        if len(set(names)) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise ModelError(f"the label {twice!r} is named twice; give each score a name of its own")
        self._label_names = tuple(names)

    def __repr__(self) -> str:
        labels = "labels unknown" if self._label_names is None else f"{self.num_labels} labels"
        return f"Classifier({self.name}, {labels}, output={self.output!r})"

    def normalise(self, images: Any) -> Any:
        """The network's input: the images minus the mean, divided by the standard deviation."""
        if self.mean is not None:
            images = images - self.mean
        return images if self.std is None else images / self.std

    def __call__(self, inputs: Any) -> Any:
        """The scores of an array as an array, of a tensor as a tensor."""
        if isinstance(inputs, np.ndarray):
            return self.scores(inputs)
        return self.ready(inputs.detach().cpu().numpy(), inputs.device).module()(inputs)

    def scores(self, inputs: NDArray[np.float32]) -> NDArray[Any]:
        """One score per label for each input, as an array."""
        return score_array(self.network(self.normalise(inputs)))

    def eval(self) -> Self:
        """Evaluation mode, which only torch modules have."""
        return self

    def parts_in_training(self) -> list[str]:
        """The parts of a torch module that are in train mode."""
        return []

    def module(self) -> "TorchClassifier":
        """The classifier as a torch module, with gradients if it has any."""
        from multiguard.models.torch_model import TorchClassifier

        if isinstance(self.network, ArrayNetwork) and self.network.has_torch_form:
            return self.network.torch_form()
        return TorchClassifier.of(self)

    def state_hash(self) -> str:
        """The sha256 of all numbers that decide its scores, as far as they are known."""
        digest = hashlib.sha256(getattr(self.network, "checksum", "").encode())
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None:
                digest.update(f"{name} {values.shape};".encode() + values.tobytes())
        return digest.hexdigest()

    def state_checksum(self) -> str:
        """A checksum that shows whether the state has changed; it is compared within one process only."""
        return ""

    def check_named(self) -> None:
        """Raises unless the records of a run to be resumed tell this classifier from any other one."""
        if self.weights_hash is None and self.name == UNNAMED:
            raise InvalidInputError(
                "a function has no weights that identify it, and a resumed run "
                "must not mix the votes of two functions; give load(..., name=...) a name that changes when the "
                "function does."
            )
        if isinstance(self.network, ArrayNetwork):
            self.network.check_unchanged(self.weights_hash)


def is_module(found: object) -> bool:
    """Whether the object is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(found, torch.nn.Module)


def _is_tensor(found: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and isinstance(bare_scores(found), torch.Tensor)


def _channels(values: Sequence[float] | None) -> NDArray[np.float32] | None:
    return None if values is None else np.array(tuple(values), np.float32).reshape(-1, 1, 1)


def bare_scores(found: Any) -> Any:
    """The scores in what a network returned: its `logits`, the only part of a tuple, or the result itself.

    >>> bare_scores({"logits": 1}), bare_scores((2,)), bare_scores([[3]])
    (1, 2, [[3]])
    """
    if isinstance(found, tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        return found.get("logits", found)
    return getattr(found, "logits", found)


def score_array(found: Any) -> NDArray[Any]:
    """What a network returned as an array; other results than numbers raise `ModelError`."""
    found = bare_scores(found)
    found = found.toarray() if hasattr(found, "toarray") else found  # a sparse matrix
    try:
        array = np.asarray(found)
    except (TypeError, ValueError):  # rows of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "uifb" or isinstance(found, tuple):
        raise ModelError(f"it returned {type(found).__name__}, {_EXPECTED}")
    return array


def check_scores(scores: Any, rows: int, labels: int) -> None:
    """Raises `ModelError` unless these are one floating-point score per row and label; no value is read."""
    expected = f"expected floating-point scores of shape ({rows}, {labels}), one per image and label"
    if not (hasattr(scores, "shape") and hasattr(scores, "dtype")):
        raise ModelError(f"it returned {type(scores).__name__}, {expected}")
    if tuple(scores.shape) != (rows, labels):
        fix = "; name its labels in the order of its scores (--labels)" if scores.ndim == 2 else ""
        raise ModelError(f"it returned shape {tuple(scores.shape)}, {expected}{fix}")
    if "float" not in str(scores.dtype):
        raise ModelError(f"it returned {scores.dtype}, {expected}")


def cached_rows(shape: Sequence[int]) -> int:
    """The rows of a batch of such inputs that fill a core's caches without crowding them, a power of two.

    >>> cached_rows((3, 448, 448)), cached_rows((3, 32, 32))
    (1, 128)
    """
    return 1 << (max(1, _CACHED_VALUES // max(1, prod(shape))).bit_length() - 1)


def index_names(count: int) -> tuple[str, ...]:
    """The names of labels that have none: their indices.

    >>> index_names(3)
    ('0', '1', '2')
    """
    return tuple(map(str, range(count)))


def label_tuple(labels: Any) -> tuple[str, ...]:
    """The label names of any sequence of names or whole numbers, such as an array; anything else raises `ModelError`.

    >>> label_tuple(np.array(["cat", "dog"]))
    ('cat', 'dog')
    """
    if isinstance(labels, str | bytes | Mapping) or not (hasattr(labels, "__len__") and hasattr(labels, "__getitem__")):
        raise ModelError(
            f"labels is a {type(labels).__name__}; give a list of label names in the order of the scores, such as "
            "labels=['cat', 'dog']."
        )
    names = tuple(labels)
    if not names or not all(isinstance(name, str | int | np.integer) for name in names):
        raise ModelError(f"labels is {labels!r}; give at least one label name, in the order of the scores.")
    return tuple(map(str, names))


@dataclass(frozen=True)
class ModelOptions:
    """The keyword options of `load`; None where one was not given."""

    labels: Sequence[str] | None = None
    weights: Path | None = None
    output: Output | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    image_size: tuple[int, int] | None = None
    name: str | None = None

    def fill(self, **defaults: Any) -> "ModelOptions":
        """These options, with the model's own values where none were given."""
        return replace(self, **{name: value for name, value in defaults.items() if not getattr(self, name)})

    def make_classifier(self, network: Callable[[Any], Any], spec: str, weights_hash: str | None) -> Classifier:
        """The network as a `Classifier`; an unknown kind of scores raises `ModelError`."""
        if self.output is not None and self.output not in get_args(Output):
            raise ModelError(
                f"{spec}: its scores are --output logits or probabilities (output=...), not {self.output!r}."
            )
        made = Classifier(
            network,
            self.labels,
            output=self.output,
            mean=self.mean,
            std=self.std,
            image_size=self.image_size,
            name=self.name or spec,
            weights_hash=weights_hash,
        )
        return made.module() if is_module(network) else made

    def require_labels(self, spec: str) -> tuple[str, ...]:
        """The label names; `ModelError` where none were given."""
        if not self.labels:
            raise ModelError(f"{spec}: give the label names in the order of the scores, --labels FILE (labels=[...]).")
        return tuple(self.labels)

    def check_count(self, count: int | None, spec: str) -> None:
        """Raises `ModelError` for label names of another number than the model's scores, where that is known."""
        if self.labels is not None and count not in (None, len(self.labels)):
            raise ModelError(f"{spec} returns {count} scores, and --labels (labels=[...]) names {len(self.labels)}.")

    def refuse_weights(self, spec: str) -> None:
        """Raises `ModelError` for a weights file where the model has its own."""
        if self.weights is not None:
            raise ModelError(f"{spec} has its own weights; leave out weights={str(self.weights)!r}.")

    def refuse_all(self, spec: str) -> None:
        """Raises `ModelError` for any option where the model determines all of them: it would be silently ignored."""
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if given:
            raise ModelError(f"{spec} determines all its options; leave out {', '.join(given)}, or load its network.")
