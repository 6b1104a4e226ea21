"""Choosing the rule, and one of several models, on images that are then left out of what is certified.

The claims on an image hold with probability 1 - alpha for a rule that was fixed before its draws were looked at. A rule
chosen on other images is fixed in that sense, since the draws of one image say nothing of another's. A rule chosen on
the image itself is not: of m candidates only m alpha would be left. And the best of several averages flatters itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from multiguard.certify import Method, Rule, Threshold, TopK
from multiguard.certify.arguments import check_count
from multiguard.certify.arrays import Floats
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate.certificates import Certificates, Progress, certify_configs, per_unit
from multiguard.evaluate.certifier import default_method, resolve_methods
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.curves import curves
from multiguard.evaluate.scores import check_radius
from multiguard.io.names import unknown_name
from multiguard.io.short_repr import short_repr

if TYPE_CHECKING:
    from multiguard.votes import Provenance, Votes

Metric = Literal["recall", "precision", "f1"]
INTERVAL = 0.95  # the confidence of the intervals
_CLASSIFIER = ("weights_hash", "classifier_hash", "code_hash", "noise", "rule", "score_threshold")
_THRESHOLDS = tuple(step / 20 for step in range(1, 20))


@dataclass(frozen=True)
class Candidate:
    """A rule on the votes of one model, and its certified score on the tuning images."""

    votes: int  # which votes, by their position in the list
    noise: Noise  # their noise
    rule: Rule
    score: float  # the mean over the tuning images that have labels
    low: float  # the 95 % confidence interval of that mean over images like these: from here
    high: float  # to here


@dataclass(frozen=True, eq=False)
class Tuned:
    """The candidate of the largest certified score; the images that chose it must not be certified with it.

    Its score is flattered, as the largest of several always is. What it is worth the other images say.
    """

    radius: float  # at which scores are compared, in the unit of the noise's attacker
    metric: Metric  # which score
    method: Method  # the method that proved it
    alpha: float  # the error allowed for each image
    best: Candidate
    candidates: tuple[Candidate, ...]  # all of them, in the order in which they were tried
    classifier: Mapping[str, Any]  # what distinguishes the chosen model and its noise from others
    ids: tuple[str, ...]  # the tuning images
    image_hashes: tuple[str | None, ...]  # the hashes of their pixels; None where the votes do not have them

    __repr__ = short_repr

    def others(self, votes: Votes) -> Votes:
        """The votes of all images that had no part in the choice: neither by id nor by their pixels.

        Votes of another model or another noise than the chosen ones raise `InvalidInputError`, as do votes that hold
        tuning images only.
        """
        run = votes.provenance
        if different := [name for name, value in _classifier(run).items() if value != self.classifier.get(name)]:
            noise = f"noise {self.best.noise}" if "noise" in different else "another model, or another kind of votes"
            raise InvalidInputError(f"{self.best.rule} was chosen for {noise}, not for that of these votes")
        ids, pixels = set(self.ids), {one for one in self.image_hashes if one is not None}
        hashes = zip(votes.ids, votes.image_hashes, strict=True)
        kept = {name for name, pixel_hash in hashes if name not in ids and pixel_hash not in pixels}
        if not kept:
            raise InvalidInputError(
                f"all {len(votes)} images of these votes chose {self.best.rule}, so none is left to certify; vote on "
                "other images, or tune on fewer (--images)"
            )
        return votes.subset(kept | {failure.image_id for failure in votes.failures if failure.image_id not in ids})


def candidate_rules(run: Provenance, k: int | None = None) -> list[Rule]:
    """The rules that votes of this run can be certified with: k' = 1 .. k for the top-k rule, or t = 0.05 .. 0.95.

    Args:
        run: The provenance of the votes; k' ends at the ranked labels that they keep, if these are fewer than k.
        k: How many labels the smoothed classifier returns, for votes of the top-k rule only.

    >>> candidate_rules(run, k=2)  # `run` is the Provenance of some votes
    [TopK(k=2, k_prime=1), TopK(k=2, k_prime=2)]
    """
    if run.k_max is None:
        if k is not None:
            raise InvalidInputError("k belongs to the top-k rule, and these are votes of the threshold rule")
        return [Threshold(t) for t in _THRESHOLDS]
    if k is None:
        raise InvalidInputError("k is missing: how many labels does the smoothed classifier return")
    return [TopK(check_count("k", k, len(run.label_names)), k_prime) for k_prime in range(1, min(k, run.k_max) + 1)]


def tune(
    votes: Sequence[Votes],
    rules: Sequence[Rule],
    radius: float,
    *,
    metric: Metric = "recall",
    images: int | None = None,
    seed: int = 0,
    method: Method | None = None,
    alpha: float = 0.001,
    n: int | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """The rule, and the votes, that certify most at one radius on a random part of the images.

    The claims on every other image hold with probability 1 - alpha for the chosen rule as for any other, because its
    draws had no part in the choice: certify `Tuned.others(votes)`.

    Args:
        votes: Votes with ground truth and a fixed number of draws, one entry per model or noise, of the same images.
        rules: The candidates, tried on each of the votes; `candidate_rules` lists the natural ones.
        radius: In the unit of the noise's attacker, which all votes must share.
        metric: Which certified score, the mean over images: "recall", "precision" or "f1". The threshold rule returns
            more labels the smaller t is, so that recall alone always chooses the smallest.
        images: How many images choose, a random sample; half of them by default.
        seed: The seed of that sample.
        method: The method to compare by; "joint" by default, which ranks rules in a hundredth of the time of "coupled",
            and "enumerated" for bands.
        alpha: The error allowed for each image.
        n: The first n draws of each image; None for all of them.
        progress: Called with the number of candidates done and of all candidates.

    Returns:
        The choice. Of equal scores the first in order is taken.

    >>> from multiguard import TopK, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> tuned = tune([votes], [TopK(20, 1), TopK(20, 3)], 0.1, images=3)  # all 20 labels are returned: nothing is lost
    >>> tuned.best.rule, len(tuned.ids), len(tuned.others(votes))
    (TopK(k=20, k_prime=1), 3, 2)
    """
    whole = len(votes) * len(rules)
    if metric not in get_args(Metric):
        raise InvalidInputError(unknown_name("metric", metric, get_args(Metric)))
    if not whole:
        raise InvalidInputError("nothing to choose from: name at least one votes folder and one rule")
    at = check_radius(radius, votes[0].provenance.noise)[:1]
    ids = _tuning_ids(votes, images, seed)
    candidates: list[Candidate] = []
    for number, one in enumerate(votes):
        configs = [CertifyConfig(rule, alpha, n).resolve(one.provenance) for rule in rules]
        (proven_by,) = resolve_methods(
            (method or default_method(one.provenance),), CertifyConfig(rules[0]), one.provenance
        )
        counter = per_unit(progress and _part(progress, number * len(rules), whole), len(rules))
        certified = certify_configs(one.subset(ids), configs, [proven_by], "truth", counter, sets_only=True)
        candidates += [_candidate(number, certificates, at, metric) for certificates in certified]
    best = max(candidates, key=lambda one: one.score)  # the first of equal ones
    if best.score == 0:
        raise InvalidInputError(
            f"none of the {whole} candidates certifies anything at radius {radius:g} on the {len(ids)} tuning images; "
            "take a smaller radius, votes of more noise, or more draws"
        )
    return _tuned(votes[best.votes], ids, best, tuple(candidates), (radius, metric, proven_by, alpha))


def _tuning_ids(votes: Sequence[Votes], images: int | None, seed: int) -> tuple[str, ...]:
    """A random sample of the images that all votes hold; raises unless their labels are known, and alike."""
    for one in votes:
        _check_votes(one, votes[0])
    common = set.intersection(*(set(one.ids) for one in votes))
    ids = [name for name in votes[0].ids if name in common]
    if not ids:
        raise VotesError("no image has votes in every folder, so that nothing can be compared")
    count = check_count("images", -(-len(ids) // 2) if images is None else images)
    chosen = np.random.default_rng(seed).permutation(len(ids))[:count]
    sample = tuple(ids[position] for position in sorted(chosen.tolist()))
    truth = [dict(zip(one.ids, one.labels, strict=True)) for one in votes]
    for name in sample:
        if len({frozenset(own[name]) for own in truth}) > 1:
            raise VotesError(f"image {name!r} has other labels in one of the votes folders than in another")
    return sample


def _check_votes(one: Votes, first: Votes) -> None:
    """Raises unless these votes can be compared with the first ones."""
    if not one.provenance.labelled:
        raise VotesError("tuning compares certified scores, which need the true labels, and these votes have none")
    if one.adaptive:
        raise VotesError(
            "these votes are adaptive: their draws went where one rule needed them, so that other rules would look "
            "worse than they are; tune on votes with a fixed number of draws"
        )
    noises = one.provenance.noise, first.provenance.noise
    if noises[0].attacker != noises[1].attacker:
        raise VotesError(
            f"the votes folders are about different attackers ({noises[1].attacker}, {noises[0].attacker}), and one "
            "radius is not the same attack; tune them one by one"
        )
    if (one.rule, one.provenance.label_names) != (first.rule, first.provenance.label_names):
        raise VotesError("the votes folders have different labels or rules, so that they cannot be compared")


def _part(progress: Progress, before: int, whole: int) -> Progress:
    """Progress in one of the votes, reported as progress in all of them."""
    return lambda done, _: progress(before + done, whole)


def _candidate(number: int, certificates: Certificates, radius: Floats, metric: Metric) -> Candidate:
    curve = curves(certificates, radius, bands=INTERVAL)[0]
    assert curve.averaging == "mean"
    assert curve.bands is not None
    score, (low, high) = getattr(curve.scores, metric), getattr(curve.bands, metric)
    return Candidate(number, curve.noise, curve.config.rule, float(score[0]), float(low[0]), float(high[0]))


def _tuned(
    votes: Votes,
    ids: tuple[str, ...],
    best: Candidate,
    candidates: tuple[Candidate, ...],
    how: tuple[float, Metric, Method, float],
) -> Tuned:
    hashes = dict(zip(votes.ids, votes.image_hashes, strict=True))
    return Tuned(*how, best, candidates, _classifier(votes.provenance), ids, tuple(hashes[name] for name in ids))


def _classifier(run: Provenance) -> dict[str, Any]:
    """What distinguishes the smoothed classifier of this run, as a file holds it."""
    return {name: getattr(run, name) for name in _CLASSIFIER} | {"noise": str(run.noise)}
