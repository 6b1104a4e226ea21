"""`onnx:FILE`: an exported model, run by onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multiguard.errors import ModelError
from multiguard.files import file_hash, files_hash
from multiguard.models.classifier import Classifier
from multiguard.models.extras import require
from multiguard.models.options import ModelOptions

_PICTURE = 4


def load_onnx(file: str, options: ModelOptions) -> Classifier:
    """The classifier in an ONNX file with one input and one output; what its scores are must be declared."""
    path, spec = Path(file), f"onnx:{file}"
    options.refuse_weights(spec)
    labels, output = options.need_labels(spec), options.need_output(spec)
    session = OnnxNetwork(path)
    return Classifier(
        session,
        labels,
        output=output,
        mean=options.mean,
        std=options.std,
        image_size=options.image_size or session.image_size,
        name=options.name or spec,
        weights_hash=_weights_hash(path),
    )


class OnnxNetwork:
    """A callable (B, ...) -> (B, c); a graph exported for a fixed batch is fed in pieces of that size."""

    def __init__(self, path: Path) -> None:
        runtime = require("onnxruntime", "onnx")
        if not path.is_file():
            raise ModelError(f"onnx:{path}: no such file.")
        try:
            self._session = runtime.InferenceSession(str(path), providers=runtime.get_available_providers())
        except Exception as error:
            raise ModelError(f"onnx:{path} cannot be loaded: {str(error).splitlines()[0]}") from error
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
        return (size[0], size[1]) if len(self._shape) == _PICTURE and all(isinstance(n, int) for n in size) else None

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
    """The hash of the file and of the files beside it that hold its tensors."""
    model = require("onnx", "onnx").load(str(path), load_external_data=False)
    names = {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    if not names:
        return file_hash(path)
    return files_hash([path, *(path.parent / name for name in sorted(names))])
