"""`onnx:FILE`: an exported model, run by onnxruntime."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, files_checksum
from multiguard.models.classifier import Classifier, ModelOptions, index_names
from multiguard.models.detector import NO_LABEL, Detector, DetectorNetwork, parse_detector
from multiguard.models.host_network import HostNetwork
from multiguard.models.weight_files import import_library, summary

_HINT = "; if it is a detector, --detector says how to read its boxes"
_BOXES = 3  # the dimensions of a detector's output: images, boxes, numbers


def load_onnx(file: str, options: ModelOptions) -> Classifier:
    """The classifier in an ONNX file with one input and one output, or the detector in one.

    Only the file and the tensors in its folder are read, and no library that it names is loaded.
    """
    path, spec = Path(file), f"onnx:{file}"
    options.refuse_weights(spec)
    weights_hash, runtime = onnx_checksum(file, options.detector), import_library("onnxruntime", "onnx")
    try:
        session = runtime.InferenceSession(str(path), providers=runtime.get_available_providers())
    except Exception as error:
        raise ModelError(f"{spec} cannot be loaded: {summary(error)}") from error
    return wrap_session(session, options, spec, weights_hash)


def is_session(model: object) -> bool:
    """Whether the object is a session of onnxruntime."""
    return all(hasattr(model, name) for name in ("get_inputs", "get_outputs", "run"))


def wrap_session(session: Any, options: ModelOptions, spec: str, weights_hash: str | None = None) -> Classifier:
    """The classifier of a session of onnxruntime with one input and one output, or of a detector."""
    if options.detector is not None:
        return _wrap_detector(session, options, parse_detector(options.detector), spec, weights_hash)
    network = OnnxNetwork(session, spec)
    options.check_count(network.num_labels, spec)
    own = None if network.num_labels is None else index_names(network.num_labels)
    return options.fill(image_size=network.image_size, labels=own).make_classifier(network, spec, weights_hash)


def _wrap_detector(
    session: Any, options: ModelOptions, detector: Detector, spec: str, weights_hash: str | None
) -> Classifier:
    """The detector whose boxes are read as declared, with the labels that the lines of the file name."""
    lines = options.require_labels(spec)
    if detector.probabilities and options.output == "logits":
        raise ModelError(f"--detector {detector.text} reads probabilities; leave out --output logits.")
    network = OnnxNetwork(session, spec, detector, len(lines))
    named = replace(options, labels=[line for line in lines if line != NO_LABEL])
    filled = named.fill(image_size=network.image_size, output="probabilities" if detector.probabilities else None)
    name = f"{spec} ({detector.text})"
    return filled.make_classifier(DetectorNetwork(network, lines, detector), name, weights_hash)


class OnnxNetwork(HostNetwork):
    """A callable (B, ...) -> (B, c); a graph exported for a fixed batch size gets batches of that size."""

    def __init__(self, session: Any, spec: str, detector: Detector | None = None, classes: int = 0) -> None:
        inputs, outputs = session.get_inputs(), session.get_outputs()
        names = [[node.name for node in nodes] for nodes in (inputs, outputs)]
        if len(inputs) != 1 or (len(outputs) != 1 and detector is None):
            raise ModelError(f"{spec} must have one input and one output, not {names[0]} and {names[1]}{_HINT}.")
        if detector is None and len(outputs[0].shape or ()) == _BOXES:
            raise ModelError(f"{spec} returns {outputs[0].shape}, not one row of scores per image{_HINT}.")
        self._session, self._input = session, inputs[0].name
        self._outputs = None if detector is None else detector.names(names[1], spec)
        self._detector, self._classes = detector, classes
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

    def scores(self, rows: NDArray[np.float32]) -> NDArray[Any]:
        """The scores of each row."""
        fixed = self._shape[0] if isinstance(self._shape[0], int) else len(rows)
        parts = [self._run(rows[start : start + fixed], fixed) for start in range(0, len(rows), fixed)]
        return np.concatenate(parts)

    def _run(self, rows: NDArray[np.float32], size: int) -> Any:
        padded = np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), np.float32)])
        padded = np.ascontiguousarray(padded.transpose(0, 2, 3, 1)) if self._channels_last else padded
        found = self._session.run(self._outputs, {self._input: padded})
        if self._detector is not None:
            return self._detector.label_scores(found, size, self._classes)[: len(rows)]
        return found[0][: len(rows)]


def onnx_checksum(file: str, detector: str | None = None) -> str:
    """The hash of the file and of the files in its folder that contain its tensors; files elsewhere are refused.

    The same file read as another detector has another hash.
    """
    path, *files = onnx_files(file)
    digest = files_checksum([path, *files]) if files else file_checksum(path)
    return digest if detector is None else hashlib.sha256(f"{digest} {detector}".encode()).hexdigest()


def onnx_files(file: str) -> list[Path]:
    """The file, and the files in its folder that contain its tensors; files elsewhere are refused."""
    path = Path(file)
    if not path.is_file():
        raise ModelError(f"onnx:{path}: no such file.")
    onnx = import_library("onnx", "onnx")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf raises its own errors
        raise ModelError(f"onnx:{path} cannot be loaded: {summary(error)}") from error
    files = [path.parent / name for name in sorted(set(_external_names(model)))]
    for other in files:  # in the model's folder after all links are resolved
        if not other.is_file() or not other.resolve().is_relative_to(path.parent.resolve()):
            raise ModelError(f"onnx:{path} keeps tensors in '{other}', which is no file in its folder; move it there.")
    return [path, *files]


def _external_names(message: Any) -> Iterator[str]:
    """The files that contain any tensor of the model, however deep in it; a precompiled part is refused."""
    if message.DESCRIPTOR.name == "NodeProto" and message.op_type == "EPContext":
        raise ModelError("the ONNX model has a part compiled for one machine (EPContext); export it without that part")
    if message.DESCRIPTOR.name == "TensorProto":
        yield from (entry.value for entry in message.external_data if entry.key == "location")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from _external_names(part)
