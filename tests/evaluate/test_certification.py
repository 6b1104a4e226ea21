"""Certificates of every kind of votes: both rules, true or chosen labels, fixed or adaptive draws, bands, failures."""

import subprocess
import sys

import numpy as np
import pytest
from tests.evaluate.votes_cases import (
    KINDS,
    THRESHOLD,
    UNLABELLED,
    as_lists,
    assert_same_certificates,
    assert_same_curves,
    config_of,
    random_votes,
    source_of,
    stored_rows,
    stored_votes,
    votes_of_kind,
)
from tests.votes.vote_runs import provenance

from multiguard.certify import BandAblation, Gaussian, Threshold, TopK, certified_radii, hits_from_ranked, label_radii
from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.evaluate import (
    CertifyConfig,
    SweepConfig,
    certification,
    certify_votes,
    curves,
    label_scores,
    make_certificates,
    radius_grid,
)
from multiguard.votes import LabelSets, VoteRow, Votes
from multiguard.votes.types import as_array

METHODS = {"top-k": ("joint", "paper"), "threshold": ("joint", "independent")}


def of_kind(folder, kind: str, **changes):
    return votes_of_kind(folder, **{**KINDS[kind], **changes})


def methods_of(votes) -> tuple[str, ...]:
    """The methods that may certify these votes."""
    return ("betting",) if votes.adaptive else METHODS[votes.rule]


def protected(votes, position: int, rule) -> tuple[int, ...]:
    if votes.provenance.labelled:
        return votes.labels[position]
    return rule.returned(as_array(votes.row(position, adaptive=True).pilot, rule), 12)


def slow_radii(votes, position, config, labels, alpha, method):
    """Floors and ceilings of one image alone."""
    row, options = votes.row(position, adaptive=True), {"sigma": 0.5, "alpha": alpha, "method": method}
    if votes.rule == "threshold":
        one = certified_radii(row.hits[: config.draws], labels, config.rule, **options)
        return one.true, one.false
    if not labels:
        return np.empty(0), np.empty(0)
    hits = hits_from_ranked(row.ranked[: config.draws], k_prime=config.rule.k_prime, num_labels=12)
    return certified_radii(hits, labels, config.rule, **options).true, np.empty(0)


def slow_label_radius(votes, position, config, label, alpha) -> float:
    method = methods_of(votes)[0]
    if votes.rule == "top-k":
        return float(slow_radii(votes, position, config, (label,), alpha, method)[0][0])
    hits = votes.hits(position, adaptive=True)[: config.draws]
    return float(label_radii(hits, [label], config.rule, alpha=alpha, num_labels=12, sigma=0.5, method=method)[0])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_images_alone(tmp_path, kind) -> None:
    """Every claim is that of the image alone, for every kind of votes."""
    votes = of_kind(tmp_path, kind)
    methods = methods_of(votes)
    found = make_certificates(config_of(votes).replace(methods=tuple(methods)), votes, labels=source_of(votes))
    config, labelled = found.config, votes.provenance.labelled
    assert (found.config.rule.name, found.methods, found.labelled) == (votes.rule, methods, labelled)
    assert (found.ids, found.noise, config.draws) == (votes.ids, Gaussian(0.5), 200)
    assert found.draws == ((40, 100, 200) * 3 if votes.adaptive else (200,) * 9)
    assert (found.false_radii is None) == (votes.rule == "top-k")
    finite = 0
    for position in range(9):
        labels = protected(votes, position, config.rule)
        assert found.labels[position] == labels
        for method in methods:
            true, false = slow_radii(votes, position, config, labels, 0.01 if labelled else 0.005, method)
            if not labelled and method == methods[0]:
                true = np.maximum(true, np.sort(found.label_radii[position])[::-1])
            np.testing.assert_array_equal(found.radii[method][position], true)
            if votes.rule == "threshold":
                np.testing.assert_array_equal(found.false_radii[method][position], false)
            finite += int(np.isfinite(true).sum())
        alpha = 0.01 if labelled else 0.005 / max(1, len(labels))
        alone = [slow_label_radius(votes, position, config, label, alpha) for label in labels]
        assert found.label_radii[position].tolist() == alone
    assert finite > (4 if votes.adaptive else 10)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_predicted_labels(tmp_path, kind) -> None:
    """The predicted labels come from all draws that certify."""
    votes = of_kind(tmp_path, kind)
    found = make_certificates(config_of(votes), votes, labels=source_of(votes))
    for position in range(9):
        row = votes.row(position, adaptive=True)
        hits = row.hits if votes.rule == "threshold" else hits_from_ranked(row.ranked, k_prime=2, num_labels=12)
        counts = hits.sum(axis=0)
        order = sorted(range(12), key=lambda label: (-counts[label], label))
        least = 1 if votes.rule == "top-k" else 0.4 * row.draws
        kept = [label for label in order[: 3 if votes.rule == "top-k" else None] if counts[label] >= least]
        assert found.predicted[position] == tuple(kept)
        assert found.predicted_hits[position] == tuple(int(counts[label]) for label in kept)
    if votes.rule == "threshold":
        assert len({len(each) for each in found.predicted}) > 2


