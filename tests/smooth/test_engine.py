"""One batch gives the votes of its rows: bits and ranks, compiled or not, whatever threads and callers do meanwhile."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy import Images, linear, streamed

from multiguard.certify import TopK
from multiguard.errors import ModelError
from multiguard.models import load
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, LivePrediction, Smoother, engine, torch_engine

SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
IMAGES = {f"{i}": np.random.default_rng(i).random((3, 4, 4), dtype=np.float32) for i in range(8)}
IMAGE = IMAGES["0"]


@pytest.mark.parametrize("labels", [1, 8, 9, 257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_engines(labels, dtype):
    """Ranks and sets of tensors equal the arrays': ties go to the smaller index, -0 and 0 are equal."""
    scores = torch.randint(-2, 3, (11, labels), generator=torch.Generator().manual_seed(labels)).to(dtype) / 2
    scores[3, 0], scores[5, -1] = -0.0, torch.nan
    for mine, theirs, setting in (
        (engine.pack_labels, torch_engine.pack_labels, 0.5),
        (engine.rank_labels, torch_engine.rank_labels, min(labels, 5)),
    ):
        table, other = mine(scores.numpy(), setting), theirs(scores, setting).numpy()
        assert table[:, -1].tolist() == [1] * 5 + [0] + [1] * 5
        finite = table[:, -1] == 1
        assert table.dtype == other.dtype
        assert np.array_equal(table[finite], other[finite])
        assert np.array_equal(table[:, -1], other[:, -1])


@SOURCES
def test_shared_threads(source):
    """Threads that share a smoother get the votes of one thread: their batches take turns."""
    exact, alone = linear(), threading.Lock()

    def scores(images: Tensor) -> Tensor:
        assert alone.acquire(blocking=False), "two batches run at once"
        try:
            time.sleep(0.001)  # lets another thread in, as a device or a large product does
            return exact(images)
        finally:
            alone.release()

    f = load(scores, labels=exact.label_names, output="logits")
    shared = Smoother(f, sigma=0.5, device="cpu", batch_size=8, noise_source=source)

    def votes(image_id: str) -> np.ndarray:
        return shared.votes(IMAGES[image_id], 24, noise_seed=0, image_id=image_id)

    serial = [votes(image_id) for image_id in IMAGES]
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(list(pool.map(votes, IMAGES)), serial)


@SOURCES
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_reused_array(source, kind, classifier):
    """A generator may fill one array again and again: images are copied when they are taken."""
    smoother = Smoother(classifier, sigma=0.1, device="cpu", batch_size=16, noise_source=source)

    def images():
        array = np.empty((3, 4, 4), dtype=np.float32)
        for image_id, image in IMAGES.items():
            array[:] = image
            yield image_id, kind(array)

    for image_id, ranked in streamed(smoother, images(), 10).items():
        assert np.array_equal(ranked, smoother.votes(IMAGES[image_id], 10, noise_seed=0, image_id=image_id))


def test_evaluation_mode():
    """Every run is in evaluation mode, also after the network was trained in between."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 20), nn.Dropout(0.9)).train()
    f = load(network, labels=[str(i) for i in range(20)], output="logits")
    smoother = Smoother(f, sigma=0.5, device="cpu")
    assert not network.training
    before = smoother.votes(IMAGE, 20, noise_seed=0, image_id="a")
    network.train()
    assert np.array_equal(smoother.votes(IMAGE, 20, noise_seed=0, image_id="a"), before)
    network.train()
    assert np.array_equal(streamed(smoother, [("a", IMAGE)], 20)["a"], before)


def compiled_pair(**options):
    """The votes of a linear network, plain and compiled together with its noise, in padded batches."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 13))
    f = load(network, labels=[str(i) for i in range(13)], output="logits")
    options = {"sigma": 0.5, "device": "cpu", "noise_source": DEVICE_PHILOX, **options}
    smoothers = Smoother(f, **options), Smoother(f, compile=True, batch_size=16, **options)
    return [smoother.votes(IMAGE, 50, noise_seed=0, image_id="a") for smoother in smoothers]


def test_compiled_ranks():
    """A classifier compiled to machine code together with its noise gives the same votes."""
    plain, compiled = compiled_pair(k_max=5)
    assert np.array_equal(plain, compiled)


class InPlace(nn.Module):
    """Negates its input in place, as an in-place first layer may."""

    def forward(self, images: Tensor) -> Tensor:
        return images.neg_().flatten(1)[:, :5]


@pytest.mark.usefixtures("eager_backend")
def test_compiled_in_place():
    """The rows that run uncompiled first are copies, so a network may change its input."""
    f = load(InPlace(), labels=[str(i) for i in range(5)], output="logits")
    image = np.linspace(0, 1, 5)
    plain = Smoother(f, sigma=0.5, device="cpu").votes(image, 50, noise_seed=0, image_id="a")
    compiled = Smoother(f, sigma=0.5, device="cpu", compile=True, batch_size=16)
    assert np.array_equal(compiled.votes(image, 50, noise_seed=0, image_id="a"), plain)


