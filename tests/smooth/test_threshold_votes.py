"""Votes of the threshold rule are the labels whose score passes, whatever the batches; each claim about them holds."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from toy import Images, linear

from multiguard.certify import threshold_label_radii, threshold_radii
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models import load_classifier
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother, ThresholdPrediction, vote_dataset
from multiguard.smooth.step import pack_labels
from multiguard.votes import LabelSets, read_votes

SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])
IMAGE = np.random.default_rng(0).random((3, 4, 4), dtype=np.float32)


def identity(labels: int, output: str = "probabilities"):
    names = [str(i) for i in range(labels)]
    return load_classifier(lambda x: x.clone(), labels=names, output=output, name="identity")


def smoother(labels: int, **options) -> Smoother:
    return Smoother(identity(labels), **{"sigma": 0.25, "rule": "threshold", "device": "cpu", **options})


@pytest.mark.parametrize("labels", [1, 7, 8, 9, 20, 256, 257, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packed_bits_are_those_that_numpy_packs(labels, dtype):
    scores = torch.randn((11, labels), generator=torch.Generator().manual_seed(labels)).to(dtype)
    table = pack_labels(scores, 0.5).numpy()
    hits = (scores.float() >= 0.5).numpy()
    assert table.dtype == np.uint8
    assert np.array_equal(table[:, :-1], np.packbits(hits, axis=1, bitorder="little"))
    assert table[:, -1].all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_score_that_is_not_finite_is_marked(value):
    scores = torch.zeros(3, 10)
    scores[1, 9] = value
    assert pack_labels(scores, 0.5)[:, -1].tolist() == [1, 0, 1]


@pytest.mark.parametrize(("output", "passing"), [("probabilities", 0.7), ("logits", np.log(0.7 / 0.3))])
def test_a_score_at_the_threshold_passes_and_one_below_does_not(output, passing):
    at = np.float32(passing)
    image = np.array([at, np.nextafter(at, np.float32(-1)), np.nextafter(at, np.float32(9)), 0], dtype=np.float32)
    f = load_classifier(lambda x: torch.from_numpy(image).expand(len(x), -1), labels=list("abcd"), output=output)
    votes = Smoother(f, sigma=1.0, rule="threshold", score_threshold=0.7, device="cpu").votes(
        image, 5, seed=0, image_id="a"
    )
    assert votes.hits().tolist() == [[True, False, True, False]] * 5


def test_the_threshold_is_one_half_if_nothing_is_said():
    assert smoother(4).settings.score_threshold == 0.5
    assert smoother(4).settings.k_max is None
    f = load_classifier(lambda x: x.clone(), labels=["a", "b"], output="logits")
    found = Smoother(f, sigma=1e-6, rule="threshold", device="cpu").votes(
        np.array([0.1, -0.1]), 4, seed=0, image_id="a"
    )
    assert found.hits().tolist() == [[True, False]] * 4


@SOURCES
def test_frequencies_match_exact_probabilities(source):
    means, sigma, draws = np.array([0.9, 0.6, 0.5, 0.1]), 0.5, 4000
    counts = smoother(4, sigma=sigma, noise=source).votes(means, draws, seed=1, image_id="exact").hits().sum(axis=0)
    for label in range(4):
        exact = stats.norm.sf(0.5, means[label], sigma)
        assert stats.binomtest(int(counts[label]), draws, exact).pvalue > 1e-4


@SOURCES
@pytest.mark.parametrize("labels", [5, 8, 300])
def test_the_sets_are_those_of_the_ranked_scores_on_the_same_noise(source, labels):
    f = linear(labels=min(labels, 20)) if labels < 20 else identity(labels)
    image = IMAGE if labels < 20 else np.random.default_rng(1).random(labels, dtype=np.float32)
    seen: list[Tensor] = []

    def watch(images: Tensor) -> Tensor:
        seen.append(f(images))
        return seen[-1]

    g = load_classifier(watch, labels=f.label_names, output=f.output)
    one = Smoother(g, sigma=0.5, rule="threshold", score_threshold=0.6, device="cpu", noise=source, batch_size=7)
    votes = one.votes(image, 40, seed=0, image_id="a")
    limit = 0.6 if f.output == "probabilities" else np.log(0.6 / 0.4)
    assert np.array_equal(votes.hits(), (torch.cat(seen) >= np.float32(limit)).numpy())


@SOURCES
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_images_that_share_batches_get_the_votes_they_get_alone(source, batch_size, classifier):
    images = {f"{i}": np.random.default_rng(i).random((3, 4, 4), dtype=np.float32) for i in range(5)}
    one = Smoother(classifier, sigma=0.5, rule="threshold", batch_size=batch_size, device="cpu", noise=source)
    for image_id, votes in one.stream(images.items(), 10, seed=3):
        alone = one.votes(images[image_id], 10, seed=3, image_id=image_id)
        assert isinstance(votes, LabelSets)
        assert np.array_equal(votes.packed, alone.packed)


def test_a_compiled_classifier_gives_the_same_sets():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 13))
    f = load_classifier(network, labels=[str(i) for i in range(13)], output="logits")
    options = {"sigma": 0.5, "rule": "threshold", "score_threshold": 0.55, "device": "cpu", "noise": DEVICE_PHILOX}
    plain, compiled = Smoother(f, **options), Smoother(f, compile=True, batch_size=16, **options)
    arguments = {"draws": 50, "seed": 0, "image_id": "a"}
    assert np.array_equal(plain.votes(IMAGE, **arguments).packed, compiled.votes(IMAGE, **arguments).packed)


def test_a_batch_that_finds_no_memory_is_halved_with_the_same_noise():
    def cramped(images: Tensor) -> Tensor:
        if len(images) > 5:
            raise torch.OutOfMemoryError("no room")
        return images.clone()

    small = Smoother(
        load_classifier(cramped, labels=list("abc"), output="probabilities"),
        sigma=0.25,
        rule="threshold",
        batch_size=32,
        device="cpu",
    )
    image = np.array([0.4, 0.5, 0.6])
    assert np.array_equal(
        small.votes(image, 100, seed=0, image_id="a").packed, smoother(3).votes(image, 100, seed=0, image_id="a").packed
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_broken_classifier_is_named_with_its_image(value):
    f = load_classifier(lambda x: torch.full((len(x), 3), value), labels=list("abc"), output="probabilities")
    with pytest.raises(ModelError, match=r"image 'cat', draw 0.*NaN or infinite"):
        Smoother(f, sigma=0.5, rule="threshold", device="cpu").votes(IMAGE, 8, seed=0, image_id="cat")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "majority"}, "rule must be one of top-k, threshold, not 'majority'"),
        ({"rule": "top-k", "score_threshold": 0.5}, "score_threshold belongs to rule='threshold'"),
        ({"k_max": 2}, "k_max belongs to rule='top-k'"),
        ({"score_threshold": 0.0}, "score_threshold must be .*not 0.0"),
        ({"score_threshold": 1}, "score_threshold must be .*not 1"),
        ({"score_threshold": float("nan")}, "score_threshold must be .*not nan"),
        ({"score_threshold": "x"}, "score_threshold must be .*not 'x'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        smoother(4, **options)


@pytest.mark.parametrize("shard_images", [1, 3])
def test_a_dataset_is_voted_on_and_its_rule_recorded(tmp_path, shard_images):
    images, one = Images(5), Smoother(linear(), sigma=0.5, rule="threshold", score_threshold=0.4, device="cpu")
    vote_dataset(one, images, tmp_path, draws=10, seed=4, shard_images=shard_images)
    votes = read_votes(tmp_path)
    assert (votes.provenance.rule, votes.provenance.score_threshold, votes.provenance.k_max) == ("threshold", 0.4, None)
    for position, sample in enumerate(images):
        alone = one.votes(sample.image, 10, seed=4, image_id=sample.id)
        assert np.array_equal(votes.hits(position), alone.hits())


def test_the_set_is_chosen_by_pilot_draws_and_certified_by_fresh_ones():
    image, one = np.array([1.0, 0.8, 0.0, 0.45, 0.1]), smoother(5)
    found = one.predict(image, threshold=0.4, draws=300, alpha=0.01, seed=5, image_id="a")
    assert isinstance(found, ThresholdPrediction)
    assert found.labels == (0, 1, 3)
    hits = one.votes(image, 300, seed=5, image_id="a").hits()
    together = certified_radii(hits, found.labels, Threshold(0.4), sigma=0.25, alpha=0.005)
    single = threshold_label_radii(hits, found.labels, threshold=0.4, sigma=0.25, alpha=0.005 / 3)
    assert found.set_radii == tuple(np.maximum(together.true, np.sort(single[[0, 1, 3]])[::-1]))
    assert found.other_radii == tuple(together.false)
    assert found.radii == tuple(single[[0, 1, 3]])
    assert found.confirmed == (True, True, False)
    assert found.other_radii[0] > 0


def test_a_set_without_labels_still_has_its_ceilings():
    found = smoother(4).predict(np.zeros(4), threshold=0.5, seed=0, image_id="a")
    assert (found.labels, found.radii, found.set_radii) == ((), (), ())
    assert len(found.other_radii) == 4
    assert found.other_radii[0] > 0


def test_false_claims_stay_below_alpha():
    """A label a hair below t is often chosen; it is confirmed no more often than alpha."""
    sigma, threshold, alpha, runs = 0.25, 0.5, 0.2, 100
    image, one = np.array([0.4999, 0.4999, 1.0]), smoother(3, sigma=sigma)
    found = [
        one.predict(image, threshold=threshold, pilot_draws=20, draws=40, alpha=alpha, seed=seed, image_id="a")
        for seed in range(runs)
    ]
    false = sum(any(sure and label < 2 for label, sure in zip(p.labels, p.confirmed, strict=True)) for p in found)
    assert stats.binomtest(false, runs, alpha, alternative="greater").pvalue > 1e-3
    assert sum(len(p.labels) > 1 for p in found) > runs / 3, "the pilot draws must often be wrong"


@pytest.mark.parametrize(
    ("rule", "arguments", "message"),
    [
        ("threshold", {"k": 1, "k_prime": 1}, "k and k_prime belong to rule='top-k'"),
        ("threshold", {"threshold": 0.5, "k": 1}, "k and k_prime belong to rule='top-k'"),
        ("threshold", {}, "threshold must be a number, not None"),
        ("threshold", {"threshold": 1.0}, "threshold must lie strictly between 0 and 1, not 1.0"),
        ("threshold", {"threshold": 0.5, "alpha": 1}, "alpha must"),
        ("top-k", {"threshold": 0.5}, "threshold belongs to rule='threshold'"),
        ("top-k", {"k": 1}, "k_prime must be a whole number, not None"),
    ],
)
def test_questions_of_the_other_rule_are_refused(rule, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        smoother(5, rule=rule).predict(np.zeros(5), seed=0, image_id="a", **arguments)


def test_pilot_and_fresh_draws_have_no_noise_in_common():
    seen: list[bytes] = []

    def watch(images: Tensor) -> Tensor:
        seen.extend(row.numpy().tobytes() for row in images)
        return images.clone()

    f = load_classifier(watch, labels=["a", "b", "c"], output="logits")
    one = Smoother(f, sigma=0.5, rule="threshold", device="cpu")
    one.predict(np.zeros(3), threshold=0.5, pilot_draws=50, draws=50, seed=0, image_id="a")
    assert len(set(seen)) == 100


def test_every_bit_pattern_of_a_byte_comes_out():
    patterns = np.array(list(itertools.product([0.0, 1.0], repeat=8)), dtype=np.float32)
    table = pack_labels(torch.from_numpy(patterns), 0.5).numpy()
    assert np.array_equal(LabelSets(table[:, :1].copy(), 8).hits(), patterns > 0.5)