@pytest.mark.parametrize("kind", ["unlabelled", "unlabelled threshold"])
def test_chosen_labels(tmp_path, kind) -> None:
    """Labels chosen by pilot draws are certified as a prediction is."""
    confirm_labels = pytest.importorskip("multiguard.smooth.prediction").confirm_labels
    votes = of_kind(tmp_path, kind)
    found = make_certificates(config_of(votes).replace(methods=["joint"]), votes, labels="pilot")
    rule = found.config.rule
    for position, labels in enumerate(found.labels):
        fresh = as_array(votes.row(position).votes, rule)
        one = confirm_labels(labels, fresh, rule, num_labels=12, noise=Gaussian(0.5), alpha=0.01, method="joint")
        assert found.radii["joint"][position].tolist() == list(one.set_radii)
        assert found.label_radii[position].tolist() == list(one.radii)
        if votes.rule == "threshold":
            assert found.false_radii["joint"][position].tolist() == list(one.other_radii)


def test_empty_sets(tmp_path) -> None:
    """Chosen sets may be empty, and are counted."""
    run = provenance(images=2, labels=4, draws=100, sigma=0.5, **THRESHOLD | UNLABELLED)
    hits = np.tile([True, False, False, False], (100, 1))
    rows = [
        VoteRow(run.image_ids[0], (), LabelSets.from_hits(hits), LabelSets.from_hits(~hits[:60] & False)),
        VoteRow(run.image_ids[1], (), LabelSets.from_hits(hits), LabelSets.from_hits(hits[:60])),
    ]
    found = make_certificates(CertifyConfig(threshold=0.5), stored_rows(tmp_path, run, rows), labels="pilot")
    assert found.labels == ((), (0,))
    assert found.predicted == ((0,), (0,))
    assert [len(each) for each in found.false_radii["joint"]] == [4, 3]
    assert [len(each) for each in found.label_radii] == [0, 1]
    scores = curves(found, [0.0])[0].scores
    assert (scores.images, scores.without_labels, scores.recall[0]) == (1, 1, 1.0)
    assert [(one.label, one.images) for one in label_scores(found, [0.0])] == [("label 0", 1)]


@pytest.mark.parametrize("methods", [["coupled"], ["joint"], ["paper"], ["joint", "coupled"]], ids="+".join)
def test_one_label(tmp_path, methods: list[str]) -> None:
    """A set of one label and the label make one claim: it has all of alpha where one method proves both."""
    run = provenance(1, 5, draws=200, k_max=1, labelled=False, pilot_draws=20)
    fresh, pilot = np.repeat(np.array([[2], [1]], np.uint8), [185, 15], axis=0), np.full((20, 1), 2, np.uint8)
    fresh = np.random.default_rng(0).permutation(fresh)
    votes = stored_rows(tmp_path, run, [VoteRow(run.image_ids[0], (), fresh, pilot)])
    found = make_certificates(CertifyConfig(1, 1, alpha=0.01, methods=tuple(methods)), votes, labels="pilot")
    options = {"num_labels": 5, "noise": run.noise}
    one_claim = methods in (["coupled"], ["joint"])
    options["alpha"] = 0.01 if one_claim else 0.005
    alone = certified_radii(fresh, [2], TopK(1, 1), method=methods[0] if one_claim else "joint", **options).true
    assert found.label_radii[0].tolist() == alone.tolist()
    for method in methods:
        proved = certified_radii(fresh, [2], TopK(1, 1), method=method, **options).true
        raised = proved if method == "paper" else np.maximum(proved, alone)
        assert found.radii[method][0].tolist() == raised.tolist()


def test_pilot_draws(tmp_path) -> None:
    """The pilot draws say label 0, the fresh ones label 1: label 0 is chosen, and not confirmed."""
    run = provenance(images=1, labels=4, draws=500, sigma=0.5, k_max=1, **UNLABELLED)
    fresh, pilot = np.full((500, 1), 1, np.uint8), np.zeros((60, 1), np.uint8)
    votes = stored_rows(tmp_path, run, [VoteRow(run.image_ids[0], (), fresh, pilot)])
    found = make_certificates(CertifyConfig(1, 1), votes, labels="pilot")
    assert found.labels == ((0,),)
    assert found.radii["coupled"][0].tolist() == found.label_radii[0].tolist() == [-np.inf]
    assert found.predicted == ((1,),)


