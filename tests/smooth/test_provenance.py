"""Whatever can change a vote is in the provenance, so that a resumed run never mixes two classifiers."""

import hashlib
import importlib
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from toy import Images

from multiguard.errors import InvalidInputError, VotesError
from multiguard.models import Classifier, load_classifier
from multiguard.models.denoiser import FFDNet, denoise_first
from multiguard.models.from_onnx import OnnxNetwork
from multiguard.smooth import Smoother, vote_dataset
from multiguard.smooth.provenance import describe_run, first_image
from multiguard.smooth.rounds import Scheme
from multiguard.smooth.settings import resolve_settings
from multiguard.votes import Provenance, image_hash, read_votes

LABELS = list("abcde")
OPTIONS = ("k_max", "score_threshold", "device", "precision", "channels_last", "compile", "noise")
DEFAULTS = {"rule": "top-k", **dict.fromkeys(OPTIONS)}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 5)).eval()


def smoother(**options) -> Smoother:
    return Smoother(load_classifier(network(), labels=LABELS, output="logits", **options), sigma=0.5, device="cpu")


def described(one: Smoother, images: Images = Images(3)) -> Provenance:  # noqa: B008 - never altered
    return describe_run(one, images, Scheme(0, (5,), None, 0, True), first_image(images))


def test_the_same_run_is_described_in_the_same_words():
    assert described(smoother()).differences(described(smoother())) == []
    assert described(smoother(mean=[0.5] * 3)).differences(described(smoother(mean=[0.5] * 3))) == []


@pytest.mark.parametrize("options", [{"mean": [0.5] * 3}, {"std": [0.5] * 3}])
def test_another_normalisation_is_another_run(options):
    assert described(smoother(**options)).differences(described(smoother())) == ["classifier_hash"]


@pytest.mark.parametrize("sigma", [None, 0.0, 0.5])
def test_the_noise_of_training_is_recorded(sigma):
    f = Classifier(network(), LABELS, output="logits", name="x", weights_hash="0", trained_sigma=sigma)
    assert described(Smoother(f, sigma=0.5, device="cpu")).trained_sigma == sigma
    assert described(smoother()).trained_sigma is None


class Labelled(Images):
    """Images whose labels are known before they are read."""

    labels = ((0,), (1, 2), ())


def test_other_labels_are_another_run(tmp_path):
    one, truth, other = smoother(), Labelled(3), Labelled(3)
    other.labels = ((0,), (1,), ())
    assert described(one, truth).differences(described(one, other)) == ["truth_hash"]
    assert described(one).truth_hash is None
    assert describe_run(one, truth, Scheme(0, (5,), None, 5, False), first_image(truth)).truth_hash is None
    vote_dataset(one, truth, tmp_path, draws=5, seed=0)
    with pytest.raises(VotesError, match="truth_hash"):
        vote_dataset(one, other, tmp_path, draws=5, seed=0)


CODE = """
from torch import nn
class Tagger(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, :5] * {sign}
def module():
    return Tagger()
def function():
    return lambda images: images.flatten(1)[:, :5] * {sign}
def nested():
    return nn.Sequential(Tagger())
"""


@pytest.mark.parametrize("maker", ["module", "function", "nested"])
def test_edited_code_is_another_run(tmp_path, monkeypatch, maker):
    monkeypatch.syspath_prepend(tmp_path)

    def described_with(sign: int) -> Provenance:
        (tmp_path / f"tagger_{maker}.py").write_text(CODE.format(sign=sign))
        sys.modules.pop(f"tagger_{maker}", None)
        importlib.invalidate_caches()
        f = load_classifier(f"tagger_{maker}:{maker}", labels=LABELS, output="logits")
        return described(Smoother(f, sigma=0.5, device="cpu"))

    before, same, after = described_with(+1), described_with(+1), described_with(-1)
    assert before.differences(same) == []
    assert before.differences(after) == ["code_hash"]
    assert described(smoother()).code_hash is None


@pytest.mark.parametrize("tensor", ["3.weight", "2.running_mean"])
def test_weights_changed_in_place_are_another_run(tmp_path, tensor):
    one = smoother()
    vote_dataset(one, Images(3), tmp_path, draws=5, seed=0)
    with torch.no_grad():
        one.classifier.network.state_dict()[tensor].add_(1)
    with pytest.raises(VotesError, match="another run: classifier_hash differ"):
        vote_dataset(one, Images(3), tmp_path, draws=5, seed=0)


