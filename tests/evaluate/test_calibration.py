"""Calibrations: what is chosen from which images, the file, and the labels that are returned."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.evaluate.votes_cases import KINDS, random_votes, stored_votes, votes_of_kind

from multiguard.certify import BandAblation, Gaussian
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate import CalibrateConfig, Calibration, calibrate, read_calibration
from multiguard.votes import Votes

NAMES = ("cat", "dog", "cow")
CONFIG = CalibrateConfig(recall=0.8, radius=0.25)


def calibration(**changes):
    """A calibration with these changes."""
    values = {
        "config": CalibrateConfig(recall=0.8, radius=0.5),
        "k_prime": 2,
        "least_hits": 7,
        "draws": 20,
        "noise": "gaussian:0.5",
        "label_names": NAMES,
        "model": "a model",
        "image_size": None,
        "classifier": {"weights_hash": "w"},
        "images": 40,
        "votes_draws": 100,
        "votes": ("v",),
        "used": ("i",),
    }
    return Calibration(**values | changes)


def easy_votes(folder, images=60, draws=100, seed=0, labels=8, **changes):
    """Ranked votes whose first label is one of the image's two in most draws."""
    rng = np.random.default_rng(seed)
    true = [sorted(rng.choice(labels, 2, replace=False).tolist()) for _ in range(images)]
    ranked = []
    for own in true:
        scores = rng.random((draws, labels))
        scores[:, own] += rng.uniform(0.3, 1.3)
        ranked.append(np.argsort(-scores, axis=1)[:, :4])
    hashes = {"labels": labels, **changes}
    return stored_votes(folder, ranked, true, **hashes)


class TestCalibration:
    def test_chosen(self):
        """The labels of at least h hits, most hits first."""
        assert calibration().chosen(np.array([7, 6, 20])) == (2, 0)
        assert calibration().chosen(np.array([0, 0, 0])) == ()

    @pytest.mark.parametrize("hits", [[1, 2], [1.0, 2.0, 3.0], [-1, 0, 0], [21, 0, 0]])
    def test_bad_hits(self, hits):
        """Hits that no draws can have raise an error."""
        with pytest.raises(InvalidInputError, match="hits"):
            calibration().chosen(np.array(hits))

    @pytest.mark.parametrize("changes", [{"least_hits": 21}, {"least_hits": 0}, {"noise": "pink:1"}, {"images": 0}])
    def test_refused(self, changes):
        """No calibration holds values that promise nothing."""
        with pytest.raises(InvalidInputError):
            calibration(**changes)

    def test_rule(self):
        """The rule returns a label from exactly h of m draws on."""
        for least in (1, 7, 20):
            rule = calibration(least_hits=least).rule
            assert rule.needed(20) == least
            assert rule.k_prime == 2

    def test_sentence(self):
        """Each promise is one sentence, its ceilings rounded up."""
        sentence = calibration().sentence
        assert "at least 80 % of the true labels" in sentence
        assert "even under any perturbation of ℓ₂-norm up to R = 0.5" in sentence
        sure = calibration(config=CONFIG.replace(confidence=0.95), wrong=2.341, wrong_confidence=0.95).sentence
        assert "with 95 % confidence; with 95 % confidence at most 2.35 of them are wrong" in sure
        both = calibration(config=CONFIG.replace(confidence=0.95, wrong=2.341), wrong=2.341, wrong_confidence=0.95)
        assert "with 95 % confidence; at most 2.35 of them are wrong" in both.sentence


