"""Pilot draws choose, other draws confirm: no more labels are falsely confirmed than promised."""

import re

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from torch import Tensor
from toy import Images, linear

from multiguard.certify import Gaussian, Threshold, TopK, certified_radii, hits_from_ranked, label_radii
from multiguard.data.image import decode_image
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models import load
from multiguard.smooth import Smoother
from multiguard.smooth.prediction import confirm_labels
from multiguard.votes.types import as_array


def top_k_smoother(labels: int, k_max: int = 2) -> Smoother:
    """f ranks the numbers of its noisy input, so the true order of g is the order of the clean numbers."""
    f = load(lambda x: x.clone(), labels=[str(i) for i in range(labels)], output="logits")
    return Smoother(f, sigma=0.5, k_max=k_max, device="cpu", batch_size=512)


def set_smoother(labels: int, sigma: float = 0.25) -> Smoother:
    """f returns the labels whose number in the noisy input is at least 0.5."""
    f = load(lambda x: x.clone(), labels=[str(i) for i in range(labels)], output="probabilities")
    return Smoother(f, sigma=sigma, score_threshold=0.5, device="cpu")


def test_clear_labels():
    """Clear labels are confirmed, the most frequent first."""
    image = np.array([0.0, 1.0, 0.1, 1.3, 0.0])
    prediction = top_k_smoother(5).predict(image, TopK(2, 2), noise_seed=0, image_id="a")
    assert prediction.labels == (3, 1)
    assert prediction.confirmed == (True, True)
    assert prediction.radii[0] >= prediction.radii[1] > 0
    assert prediction.other_radii is None


def test_default_rule():
    """Without a rule the best five labels are predicted, or those that half of the draws have."""
    image = np.linspace(1, 0, 8)
    for one, rule in ((top_k_smoother(8, k_max=3), TopK(5, 3)), (set_smoother(8), Threshold(0.5))):
        assert one.predict(image, noise_seed=0) == one.predict(image, rule, noise_seed=0)


def test_image_files(tmp_path):
    """A PIL image and the path of an image file are read as a dataset reads them, at the size of the classifier."""
    file = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8)).save(file)
    one = Smoother(lambda images: images.flatten(1)[:, :4], sigma=0.5, image_size=(6, 6), labels=list("abcd"))
    expected = one.predict(decode_image(file.read_bytes(), 6), noise_seed=0)
    for given in (file, str(file), Image.open(file)):
        assert one.predict(given, noise_seed=0) == expected


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((6, 6, 3), "its channels come last: use image.transpose(2, 0, 1)"),
        ((1, 3, 6, 6), "give one image of a batch, such as images[0]"),
        ((3, 5, 6), "the classifier takes (channels, height, width) with 6 x 6 pixels; resize it first"),
    ],
)
def test_shapes(shape, words):
    """An image of another shape raises an error that says what to do."""
    one = Smoother(lambda images: images.flatten(1)[:, :4], sigma=0.5, image_size=(6, 6), labels=list("abcd"))
    with pytest.raises(InvalidInputError, match=re.escape(words)):
        one.predict(np.zeros(shape, np.uint8))


def test_failure():
    """An input without an id is not called by a hash."""

    def failing(rows):
        raise ValueError("no")

    with pytest.raises(ModelError, match=r"^the input, draw 0: the classifier failed: ValueError: no"):
        Smoother(failing, sigma=0.5, labels=["a", "b"]).predict(np.zeros(3))


@pytest.mark.parametrize("radii", [None, (0.5,)])
def test_labels_without_a_hit(radii):
    """A label that no pilot draw returned is not predicted, though k labels are asked for."""
    image = np.array([0.0, 0.0, 9.0, 0.0, 7.0])
    prediction = top_k_smoother(5).predict(image, TopK(4, 2), draws=200, radii=radii, noise_seed=0, image_id="a")
    assert (prediction.labels, prediction.names) == ((2, 4), ("2", "4"))
    assert prediction.confirmed == (True, True)
    assert len(prediction.radii) == len(prediction.set_radii) == 2


