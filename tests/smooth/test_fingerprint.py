"""Everything that can change a vote is in the provenance, so a resumed run never mixes two classifiers."""

import hashlib
import importlib
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from toy import Images, linear

from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError, VotesError
from multiguard.models import Classifier, load
from multiguard.smooth import Smoother, vote_dataset
from multiguard.smooth.dataset import VoteRun
from multiguard.votes import Provenance, read_votes

LABELS = list("abcde")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 5)).eval()


def smoother(**options) -> Smoother:
    return Smoother(load(network(), labels=LABELS, output="logits", **options), sigma=0.5, device="cpu")


def provenance(one: Smoother, images: Images | None = None, *, labelled: bool = True) -> Provenance:
    images = Images(3) if images is None else images
    how = {"draws": 5, "noise_seed": 0, "pilot_draws": 0 if labelled else 5, "labelled": labelled}
    return VoteRun(one, images, **how).provenance


@pytest.mark.parametrize("options", [{"mean": [0.5] * 3}, {"std": [0.5] * 3}])
def test_normalisation(options):
    """Another normalisation is another run."""
    assert provenance(smoother(**options)).differences(provenance(smoother())) == ["classifier_hash"]


@pytest.mark.parametrize("noise", [None, "none", "band:2/5"])
def test_trained_noise(noise):
    """The noise of training is recorded."""
    f = Classifier(network(), LABELS, output="logits", name="x", weights_hash="0", trained_noise=noise)
    assert provenance(Smoother(f, sigma=0.5, device="cpu")).trained_noise == noise
    assert provenance(smoother()).trained_noise is None


class Labelled(Images):
    """Images whose labels are known before they are read."""

    labels = ((0,), (1, 2), ())


def test_other_labels(tmp_path):
    """Other labels are another run."""
    one, truth, other = smoother(), Labelled(3), Labelled(3)
    other.labels = ((0,), (1,), ())
    assert provenance(one, truth).differences(provenance(one, other)) == ["truth_hash"]
    assert provenance(one).truth_hash is None
    assert provenance(one, truth, labelled=False).truth_hash is None
    vote_dataset(one, truth, tmp_path, draws=5, noise_seed=0)
    with pytest.raises(VotesError, match="truth_hash"):
        vote_dataset(one, other, tmp_path, draws=5, noise_seed=0)


CODE = """
from torch import nn
class Network(nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, :5] * {sign}
def module():
    return Network()
def function():
    return lambda images: images.flatten(1)[:, :5] * {sign}
def nested():
    return nn.Sequential(Network())
"""


@pytest.mark.parametrize("maker", ["module", "function", "nested"])
def test_edited_code(tmp_path, monkeypatch, maker):
    """Edited code of the user is another run."""
    monkeypatch.syspath_prepend(tmp_path)

    def provenance_with(sign: int) -> Provenance:
        (tmp_path / f"network_{maker}.py").write_text(CODE.format(sign=sign))
        sys.modules.pop(f"network_{maker}", None)
        importlib.invalidate_caches()
        f = load(f"network_{maker}:{maker}", labels=LABELS, output="logits")
        return provenance(Smoother(f, sigma=0.5, device="cpu"))

    before, same, after = provenance_with(+1), provenance_with(+1), provenance_with(-1)
    assert before.differences(same) == []
    assert before.differences(after) == ["code_hash"]
    assert provenance(smoother()).code_hash is None


@pytest.mark.parametrize("tensor", ["3.weight", "2.running_mean"])
def test_changed_weights(tmp_path, tensor):
    """Weights that were changed in place are another run: they are hashed for each call."""
    one = smoother()
    vote_dataset(one, Images(3), tmp_path, draws=5, noise_seed=0)
    with torch.no_grad():
        one.classifier.network.state_dict()[tensor].add_(1)
    with pytest.raises(VotesError, match="another run: classifier_hash differ"):
        vote_dataset(one, Images(3), tmp_path, draws=5, noise_seed=0)


def test_unsaved_buffer():
    """A buffer that is not saved counts, too."""
    one, other = smoother(), smoother()
    for number, each in enumerate((one, other)):
        each.classifier.network.register_buffer("scale", torch.tensor(number), persistent=False)
    assert provenance(one).differences(provenance(other)) == ["classifier_hash"]


def test_other_images():
    """Images of another size or from another decoder are another run."""
    other, scaled = Images(3), Images(3)
    other._images[0] = other._images[0] ^ np.uint8(1)
    scaled._images = [image.astype(np.float32) / 255 for image in scaled._images]
    for images in (Images(3, size=8), other, scaled):
        assert provenance(smoother(), images).differences(provenance(smoother())) == ["first_image_hash"]


def test_image_hashes(tmp_path):
    """Every row records the hash of the image that was voted on."""
    images = Images(5)
    vote_dataset(smoother(), images, tmp_path, draws=5, noise_seed=0, shard_images=2)
    votes = read_votes(tmp_path)
    assert votes.image_hashes == tuple(image_hash(sample.image) for sample in images)
    assert votes.image_hashes[0] == votes.provenance.first_image_hash
    assert len(set(votes.image_hashes)) == 5
    head = b"uint8 (3, 4, 4);"
    assert votes.image_hashes[1] == hashlib.sha256(head + images[1].image.tobytes()).hexdigest()


def test_label_names(tmp_path):
    """The dataset must have the labels of the classifier."""
    other = Smoother(linear(labels=6), sigma=0.5, device="cpu")
    with pytest.raises(InvalidInputError, match=r"a, b, c, d, ... \(5 in all\) and a, b, c, d, ... \(6 in all\)"):
        vote_dataset(other, Images(3), tmp_path, draws=5, noise_seed=0)


def test_unnamed_function(tmp_path):
    """A function needs a name of its own."""

    def scores(images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, :5]

    unnamed = Smoother(load(scores, labels=LABELS, output="logits"), sigma=0.5, device="cpu")
    with pytest.raises(InvalidInputError, match=r"name=\.\.\.\) a name that changes when the function does"):
        vote_dataset(unnamed, Images(3), tmp_path, draws=5, noise_seed=0)
    named = load(scores, labels=LABELS, output="logits", name="first five pixels")
    vote_dataset(Smoother(named, sigma=0.5, device="cpu"), Images(3), tmp_path, draws=5, noise_seed=0)


def test_versions(monkeypatch):
    """Imported model libraries are recorded with their versions."""
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    assert "timm" not in provenance(smoother()).versions
    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(__version__="9.9"))
    assert provenance(smoother()).versions["timm"] == "9.9"


@pytest.mark.parametrize(
    ("backend", "field"), [(torch.backends.cuda.matmul, "tf32_matmul"), (torch.backends.cudnn, "tf32_convolution")]
)
def test_tf32(backend, field):
    """Whether TF32 is allowed is recorded."""
    before = backend.allow_tf32
    try:
        for allowed in (True, False):
            backend.allow_tf32 = allowed
            assert getattr(provenance(smoother()), field) is allowed
    finally:
        backend.allow_tf32 = before
