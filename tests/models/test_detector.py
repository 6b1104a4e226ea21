"""Detectors as classifiers: the largest score over boxes, for each layout of outputs, and nothing guessed."""

import numpy as np
import pytest
import torch
from small_models import LABELS, write_denoiser
from torch import nn

from multiguard.errors import ModelError
from multiguard.models import denoise_first, load
from multiguard.models.classifier import state_hash
from multiguard.models.denoiser import load_ffdnet
from multiguard.models.detector import parse_detector
from multiguard.models.onnx_file import onnx_checksum
from multiguard.smooth import Smoother

BOXES, CLASSES = 7, 4


def reference(boxes, scores, kept):
    """The slow way: box after box."""
    found = np.zeros(CLASSES)
    for box in range(len(boxes)):
        for label in range(CLASSES):
            if kept[box]:
                found[label] = max(found[label], scores[box, label])
    return found


@pytest.fixture
def numbers():
    """Boxes, objectness and the probabilities of the classes for three images."""
    rng = np.random.default_rng(0)
    return rng.random((3, BOXES, 4)) * 100, rng.random((3, BOXES, 1)), rng.random((3, BOXES, CLASSES))


def test_objectness(numbers):
    """YOLOv5 and YOLOX: objectness times the probability of the class."""
    boxes, objectness, classes = numbers
    found = parse_detector("yolov5").label_scores([np.concatenate(numbers, axis=2)], 3, CLASSES)
    for image in range(3):
        scores = objectness[image] * classes[image]
        np.testing.assert_allclose(found[image], reference(boxes[image], scores, [True] * BOXES))


@pytest.mark.parametrize("swapped", [False, True])
def test_no_objectness(numbers, swapped):
    """YOLOv8: boxes along the last axis, or along the second."""
    boxes, _, classes = numbers
    output = np.concatenate([boxes, classes], axis=2)
    found = parse_detector("yolov8").label_scores([output if swapped else output.transpose(0, 2, 1)], 3, CLASSES)
    np.testing.assert_allclose(found, classes.max(axis=1))


def test_class_scores(numbers):
    """One output of scores per box and class, logits too: the largest is kept, below 0 as well."""
    logits = numbers[2] - 5
    np.testing.assert_allclose(parse_detector("scores:s").label_scores([logits], 3, CLASSES), logits.max(axis=1))


@pytest.mark.parametrize("layout", ["nms:s,c", "yolov10"])
def test_suppressed_boxes(layout):
    """After suppression each box has one class; a class without a box has score 0, and padding counts for nothing."""
    scores = np.array([[0.9, 0.4, 0.8, -1.0], [0.3, 0.0, 0.0, 0.0]], np.float32)
    classes = np.array([[2, 2, 0, 99], [3, 0, 0, 0]], np.float32)
    rows = np.concatenate([np.zeros((2, 4, 4)), scores[..., None], classes[..., None]], axis=2)
    outputs = [rows] if layout == "yolov10" else [scores, classes]
    found = parse_detector(layout).label_scores(outputs, 2, CLASSES)
    np.testing.assert_allclose(found, [[0.8, 0, 0.9, 0], [0, 0, 0, 0.3]])


def test_no_boxes():
    """An image without any box has score 0 for every label; outputs of a single image may lack the first axis."""
    empty = np.zeros((0,), np.float32)
    np.testing.assert_array_equal(parse_detector("nms:s,c").label_scores([empty, empty], 1, CLASSES), [[0] * CLASSES])


@pytest.mark.parametrize(
    ("layout", "shapes", "message"),
    [
        ("yolov5", [(3, 7, 8)], r"\(images, boxes, 5 \+ classes\) with 4 classes .* returns \(3, 7, 8\)"),
        ("yolov8", [(3, 7, 9)], r"\(images, 4 \+ classes, boxes\)"),
        ("yolov10", [(3, 7, 9)], r"\(images, boxes, 6\)"),
        ("scores:s", [(3, 4)], r"\(images, boxes, classes\)"),
        ("scores:s", [(3, 0, 4)], r"\(images, boxes, classes\)"),
        ("nms:s,c", [(3, 7), (3, 6)], r"\(images, boxes\) twice"),
        ("nms:s,c", [(7,), (7,)], r"\(images, boxes\) twice"),
    ],
)
def test_other_shapes(layout, shapes, message):
    """An output of another shape is refused, with both shapes."""
    with pytest.raises(ModelError, match=message):
        parse_detector(layout).label_scores([np.zeros(shape, np.float32) for shape in shapes], 3, CLASSES)


def test_class_beyond_labels():
    """A class that no line of the label file names is refused."""
    with pytest.raises(ModelError, match="class 4 is returned, and --labels names 4"):
        parse_detector("nms:s,c").label_scores([np.ones((1, 1)), np.full((1, 1), 4)], 1, CLASSES)


@pytest.mark.parametrize("text", ["yolo", "nms", "nms:a", "scores", "scores:a,b", "yolov8:x", ""])
def test_unknown_layout(text):
    """Unknown layouts are refused with those that exist."""
    with pytest.raises(ModelError, match="choose yolox, yolov5, yolov8"):
        parse_detector(text)


pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # of torch's older exporter, which needs no further package


class Boxes(nn.Module):
    """A detector of 16 boxes, each a cell of the image."""

    def __init__(self, numbers) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = nn.Conv2d(3, numbers, 8, 8)

    def forward(self, images):
        return self.layer(images).sigmoid().flatten(2).transpose(1, 2)


class Suppressed(Boxes):
    """The same with the score and the class of each box."""

    def forward(self, images):
        scores, classes = super().forward(images).max(dim=2)
        return scores, classes


