"""Votes follow the exact probabilities, whatever the batches; what breaks that is refused by name."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn
from toy import linear

from multiguard.certify import hits_from_ranked
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models import load_classifier
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother

SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
IMAGE = np.random.default_rng(0).random((3, 4, 4), dtype=np.float32)


def identity(labels: int = 4):
    return load_classifier(lambda x: x.clone(), labels=[str(i) for i in range(labels)], output="logits")


def exact_probability(label: int, k_prime: int, means: np.ndarray, sigma: float) -> float:
    """Pr(label among the k' largest of independent N(means, sigma^2)): integrate over its own score."""

    def integrand(score: float) -> float:
        above = stats.norm.sf(score, np.delete(means, label), sigma)
        counts = np.array([1.0])
        for p in above:
            counts = np.convolve(counts, [1 - p, p])
        return float(stats.norm.pdf(score, means[label], sigma) * counts[:k_prime].sum())

    return integrate.quad(integrand, -10, 10, limit=200)[0]


@SOURCES
@pytest.mark.parametrize("k_prime", [1, 2, 3])
def test_frequencies_match_exact_probabilities(source, k_prime):
    means, sigma, draws = np.array([0.9, 0.6, 0.5, 0.1]), 0.5, 4000
    smoother = Smoother(identity(), sigma=sigma, k_max=3, device="cpu", noise=source)
    ranked = smoother.votes(means, draws, seed=1, image_id="exact")
    counts = hits_from_ranked(ranked, k_prime=k_prime, num_labels=4).sum(axis=0)
    for label in range(4):
        exact = exact_probability(label, k_prime, means, sigma)
        assert stats.binomtest(int(counts[label]), draws, exact).pvalue > 1e-4


@SOURCES
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_batch_size_does_not_change_the_noise(source, batch_size):
    seen: list[Tensor] = []

    def watch(images: Tensor) -> Tensor:
        seen.append(images.clone())
        return images.flatten(1)[:, :2]

    f = load_classifier(watch, labels=["a", "b"], output="logits")
    Smoother(f, sigma=0.5, batch_size=batch_size, device="cpu", noise=source).votes(IMAGE, 64, seed=0, image_id="a")
    together = torch.cat(seen)
    assert len(together) == 64
    assert len(seen) == -(-64 // batch_size)
    seen.clear()
    Smoother(f, sigma=0.5, batch_size=13, device="cpu", noise=source).votes(IMAGE, 64, seed=0, image_id="a")
    assert torch.equal(torch.cat(seen), together)


@SOURCES
def test_votes_of_parts_are_parts_of_the_votes(source, classifier):
    smoother = Smoother(classifier, sigma=0.5, device="cpu", noise=source)
    whole = smoother.votes(IMAGE, 50, seed=0, image_id="a")
    parts = [smoother.votes(IMAGE, 25, seed=0, image_id="a", first_draw=first) for first in (0, 25)]
    assert np.array_equal(np.concatenate(parts), whole)


@SOURCES
@pytest.mark.parametrize("draws", [3, 10, 33])
def test_images_that_share_batches_get_the_votes_they_get_alone(source, classifier, draws):
    images = {f"{i}": np.random.default_rng(i).random((3, 4, 4), dtype=np.float32) for i in range(5)}
    smoother = Smoother(classifier, sigma=0.5, batch_size=16, device="cpu", noise=source)
    together = dict(smoother.stream(images.items(), draws, seed=3))
    assert list(together) == list(images)
    for image_id, image in images.items():
        assert np.array_equal(together[image_id], smoother.votes(image, draws, seed=3, image_id=image_id))


def test_images_of_different_shapes_and_dtypes_can_follow_each_other():
    f = load_classifier(lambda x: x.flatten(1)[:, :3], labels=["a", "b", "c"], output="logits")
    shapes = [(3,), (3,), (2, 5), (3, 2, 2), (3, 2, 2)]
    images = [(str(i), np.ones(shape, dtype=np.uint8 if i % 2 else np.float32)) for i, shape in enumerate(shapes)]
    smoother = Smoother(f, sigma=1.0, batch_size=4, device="cpu")
    for image_id, ranked in smoother.stream(images, 6, seed=0):
        alone = smoother.votes(dict(images)[image_id], 6, seed=0, image_id=image_id)
        assert np.array_equal(ranked, alone)


@SOURCES
def test_the_same_id_with_another_image_is_drawn_anew(source, classifier):
    smoother = Smoother(classifier, sigma=0.1, device="cpu", noise=source)
    first = smoother.votes(IMAGE, 20, seed=0, image_id="a")
    smoother.votes(1 - IMAGE, 20, seed=0, image_id="a")
    fresh = Smoother(classifier, sigma=0.1, device="cpu", noise=source)
    assert np.array_equal(
        smoother.votes(1 - IMAGE, 20, seed=0, image_id="a"), fresh.votes(1 - IMAGE, 20, seed=0, image_id="a")
    )
    assert np.array_equal(smoother.votes(IMAGE, 20, seed=0, image_id="a"), first)


@SOURCES
@pytest.mark.parametrize("clamp", [False, True])
def test_noise_is_added_in_pixel_space_before_normalisation(source, clamp):
    seen: list[Tensor] = []

    def watch(images: Tensor) -> Tensor:
        seen.append(images.clone())
        return images.flatten(1)[:, :2]

    f = load_classifier(watch, labels=["a", "b"], output="logits", mean=(0.5,) * 3, std=(0.25,) * 3)
    image = np.full((3, 8, 8), 51, dtype=np.uint8)
    Smoother(f, sigma=0.2, clamp=clamp, device="cpu", noise=source).votes(image, 300, seed=0, image_id="a")
    pixels = torch.cat(seen) * 0.25 + 0.5
    assert pixels.min() < (1e-6 if clamp else -0.4)
    assert (pixels.min() >= -1e-6) == clamp
    if not clamp:
        assert stats.kstest((pixels.flatten().numpy() - 0.2) / 0.2, "norm").pvalue > 1e-4


def test_ties_go_to_the_smaller_index():
    f = load_classifier(lambda x: torch.zeros(len(x), 40), labels=[str(i) for i in range(40)], output="logits")
    votes = Smoother(f, sigma=1.0, k_max=5, device="cpu").votes(IMAGE, 9, seed=0, image_id="a")
    assert np.array_equal(votes, np.tile(np.arange(5), (9, 1)))


@pytest.mark.parametrize(("labels", "dtype"), [(256, np.uint8), (257, np.uint16)])
def test_a_label_takes_one_byte_up_to_256_labels(labels, dtype):
    f = load_classifier(lambda x: x.flip(1), labels=[str(i) for i in range(labels)], output="logits")
    image = -np.arange(labels, dtype=np.float32)
    votes = Smoother(f, sigma=1e-3, k_max=2, device="cpu").votes(image, 3, seed=0, image_id="a")
    assert votes.dtype == dtype
    assert votes.tolist() == [[labels - 1, labels - 2]] * 3


def test_a_compiled_classifier_gives_the_same_votes():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    f = load_classifier(network, labels=list("abcde"), output="logits")
    plain = Smoother(f, sigma=0.5, device="cpu", noise=DEVICE_PHILOX)
    compiled = Smoother(f, sigma=0.5, device="cpu", noise=DEVICE_PHILOX, compile=True, batch_size=16)
    arguments = {"draws": 50, "seed": 0, "image_id": "a"}
    assert np.array_equal(plain.votes(IMAGE, **arguments), compiled.votes(IMAGE, **arguments))


def test_a_second_compiled_smoother_does_not_use_up_the_first_ones_graphs():
    f = load_classifier(nn.Flatten(), labels=[str(i) for i in range(3)], output="logits")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for sigma in (0.25, 0.5):
            smoother = Smoother(f, sigma=sigma, device="cpu", noise=DEVICE_PHILOX, compile=True)
            assert len(smoother.votes(np.zeros(3), 4, seed=0, image_id="a")) == 4


class Cramped:
    """A classifier with room for a few rows only, as a device with little memory."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sizes: list[int] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        if len(images) > self.room:
            raise torch.OutOfMemoryError("no room")
        return images.flatten(1)[:, :3]


@SOURCES
def test_a_batch_that_finds_no_memory_is_halved_with_the_same_noise(source):
    cramped, roomy = Cramped(room=5), Cramped(room=1000)
    labels = ["a", "b", "c"]
    arguments = {"draws": 100, "seed": 0, "image_id": "a"}
    small = Smoother(
        load_classifier(cramped, labels=labels, output="logits"),
        sigma=0.5,
        batch_size=32,
        device="cpu",
        noise=source,
    )
    large = Smoother(
        load_classifier(roomy, labels=labels, output="logits"),
        sigma=0.5,
        batch_size=32,
        device="cpu",
        noise=source,
    )
    assert np.array_equal(small.votes(IMAGE, **arguments), large.votes(IMAGE, **arguments))
    assert cramped.sizes[:4] == [32, 16, 8, 4]
    assert set(cramped.sizes[4:]) == {4}


def test_no_room_for_one_row_is_said():
    f = load_classifier(Cramped(room=0), labels=["a", "b", "c"], output="logits")
    with pytest.raises(ModelError, match=r"'cat'.*no memory"):
        Smoother(f, sigma=0.5, device="cpu").votes(IMAGE, 10, seed=0, image_id="cat")


def broken(scores):
    return load_classifier(scores, labels=["a", "b", "c"], output="logits")


BROKEN = {
    "NaN": (lambda x: torch.full((len(x), 3), float("nan")), "NaN or infinite"),
    "infinity": (lambda x: torch.full((len(x), 3), float("inf")), "NaN or infinite"),
    "count": (lambda x: torch.zeros(len(x), 4), r"shape \(\d+, 4\)"),
    "shape": (lambda x: torch.zeros(len(x)), r"shape \(\d+,\)"),
    "rows": (lambda x: torch.zeros(1, 3), r"shape \(1, 3\)"),
    "array": (lambda x: x.flatten(1)[:, :3].numpy(), "ndarray"),
    "whole numbers": (lambda x: torch.zeros(len(x), 3, dtype=torch.int64), "int64"),
    "exception": (lambda x: x.view(17), "RuntimeError"),
}


@SOURCES
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_classifier_is_named_with_its_image(fault, source):
    scores, message = BROKEN[fault]
    smoother = Smoother(broken(scores), sigma=0.5, device="cpu", noise=source)
    with pytest.raises(ModelError, match=f"(?s)image 'cat'.*{message}"):
        smoother.votes(IMAGE, 8, seed=0, image_id="cat")


def test_a_broken_classifier_is_named_when_compiled():
    smoother = Smoother(broken(BROKEN["count"][0]), sigma=0.5, device="cpu", compile=True)
    with pytest.raises(ModelError, match=r"'cat'.*shape"):
        smoother.votes(IMAGE, 8, seed=0, image_id="cat")


def test_the_one_image_with_a_nan_is_named_among_those_that_share_its_batch():
    def scores(images: Tensor) -> Tensor:
        sums = images.flatten(1).sum(1, keepdim=True)
        return torch.where(sums > 1e3, torch.nan, sums).expand(-1, 3)

    images = [("dog", IMAGE), ("cat", IMAGE + 1e4), ("cow", IMAGE)]
    with pytest.raises(ModelError, match="image 'cat', draw 0:"):
        list(Smoother(broken(scores), sigma=0.5, batch_size=30, device="cpu").stream(images, 10, seed=0))


@pytest.mark.parametrize("sigma", [0, -1.0, float("nan"), float("inf")])
def test_sigma_must_be_positive(classifier, sigma):
    with pytest.raises(InvalidInputError, match="sigma"):
        Smoother(classifier, sigma=sigma)


@pytest.mark.parametrize("draws", [0, -5, (1 << 32) + 1])
def test_draws_must_be_countable(classifier, draws):
    with pytest.raises(InvalidInputError, match="draws"):
        Smoother(classifier, sigma=1.0, device="cpu").votes(IMAGE, draws, seed=0, image_id="a")


@pytest.mark.parametrize("k_max", [0, 6])
def test_no_more_ranks_than_labels(classifier, k_max):
    with pytest.raises(InvalidInputError, match="k_max"):
        Smoother(classifier, sigma=1.0, k_max=k_max)


def test_ranks_default_to_ten_or_to_all_labels():
    assert Smoother(linear(labels=5), sigma=1.0, device="cpu").settings.k_max == 5
    assert Smoother(linear(labels=30), sigma=1.0, device="cpu").settings.k_max == 10


@pytest.mark.parametrize(
    ("option", "value"),
    [("batch_size", 0), ("batch_size", "big"), ("precision", "int8"), ("noise", "dice")],
)
def test_unknown_options_are_refused(classifier, option, value):
    with pytest.raises(InvalidInputError, match=option):
        Smoother(classifier, sigma=1.0, device="cpu", **{option: value})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.full((3, 4, 4), np.nan, dtype=np.float32), "NaN"),
        (np.zeros((3, 4, 4), dtype=np.int32), "int32"),
        (np.zeros((3, 0, 4), dtype=np.float32), "shape"),
    ],
)
def test_a_bad_image_is_named(classifier, image, message):
    with pytest.raises(InvalidInputError, match=f"'cat'.*{message}"):
        Smoother(classifier, sigma=1.0, device="cpu").votes(image, 3, seed=0, image_id="cat")


def test_a_image_of_another_size_is_named():
    f = load_classifier(lambda x: x.flatten(1)[:, :1], labels=["a"], output="logits", image_size=(8, 8))
    with pytest.raises(InvalidInputError, match=r"'cat'.*\(4, 4\).*\(8, 8\)"):
        Smoother(f, sigma=1.0, device="cpu").votes(IMAGE, 3, seed=0, image_id="cat")


def test_the_classifier_is_put_in_evaluation_mode():
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 2), nn.Dropout(0.9)).train()
    f = load_classifier(network, labels=["a", "b"], output="logits")
    Smoother(f, sigma=1.0, device="cpu")
    assert not network.training


def test_memory_does_not_grow_with_draws():
    largest = []

    def watch(images: Tensor) -> Tensor:
        largest.append(images.untyped_storage().nbytes())
        return images.flatten(1)[:, :2]

    f = load_classifier(watch, labels=["a", "b"], output="logits")
    votes = Smoother(f, sigma=1.0, batch_size=32, device="cpu").votes(IMAGE, 20_000, seed=0, image_id="a")
    assert len(votes) == 20_000
    assert max(largest) == 32 * IMAGE.nbytes