def test_file(tmp_path):
    """What was written is read again; an edit is found; another calibration needs force; the same is found done."""
    path, votes = tmp_path / "calibration.json", easy_votes(tmp_path / "votes")
    made = calibrate(CONFIG, [votes], out=path)
    assert read_calibration(path) == made
    before = path.stat().st_mtime_ns
    assert calibrate(CONFIG, [votes], out=path) == made
    assert path.stat().st_mtime_ns == before
    other = CONFIG.replace(recall=0.7)
    with pytest.raises(InvalidInputError, match="force"):
        calibrate(other, [votes], out=path)
    assert calibrate(other, [votes], out=path, force=True).config == other
    part = votes.subset([*votes.ids][:50])
    assert calibrate(other, [part], out=path, force=True).images == 30
    path.write_text(path.read_text().replace('"recall":0.7', '"recall":0.9').replace('"recall": 0.7', '"recall": 0.9'))
    with pytest.raises(DataError, match="edited"):
        read_calibration(path)
    with pytest.raises(DataError, match="multiguard calibrate"):
        read_calibration(tmp_path / "none.json")


def test_parts(tmp_path):
    """k' is chosen on a fifth, h on three fifths: neither depends on the labels of the images that test."""
    votes = easy_votes(tmp_path / "votes")
    made = calibrate(CONFIG, [votes])
    assert (made.images, made.test_images, len(made.used)) == (36, 12, 48)
    assert made.achieved is not None
    assert made.achieved > 0.8
    assert made.returned is not None
    left = made.others(votes)
    assert len(left) == 12
    assert not set(left.ids) & set(made.used)
    wrong_labels = [replace(row, labels=(0,)) if row.image_id in set(left.ids) else row for row in votes]
    changed = stored_votes(
        tmp_path / "changed", [row.ranked for row in wrong_labels], [row.labels for row in wrong_labels], labels=8
    )
    again = calibrate(CONFIG, [changed])
    assert (again.least_hits, again.k_prime) == (made.least_hits, made.k_prime)
    assert again.achieved != made.achieved


def test_largest_hits(tmp_path):
    """h is the largest with (the sum of what is missed + 1) / (N + 1) + gap of at most 1 - recall, as a loop has it."""
    from multiguard.evaluate.risk import Risk

    votes = easy_votes(tmp_path / "votes")
    made = calibrate(CONFIG.replace(k_prime=(3,), draws=40), [votes])
    own = [row for row in votes if row.image_id in made.used]
    risk = Risk(100, 40, votes.provenance.noise, 0.25)
    hits = np.array([np.bincount(row.ranked[:, :3].ravel(), minlength=8) for row in own])
    true = np.array([[label in row.labels for label in range(8)] for row in own])
    mean = [(risk.missed(hits, true, h).sum() + 1) / (len(own) + 1) + risk.gap for h in range(41)]
    assert made.least_hits == max(h for h in range(41) if mean[h] <= 1 - CONFIG.recall)


def test_every_band_votes(tmp_path):
    """Where bands are enumerated, all of them vote on a new image: fewer prove nothing of what a patch can do."""
    bands = BandAblation(4, 130)
    ranked = [np.tile([[0, 1]], (130, 1))] * 40
    votes = stored_votes(tmp_path / "votes", ranked, [[0]] * 40, labels=8, noise=bands)
    made = calibrate(CalibrateConfig(recall=0.8, radius=3), [votes])
    assert (made.draws, made.least_hits) == (130, 124)
    with pytest.raises(InvalidInputError, match="every band of an image must vote, and the votes have 130 bands"):
        calibrate(CalibrateConfig(recall=0.8, radius=3, draws=50), [votes])


def test_pixels_of_the_best_noise(tmp_path):
    """Images are told apart by their pixels in each of the votes: another model may have seen them in another size."""
    both = []
    for sigma in (0.5, 1.0):
        votes = easy_votes(tmp_path / str(sigma), noise=Gaussian(sigma))
        rows = [replace(row, image_hash=f"{row.image_id} {sigma}") for row in votes]
        both.append(Votes.of(votes.provenance, rows))
    made = calibrate(CONFIG, both)
    assert made.noise == "gaussian:1"
    assert len(made.others(both[1])) == made.test_images