def export(network, file, outputs, batch="dynamic"):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    axes = {"images": {0: "n"}, **{name: {0: "n"} for name in outputs}} if batch == "dynamic" else None
    more = {"input_names": ["images"], "output_names": outputs, "dynamic_axes": axes, "dynamo": False}
    torch.onnx.export(network.eval(), torch.rand(1, 3, 32, 32), str(file), **more)
    return str(file)


@pytest.mark.parametrize("batch", ["dynamic", 1])
def test_loaded_detector(tmp_path, batch):
    """A detector from a file votes as the same scores computed in torch do."""
    network = Boxes(5 + CLASSES)
    file = export(network, tmp_path / "d.onnx", ["output"], batch)
    classifier = load(file, labels=LABELS, detector="yolov5")
    assert (classifier.image_size, classifier.output) == ((32, 32), "probabilities")

    def scores(images):
        found = network(images)
        return (found[..., 4:5] * found[..., 5:]).amax(dim=1)

    images = torch.rand(5, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(classifier(images), scores(images))
    image = images[0].numpy()
    votes = [
        Smoother(one, sigma=0.5, device="cpu").votes(image, 30, noise_seed=0, image_id="a")
        for one in (classifier, load(scores, labels=LABELS))
    ]
    assert np.array_equal(*votes)


def test_blue_first(tmp_path):
    """YOLOX takes pixels in 0..255, blue first."""
    network = Boxes(5 + CLASSES)
    file = export(network, tmp_path / "d.onnx", ["output"])
    images = torch.rand(2, 3, 32, 32) / 255
    yolox, yolov5 = (load(file, labels=LABELS, detector=name) for name in ("yolox", "yolov5"))
    torch.testing.assert_close(yolox(images), yolov5(images.flip(1) * 255))
    assert len({yolox.weights_hash, yolov5.weights_hash, onnx_checksum(file)}) == 3


def test_suppression_in_graph(tmp_path):
    """Outputs by name, in any order; classes that are no label are dropped, and the state says which."""
    file = export(Suppressed(CLASSES), tmp_path / "d.onnx", ["scores", "classes"])
    whole = load(file, labels=LABELS, detector="nms:scores,classes")
    part = load(file, labels=["-", "dog", "-", "hen"], detector="nms:scores,classes")
    other = load(file, labels=["dog", "-", "-", "hen"], detector="nms:scores,classes")
    assert part.label_names == other.label_names == ("dog", "hen")
    images = torch.rand(3, 3, 32, 32)
    assert torch.equal(part(images), whole(images)[:, [1, 3]])
    assert len({state_hash(one) for one in (whole, part, other)}) == 3
    with pytest.raises(ModelError, match=r"unknown output 'score'.*did you mean"):
        load(file, labels=LABELS, detector="nms:score,classes")
    with pytest.raises(ModelError, match="has the outputs scores, classes"):
        load(file, labels=LABELS, detector="yolov8")


def test_channels_last(tmp_path):
    """A graph that takes its channels last gets them so."""

    class Last(Boxes):
        def forward(self, images):
            return super().forward(images.permute(0, 3, 1, 2))

    pytest.importorskip("onnxruntime")
    network = Last(CLASSES).eval()
    file = tmp_path / "d.onnx"
    torch.onnx.export(network, torch.rand(1, 32, 32, 3), str(file), input_names=["x"], output_names=["s"], dynamo=False)
    classifier = load(str(file), labels=LABELS, detector="scores:s")
    assert (classifier.image_size, classifier.output) == ((32, 32), None)
    images = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(classifier(images), network(images.permute(0, 2, 3, 1)).amax(dim=1))


def test_mistakes(tmp_path):
    """What a detector is not, and what it needs, is said."""
    file = export(Boxes(5 + CLASSES), tmp_path / "d.onnx", ["output"])
    with pytest.raises(ModelError, match=r"not one row of scores per image; if it is a detector, --detector says"):
        load(file, labels=LABELS)
    with pytest.raises(ModelError, match="give the label names"):
        load(file, detector="yolov5")
    with pytest.raises(ModelError, match="reads probabilities; leave out --output logits"):
        load(file, labels=LABELS, detector="yolov5", output="logits")
    with pytest.raises(ModelError, match="is no ONNX file"):
        load("timm:resnet18", labels=LABELS, detector="yolov5")
    with pytest.raises(ModelError, match="is no ONNX session"):
        load(nn.Flatten(), labels=LABELS, detector="yolov5")
    with pytest.raises(ModelError, match="expects an output of shape"):
        load(file, labels=LABELS[:3], detector="yolov5")(torch.rand(1, 3, 32, 32))


def test_denoised_detector(tmp_path):
    """A denoiser before a detector gives it denoised images; its weights and sigma are part of the record."""
    write_denoiser(tmp_path / "f.safetensors")
    denoiser = load_ffdnet(tmp_path / "f.safetensors")
    plain = load(export(Boxes(5 + CLASSES), tmp_path / "d.onnx", ["output"]), labels=LABELS, detector="yolov5")
    both = denoise_first(plain, tmp_path / "f.safetensors", 0.1)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(both(images), plain(denoiser(images, 0.1).clamp(0, 1)))
    assert (both.label_names, both.output, both.image_size) == (plain.label_names, "probabilities", (32, 32))
    assert both.weights_hash not in (None, plain.weights_hash)
    assert Smoother(both, sigma=0.1, device="cpu").settings.precision == "float32"
    with pytest.raises(ModelError, match="has a denoiser already"):
        denoise_first(both, tmp_path / "f.safetensors", 0.1)
