"""`onnx:FILE`: an exported model, run by onnxruntime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, files_checksum
from multiguard.models.classifier import Classifier
from multiguard.models.extras import first_line, require
from multiguard.models.options import ModelOptions

_IMAGE = 4
_PRECOMPILED = "EPContext"


def load_onnx(file: str, options: ModelOptions) -> Classifier:
    """The classifier in an ONNX file with one input and one output; what its scores are must be declared.

    Nothing but the file and what lies beside it is read, and no library that it names is loaded.
    """
    path, spec = Path(file), f"onnx:{file}"
    options.refuse_weights(spec)
    labels, output = options.need_labels(spec), options.need_output(spec)
    weights_hash = _weights_hash(path)
    session = OnnxNetwork(path)
    return Classifier(
        session,
        labels,
        output=output,
        mean=options.mean,
        std=options.std,
        image_size=options.image_size or session.image_size,
        name=options.name or spec,
        weights_hash=weights_hash,
    )


class OnnxNetwork:
    """A callable (B, ...) -> (B, c); a graph exported for a fixed batch is fed in pieces of that size."""

    def __init__(self, path: Path) -> None:
        runtime = require("onnxruntime", "onnx")
        try:
            self._session = runtime.InferenceSession(str(path), providers=runtime.get_available_providers())
        except Exception as error:
            raise ModelError(f"onnx:{path} cannot be loaded: {first_line(error)}") from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            raise ModelError(
                f"onnx:{path} must have one input and one output, not {_names(inputs)} and {_names(outputs)}."
            )
        self._input, self._shape = inputs[0].name, list(inputs[0].shape)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(height, width) where the graph fixes them."""
        size = self._shape[2:]
        return (size[0], size[1]) if len(self._shape) == _IMAGE and all(isinstance(n, int) for n in size) else None

    def __call__(self, images: Tensor) -> Tensor:
        """The scores of each row, on the device of the input."""
        array = images.detach().to(torch.float32).cpu().numpy()
        fixed = self._shape[0] if isinstance(self._shape[0], int) else len(array)
        parts = [self._run(array[start : start + fixed], fixed) for start in range(0, len(array), fixed)]
        return torch.from_numpy(np.concatenate(parts)).to(images.device)

    def _run(self, rows: np.ndarray[Any, np.dtype[np.float32]], size: int) -> Any:
        padded = np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), np.float32)])
        return self._session.run(None, {self._input: padded})[0][: len(rows)]


def _names(nodes: list[Any]) -> list[str]:
    return [node.name for node in nodes]


def _weights_hash(path: Path) -> str:
    """The hash of the file and of the files beside it that hold its tensors; what lies elsewhere is refused."""
    if not path.is_file():
        raise ModelError(f"onnx:{path}: no such file.")
    try:
        model = require("onnx", "onnx").load(str(path), load_external_data=False)
    except ModelError:
        raise
    except Exception as error:  # protobuf has errors of its own
        raise ModelError(f"onnx:{path} cannot be loaded: {first_line(error)}") from error
    names = sorted({_beside(path, name) for name in _external_names(model)})
    return files_checksum([path, *(path.parent / name for name in names)]) if names else file_checksum(path)


def _external_names(message: Any) -> Iterator[str]:
    """The files that any tensor of the model, wherever it stands in it, is kept in; a precompiled part is refused."""
    if message.DESCRIPTOR.name == "NodeProto" and message.op_type == _PRECOMPILED:
        raise ModelError("the ONNX model holds a part compiled for one machine (EPContext); export it without")
    if message.DESCRIPTOR.name == "TensorProto":
        yield from (entry.value for entry in message.external_data if entry.key == "location")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from _external_names(part)


def _beside(path: Path, name: str) -> str:
    """The name, if it is that of a file in the model's folder, its links followed."""
    file = path.parent / name
    if not file.is_file() or not file.resolve().is_relative_to(path.parent.resolve()):
        raise ModelError(f"onnx:{path} keeps tensors in {name!r}, which is no file in its folder.")
    return name
