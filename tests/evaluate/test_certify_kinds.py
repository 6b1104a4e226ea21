"""Certificates of every kind of votes: both rules, true or chosen labels, fixed or adaptive draws."""

import numpy as np
import pytest
from multiguard.smooth.asked import Passing, TopK
from tests.evaluate.votes_cases import (
    ADAPTIVE,
    KINDS,
    LOOKS,
    THRESHOLD,
    UNLABELLED,
    assert_same_curves,
    setting_of,
    source_of,
    stored_rows,
    votes_of_kind,
)
from tests.votes.vote_runs import provenance

from multiguard.certify import Looks, adaptive_radii, hits_from_ranked, threshold_label_radii, threshold_radii
from multiguard.errors import InvalidInputError, MultiGuardError, VotesError
from multiguard.evaluate import (
    Setting,
    ThresholdSetting,
    certify_votes,
    curves,
    label_scores,
    radius_grid,
    sweep,
    threshold_set_scores,
)
from multiguard.smooth.prediction import confirm
from multiguard.votes import LabelSets, VoteRow, most_frequent, passing

GRID = radius_grid(0.5, step=0.25)
METHODS = {"top-k": ("joint", "paper"), "threshold": ("joint", "independent")}


def of_kind(folder, kind: str, **changes):
    return votes_of_kind(folder, **{**KINDS[kind], **changes})


def looks_of(votes, setting) -> Looks:
    return LOOKS if votes.looks else Looks((setting.n,), (1.0,))


def chosen(votes, position: int, setting) -> tuple[int, ...]:
    if votes.provenance.labelled:
        return votes.labels[position]
    if votes.rule == "threshold":
        return passing(votes.pilot_hits(position), threshold=setting.threshold)
    return most_frequent(votes.pilot_ranked(position), k=setting.k, k_prime=setting.k_prime, num_labels=12)


def slow_radii(votes, position, setting, labels, alpha, method):
    """Floors and ceilings of one image: every look on its own, the best of them."""
    row = votes.row(position, looks=votes.looks)
    found = []
    for n, share in looks_of(votes, setting).taken(min(row.draws, setting.n)):
        asked = {"sigma": 0.5, "alpha": alpha * share, "method": method}
        if votes.rule == "threshold":
            one = threshold_radii(row.hits[:n], labels, threshold=setting.threshold, **asked)
            found.append((one.true, one.false))
        elif labels:
            hits = hits_from_ranked(row.ranked[:n], k_prime=setting.k_prime, num_labels=12)
            look = Looks((n,), (1.0,))
            one = adaptive_radii(hits, labels, looks=look, k=setting.k, k_prime=setting.k_prime, **asked)
            found.append((one, np.empty(0)))
        else:
            found.append((np.empty(0), np.empty(0)))
    true, false = zip(*found, strict=True)
    return np.maximum.reduce(true), np.maximum.reduce(false)


