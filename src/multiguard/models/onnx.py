"""`onnx:FILE`: an exported model, run by onnxruntime, or by OpenVINO where that is installed and as fast.

Each file is opened once. Its bytes are hashed, and the session is made from the same bytes. On a CPU every thread runs
whole rows by itself: a network whose operations share the threads takes half as long again, and slows down more under
load.
"""

import copy
import errno
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import ModelError
from multiguard.io.files import is_regular, joined_checksum, read_regular
from multiguard.models import spec
from multiguard.models.card import WEIGHTS_FILE, read_card, weights_file
from multiguard.models.classifier import ArrayNetwork, Classifier, ModelOptions, cached_rows, index_names
from multiguard.models.spec import CARD_FILE, summary

if TYPE_CHECKING:
    from multiguard.models.torch_model import TorchClassifier

GRAPH_FILE = "model.onnx"  # of a model folder: its network, whose weights are in the same folder
_HINT = "; a detector becomes a classifier in a function of your own, module:function"
_BOXES = 3  # the dimensions of a detector's output: images, boxes, numbers
_MOST = (1 << 31) - 1  # bytes of a protobuf message, and so of a session made from bytes
_LARGE = f"; onnx:FILE takes at most {_MOST:,} bytes with all tensors, load(session, name=...) takes more."
_SEPARATORS = frozenset("/\\:\0")  # no part of a file name on any system
_ON_CPU = {"CPUExecutionProvider", "AzureExecutionProvider"}  # the latter runs nothing unless a model asks for it
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}  # as OpenVINO calls them
_SAME = 1e-4  # how far the scores of the two engines may differ
_SLOWER, _ROUNDS = 1.2, 3  # OpenVINO is taken unless it is clearly slower, so that a resumed run takes it again


def load_onnx(file: str, options: ModelOptions) -> Classifier:
    """The classifier in an ONNX file with one input and one output.

    Only the file and the files in its folder that contain its tensors are read, and no library that it names is loaded.
    """
    spec = f"onnx:{file}"
    options.refuse_weights(spec)
    import onnxruntime

    model, weights_hash = _complete(file)
    providers, files = onnxruntime.get_available_providers(), {GRAPH_FILE: model.SerializeToString()}
    lanes = processors() if {*providers} <= _ON_CPU else None
    settings = _settings(onnxruntime, lanes)
    settings.add_session_config_entry("session.load_model_format", "ONNX")  # never guessed from the first bytes
    try:
        session = onnxruntime.InferenceSession(files[GRAPH_FILE], settings, providers=providers)
    except Exception as error:
        raise ModelError(f"{spec} cannot be loaded: {summary(error)}") from error
    return _wrapped(OnnxNetwork(session, spec, lanes, files), options, spec, weights_hash)


def wrap_session(session: Any, options: ModelOptions, spec: str) -> Classifier:
    """The classifier of a session of onnxruntime with one input and one output, run as its owner has set it up."""
    return _wrapped(OnnxNetwork(session, spec), options, spec, None)


def _wrapped(network: "OnnxNetwork", options: ModelOptions, spec: str, weights_hash: str | None) -> Classifier:
    options.check_count(network.num_labels, spec)
    own = None if network.num_labels is None else index_names(network.num_labels)
    return options.fill(image_size=network.image_size, labels=own).make_classifier(network, spec, weights_hash)


def load_exported(folder: Path) -> Classifier | None:
    """The classifier of a built-in model from its graph and its weights; None for any other folder.

    The bytes of both files are hashed, and the session is made from the same bytes.
    """
    if folder.parent != spec.BUILT_IN or not is_regular(folder / GRAPH_FILE):
        return None  # elsewhere anyone may have put a graph there
    import onnxruntime

    card, graph, weights = read_card(folder), _content(folder / GRAPH_FILE), _content(weights_file(folder))
    if hashlib.sha256(weights).hexdigest() != card.weights_sha256:
        raise ModelError(f"{folder}: the sha256 of {WEIGHTS_FILE} is not the one in {CARD_FILE}; install it again")
    settings = _settings(onnxruntime, lanes := processors())
    settings.add_external_initializers_from_files_in_memory([WEIGHTS_FILE], [weights], [len(weights)])
    session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])
    classifier = card.classifier(ExportedNetwork(session, folder, lanes, {GRAPH_FILE: graph, WEIGHTS_FILE: weights}))
    classifier.mean = classifier.std = None  # the graph normalises
    return classifier


