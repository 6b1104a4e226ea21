"""Detectors as multi-label classifiers: the score of a label is the largest over all boxes.

What a graph returns follows from how it was exported, and is declared, never guessed. A line of the label file that is
"-" names no label: the class is dropped (a background class, a number that no class has).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from multiguard.errors import ModelError
from multiguard.io.names import unknown_name

NO_LABEL = "-"  # a line of the label file for a class that is dropped
LAYOUTS = ("yolox", "yolov5", "yolov8", "yolov10", "scores:OUTPUT", "nms:SCORES,CLASSES")
_BOX = 4  # numbers of a box: x, y, width and height, or two corners
_ROW = 6  # numbers of a box, its score and its class

Arrays = NDArray[Any]


@dataclass(frozen=True)
class Detector:
    """What the outputs of a detector's graph are.

    >>> parse_detector("nms:scores,classes")
    Detector(text='nms:scores,classes', kind='nms', outputs=('scores', 'classes'))
    >>> parse_detector("yolov8").outputs  # its only output, whatever its name
    ()
    """

    text: str  # as it was declared
    kind: str
    outputs: tuple[str, ...]  # the outputs to read; empty for the only one

    @property
    def pixel_scale(self) -> float:
        """By what pixels in [0, 1] are multiplied before the graph takes them."""
        return 255.0 if self.kind == "yolox" else 1.0

    @property
    def blue_first(self) -> bool:
        """Whether the graph takes its channels in the order blue, green, red."""
        return self.kind == "yolox"

    @property
    def probabilities(self) -> bool:
        """Whether exports of this kind return probabilities."""
        return self.kind != "scores"

    def names(self, available: Sequence[str], spec: str) -> list[str]:
        """The names of the outputs to read; `ModelError` where the graph does not have them."""
        if not self.outputs and len(available) > 1:
            raise ModelError(
                f"{spec} has the outputs {', '.join(available)}, and --detector {self.text} reads the only one; name "
                "them, as in --detector nms:SCORES,CLASSES or --detector scores:OUTPUT."
            )
        for name in self.outputs:
            if name not in available:
                raise ModelError(f"{spec}: {unknown_name('output', name, available)} (--detector {self.text})")
        return list(self.outputs or available)

    def label_scores(self, outputs: Sequence[Arrays], images: int, classes: int) -> Arrays:
        """(images, classes): the largest score of each class over all boxes of each image."""
        return _READERS[self.kind](self, outputs, images, classes)

    def refuse(self, found: Arrays, expected: str, classes: int) -> ModelError:
        """The error for an output of another shape."""
        return ModelError(
            f"--detector {self.text} expects an output of shape {expected} with {classes} classes (the lines of "
            f"--labels), and the graph returns {tuple(found.shape)}; another layout, or other labels?"
        )


def parse_detector(text: str) -> Detector:
    """The layout that a text declares; `ModelError` for one that is unknown."""
    kind, _, rest = text.partition(":")
    outputs = tuple(name for name in rest.split(",") if name)
    count = {"scores": 1, "nms": 2}.get(kind, 0)
    if kind not in _READERS or len(outputs) != count:
        raise ModelError(f"--detector {text}: {unknown_name('layout', text, LAYOUTS)}; choose {', '.join(LAYOUTS)}")
    return Detector(text, kind, outputs)


def _with_objectness(detector: Detector, outputs: Sequence[Arrays], images: int, classes: int) -> Arrays:
    """YOLOv5, YOLOX: (B, n, 5 + c), a box, the probability of any object, and one per class given an object."""
    (found,) = outputs
    if found.ndim != 3 or found.shape[2] != _BOX + 1 + classes:
        raise detector.refuse(found, "(images, boxes, 5 + classes)", classes)
    scores: Arrays = (found[..., _BOX : _BOX + 1] * found[..., _BOX + 1 :]).max(axis=1)
    return scores


def _without_objectness(detector: Detector, outputs: Sequence[Arrays], images: int, classes: int) -> Arrays:
    """YOLOv8 and later: (B, 4 + c, n), a box and a probability per class; some exports have the axes swapped."""
    (found,) = outputs
    if found.ndim == 3 and found.shape[1] == _BOX + classes:
        return np.asarray(found[:, _BOX:].max(axis=2))
    if found.ndim == 3 and found.shape[2] == _BOX + classes:
        return np.asarray(found[..., _BOX:].max(axis=1))
    raise detector.refuse(found, "(images, 4 + classes, boxes)", classes)


def _class_scores(detector: Detector, outputs: Sequence[Arrays], images: int, classes: int) -> Arrays:
    """SSD, EfficientDet, DETR: (B, n, c), one score per box and class."""
    (found,) = outputs
    if found.ndim != 3 or found.shape[2] != classes or not found.shape[1]:
        raise detector.refuse(found, "(images, boxes, classes)", classes)
    return np.asarray(found.max(axis=1))


def _rows(detector: Detector, outputs: Sequence[Arrays], images: int, classes: int) -> Arrays:
    """YOLOv10: (B, n, 6), a box, its score and its class."""
    (found,) = outputs
    if found.ndim != 3 or found.shape[2] != _ROW:
        raise detector.refuse(found, "(images, boxes, 6)", classes)
    return _largest(detector, found[..., _BOX], found[..., _BOX + 1], classes)


def _after_nms(detector: Detector, outputs: Sequence[Arrays], images: int, classes: int) -> Arrays:
    """Graphs that suppress overlapping boxes themselves: the score and the class of each box that is left."""
    scores, numbers = (found[None] if found.ndim == 1 and images == 1 else found for found in outputs)
    if scores.ndim != 2 or scores.shape != numbers.shape or len(scores) != images:
        raise detector.refuse(scores, "(images, boxes) twice", classes)
    return _largest(detector, scores, numbers, classes)


def _largest(detector: Detector, scores: Arrays, numbers: Arrays, classes: int) -> Arrays:
    """The largest score of each class number; 0 for a class without a box, as for padding with scores below 0."""
    counted = scores > 0
    wanted = numbers.astype(np.int64)
    if np.any(counted & ((wanted < 0) | (wanted >= classes))):
        raise ModelError(
            f"--detector {detector.text}: class {int(wanted[counted].max())} is returned, and --labels names "
            f"{classes}; a line '{NO_LABEL}' stands for a number that is no label"
        )
    largest = np.zeros((len(scores), classes), np.float32)
    rows = np.broadcast_to(np.arange(len(scores))[:, None], scores.shape)
    np.maximum.at(largest, (rows[counted], wanted[counted]), scores[counted])
    return largest


_READERS: Mapping[str, Callable[[Detector, Sequence[Arrays], int, int], Arrays]] = {
    "yolox": _with_objectness,
    "yolov5": _with_objectness,
    "yolov8": _without_objectness,
    "yolov10": _rows,
    "scores": _class_scores,
    "nms": _after_nms,
}


class DetectorNetwork(nn.Module):
    """(B, 3, height, width) to the scores of those classes that are labels, which the module's state records."""

    def __init__(self, network: Callable[[Tensor], Tensor], labels: Sequence[str], detector: Detector) -> None:
        super().__init__()
        self.network, self.detector = network, detector
        kept = [index for index, name in enumerate(labels) if name != NO_LABEL]
        self.register_buffer("classes", torch.tensor(kept))

    classes: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """The scores of the labels."""
        images = images * self.detector.pixel_scale
        scores = self.network(images.flip(1) if self.detector.blue_first else images)
        return scores[:, self.classes]