def slow_label_radius(votes, position, setting, label, alpha) -> float:
    if votes.rule == "top-k":
        return float(slow_radii(votes, position, setting, (label,), alpha, "joint")[0][0])
    hits = votes.hits(position, looks=votes.looks)[: setting.n]
    return max(
        float(threshold_label_radii(hits[:n], [label], threshold=0.4, sigma=0.5, alpha=alpha * share)[label])
        for n, share in looks_of(votes, setting).taken(len(hits))
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_claim_is_that_of_the_image_alone(tmp_path, kind) -> None:
    votes = of_kind(tmp_path, kind)
    methods = METHODS[votes.rule]
    found = certify_votes(votes, setting_of(votes), methods=methods, labels=source_of(votes))
    setting, labelled = found.setting, votes.provenance.labelled
    assert (found.rule, found.methods, found.labelled) == (votes.rule, methods, labelled)
    assert (found.ids, found.sigma, setting.n) == (votes.ids, 0.5, 200)
    assert found.draws == ((40, 100, 200) * 3 if votes.looks else (200,) * 9)
    assert (found.false_radii is None) == (votes.rule == "top-k")
    finite = 0
    for position in range(9):
        labels = chosen(votes, position, setting)
        assert found.labels[position] == labels
        for method in methods:
            true, false = slow_radii(votes, position, setting, labels, 0.01 if labelled else 0.005, method)
            if not labelled and method == "joint":
                true = np.maximum(true, np.sort(found.label_radii[position])[::-1])
            np.testing.assert_array_equal(found.radii[method][position], true)
            if votes.rule == "threshold":
                np.testing.assert_array_equal(found.false_radii[method][position], false)
            finite += int(np.isfinite(true).sum())
        alpha = 0.01 if labelled else 0.005 / max(1, len(labels))
        alone = [slow_label_radius(votes, position, setting, label, alpha) for label in labels]
        assert found.label_radii[position].tolist() == alone
    assert finite > 10


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_prediction_comes_from_all_draws_that_certify(tmp_path, kind) -> None:
    votes = of_kind(tmp_path, kind)
    found = certify_votes(votes, setting_of(votes), labels=source_of(votes))
    for position in range(9):
        row = votes.row(position, looks=votes.looks)
        hits = row.hits if votes.rule == "threshold" else hits_from_ranked(row.ranked, k_prime=2, num_labels=12)
        counts = hits.sum(axis=0)
        order = sorted(range(12), key=lambda label: (-counts[label], label))
        kept = order[:3] if votes.rule == "top-k" else [label for label in order if counts[label] >= 0.4 * row.draws]
        assert found.predicted[position] == tuple(kept)
        assert found.predicted_hits[position] == tuple(int(counts[label]) for label in kept)
    if votes.rule == "threshold":
        assert len({len(each) for each in found.predicted}) > 2


@pytest.mark.parametrize("kind", ["unlabelled", "unlabelled threshold"])
def test_chosen_labels_are_claimed_as_a_prediction_is(tmp_path, kind) -> None:
    votes = of_kind(tmp_path, kind)
    found = certify_votes(votes, setting_of(votes), labels="pilot")
    asked = TopK(3, 2) if votes.rule == "top-k" else Passing(0.4)
    for position, labels in enumerate(found.labels):
        one = confirm(labels, votes.row(position).votes, asked, 12, sigma=0.5, alpha=0.01)
        assert found.radii["joint"][position].tolist() == list(one.set_radii)
        assert found.label_radii[position].tolist() == list(one.radii)
        if votes.rule == "threshold":
            assert found.false_radii["joint"][position].tolist() == list(one.other_radii)


@pytest.mark.parametrize("kind", ["threshold", "unlabelled threshold", "adaptive threshold"])
def test_curves_of_the_threshold_rule(tmp_path, kind) -> None:
    votes = of_kind(tmp_path, kind)
    found = certify_votes(votes, setting_of(votes), methods=("independent", "joint"), labels=source_of(votes))
    drawn = curves(found, GRID, bands=0.9, resamples=20)
    assert [(c.method, c.averaging) for c in drawn] == [
        ("independent", "mean"), ("independent", "pooled"), ("joint", "mean"), ("joint", "pooled"),
    ]  # fmt: skip
    with_labels = [taken for taken, labels in zip(found.draws, found.labels, strict=True) if labels]
    for curve in drawn:
        expected = threshold_set_scores(found.proved(curve.method), radius=GRID, averaging=curve.averaging)
        for name in ("precision", "recall", "f1", "true_floor", "false_ceiling"):
            np.testing.assert_array_equal(getattr(curve.scores, name), getattr(expected, name))
        assert curve.scores.images == len(with_labels) == 9 - curve.scores.without_labels
        assert curve.mean_draws == np.mean(with_labels)
        assert np.all(curve.bands.recall[0] <= curve.bands.recall[1])
    assert 0 < drawn[2].scores.precision[0] < 1


def test_chosen_sets_may_be_empty_and_are_counted(tmp_path) -> None:
    run = provenance(images=2, labels=4, draws=100, sigma=0.5, **THRESHOLD | UNLABELLED)
    hits = np.tile([True, False, False, False], (100, 1))
    rows = [
        VoteRow(run.image_ids[0], (), LabelSets.from_hits(hits), LabelSets.from_hits(~hits[:60] & False)),
        VoteRow(run.image_ids[1], (), LabelSets.from_hits(hits), LabelSets.from_hits(hits[:60])),
    ]
    found = certify_votes(stored_rows(tmp_path, run, rows), ThresholdSetting(0.5), labels="pilot")
    assert found.labels == ((), (0,))
    assert found.predicted == ((0,), (0,))
    assert [len(each) for each in found.false_radii["joint"]] == [4, 3]
    assert [len(each) for each in found.label_radii] == [0, 1]
    scores = curves(found, [0.0])[0].scores
    assert (scores.images, scores.without_labels, scores.recall[0]) == (1, 1, 1.0)
    assert [(one.label, one.images) for one in label_scores(found, [0.0])] == [("label 0", 1)]


def test_pilot_draws_choose_and_never_certify(tmp_path) -> None:
    """The pilot draws say label 0, the fresh ones label 1: label 0 is chosen, and not confirmed."""
    run = provenance(images=1, labels=4, draws=500, sigma=0.5, k_max=1, **UNLABELLED)
    fresh, pilot = np.full((500, 1), 1, np.uint8), np.zeros((60, 1), np.uint8)
    votes = stored_rows(tmp_path, run, [VoteRow(run.image_ids[0], (), fresh, pilot)])
    found = certify_votes(votes, Setting(k=1, k_prime=1), labels="pilot")
    assert found.labels == ((0,),)
    assert found.radii["joint"][0].tolist() == found.label_radii[0].tolist() == [-np.inf]
    assert found.predicted == ((1,),)


def test_fewer_draws_than_there_are_still_ask_the_whole_pilot(tmp_path) -> None:
    votes = of_kind(tmp_path, "unlabelled threshold")
    few, all_draws = (certify_votes(votes, ThresholdSetting(0.4, draws=n), labels="pilot") for n in (10, None))
    assert few.labels == all_draws.labels
    assert few.draws == (10,) * 9
    assert few.radii["joint"][1].tolist() != all_draws.radii["joint"][1].tolist()


def test_labelled_votes_with_pilot_draws_can_be_certified_either_way(tmp_path) -> None:
    votes = votes_of_kind(tmp_path, pilot_draws=60)
    truth, pilot = (certify_votes(votes, Setting(3, 2), labels=source) for source in ("truth", "pilot"))
    assert (truth.labelled, truth.labels) == (True, votes.labels)
    assert not pilot.labelled
    assert all(len(labels) == 3 for labels in pilot.labels)


VARIED = {
    "top-k": {"k": [1, 3, 5], "k_prime": [1, 2], "alpha": [1e-4]},
    "threshold": {"threshold": [0.2, 0.4, 0.7], "alpha": [1e-4]},
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_point_of_a_sweep_is_certified_alone(tmp_path, kind) -> None:
    votes = of_kind(tmp_path, kind)
    base, source, methods = setting_of(votes), source_of(votes), METHODS[votes.rule]
    vary = VARIED[votes.rule] | ({} if votes.looks else {"n": [50, 200]})
    found = sweep(votes, base, vary, GRID, methods=methods, labels=source)
    changes = (
        [{"k": 1}, {"k": 5}, {"k_prime": 1}] if votes.rule == "top-k" else [{"threshold": 0.2}, {"threshold": 0.7}]
    )
    points = [setting_of(votes, **change) for change in (*changes, {"alpha": 1e-4})]
    points += [] if votes.looks else [setting_of(votes, draws=50)]
    expected = [
        curve for point in points for curve in curves(certify_votes(votes, point, methods=methods, labels=source), GRID)
    ]
    assert_same_curves(found, expected)
    assert len({tuple(curve.scores.precision) for curve in found if curve.method == "joint"}) > 3


@pytest.mark.parametrize("kind", ["adaptive", "adaptive threshold", "adaptive unlabelled"])
@pytest.mark.parametrize("draws", [40, 199, 200])
def test_adaptive_votes_are_not_certified_as_if_n_were_fixed(tmp_path, kind, draws) -> None:
    votes = of_kind(tmp_path, kind)
    asked = {"labels": source_of(votes)}
    with pytest.raises(InvalidInputError, match=f"n = {draws}, but these are adaptive votes"):
        certify_votes(votes, setting_of(votes, draws=draws), **asked)
    with pytest.raises(InvalidInputError, match=f"n = {draws}, but these are adaptive votes"):
        sweep(votes, setting_of(votes), {"n": [draws]}, GRID, **asked)


def test_adaptive_claims_pay_for_their_looks(tmp_path) -> None:
    """An image that went to the last look proves less than 200 fixed draws would, and no more than the looks allow."""
    ranked = of_kind(tmp_path, "adaptive").ranked(2, looks=LOOKS.draws)
    run = provenance(images=1, labels=12, draws=200, sigma=0.5, k_max=4)
    labels = tuple(np.argsort(-np.bincount(ranked[:, :2].ravel(), minlength=12))[:2].tolist())
    fixed = stored_rows(tmp_path / "one", run, [VoteRow(run.image_ids[0], labels, ranked)])
    run = provenance(images=1, labels=12, draws=200, sigma=0.5, k_max=4, **ADAPTIVE)
    looked = stored_rows(tmp_path / "two", run, [VoteRow(run.image_ids[0], labels, ranked)])
    plain, paid = (certify_votes(votes, Setting(3, 2)).radii["joint"][0] for votes in (fixed, looked))
    last = certify_votes(fixed, Setting(3, 2, alpha=0.0007)).radii["joint"][0]
    assert np.all(paid < plain)
    assert np.all(paid >= last)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("top-k", ThresholdSetting(0.5), "votes of the top-k rule.*--k and --k-prime .a Setting."),
        ("threshold", Setting(3, 2), "votes of the threshold rule.*ThresholdSetting"),
        ("unlabelled", Setting(3, 2), "no ground truth; labels='pilot'"),
        ("adaptive unlabelled threshold", ThresholdSetting(0.5), "no ground truth"),
        ("threshold", ThresholdSetting(0.0), "threshold .* strictly between 0 and 1, got 0.0"),
        ("threshold", ThresholdSetting(1.0), "strictly between 0 and 1"),
        ("threshold", ThresholdSetting(float("nan")), "strictly between 0 and 1"),
        ("threshold", ThresholdSetting(0.5, alpha=1.0), "alpha"),
        ("threshold", ThresholdSetting(0.5, draws=201), "n = 201, but these votes hold 200 draws"),
    ],
)
def test_what_the_votes_cannot_answer_is_refused_before_any_is_read(tmp_path, monkeypatch, kind, setting, message):
    votes = of_kind(tmp_path, kind)
    monkeypatch.setattr(votes, "row", lambda position, looks: pytest.fail("an image was read"))
    with pytest.raises(MultiGuardError, match=message):
        certify_votes(votes, setting)
    with pytest.raises(MultiGuardError, match=message):
        sweep(votes, setting, {"alpha": [0.1]}, GRID)