@pytest.mark.usefixtures("eager_backend")
def test_compiled_contract():
    """A compiled classifier that returns the wrong shape is named with its image."""
    f = load(lambda x: torch.zeros(len(x), 4), labels=["a", "b", "c"], output="logits")
    with pytest.raises(ModelError, match=r"image 'cat'.*returned shape \(2, 4\), expected"):
        Smoother(f, sigma=0.5, device="cpu", compile=True).votes(IMAGE, 8, noise_seed=0, image_id="cat")


@pytest.mark.usefixtures("eager_backend")
@pytest.mark.parametrize("compiled", [True, False])
def test_graph_limit(monkeypatch, compiled):
    """A compiled classifier raises past its limit of graphs and never runs uncompiled silently."""
    monkeypatch.setattr(torch_engine, "_MAX_GRAPHS", 2)
    f = load(lambda x: x.flatten(1)[:, :2], labels=["a", "b"], output="logits")
    images = [(str(size), np.zeros(size)) for size in (3, 4, 5)]
    one = Smoother(f, sigma=0.5, device="cpu", compile=compiled, batch_size=4)
    if not compiled:
        assert len(streamed(one, images, 4)) == 3
        return
    with pytest.raises(ModelError, match=r"image '5'.*2 image shapes.*one size"):
        streamed(one, images, 4)


def noisy_inputs(sigma: float, **options) -> np.ndarray:
    """What the classifier gets for a black image: the noise itself."""
    seen: list[torch.Tensor] = []

    def watch(images: torch.Tensor) -> torch.Tensor:
        seen.append(images.clone())
        return images[:, :2]

    f = load(watch, labels=["a", "b"], output="logits")
    Smoother(f, sigma=sigma, device="cpu", **options).votes(np.zeros(1000), 50, noise_seed=0, image_id="a")
    assert {images.dtype for images in seen} == {torch.float32}
    return np.concatenate([images.numpy() for images in seen]).astype(np.float64)


@SOURCES
@pytest.mark.parametrize("sigma", [0.7, 0.35, 0.1, 0.3, 0.5, 1 / 3, 1.2345678901])
def test_executed_sigma(source, sigma):
    """The noise is never weaker than the sigma that radii are computed with, and as little stronger as float32 allows.

    Rounded to the nearest float32, 0.7 would be 2e-8 too small. The ratio of the two noises is known to about 1e-10.
    """
    unit, scaled = (noisy_inputs(each, noise_source=source) for each in (1.0, sigma))
    executed = np.sum(unit * scaled) / np.sum(unit * unit)
    assert -1e-9 < executed / sigma - 1 < 1.2e-7


@SOURCES
def test_noise_under_autocast(source):
    """Autocast is for the classifier: the noise is added in float32 before it."""
    options = {"noise_source": source, "batch_size": 50}
    assert np.array_equal(noisy_inputs(0.7, precision="bfloat16", **options), noisy_inputs(0.7, **options))


@pytest.mark.usefixtures("eager_backend")
def test_one_graph(classifier):
    """One compiled graph serves batches of any number of images."""
    options = {"sigma": 0.5, "device": "cpu", "batch_size": 16, "noise_source": DEVICE_PHILOX}
    one, plain = Smoother(classifier, compile=True, **options), Smoother(classifier, **options)
    images = [(sample.id, sample.image) for sample in Images(16)]
    one.votes(images[0][1], 16, noise_seed=0, image_id="first")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for draws in (80, 16, 5, 1):
            found, expected = (streamed(each, images, draws) for each in (one, plain))
            assert all(np.array_equal(found[name], expected[name]) for name in expected)


class Scaled(nn.Module):
    """A network with a weight that is one number, which decides the signs of its scores."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("weight", torch.randn(6, 4))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return (rows[:, None, :] * self.weight).sum(-1) * self.scale


FLAT = np.zeros(4)
SIX = {"sigma": 0.5, "labels": list("abcdef"), "device": "cpu", "batch_size": 16}


def assert_same_votes(compiled: Smoother, plain: Smoother, image: np.ndarray = FLAT) -> bytes:
    """The votes of both; they agree."""
    found, expected = (each.votes(image, 16, noise_seed=0, image_id="a") for each in (compiled, plain))
    assert np.array_equal(found, expected)
    return found.tobytes()


def normalised() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6)).eval()


def test_changed_weights():
    """A compiled graph never votes for weights that the model no longer has."""
    network, seen = normalised(), []
    compiled, plain = (Smoother(network, compile=each, **SIX) for each in (True, False))
    for change in (network[3].weight, network[1].running_mean):
        seen.append(assert_same_votes(compiled, plain))
        with torch.no_grad():
            change.add_(torch.randn_like(change))
    seen.append(assert_same_votes(compiled, plain))
    assert len(set(seen)) == 3


@pytest.mark.usefixtures("eager_backend")
@pytest.mark.parametrize("compiled", [True, False])
def test_votes_in_between(compiled):
    """A prediction remembers the weights that it began with, whatever else the smoother votes on meanwhile."""
    network = Scaled()
    smoother = Smoother(network, compile=compiled, **SIX)
    live = LivePrediction(smoother, FLAT, TopK(1, 1), pilot_draws=8, noise_seed=0)
    live.draw(16)
    network.scale.data.fill_(-1.0)
    smoother.votes(FLAT, 16, noise_seed=0, image_id="a")
    with pytest.raises(ModelError, match="changed its own parameters"):
        live.prediction()