VARIED = {
    "top-k": {"k": [1, 3, 5], "k_prime": [1, 2], "alpha": [1e-4]},
    "threshold": {"threshold": [0.2, 0.4, 0.7], "alpha": [1e-4]},
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_sweep_points(tmp_path, kind) -> None:
    """Every point of a sweep is what it is alone."""
    votes = of_kind(tmp_path, kind)
    base, source, methods = config_of(votes), source_of(votes), methods_of(votes)
    varied = VARIED[votes.rule] | ({} if votes.adaptive else {"n": [50, 200]})
    sweep = SweepConfig(**varied)
    base = base.replace(methods=methods, bands=0, radius_step=0.25)
    made = certify_votes(base, votes, sweep=sweep, labels=source).curves
    found = [curve for curve in made if curve.config != base.resolve(votes.provenance)]
    rules = [TopK(1, 2), TopK(5, 2), TopK(3, 1)] if votes.rule == "top-k" else [Threshold(0.2), Threshold(0.7)]
    points = [base.with_rule(rule) for rule in rules] + ([] if votes.adaptive else [base.vary("n", 50)])
    points.append(base.vary("alpha", 1e-4))
    alone = [make_certificates(point, votes, labels=source) for point in points]
    assert_same_curves(found, [curve for one in alone for curve in curves(one, radius_grid(Gaussian(0.5), step=0.25))])
    assert len({tuple(curve.scores.precision) for curve in found if curve.method == methods[0]}) > 3


def test_missing_pilot(tmp_path) -> None:
    """Labels come from pilot draws only where there are some."""
    votes = of_kind(tmp_path, "top-k")
    with pytest.raises(VotesError, match="no pilot draws to choose labels from, and the draws that certify must not"):
        make_certificates(CertifyConfig(3, 2), votes, labels="pilot")
    with pytest.raises(InvalidInputError, match="did you mean 'truth'"):
        make_certificates(CertifyConfig(3, 2), votes, labels="true")


def test_refused_before_reading(tmp_path, monkeypatch):
    """What the votes cannot provide is refused before any image is read, points of a sweep too."""
    votes, unlabelled = of_kind(tmp_path / "a", "top-k"), of_kind(tmp_path / "b", "unlabelled")
    monkeypatch.setattr(Votes, "rows", lambda self, adaptive=False: pytest.fail("an image was read"))
    with pytest.raises(VotesError, match="no ground truth; labels='pilot'"):
        certify_votes(CertifyConfig(3, 2), unlabelled)
    with pytest.raises(InvalidInputError, match="draws is 201, but these votes hold 200 draws"):
        certify_votes(CertifyConfig(3, 2), votes, sweep=SweepConfig(k=(1,), n=(100, 201)))


def test_sorted_votes(tmp_path):
    """Stored votes in an order that depends on their content: methods that bet refuse them, those of counts do not."""
    ranked = [np.repeat([[0], [1]], [80, 20], axis=0)] * 2
    votes = stored_votes(tmp_path, ranked, [[0]] * 2, labels=3)
    for methods in ((), ("coupled",), ("betting",)):
        with pytest.raises(
            (VotesError, InvalidInputError), match=r"image .*order in which they were drawn.*use 'joint'"
        ):
            certify_votes(CertifyConfig(k=1, k_prime=1, methods=methods), votes)
    certify_votes(CertifyConfig(k=1, k_prime=1, methods=("joint",)), votes)


@pytest.fixture
def votes(tmp_path):
    return random_votes(tmp_path / "votes")


@pytest.mark.parametrize("limit", [("_IMAGES_AT_A_TIME", 3), ("_BYTES_AT_A_TIME", 1)])
def test_portions(votes, monkeypatch, limit) -> None:
    """Portions change nothing, and progress never goes back."""
    config, methods = CertifyConfig(3, 2), ("joint", "paper")
    whole = make_certificates(config.replace(methods=tuple(methods)), votes)
    monkeypatch.setattr(certification, *limit)
    told = []
    parts = make_certificates(
        config.replace(methods=tuple(methods)), votes, progress=lambda done, total: told.append((done, total))
    )
    assert_same_certificates(parts, whole)
    assert told == sorted(told)
    assert told[-1] == (11, 11)
    assert len(told) > 6
    assert (11, 11) not in told[:-1]


def test_single_read(votes) -> None:
    """Every image is read once, for a sweep too."""
    read, of_file = [], votes._read
    votes._read = lambda positions: (read.extend(positions), of_file(positions))[1]
    certify_votes(CertifyConfig(3, 2, methods=("joint", "paper", "jia")), votes)
    assert read == list(range(11))
    certify_votes(CertifyConfig(3, 2), votes, sweep=SweepConfig(k=(1, 2, 4), n=(10, 20)))
    assert read == list(range(11)) * 2


def test_light_import() -> None:
    """Importing evaluate imports neither torch nor pyarrow nor Pillow."""
    code = "import sys, multiguard.evaluate; sys.exit(any(name in sys.modules for name in ('torch', 'pyarrow', 'PIL')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


RADII = np.array([0.0, 0.25, 0.5])
FAILED = {1: "the file is empty", 4: "draw 7: the classifier returned a score that is NaN or infinite", 8: "gone"}


@pytest.mark.parametrize("kind", ["top-k", "adaptive", "unlabelled threshold"])
def test_other_images(tmp_path, kind):
    """The other images are certified and averaged as if the failed ones had never been there."""
    some = votes_of_kind(tmp_path / "some", failed=FAILED, **KINDS[kind])
    every = votes_of_kind(tmp_path / "every", **KINDS[kind])
    config, source = config_of(some), source_of(some)
    found, every_image = (make_certificates(config, votes, labels=source) for votes in (some, every))
    kept, (method,) = [index for index in range(9) if index not in FAILED], found.methods
    assert found.ids == tuple(every_image.ids[index] for index in kept)
    for name in ("labels", "label_radii", "predicted", "predicted_hits", "draws"):
        assert as_lists(getattr(found, name)) == [as_lists(getattr(every_image, name)[index]) for index in kept]
    assert as_lists(found.radii[method]) == [as_lists(every_image.radii[method][index]) for index in kept]
    assert found.failures == tuple(ImageFailure(some.provenance.image_ids[i], reason) for i, reason in FAILED.items())
    made = curves(found, RADII)
    assert [curve.failed for curve in made] == [3, 3]
    assert all(curve.scores.images + curve.scores.without_labels == 6 for curve in made)
    recall = next(curve.scores.recall for curve in made if curve.averaging == "mean")
    fractions = [np.searchsorted(-radii, -RADII, side="right") / len(own) for radii, own in certified(found)]
    np.testing.assert_allclose(recall, np.mean(fractions, axis=0))


def certified(found):
    """The radii and labels of each image that has labels."""
    images = zip(found.radii[found.methods[0]], found.labels, strict=True)
    return [(np.maximum.accumulate(radii[::-1])[::-1], own) for radii, own in images if own]


def test_only_failures(tmp_path):
    """Votes of nothing but failures certify nothing."""
    votes = votes_of_kind(tmp_path, images=2, failed={0: "gone", 1: "gone"})
    with pytest.raises(InvalidInputError, match="nothing to certify: all 2 images failed"):
        make_certificates(config_of(votes), votes)


BANDS = BandAblation(3, 24)
CONFIG = CertifyConfig(k=3, k_prime=2)


@pytest.fixture(scope="module")
def band_votes(tmp_path_factory):
    return random_votes(tmp_path_factory.mktemp("bands"), draws=BANDS.columns, noise=BANDS)


def test_band_certificates(band_votes):
    """The radii are those of the enumerated certificate, whole numbers, for any alpha."""
    found = make_certificates(CONFIG, band_votes)
    assert found.methods == ("enumerated",)
    assert found.noise == BANDS
    other = make_certificates(CertifyConfig(alpha=0.5).with_rule(CONFIG.rule), band_votes)
    for index, labels in enumerate(band_votes.labels):
        radii = found.radii["enumerated"][index]
        if labels:
            options = {"noise": BANDS, "num_labels": 20, "method": "enumerated"}
            expected = certified_radii(band_votes.ranked(index), labels, CONFIG.rule, **options)
            assert radii.tolist() == expected.true.tolist()
        assert radii.tolist() == other.radii["enumerated"][index].tolist()
        assert np.all((radii == np.floor(radii)) | np.isinf(radii))


def test_labels_chosen_by_bands(tmp_path):
    """Without ground truth the votes themselves choose the labels, and every label has its own exact radius."""
    kind = UNLABELLED | {"pilot_draws": 0, "noise": BANDS, "draws": BANDS.columns}
    votes = votes_of_kind(tmp_path, **kind)
    found = make_certificates(CONFIG, votes, labels="pilot")
    for index, labels in enumerate(found.labels):
        ranked = votes.ranked(index)
        assert labels == CONFIG.rule.returned(ranked, 12)
        own = label_radii(ranked, labels, CONFIG.rule, noise=BANDS, num_labels=12, method="enumerated")
        assert found.label_radii[index].tolist() == own.tolist()