def test_top_k_radii():
    """Fresh draws certify the set with half of alpha, and each label alone with an equal part of the other half."""
    image, one = np.array([1.0, 0.9, 0.6, 0.0]), top_k_smoother(4)
    prediction = one.predict(image, TopK(3, 2), draws=300, alpha=0.01, noise_seed=5, image_id="a")
    hits = hits_from_ranked(one.votes(image, 300, noise_seed=5, image_id="a"), k_prime=2, num_labels=4)
    for label, radius in zip(prediction.labels, prediction.radii, strict=True):
        alone = certified_radii(hits, [label], TopK(3, 2), sigma=0.5, alpha=0.005 / 3, method="joint")
        assert radius == alone.true[0]
    expected = certified_radii(hits, prediction.labels, TopK(3, 2), sigma=0.5, alpha=0.005).true
    assert prediction.set_radii == tuple(np.maximum(expected, np.sort(prediction.radii)[::-1]))
    assert prediction.set_radii[0] > prediction.set_radii[2]


def test_threshold_radii():
    """The same for sets, together with the ceilings on other labels."""
    image, one = np.array([1.0, 0.8, 0.0, 0.45, 0.1]), set_smoother(5)
    found = one.predict(image, Threshold(0.4), draws=300, alpha=0.01, noise_seed=5, image_id="a")
    assert found.labels == (0, 1, 3)
    hits = one.votes(image, 300, noise_seed=5, image_id="a").hits()
    together = certified_radii(hits, found.labels, Threshold(0.4), sigma=0.25, alpha=0.005)
    single = label_radii(hits, found.labels, Threshold(0.4), num_labels=5, sigma=0.25, alpha=0.005 / 3)
    assert found.radii == tuple(single)
    assert found.set_radii == tuple(np.maximum(together.true, np.sort(single)[::-1]))
    assert found.other_radii == tuple(together.false)
    assert found.confirmed == (True, True, False)
    assert found.other_radii[0] > 0


def test_empty_set():
    """A set without labels still has its ceilings."""
    found = set_smoother(4).predict(np.zeros(4), Threshold(0.5), noise_seed=0, image_id="a")
    assert (found.labels, found.radii, found.set_radii) == ((), (), ())
    fresh = set_smoother(4).votes(np.zeros(4), 1000, noise_seed=0, image_id="a").hits()
    expected = certified_radii(fresh, [], Threshold(0.5), sigma=0.25, alpha=0.001)
    assert found.other_radii == tuple(expected.false)
    assert len(found.other_radii) == 4
    assert found.other_radii[0] > 0


@pytest.mark.parametrize("rule", [TopK(1, 1), TopK(1, 2), Threshold(0.5)])
def test_one_label(rule):
    """The claim on a set of one label is the claim on that label: it is made once, with all of alpha."""
    hits = np.zeros((200, 5), bool)
    hits[:, 3], hits[::7, 1], hits[3::7, 2] = True, True, True
    votes = hits if isinstance(rule, Threshold) else np.argsort(~hits, axis=1, kind="stable")[:, :2]
    votes = votes if rule != TopK(1, 1) else np.full((200, 1), 3)
    found = confirm_labels((3,), votes, rule, num_labels=5, noise=Gaussian(0.5), alpha=0.01)
    expected = certified_radii(votes, [3], rule, num_labels=5, sigma=0.5, alpha=0.01)
    assert found.radii == found.set_radii == tuple(expected.true)
    assert found.other_radii == (None if expected.false is None else tuple(expected.false))
    assert expected.true[0] > 0


def test_raised_set_radii():
    """A set stays at least as far as its labels prove alone: here its joint certificate ends before."""
    hits = np.zeros((100, 6), bool)
    hits[:, 0], hits[:90, 1], hits[90:, 2] = True, True, True
    ranked = np.array([np.flatnonzero(row) for row in hits], np.uint8)
    found = confirm_labels((0, 1, 2), ranked, TopK(3, 2), num_labels=6, noise=Gaussian(0.5), alpha=0.01, method="joint")
    alone = np.sort(found.radii)[::-1]
    together = certified_radii(hits, [0, 1, 2], TopK(3, 2), sigma=0.5, alpha=0.005, method="joint").true
    assert np.any(together < alone)
    assert found.set_radii == tuple(np.maximum(together, alone))
    assert list(found.set_radii) == sorted(found.set_radii, reverse=True)


