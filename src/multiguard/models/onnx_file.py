"""`onnx:FILE`: an exported model, run by onnxruntime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, files_checksum
from multiguard.models.classifier import Classifier, ModelOptions
from multiguard.models.weights import import_library, summary


def load_onnx(file: str, options: ModelOptions) -> Classifier:
    """The classifier in an ONNX file with one input and one output; the kind of its scores must be declared.

    Only the file and the tensors in its folder are read, and no library that it names is loaded.
    """
    path, spec = Path(file), f"onnx:{file}"
    options.refuse_weights(spec)
    options.require_labels(spec)
    options.require_output(spec)
    weights_hash = onnx_checksum(file)
    network = OnnxNetwork(path)
    return options.fill(image_size=network.image_size).make_classifier(network, spec, weights_hash)


class OnnxNetwork:
    """A callable (B, ...) -> (B, c); a graph exported for a fixed batch size gets batches of that size."""

    def __init__(self, path: Path) -> None:
        runtime = import_library("onnxruntime", "onnx")
        try:
            self._session = runtime.InferenceSession(str(path), providers=runtime.get_available_providers())
        except Exception as error:
            raise ModelError(f"onnx:{path} cannot be loaded: {summary(error)}") from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            names = [[node.name for node in nodes] for nodes in (inputs, outputs)]
            raise ModelError(f"onnx:{path} must have one input and one output, not {names[0]} and {names[1]}.")
        self._input, self._shape = inputs[0].name, list(inputs[0].shape)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(height, width) where the graph has fixed ones; None for any size."""
        size = tuple(self._shape[2:])
        return size if len(size) == 2 and all(isinstance(side, int) for side in size) else None

    def __call__(self, images: Tensor) -> Tensor:
        """The scores of each image, on the device of the input."""
        array = images.detach().to(torch.float32).cpu().numpy()
        fixed = self._shape[0] if isinstance(self._shape[0], int) else len(array)
        parts = [self._run(array[start : start + fixed], fixed) for start in range(0, len(array), fixed)]
        return torch.from_numpy(np.concatenate(parts)).to(images.device)

    def _run(self, rows: np.ndarray[Any, np.dtype[np.float32]], size: int) -> Any:
        padded = np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), np.float32)])
        return self._session.run(None, {self._input: padded})[0][: len(rows)]


def onnx_checksum(file: str) -> str:
    """The hash of the file and of the files in its folder that contain its tensors; files elsewhere are refused."""
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
    return files_checksum([path, *files]) if files else file_checksum(path)


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