def processors() -> int:
    """The processors that this process may use; OMP_NUM_THREADS limits them, as for every library of arrays."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, int(limit)) if limit.isdecimal() and int(limit) else usable


def _settings(runtime: Any, lanes: int | None) -> Any:
    """Options of a session: lanes have one thread each, and threads that wait sleep instead of spinning."""
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = 1 if lanes else 0
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return settings


class OnnxNetwork(ArrayNetwork):
    """A function (B, ...) -> (B, c); a graph exported for a fixed batch size gets batches of that size.

    Each lane runs a few rows at a time; how many does not depend on the number of lanes, so neither do the scores.
    Without lanes the session runs all rows at once.
    """

    engine = "onnxruntime"

    def __init__(
        self, session: Any, spec: str, lanes: int | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        inputs, outputs = session.get_inputs(), session.get_outputs()
        names = [[node.name for node in nodes] for nodes in (inputs, outputs)]
        if len(inputs) != 1 or len(outputs) != 1:
            raise ModelError(f"{spec} must have one input and one output, not {names[0]} and {names[1]}{_HINT}.")
        if len(outputs[0].shape or ()) == _BOXES:
            raise ModelError(f"{spec} returns {outputs[0].shape}, not one row of scores per image{_HINT}.")
        self._session, self._input = session, inputs[0].name
        self._shape, self._scores = list(inputs[0].shape), list(outputs[0].shape)
        self._whole, self.lanes = lanes is None, lanes or 1
        self._files = files if lanes and find_spec("openvino") else None
        self._pool = ThreadPoolExecutor(self.lanes, "lane")
        if self._files is not None:
            self.precisions = tuple(_PRECISIONS)

    def fitted(self, inputs: NDArray[np.float32], precision: str) -> "OnnxNetwork":
        """The same network on OpenVINO if its scores are the same and it is as fast; other arithmetic needs it."""
        if self._files is None:
            return self
        few = self._rows(inputs)
        rows = np.resize(inputs, (self.lanes * few, *inputs.shape[1:]))
        other = copy.copy(self)
        other.engine, other._shape = "openvino", [few, *self._shape[1:]]
        try:
            other._session = _OpenVino(self._files, self._laid_out(rows[:few]).shape, self.lanes, precision)
            same = precision != "float32" or np.allclose(other(rows), self(rows), rtol=0, atol=_SAME)
        except Exception as error:  # of an operation that it does not have
            if precision != "float32":
                raise ModelError(f"OpenVINO cannot run the model in {precision}: {summary(error)}") from error
            return self
        if precision != "float32":
            return other
        times = [(_seconds(self, rows), _seconds(other, rows)) for _ in range(_ROUNDS)] if same else [(0.0, 1.0)]
        own, others = map(min, zip(*times, strict=True))
        return other if others < _SLOWER * own else self

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
        size = self._rows(rows)
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        scores = list((self._pool.map if len(parts) > 1 else map)(self._run, parts))
        return np.concatenate(scores) if len(scores) > 1 else scores[0]

    def _rows(self, rows: NDArray[np.float32]) -> int:
        """The rows of one call of the session: as many as the graph fixes, or as a lane runs at a time."""
        if isinstance(self._shape[0], int):
            return self._shape[0]
        return len(rows) if self._whole else cached_rows(rows.shape[1:])

    def _run(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        given = len(rows)
        if isinstance(self._shape[0], int) and given < self._shape[0]:
            rows = np.concatenate([rows, np.zeros((self._shape[0] - given, *rows.shape[1:]), np.float32)])
        scores: NDArray[Any] = self._session.run(None, {self._input: self._laid_out(rows)})[0]
        return scores[:given]

    def _laid_out(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(rows.transpose(0, 2, 3, 1) if self._channels_last else rows)


class _OpenVino:
    """A session that OpenVINO runs: a stream per lane, each with one thread."""

    def __init__(self, files: Mapping[str, bytes], shape: Sequence[int], lanes: int, precision: str) -> None:
        import openvino

        core = openvino.Core()
        if precision == "bfloat16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise ModelError("this processor has no bfloat16; leave out the precision")
        core.set_property({"ENABLE_MMAP": False})
        with TemporaryDirectory() as folder:  # it reads tensors in other files from a folder only
            paths = [Path(folder) / name for name in files]
            for path, content in zip(paths, files.values(), strict=True):
                path.write_bytes(content)
            model = core.read_model(str(paths[0]))
        model.reshape([*shape])
        how = {"NUM_STREAMS": lanes, "INFERENCE_NUM_THREADS": lanes, "ENABLE_CPU_PINNING": False}
        self._model = core.compile_model(model, "CPU", how | {"INFERENCE_PRECISION_HINT": _PRECISIONS[precision]})
        self._own = threading.local()
        # Its first call sets up what all threads use, and two first calls at once can wait for each other for ever.
        self.run(None, {"": np.zeros(shape, np.float32)})

    def run(self, _: None, inputs: Mapping[str, NDArray[np.float32]]) -> list[NDArray[Any]]:
        """The outputs, as onnxruntime returns them."""
        if not hasattr(self._own, "request"):
            self._own.request = self._model.create_infer_request()
        return [np.array(self._own.request.infer(list(inputs.values()))[0])]


def _seconds(network: OnnxNetwork, rows: NDArray[np.float32]) -> float:
    started = time.perf_counter()
    network(rows)
    return time.perf_counter() - started


class ExportedNetwork(OnnxNetwork):
    """The network of a built-in model outside torch; its scores equal the network's in torch, to 1e-4."""

    has_torch_form = verified = True

    def __init__(self, session: Any, folder: Path, lanes: int, files: Mapping[str, bytes]) -> None:
        super().__init__(session, str(folder), lanes, files)
        self._folder, self.checksum = folder, hashlib.sha256(b"".join(files.values())).hexdigest()

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
    import onnx

    files = {path.name: _content(path)}
    try:
        model = onnx.load_model_from_string(files[path.name], format="protobuf")
    except Exception as error:  # protobuf raises its own errors
        raise ModelError(f"onnx:{path} cannot be loaded: {summary(error)}") from error
    for name in sorted({_entries(tensor).get("location", "") for tensor in _external_tensors(model)} - files.keys()):
        other = path.parent / name
        if _SEPARATORS & set(name) or not is_regular(other):
            raise ModelError(
                f"onnx:{path} keeps tensors in {name!r}, which is not the plain name of a regular file in its folder; "
                "export it with its tensors in a regular file of the same folder."
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
