"""What happens around a run changes no vote: other threads, arrays used again, training, compiling."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy import linear

from multiguard.errors import ModelError
from multiguard.models import load_classifier
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother, step
from multiguard.smooth.streaming import Sizer

SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
IMAGE = np.random.default_rng(0).random((3, 4, 4), dtype=np.float32)
IMAGES = {f"{i}": np.random.default_rng(i).random((3, 4, 4), dtype=np.float32) for i in range(8)}


@SOURCES
def test_threads_that_share_a_smoother_get_the_votes_of_one_thread(source):
    exact, alone = linear(), threading.Lock()

    def scores(images: Tensor) -> Tensor:
        assert alone.acquire(blocking=False), "two batches run at once"
        time.sleep(0.001)  # lets another thread in, as a device or a large product does
        found = exact(images)
        alone.release()
        return found

    f = load_classifier(scores, labels=exact.label_names, output="logits")
    shared = Smoother(f, sigma=0.5, device="cpu", batch_size=8, noise=source)

    def votes(image_id: str) -> np.ndarray:
        return shared.votes(IMAGES[image_id], 60, seed=0, image_id=image_id)

    serial = [votes(image_id) for image_id in IMAGES]
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(list(pool.map(votes, IMAGES)), serial)


@SOURCES
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_a_generator_may_fill_one_array_again_and_again(source, kind, classifier):
    smoother = Smoother(classifier, sigma=0.1, device="cpu", batch_size=16, noise=source)

    def images():
        array = np.empty((3, 4, 4), dtype=np.float32)
        for image_id, image in IMAGES.items():
            array[:] = image
            yield image_id, kind(array)

    for image_id, ranked in smoother.stream(images(), 10, seed=0):
        assert np.array_equal(ranked, smoother.votes(IMAGES[image_id], 10, seed=0, image_id=image_id))


def test_every_run_is_in_evaluation_mode():
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 20), nn.Dropout(0.9))
    f = load_classifier(network, labels=[str(i) for i in range(20)], output="logits")
    smoother = Smoother(f, sigma=0.5, device="cpu")
    before = smoother.votes(IMAGE, 20, seed=0, image_id="a")
    network.train()
    assert np.array_equal(smoother.votes(IMAGE, 20, seed=0, image_id="a"), before)
    network.train()
    assert np.array_equal(next(smoother.stream([("a", IMAGE)], 20, seed=0))[1], before)


class InPlace(nn.Module):
    """Turns its input round where it lies, as an in-place first layer does."""

    def forward(self, images: Tensor) -> Tensor:
        return images.neg_().flatten(1)[:, :5]


@pytest.mark.parametrize("network", [nn.Flatten(), InPlace()])
def test_compiled_with_host_noise_the_votes_are_the_same_also_of_partial_batches(network):
    f = load_classifier(network, labels=[str(i) for i in range(5)], output="logits")
    image = np.linspace(0, 1, 5)
    plain = Smoother(f, sigma=0.5, device="cpu").votes(image, 50, seed=0, image_id="a")
    compiled = Smoother(f, sigma=0.5, device="cpu", compile=True, batch_size=16)
    assert np.array_equal(compiled.votes(image, 50, seed=0, image_id="a"), plain)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_compiled_classifier_never_runs_uncompiled_unsaid(monkeypatch, compiled):
    monkeypatch.setattr(step, "_MOST_GRAPHS", 2)
    f = load_classifier(lambda x: x.flatten(1)[:, :2], labels=["a", "b"], output="logits")
    images = [(str(size), np.zeros(size)) for size in (3, 4, 5)]
    votes = Smoother(f, sigma=0.5, device="cpu", compile=compiled, batch_size=4).stream(images, 4, seed=0)
    if not compiled:
        assert len(list(votes)) == 3
        return
    with pytest.raises(ModelError, match=r"image '5'.*2 shapes.*one size"):
        list(votes)


@SOURCES
def test_a_batch_below_the_limit_is_halved_from_its_own_rows(source):
    sizes: list[int] = []

    def scores(images: Tensor) -> Tensor:
        sizes.append(len(images))
        if len(images) > 5:
            raise torch.OutOfMemoryError("no room")
        return images.flatten(1)[:, :3]

    f = load_classifier(scores, labels=["a", "b", "c"], output="logits")
    list(Smoother(f, sigma=0.5, batch_size=64, device="cpu", noise=source).stream([("a", IMAGE)], 10, seed=0))
    assert sizes == [10, 5, 5]


def test_the_limit_of_rows_never_rises():
    sizer = Sizer(64, torch.device("cpu"))
    sizer.halve(8)
    sizer.halve(64)
    assert sizer._limit == 4
