"""Votes follow the exact probabilities, whatever the batches: ranked labels, and sets with a score threshold."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from toy import linear, streamed

from multiguard.certify import hits_from_ranked
from multiguard.models import load
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother
from multiguard.votes import LabelSets

SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
IMAGE = np.random.default_rng(0).random((3, 4, 4), dtype=np.float32)


KINDS = pytest.mark.parametrize("kind", [{}, {"score_threshold": 0.5}], ids=["ranks", "sets"])


def identity(labels: int = 4, output: str = "logits"):
    return load(lambda x: x.clone(), labels=[str(i) for i in range(labels)], output=output)


def as_rows(votes) -> np.ndarray:
    return votes.packed if isinstance(votes, LabelSets) else votes


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
def test_rank_frequencies(source, k_prime):
    """The frequencies of ranked votes match exact probabilities."""
    means, sigma, draws = np.array([0.9, 0.6, 0.5, 0.1]), 0.5, 4000
    smoother = Smoother(identity(), sigma=sigma, k_max=3, device="cpu", noise_source=source)
    ranked = smoother.votes(means, draws, noise_seed=1, image_id="exact")
    counts = hits_from_ranked(ranked, k_prime=k_prime, num_labels=4).sum(axis=0)
    for label in range(4):
        exact = exact_probability(label, k_prime, means, sigma)
        assert stats.binomtest(int(counts[label]), draws, exact).pvalue > 1e-4


@SOURCES
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_batch_size(source, batch_size):
    """The batch size does not change the noise."""
    seen: list[Tensor] = []

    def watch(images: Tensor) -> Tensor:
        seen.append(images.clone())
        return images.flatten(1)[:, :2]

    f = load(watch, labels=["a", "b"], output="logits")

    def look(batch_size: int) -> Tensor:
        one = Smoother(f, sigma=0.5, batch_size=batch_size, device="cpu", noise_source=source)
        one.probe([IMAGE])
        seen.clear()
        one.votes(IMAGE, 64, noise_seed=0, image_id="a")
        return torch.cat(seen)

    together = look(batch_size)
    assert len(together) == 64
    assert len(seen) == -(-64 // batch_size)
    assert torch.equal(look(13), together)


@SOURCES
def test_parts(source, classifier):
    """Votes drawn in parts are parts of the votes."""
    smoother = Smoother(classifier, sigma=0.5, device="cpu", noise_source=source)
    whole = smoother.votes(IMAGE, 50, noise_seed=0, image_id="a")
    parts = [smoother.votes(IMAGE, 25, noise_seed=0, image_id="a", first_draw=first) for first in (0, 25)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_run_counts_labels():
    """A run counts unnamed labels by its first image; an empty one needs none."""
    smoother = Smoother(lambda rows: rows[:, :3], sigma=0.5, device="cpu")
    assert streamed(smoother, [], 4) == {}
    assert streamed(smoother, [("a", np.array([9.0, 5.0, -5.0, 0.0]))], 4)["a"].shape == (4, 3)


@SOURCES
@KINDS
@pytest.mark.parametrize("draws", [3, 33])
def test_shared_batches(source, kind, classifier, draws):
    """Images that share batches get the votes that they get alone."""
    images = {f"{i}": np.random.default_rng(i).random((3, 4, 4), dtype=np.float32) for i in range(5)}
    smoother = Smoother(classifier, sigma=0.5, batch_size=16, device="cpu", noise_source=source, **kind)
    together = streamed(smoother, images.items(), draws, noise_seed=3)
    assert list(together) == list(images)
    for image_id, image in images.items():
        alone = smoother.votes(image, draws, noise_seed=3, image_id=image_id)
        assert isinstance(alone, LabelSets) == bool(kind)
        assert np.array_equal(as_rows(together[image_id]), as_rows(alone))


def test_mixed_images():
    """Images of different shapes and dtypes can follow each other."""
    f = load(lambda x: x.flatten(1)[:, :3], labels=["a", "b", "c"], output="logits")
    shapes = [(3,), (3,), (2, 5), (3, 2, 2), (3, 2, 2)]
    images = [(str(i), np.ones(shape, dtype=np.uint8 if i % 2 else np.float32)) for i, shape in enumerate(shapes)]
    smoother = Smoother(f, sigma=1.0, batch_size=4, device="cpu")
    for image_id, ranked in streamed(smoother, images, 6).items():
        alone = smoother.votes(dict(images)[image_id], 6, noise_seed=0, image_id=image_id)
        assert np.array_equal(ranked, alone)


@SOURCES
def test_reused_id(source, classifier):
    """The same id with another image is classified again."""
    smoother = Smoother(classifier, sigma=0.1, device="cpu", noise_source=source)
    first = smoother.votes(IMAGE, 20, noise_seed=0, image_id="a")
    smoother.votes(1 - IMAGE, 20, noise_seed=0, image_id="a")
    fresh = Smoother(classifier, sigma=0.1, device="cpu", noise_source=source)
    assert np.array_equal(
        smoother.votes(1 - IMAGE, 20, noise_seed=0, image_id="a"),
        fresh.votes(1 - IMAGE, 20, noise_seed=0, image_id="a"),
    )
    assert np.array_equal(smoother.votes(IMAGE, 20, noise_seed=0, image_id="a"), first)


@SOURCES
@pytest.mark.parametrize("clamp", [False, True])
def test_pixel_noise(source, clamp):
    """Noise is added to pixels in [0, 1], before normalisation."""
    seen: list[Tensor] = []

    def watch(images: Tensor) -> Tensor:
        seen.append(images.clone())
        return images.flatten(1)[:, :2]

    f = load(watch, labels=["a", "b"], output="logits", mean=(0.5,) * 3, std=(0.25,) * 3)
    image = np.full((3, 8, 8), 51, dtype=np.uint8)
    smoother = Smoother(f, sigma=0.2, clamp=clamp, device="cpu", noise_source=source)
    smoother.probe([image])
    seen.clear()
    smoother.votes(image, 300, noise_seed=0, image_id="a")
    pixels = torch.cat(seen) * 0.25 + 0.5
    assert pixels.min() < (1e-6 if clamp else -0.4)
    assert (pixels.min() >= -1e-6) == clamp
    if not clamp:
        assert stats.kstest((pixels.flatten().numpy() - 0.2) / 0.2, "norm").pvalue > 1e-4


def test_ties():
    """Ties go to the smaller index."""
    f = load(lambda x: torch.zeros(len(x), 40), labels=[str(i) for i in range(40)], output="logits")
    votes = Smoother(f, sigma=1.0, k_max=5, device="cpu").votes(IMAGE, 9, noise_seed=0, image_id="a")
    assert np.array_equal(votes, np.tile(np.arange(5), (9, 1)))


@SOURCES
def test_set_frequencies(source):
    """The frequencies of sets match exact probabilities."""
    means, sigma, draws = np.array([0.9, 0.6, 0.5, 0.1]), 0.5, 4000
    smoother = Smoother(
        identity(4, "probabilities"), sigma=sigma, score_threshold=0.5, device="cpu", noise_source=source
    )
    counts = smoother.votes(means, draws, noise_seed=1, image_id="exact").hits().sum(axis=0)
    for label in range(4):
        exact = stats.norm.sf(0.5, means[label], sigma)
        assert stats.binomtest(int(counts[label]), draws, exact).pvalue > 1e-4


@pytest.mark.parametrize(("output", "passing"), [("probabilities", 0.7), ("logits", np.log(0.7 / 0.3))])
def test_score_threshold(output, passing):
    """A score at the threshold passes, the next number below does not; logits are compared with its logit."""
    at = np.float32(passing)
    low = 0 if output == "probabilities" else -1
    image = np.array([at, np.nextafter(at, np.float32(-1)), np.nextafter(at, np.float32(9)), low], dtype=np.float32)
    f = load(lambda x: torch.from_numpy(image).expand(len(x), -1), labels=list("abcd"), output=output)
    votes = Smoother(f, sigma=1.0, score_threshold=0.7, device="cpu").votes(image, 5, noise_seed=0, image_id="a")
    assert votes.hits().tolist() == [[True, False, True, False]] * 5


@SOURCES
@pytest.mark.parametrize("labels", [5, 8, 300])
def test_sets_of_scores(source, labels):
    """The sets follow from the scores that the classifier returned."""
    f = linear(labels=labels) if labels < 20 else identity(labels, "probabilities")
    image = IMAGE if labels < 20 else np.random.default_rng(1).random(labels, dtype=np.float32)
    seen: list[Tensor] = []

    def watch(images: Tensor) -> Tensor:
        seen.append(f(images))
        return seen[-1]

    g = load(watch, labels=f.label_names, output=f.output).module()
    one = Smoother(g, sigma=0.5, score_threshold=0.6, device="cpu", noise_source=source, batch_size=7)
    one.probe([image])
    seen.clear()
    votes = one.votes(image, 40, noise_seed=0, image_id="a")
    limit = 0.6 if f.output == "probabilities" else np.log(0.6 / 0.4)
    assert np.array_equal(votes.hits(), (torch.cat(seen) >= np.float32(limit)).numpy())