def test_labels_come_from_pilot_draws_only_where_there_are_some(tmp_path) -> None:
    votes = of_kind(tmp_path, "top-k")
    with pytest.raises(VotesError, match="no pilot draws to choose labels from, and the draws that certify must not"):
        certify_votes(votes, Setting(3, 2), labels="pilot")
    with pytest.raises(InvalidInputError, match="did you mean 'truth'"):
        certify_votes(votes, Setting(3, 2), labels="true")


@pytest.mark.parametrize(
    ("kind", "vary", "message"),
    [
        ("threshold", {"k": [1]}, "unknown parameter of a sweep of the threshold rule 'k'"),
        ("top-k", {"threshold": [0.5]}, "unknown parameter of a sweep of the top-k rule 'threshold'"),
        ("threshold", {"threshold": [0.5, 1.5]}, "strictly between 0 and 1"),
    ],
)
def test_a_sweep_moves_what_its_rule_has(tmp_path, kind, vary, message) -> None:
    votes = of_kind(tmp_path, kind)
    with pytest.raises(InvalidInputError, match=message):
        sweep(votes, setting_of(votes), vary, GRID)


def test_the_threshold_rule_knows_two_methods(tmp_path) -> None:
    votes = of_kind(tmp_path, "threshold")
    with pytest.raises(InvalidInputError, match="unknown method of the threshold rule 'paper'"):
        certify_votes(votes, ThresholdSetting(0.5), methods=("joint", "paper"))


def test_threshold_settings_are_plain_numbers_however_they_were_given(tmp_path) -> None:
    votes = of_kind(tmp_path, "threshold")
    setting = certify_votes(votes, ThresholdSetting(np.float64(0.5), np.float64(0.01), np.int64(100))).setting
    assert setting == ThresholdSetting(0.5, 0.01, 100)
    assert [type(value) for value in (setting.threshold, setting.alpha, setting.draws)] == [float, float, int]
