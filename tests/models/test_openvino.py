"""The network of the built-in model on OpenVINO: taken if it is as fast, recorded, with bfloat16 on request."""

from importlib.util import find_spec

import numpy as np
import pytest

from multiguard.errors import InvalidInputError
from multiguard.models import load, onnx
from multiguard.smooth import Smoother
from multiguard.smooth.dataset import execution

needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")
IMAGE = np.random.default_rng(0).integers(0, 256, (3, 448, 448), dtype=np.uint8)


def smoothed(**options):
    """A smoother of the built-in model that has seen an image."""
    smoother = Smoother(load("coco"), 0.5, device="cpu", **options)
    smoother.find_labels(IMAGE)
    return smoother


@pytest.mark.parametrize("slower", [0.0, 1e9])
@needs_openvino
def test_choice(monkeypatch, slower):
    """OpenVINO runs the network unless it is slower; the scores are the same, and the record says which ran."""
    monkeypatch.setattr(onnx, "_SLOWER", slower)
    smoother, inputs = smoothed(), IMAGE[None].astype(np.float32) / 255
    engine = "openvino" if slower else "onnxruntime"
    assert execution(smoother)["device"].endswith(engine)
    assert ("openvino" in execution(smoother)["versions"]) == bool(slower)
    assert np.allclose(smoother.classifier.scores(inputs), load("coco").scores(inputs), atol=1e-4)


@needs_openvino
def test_without_compilation():
    """compile=False keeps onnxruntime, which starts at once."""
    assert execution(smoothed(compile=False))["device"].endswith("onnxruntime")


@needs_openvino
def test_bfloat16():
    """Other arithmetic is another network: recorded, and of the same classifier object no other smoother's."""
    classifier = load("coco")
    half, plain = (Smoother(classifier, 0.5, device="cpu", precision=one) for one in ("bfloat16", None))
    votes = [one.votes(IMAGE, 4, noise_seed=0, image_id="a") for one in (half, plain)]
    assert (half.settings.precision, plain.settings.precision) == ("bfloat16", "float32")
    scores = [one.classifier.scores(IMAGE[None].astype(np.float32) / 255) for one in (half, plain)]
    assert 1e-3 < np.abs(scores[0] - scores[1]).max() < 10
    assert votes[0].shape == votes[1].shape == (4, 10)


@pytest.mark.skipif(find_spec("openvino") is not None, reason="OpenVINO is installed")
def test_not_installed(tmp_path):
    """Without OpenVINO bfloat16 is refused for a network that runs outside torch."""
    from small_models import LABELS, write_onnx

    write_onnx(tmp_path / "model.onnx", "N")
    with pytest.raises(InvalidInputError, match="leave out precision"):
        Smoother(load(f"onnx:{tmp_path / 'model.onnx'}", labels=LABELS), 0.5, precision="bfloat16")