def test_false_top_k():
    """A label that is not the top one, by a hair, is confirmed no more often than alpha."""
    image = np.array([0.505, 0.5, 0.5, 0.5, 0.5, 0.5])  # label 0 is right
    one, alpha, runs = top_k_smoother(6, k_max=1), 0.2, 100
    predictions = [
        one.predict(image, TopK(1, 1), pilot_draws=40, draws=40, alpha=alpha, noise_seed=seed, image_id="a")
        for seed in range(runs)
    ]
    false = sum(p.confirmed[0] and p.labels[0] != 0 for p in predictions)
    assert stats.binomtest(false, runs, alpha, alternative="greater").pvalue > 1e-3
    assert sum(p.labels[0] != 0 for p in predictions) > runs / 2, "the pilot draws must often be wrong"


def test_false_sets():
    """A label a hair below t is often chosen; it is confirmed no more often than alpha."""
    alpha, runs = 0.2, 100
    image, one = np.array([0.4999, 0.4999, 1.0]), set_smoother(3)
    found = [
        one.predict(image, Threshold(0.5), pilot_draws=20, draws=40, alpha=alpha, noise_seed=seed, image_id="a")
        for seed in range(runs)
    ]
    false = sum(any(sure and label < 2 for label, sure in zip(p.labels, p.confirmed, strict=True)) for p in found)
    assert stats.binomtest(false, runs, alpha, alternative="greater").pvalue > 1e-3
    assert sum(len(p.labels) > 1 for p in found) > runs / 3, "the pilot draws must often be wrong"


@pytest.mark.parametrize("rule", [TopK(1, 1), Threshold(0.5)])
def test_separate_noise(rule):
    """Pilot and fresh draws have no noise in common."""
    seen: list[bytes] = []

    def watch(images: Tensor) -> Tensor:
        seen.extend(row.numpy().tobytes() for row in images)
        return images.clone()

    f = load(watch, labels=["a", "b", "c"], output="logits")
    score_threshold = 0.5 if isinstance(rule, Threshold) else None
    one = Smoother(f, sigma=0.5, score_threshold=score_threshold, device="cpu")
    one.probe([np.zeros(3)])
    seen.clear()
    one.predict(np.zeros(3), rule, pilot_draws=50, draws=50, noise_seed=0, image_id="a")
    assert len(set(seen)) == 100  # padding repeats some


@pytest.mark.parametrize(
    ("rule", "change", "message"),
    [
        (TopK(6, 1), {}, "k must be .* at most the number of labels, 5"),
        (TopK(1, 3), {}, "k_prime = 3, but these votes keep 2 labels per draw"),
        (TopK(1, 1), {"alpha": 0.0}, "alpha"),
        (TopK(1, 1), {"pilot_draws": 0}, "pilot_draws"),
        (Threshold(0.5), {}, "does not fit this smoother"),
    ],
)
def test_refused_arguments(rule, change, message):
    """Rules that the votes cannot certify, and arguments out of range, are refused."""
    with pytest.raises(InvalidInputError, match=message):
        top_k_smoother(5).predict(np.zeros(5), rule, **{"noise_seed": 0, "image_id": "a", **change})


@pytest.mark.parametrize("score_threshold", [None, 0.5])
def test_adaptive_prediction(score_threshold) -> None:
    """With radii an image takes the first draws of the fixed run, as many as it needs, and betting certifies them."""
    rule = TopK(2, 1) if score_threshold is None else Threshold(0.5)
    one = Smoother(linear(), sigma=0.5, device="cpu", batch_size=64, score_threshold=score_threshold)
    taken = set()
    for sample in Images(6):
        found = one.predict(sample.image, rule, radii=[0.1], draws=400, alpha=0.05, noise_seed=1, image_id=sample.id)
        whole = as_array(one.votes(sample.image, 400, noise_seed=1, image_id=sample.id), rule)
        options = {"num_labels": 5, "noise": Gaussian(0.5), "alpha": 0.05, "method": "betting"}
        same = [
            draws
            for draws in (50, 100, 200, 300, 400)
            if confirm_labels(found.labels, whole[:draws], rule, **options).set_radii == found.set_radii
        ]
        assert same
        taken.add(same[0])
    assert len(taken) > 1