def test_a_buffer_that_is_not_saved_counts_too():
    one, other = smoother(), smoother()
    for number, each in enumerate((one, other)):
        each.classifier.network.register_buffer("scale", torch.tensor(number), persistent=False)
    assert described(one).differences(described(other)) == ["classifier_hash"]


def test_images_of_another_size_or_from_another_decoder_are_another_run():
    other, scaled = Images(3), Images(3)
    other._images[0] = other._images[0] ^ np.uint8(1)
    scaled._images = [image.astype(np.float32) / 255 for image in scaled._images]
    for images in (Images(3, size=8), other, scaled):
        assert described(smoother(), images).differences(described(smoother())) == ["first_image_hash"]


def test_every_row_says_which_image_was_voted_on(tmp_path):
    images = Images(5)
    vote_dataset(smoother(), images, tmp_path, draws=5, seed=0, shard_images=2)
    votes = read_votes(tmp_path)
    assert votes.image_hashes == tuple(image_hash(sample.image) for sample in images)
    assert votes.image_hashes[0] == votes.provenance.first_image_hash
    assert len(set(votes.image_hashes)) == 5
    head = b"uint8 (3, 4, 4);"
    assert votes.image_hashes[1] == hashlib.sha256(head + images[1].image.tobytes()).hexdigest()


def test_a_dataset_without_images_is_refused():
    with pytest.raises(InvalidInputError, match="'generated' holds no image"):
        described(smoother(), Images(0))


def test_a_function_needs_a_name_of_its_own(tmp_path):
    def scores(images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, :5]

    unnamed = Smoother(load_classifier(scores, labels=LABELS, output="logits"), sigma=0.5, device="cpu")
    with pytest.raises(InvalidInputError, match=r"name=\.\.\.\) a name that changes when the function does"):
        vote_dataset(unnamed, Images(3), tmp_path, draws=5, seed=0)
    named = load_classifier(scores, labels=LABELS, output="logits", name="first five pixels")
    vote_dataset(Smoother(named, sigma=0.5, device="cpu"), Images(3), tmp_path, draws=5, seed=0)


def test_libraries_that_are_imported_are_recorded_with_their_versions(monkeypatch):
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    assert "timm" not in described(smoother()).versions
    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(__version__="9.9"))
    assert described(smoother()).versions["timm"] == "9.9"


@pytest.mark.parametrize(
    ("backend", "field"), [(torch.backends.cuda.matmul, "tf32_matmul"), (torch.backends.cudnn, "tf32_convolution")]
)
def test_whether_tf32_is_allowed_is_recorded(backend, field):
    before = backend.allow_tf32
    try:
        for allowed in (True, False):
            backend.allow_tf32 = allowed
            assert getattr(described(smoother()), field) is allowed
    finally:
        backend.allow_tf32 = before


def test_compiled_noise_is_recorded():
    one = smoother()
    compiled = Smoother(one.classifier, sigma=0.5, device="cpu", compile=True)
    assert described(compiled).differences(described(one)) == ["compiled", "noise_compiled"]


def run_by_onnx(behind_denoiser: bool) -> Classifier:
    f = Classifier(OnnxNetwork.__new__(OnnxNetwork), LABELS, output="logits", name="onnx:x", weights_hash="0")
    return denoise_first(f, FFDNet(), 0.5) if behind_denoiser else f


@pytest.mark.parametrize("behind_denoiser", [False, True])
def test_what_onnxruntime_does_not_do_is_not_recorded(monkeypatch, behind_denoiser):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = resolve_settings(run_by_onnx(behind_denoiser), sigma=0.5, clamp=False, **DEFAULTS)
    assert (found.device.type, found.precision, found.channels_last, found.compiled) == (
        "cuda",
        "float32",
        False,
        False,
    )


@pytest.mark.parametrize("option", [{"precision": "bfloat16"}, {"channels_last": True}, {"compile": True}])
def test_what_onnxruntime_does_not_do_is_refused(option):
    with pytest.raises(InvalidInputError, match=f"onnxruntime.*leave out {next(iter(option))}"):
        Smoother(run_by_onnx(False), sigma=0.5, device="cpu", **option)
    Smoother(run_by_onnx(False), sigma=0.5, device="cpu", precision="float32", channels_last=False, compile=False)