def test_offers(tmp_path):
    """Each offer is what a calibration of the same images with that recall and radius promises."""
    votes, config = easy_votes(tmp_path / "votes"), CONFIG.replace(k_prime=(3,))
    made = calibrate(config, [votes])
    assert {(each.recall, each.radius) for each in made.offers} > {(0.8, 0.25), (0.9, 0.0), (0.8, 0.5)}
    for offer in made.offers[::4]:
        alone = calibrate(config.replace(recall=offer.recall, radius=offer.radius), [votes])
        assert (offer.least_hits, offer.returned, offer.wrong) == (alone.least_hits, alone.returned, alone.wrong)


def test_more_asked(tmp_path):
    """A higher recall, a larger radius or a confidence never takes more hits; the wrong labels only fall with hits."""
    votes = easy_votes(tmp_path / "votes", images=200)
    make = partial(CONFIG.replace, k_prime=(3,))
    plain = calibrate(make(), [votes])
    for harder in (make(recall=0.9), make(radius=0.4), make(confidence=0.95)):
        assert calibrate(harder, [votes]).least_hits <= plain.least_hits
    bounded = calibrate(make(confidence=0.9, wrong=5.0), [votes])
    assert (bounded.wrong, bounded.wrong_confidence) == (5.0, 0.9)
    with pytest.raises(InvalidInputError, match=r"wrong is 0.01, and 80 % recall at R = 0.25 goes with"):
        calibrate(make(confidence=0.9, wrong=0.01), [votes])


def test_nothing_to_promise(tmp_path):
    """If only all labels would keep the promise, nothing is promised, and what can be is named."""
    votes = easy_votes(tmp_path / "votes")
    with pytest.raises(InvalidInputError, match=r"only the set of all labels .* can promise 80 % up to R = 1.5"):
        calibrate(CONFIG.replace(radius=3.0), [votes])
    with pytest.raises(InvalidInputError, match="a promise of 99 % takes at least 103 labelled images"):
        calibrate(CONFIG.replace(recall=0.99), [votes])


def test_best_noise(tmp_path):
    """Of two noises that with fewer labels is chosen; no image that chooses sets the hits."""
    noisy = easy_votes(tmp_path / "noisy")
    clear = easy_votes(tmp_path / "clear", noise=noisy.provenance.noise.__class__(1.0))
    made = calibrate(CONFIG, [noisy, clear])
    assert made.noise == "gaussian:1"
    assert len(made.votes) == 2


def test_unusable_votes(tmp_path):
    """Votes without truth, with adaptive draws, or of different labels cannot calibrate."""
    votes = easy_votes(tmp_path / "votes")
    unlabelled = votes_of_kind(tmp_path / "unlabelled", **KINDS["unlabelled"])
    adaptive = votes_of_kind(tmp_path / "adaptive", **KINDS["adaptive"])
    for unfit, message in (([unlabelled], "true labels"), ([adaptive], "same number"), ([], "at least one")):
        with pytest.raises((VotesError, InvalidInputError), match=message):
            calibrate(CONFIG, unfit)
    ranked = [np.tile([[0, 1]], (20, 1))] * 9
    extended = stored_votes(tmp_path / "extended", ranked, [[0]] * 9, labels=8, earlier_draws=(10,))
    with pytest.raises(VotesError, match="extended from 10 draws"):
        calibrate(CONFIG, [extended])
    with pytest.raises(VotesError, match="different labels"):
        calibrate(CONFIG, [votes, random_votes(tmp_path / "other")])
    with pytest.raises(VotesError, match="different images"):
        calibrate(CONFIG, [votes, easy_votes(tmp_path / "few", images=4)])
    with pytest.raises(InvalidInputError, match="k_prime"):
        calibrate(CONFIG.replace(k_prime=(9,)), [votes])


def test_other_classifier(tmp_path):
    """A calibration is of one classifier: other weights, another noise or other labels raise an error that says so."""
    votes = easy_votes(tmp_path / "votes")
    made = calibrate(CONFIG, [votes])
    for name, changes in (("classifier_hash", {"classifier_hash": "1" * 64}), ("noise", {"sigma": 0.25})):
        other = easy_votes(tmp_path / name, seed=1, **changes)
        with pytest.raises(InvalidInputError, match=f"differs in {name}"):
            made.others(other)
