"""`onnx:FILE`: an exported model, run by onnxruntime.

Each file is opened once. Its bytes are hashed, and the session is made from the same bytes.
"""

import errno
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import ModelError
from multiguard.io.files import is_regular, joined_checksum, read_regular
from multiguard.models import spec
from multiguard.models.card import WEIGHTS_FILE, read_card, weights_file
from multiguard.models.classifier import ArrayNetwork, Classifier, ModelOptions, index_names
from multiguard.models.spec import CARD_FILE, import_library, summary

if TYPE_CHECKING:
    from multiguard.models.torch_model import TorchClassifier

GRAPH_FILE = "model.onnx"  # of a model folder: its network, whose weights are those beside it
_HINT = "; a detector becomes a classifier in a function of your own, module:function"
_BOXES = 3  # the dimensions of a detector's output: images, boxes, numbers
_MOST = (1 << 31) - 1  # bytes of a protobuf message, and so of a session made from bytes
_LARGE = f"; onnx:FILE takes at most {_MOST:,} bytes with all tensors, load(session, name=...) takes more."
_SEPARATORS = frozenset("/\\:\0")  # no part of a file name on any system


def load_onnx(file: str, options: ModelOptions) -> Classifier:
    """The classifier in an ONNX file with one input and one output.

    Only the file and the files in its folder that contain its tensors are read, and no library that it names is loaded.
    """
    spec = f"onnx:{file}"
    options.refuse_weights(spec)
    runtime = import_library("onnxruntime", "onnx")
    model, weights_hash = _complete(file)
    settings = _settings(runtime)
    settings.add_session_config_entry("session.load_model_format", "ONNX")  # never guessed from the first bytes
    try:
        providers = runtime.get_available_providers()
        session = runtime.InferenceSession(model.SerializeToString(), settings, providers=providers)
    except Exception as error:
        raise ModelError(f"{spec} cannot be loaded: {summary(error)}") from error
    return wrap_session(session, options, spec, weights_hash)


def wrap_session(session: Any, options: ModelOptions, spec: str, weights_hash: str | None = None) -> Classifier:
    """The classifier of a session of onnxruntime with one input and one output."""
    network = OnnxNetwork(session, spec)
    options.check_count(network.num_labels, spec)
    own = None if network.num_labels is None else index_names(network.num_labels)
    return options.fill(image_size=network.image_size, labels=own).make_classifier(network, spec, weights_hash)


def load_exported(folder: Path) -> Classifier | None:
    """The classifier of a built-in model from its graph, with the weights beside it; None for any other folder.

    The bytes of both files are hashed, and the session is made from the same bytes.
    """
    if folder.parent != spec.BUILT_IN or not is_regular(folder / GRAPH_FILE):
        return None  # elsewhere anyone may have put a graph beside the weights
    import onnxruntime

    card, graph, weights = read_card(folder), _content(folder / GRAPH_FILE), _content(weights_file(folder))
    if hashlib.sha256(weights).hexdigest() != card.weights_sha256:
        raise ModelError(f"{folder}: the sha256 of {WEIGHTS_FILE} is not the one in {CARD_FILE}; install it again")
    settings = _settings(onnxruntime)
    settings.add_external_initializers_from_files_in_memory([WEIGHTS_FILE], [weights], [len(weights)])
    session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])
    classifier = card.classifier(ExportedNetwork(session, folder, hashlib.sha256(graph + weights).hexdigest()))
    classifier.mean = classifier.std = None  # the graph normalises
    return classifier


def _settings(runtime: Any) -> Any:
    """Options of a session whose threads sleep while they wait: threads that spin halve the speed beside other work."""
    settings = runtime.SessionOptions()
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return settings


