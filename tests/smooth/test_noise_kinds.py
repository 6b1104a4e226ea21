"""Noise for other attackers than l2: each draw has the law that certificates take it to have, on host and device."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from toy import Images, linear, streamed

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Threshold, TopK, Uniform, certified_radii
from multiguard.certify.noise import HIDDEN
from multiguard.errors import InvalidInputError
from multiguard.models import load
from multiguard.smooth import Smoother, torch_engine, vote_dataset
from multiguard.smooth.noise_source import DEVICE_PHILOX, HOST_PHILOX, hidden_pixels, noise_scale
from multiguard.smooth.prediction import LivePrediction
from multiguard.smooth.schedule import AdaptivePlan
from multiguard.votes import read_votes

SMALLEST_P = 1e-4  # of each seeded test; a sampler that is wrong fails by many orders of magnitude
SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
KINDS = (Gaussian(0.5), Uniform(0.5), PixelAblation(5, 16), BandAblation(2, 4))


def copies(noise, image, draws, source, *, stream="certify", noise_seed=0, batch_size=64) -> np.ndarray:
    """What the classifier gets in each draw, (draws, *image.shape)."""
    seen: list[torch.Tensor] = []

    def watch(images: torch.Tensor) -> torch.Tensor:
        seen.append(images.clone())
        return images.flatten(1)[:, :2]

    f = load(watch, labels=["a", "b"], output="logits")
    smoother = Smoother(f, noise=noise, device="cpu", noise_source=source, batch_size=batch_size)
    smoother.probe([image])
    seen.clear()
    smoother.votes(image, draws, noise_seed=noise_seed, image_id="a", stream=stream)
    return np.concatenate([images.numpy() for images in seen])[:draws]


@SOURCES
@pytest.mark.parametrize("width", [0.7, 0.1, 1 / 3])
def test_uniform_law(source, width):
    """Uniform noise fills its interval, each value on its own, and its half width is never below the recorded one."""
    noise = copies(Uniform(width), np.zeros(4001, np.float32), 50, source).astype(np.float64)
    scale = noise_scale(width)
    assert scale >= width
    assert np.abs(noise).max() <= scale
    assert stats.kstest(noise.flatten(), stats.uniform(-width, 2 * width).cdf).pvalue > SMALLEST_P
    for one, other in ((noise[:25], noise[25:]), (noise[:, :2000], noise[:, 2001:])):
        assert stats.pearsonr(one.flatten(), other.flatten()).pvalue > SMALLEST_P
    unit = copies(Uniform(1.0), np.zeros(4001, np.float32), 50, source).astype(np.float64)
    assert -1e-9 < np.sum(unit * noise) / np.sum(unit * unit) / width - 1 < 1.2e-7


@SOURCES
def test_kept_pixels(source):
    """A draw keeps exactly this number of pixels, with all channels, as they are; all others have the value of none."""
    image = np.random.default_rng(0).random((3, 6, 7)).astype(np.float32)
    noisy = copies(PixelAblation(9, 42), image, 300, source)
    hidden = noisy == HIDDEN
    assert np.array_equal(hidden.all(axis=1), hidden.any(axis=1))
    assert np.all((~hidden[:, 0]).sum(axis=(1, 2)) == 9)
    assert np.array_equal(noisy, np.where(hidden, HIDDEN, image))


@SOURCES
@pytest.mark.parametrize("keep", [1, 2, 4])
def test_pixel_sets(source, keep):
    """Every set of positions is equally likely, and so is every pair of sets in neighbouring draws."""
    kept = copies(PixelAblation(keep, 5), np.zeros((1, 1, 5), np.float32), 8000, source, batch_size=2000) != HIDDEN
    sets = [tuple(np.flatnonzero(row)) for row in kept.reshape(8000, 5)]
    known = list(itertools.combinations(range(5), keep))
    numbers = np.array([known.index(one) for one in sets])
    assert stats.chisquare(np.bincount(numbers, minlength=len(known))).pvalue > SMALLEST_P
    pairs = numbers[::2] * len(known) + numbers[1::2]
    assert stats.chisquare(np.bincount(pairs, minlength=len(known) ** 2)).pvalue > SMALLEST_P


def test_equal_words(monkeypatch):
    """Of equal random words the first positions are kept, so that a draw keeps no more than it should."""
    words = np.array([[3, 1, 3, 3, 2], [7, 7, 7, 7, 7]], dtype=np.uint64)
    kept = [np.flatnonzero(~row).tolist() for row in hidden_pixels(words, keep=3)]
    assert kept == [[0, 1, 4], [0, 1, 2]]
    equal = torch.zeros((2, 6), dtype=torch.int32)
    monkeypatch.setattr(torch_engine, "_words_at", lambda *_: (equal,) * 4)
    noisy = torch_engine.device_noise(PixelAblation(2, 6))(torch.ones(2, 1, 2, 3), equal, equal[:, 0], torch.ones(2))
    assert noisy.flatten(1).tolist() == [[1, 1, -1, -1, -1, -1]] * 2


@SOURCES
@pytest.mark.parametrize("width", [1, 3, 7])
def test_bands(source, width):
    """Draw i keeps the columns from i on, cyclically: every band once, whatever noise seed, id or stream."""
    image = np.random.default_rng(0).random((3, 2, 7)).astype(np.float32)
    noisy = copies(BandAblation(width, 7), image, 7, source, noise_seed=1, stream="pilot")
    for draw in range(7):
        kept = {(draw + step) % 7 for step in range(width)}
        expected = np.where([column in kept for column in range(7)], image, np.float32(HIDDEN))
        assert np.array_equal(noisy[draw], expected)


@SOURCES
@pytest.mark.parametrize("noise", KINDS[1:], ids=str)
def test_function_of_key_and_draw(source, noise):
    """The noise of a draw depends neither on the batch nor on the other images in it, and "bare" has none."""
    image = np.random.default_rng(0).integers(0, 256, (3, 4, 4), dtype=np.uint8)
    whole = copies(noise, image, 4, source)
    assert np.array_equal(copies(noise, image, 4, source, batch_size=3), whole)
    one, other = (Smoother(linear(), noise=noise, device="cpu", noise_source=source, batch_size=b) for b in (5, 64))
    together = streamed(one, [("x", 255 - image), ("a", image)], 4)
    assert np.array_equal(together["a"], other.votes(image, 4, noise_seed=0, image_id="a"))
    assert np.array_equal(one.noisy(image, 2, noise_seed=0, image_id="a"), whole[2])
    assert np.array_equal(copies(noise, image, 1, source, stream="bare")[0], image.astype(np.float32) / 255)
    if noise.kind != "band":
        assert not np.array_equal(copies(noise, image, 4, source, noise_seed=1), whole)
        assert not np.array_equal(whole[0], whole[1])


@pytest.mark.soak
@pytest.mark.parametrize("noise", KINDS[1:], ids=str)
def test_compiled(noise, classifier):
    """Compiled together with the classifier, the noise gives the same votes."""
    image = Images(1)[0].image
    plain, compiled = (
        Smoother(classifier, noise=noise, device="cpu", noise_source=DEVICE_PHILOX, compile=each).votes(
            image, 4, noise_seed=0, image_id="a"
        )
        for each in (False, True)
    )
    assert np.array_equal(plain, compiled)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": 0.5, "noise": Uniform(0.5)}, "give exactly one of sigma and noise"),
        ({}, "give exactly one of sigma and noise"),
        ({"noise": "uniform:0.5"}, "noise must be one of Gaussian, Uniform, PixelAblation, BandAblation"),
        ({"noise": Uniform(1e39)}, "half_width must be within float32"),
        ({"noise": PixelAblation(5, 16), "clamp": True}, "clamp must be left out with the noise"),
        ({"noise": BandAblation(2, 4), "clamp": True}, "clamp must be left out with the noise"),
    ],
)
def test_refused_noise(options, message):
    """A smoother has one noise, which can be made and is not undone."""
    with pytest.raises(InvalidInputError, match=message):
        Smoother(linear(), device="cpu", **options)


@pytest.mark.parametrize("noise", [PixelAblation(5, 16), BandAblation(2, 4)], ids=str)
def test_one_size(noise):
    """An ablation is for images of one size: other inputs are refused, and so is a classifier of another size."""
    smoother = Smoother(linear(), noise=noise, device="cpu")
    for shape in ((3, 4, 5), (3, 5, 5), (16,), (4, 4), (1, 3, 4, 4)):
        with pytest.raises(InvalidInputError, match=rf"image 'a' has shape .*, but the noise {noise} is for images"):
            smoother.votes(np.zeros(shape), 1, noise_seed=0, image_id="a")
    f = load(lambda x: x.flatten(1)[:, :5], labels=list("abcde"), output="logits", image_size=(8, 8))
    with pytest.raises(InvalidInputError, match=r"an image of .* has shape \(3, 8, 8\)"):
        Smoother(f, noise=noise, device="cpu")


def test_band_draws(tmp_path):
    """Every band votes once: other numbers of draws, adaptive and pilot draws are refused; labels need no pilots."""
    smoother, data = Smoother(linear(), noise=BandAblation(2, 4), device="cpu"), Images(3)
    with pytest.raises(InvalidInputError, match="draws up to 5 of the noise band:2/4, which has 4"):
        smoother.votes(data[0].image, 5, noise_seed=0, image_id="a")
    plan = AdaptivePlan(TopK(1, 1), (1.0,), 4)
    for options in ({"draws": 3}, {"adaptive": plan}, {"pilot_draws": 4}):
        with pytest.raises(InvalidInputError, match="and band:2/4 votes once for each of 4 bands; leave it out"):
            vote_dataset(smoother, data, tmp_path, **options)
    vote_dataset(smoother, data, tmp_path, labelled=False)
    votes = read_votes(tmp_path)
    run = votes.provenance
    assert (str(run.noise), run.draws, run.pilot_draws, run.labelled) == ("band:2/4", 4, 0, False)
    assert np.array_equal(votes.row(1).ranked, smoother.votes(data[1].image, 4, noise_seed=5, image_id="other"))
    with pytest.raises(InvalidInputError, match=r"no draws to look at between; use Smoother\.predict"):
        LivePrediction(smoother, data[0].image, TopK(1, 1))


@pytest.mark.parametrize(("rule", "options"), [(TopK(2, 1), {}), (Threshold(0.5), {"score_threshold": 0.4})], ids=str)
def test_prediction_by_bands(rule, options):
    """The prediction by bands is what all bands vote, with the radii of the enumerated certificate."""
    smoother = Smoother(linear(), noise=BandAblation(2, 4), device="cpu", **options)
    image = Images(1)[0].image
    found = smoother.predict(image, rule)
    drawn = smoother.votes(image, 4, noise_seed=1, image_id="x")
    votes = drawn if isinstance(drawn, np.ndarray) else drawn.hits()
    assert found.labels == rule.returned(votes, 5)
    how = {"noise": BandAblation(2, 4), "method": "enumerated", "num_labels": 5}
    assert np.all(np.array(found.set_radii) >= certified_radii(votes, found.labels, rule, **how).true)
    assert (found.draws, found.noise_seed, found.names) == (4, None, tuple("abcde"[label] for label in found.labels))


def test_adaptive_radii():
    """Adaptive draws take radii that the attacker has; the default ones are within what the noise can prove."""
    smoother = Smoother(linear(), noise=PixelAblation(5, 16), device="cpu")
    with pytest.raises(InvalidInputError, match="whole number"):
        list(vote_dataset(smoother, Images(1), "unused", adaptive=AdaptivePlan(TopK(1, 1), (0.5,), 100)) or ())
    for noise in KINDS:
        radii = noise.default_radii
        assert radii == tuple(sorted(set(radii)))
        assert np.all(noise.down(1.0, radii) > 0)