class OnnxNetwork(ArrayNetwork):
    """A function (B, ...) -> (B, c); a graph exported for a fixed batch size gets batches of that size."""

    def __init__(self, session: Any, spec: str) -> None:
        inputs, outputs = session.get_inputs(), session.get_outputs()
        names = [[node.name for node in nodes] for nodes in (inputs, outputs)]
        if len(inputs) != 1 or len(outputs) != 1:
            raise ModelError(f"{spec} must have one input and one output, not {names[0]} and {names[1]}{_HINT}.")
        if len(outputs[0].shape or ()) == _BOXES:
            raise ModelError(f"{spec} returns {outputs[0].shape}, not one row of scores per image{_HINT}.")
        self._session, self._input = session, inputs[0].name
        self._shape, self._scores = list(inputs[0].shape), list(outputs[0].shape)

    @property
    def num_labels(self) -> int | None:
        """The number of scores where the graph fixes it; None where it does not."""
        count = self._scores[-1] if self._scores else None
        return count if isinstance(count, int) else None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(height, width) where the graph has fixed ones; None for any size."""
        size = tuple(self._shape[1:3] if self._channels_last else self._shape[2:])
        return size if len(size) == 2 and all(isinstance(side, int) for side in size) else None

    @property
    def _channels_last(self) -> bool:
        """Whether the graph takes (B, height, width, 3), as exports from TensorFlow do."""
        return len(self._shape) == 4 and self._shape[3] == 3 and self._shape[1] != 3

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """The scores of each row."""
        fixed = self._shape[0] if isinstance(self._shape[0], int) else len(rows)
        parts = [self._run(rows[start : start + fixed], fixed) for start in range(0, len(rows), fixed)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _run(self, rows: NDArray[np.float32], size: int) -> NDArray[Any]:
        given = len(rows)
        if given < size:
            rows = np.concatenate([rows, np.zeros((size - given, *rows.shape[1:]), np.float32)])
        rows = np.ascontiguousarray(rows.transpose(0, 2, 3, 1) if self._channels_last else rows)
        scores: NDArray[Any] = self._session.run(None, {self._input: rows})[0]
        return scores[:given]


class ExportedNetwork(OnnxNetwork):
    """The network of a model folder outside torch; its scores are those of the folder's network in torch, to 1e-4."""

    has_torch_form = True

    def __init__(self, session: Any, folder: Path, checksum: str) -> None:
        super().__init__(session, str(folder))
        self._folder, self.checksum = folder, checksum

    def torch_form(self) -> "TorchClassifier":
        """The folder's own network."""
        from multiguard.models.model_folder import load_folder

        return load_folder(self._folder)


def onnx_checksum(file: str) -> str:
    """The hash of the file and of the files in its folder that contain its tensors; other places raise `ModelError`."""
    return _checksum(_read(file)[1])


def _checksum(files: Mapping[str, bytes]) -> str:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return joined_checksum(digests.items()) if len(digests) > 1 else next(iter(digests.values()))


def _read(file: str) -> tuple[Any, dict[str, bytes]]:
    """The model without its external tensors, and each of its files by name: the model's own first."""
    path = Path(file)
    if not path.is_file():
        raise ModelError(f"onnx:{path}: no such file.")
    onnx, files = import_library("onnx", "onnx"), {path.name: _content(path)}
    try:
        model = onnx.load_model_from_string(files[path.name], format="protobuf")
    except Exception as error:  # protobuf raises its own errors
        raise ModelError(f"onnx:{path} cannot be loaded: {summary(error)}") from error
    for name in sorted({_entries(tensor).get("location", "") for tensor in _external_tensors(model)} - files.keys()):
        other = path.parent / name
        if _SEPARATORS & set(name) or not is_regular(other):
            raise ModelError(
                f"onnx:{path} keeps tensors in {name!r}, which is not the plain name of a regular file in its folder; "
                "export it with its tensors in a file beside it, neither a link nor in another folder."
            )
        files[name] = _content(other)
    return model, files


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST)
    except OSError as error:
        hint = _LARGE if error.errno == errno.EFBIG else "."
        raise ModelError(f"{path} cannot be read: {error.strerror}{hint}") from error


def _complete(file: str) -> tuple[Any, str]:
    """The model with its external tensors in it, and the hash of its files; onnxruntime is given no file name."""
    model, files = _read(file)
    left = _MOST - model.ByteSize()
    for tensor in list(_external_tensors(model)):
        entries = _entries(tensor)
        content = files[entries["location"]]
        try:
            start, stop = _span(entries, len(content))
        except ValueError as error:
            where = f"tensor {tensor.name!r} is no part of {entries['location']!r} ({len(content):,} bytes)"
            raise ModelError(f"onnx:{file}: {where}; export the model again, or complete that file.") from error
        left -= stop - start
        if left < 0:
            raise ModelError(f"onnx:{file} is too large with its tensors{_LARGE}")
        tensor.raw_data = content[start:stop]
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return model, _checksum(files)


def _span(entries: Mapping[str, str], size: int) -> tuple[int, int]:
    """Where an external tensor begins and ends in its file; outside of it, or no number, raises `ValueError`."""
    start = int(entries.get("offset", 0))
    stop = start + int(entries["length"]) if "length" in entries else size
    if not 0 <= start <= stop <= size:
        raise ValueError(f"{start} to {stop} of {size}")
    return start, stop


def _entries(tensor: Any) -> dict[str, str]:
    """Where the bytes of an external tensor are: its location, offset and length."""
    return {entry.key: entry.value for entry in tensor.external_data}


def _external_tensors(message: Any) -> Iterator[Any]:
    """The tensors in other files, however deep in the model; a precompiled part raises `ModelError`."""
    if message.DESCRIPTOR.name == "NodeProto" and message.op_type == "EPContext":
        raise ModelError("the ONNX model has a part compiled for one machine (EPContext); export it without that part")
    if message.DESCRIPTOR.name == "TensorProto" and message.data_location == message.EXTERNAL:
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from _external_tensors(part)
