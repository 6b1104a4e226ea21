"""Choosing the rule, and one of several models, on images that are then left out of what is certified.

The claims on an image hold with probability 1 - alpha for a rule that was fixed before its draws were looked at. A rule
chosen on other images is fixed in that sense, since the draws of one image say nothing of another's. A rule chosen on
the image itself is not: of m candidates only m alpha would be left. And the best of several averages flatters itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from multiguard.certify import Method, Rule, Threshold, TopK
from multiguard.certify.arguments import check_alpha, check_count
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate.certification import certify_configs
from multiguard.evaluate.config import ALL, CertifyConfig, label_method
from multiguard.evaluate.curves import curves
from multiguard.evaluate.scores import check_radius
from multiguard.io.config import Config, Count, NotNegative, Whole, described, to_tree
from multiguard.io.files import read_regular
from multiguard.io.records import convert, decode_checked, encode_checked
from multiguard.io.short_repr import short_repr
from multiguard.io.writer import staged
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.votes import Provenance, Votes

Metric = Literal["recall", "precision", "f1"]
INTERVAL = 0.95  # the confidence of the intervals
_CLASSIFIER = ("weights_hash", "classifier_hash", "code_hash", "noise", "rule", "score_threshold")
_THRESHOLDS = tuple(step / 20 for step in range(1, 20))
_FORMAT: dict[str, Any] = {"format": "multiguard-tuned", "version": 4}
_MOST = 1 << 28  # bytes of a record


class TuneConfig(Config, frozen=True):
    """How k' or the threshold, and one of several models, is chosen.

    >>> TuneConfig(radius=0.5, k=3).seed
    0
    """

    radius: Annotated[NotNegative, described("The radius at which certified scores are compared.")]
    k: Annotated[
        Count | None,
        described("For top-k: labels that the smoothed classifier returns; k' is tried from 1 to k."),
    ] = None
    alpha: Annotated[float, described("The probability of a wrong certificate, per image.")] = 0.001
    draws: Annotated[Count | None, described("The first draws, this many [all].")] = None
    method: Annotated[Method | None, described("The method to certify with [joint].")] = None
    metric: Annotated[Metric | None, described("The score [recall; for threshold votes: f1].")] = None
    images: Annotated[Count | None, described("Tune on a random sample of this many images [half of them].")] = None
    seed: Annotated[Whole, described("Seed of that sample.")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.alpha)
        if self.method == ALL:
            raise InvalidInputError("method is 'all'; tune by the one that will certify")


@dataclass(frozen=True)
class Candidate:
    """A rule on the votes of one model, and its certified score on the tuning images."""

    votes: int  # which votes, by their position in the list
    noise: str  # their noise
    config: CertifyConfig  # what was certified
    score: float  # the mean over the tuning images that have labels
    low: float  # the 95 % confidence interval of that mean over images like these: from here
    high: float  # to here


@dataclass(frozen=True, eq=False)
class Tuned:
    """The candidate of the largest certified score; the images that chose it must not be certified with it.

    Its score is flattered, as the largest of several always is. What it is worth the other images say.
    """

    config: TuneConfig  # how it was chosen, its method and metric named
    chosen: int  # the position of the best candidate
    candidates: tuple[Candidate, ...]  # all of them, in the order in which they were tried
    classifier: dict[str, Any]  # what distinguishes the chosen model and its noise from others
    ids: tuple[str, ...]  # the tuning images
    image_hashes: tuple[str | None, ...]  # the hashes of their pixels; None where the votes do not have them

    __repr__ = short_repr

    @property
    def best(self) -> Candidate:
        """The candidate that was chosen."""
        return self.candidates[self.chosen]

    def others(self, votes: Votes) -> Votes:
        """The votes of all images that had no part in the choice: neither by id nor by their pixels.

        Votes of another model or another noise than the chosen ones raise `InvalidInputError`, as do votes that hold
        tuning images only.
        """
        run, rule = votes.provenance, self.best.config.rule
        if different := [name for name, value in _classifier(run).items() if value != self.classifier.get(name)]:
            noise = f"noise {self.best.noise}" if "noise" in different else "another model, or another kind of votes"
            raise InvalidInputError(f"{rule} was chosen for {noise}, not for that of these votes")
        ids, pixels = set(self.ids), {one for one in self.image_hashes if one is not None}
        hashes = zip(votes.ids, votes.image_hashes, strict=True)
        kept = {name for name, pixel_hash in hashes if name not in ids and pixel_hash not in pixels}
        if not kept:
            raise InvalidInputError(
                f"all {len(votes)} images of these votes chose {rule}, so none is left to certify; vote on other "
                "images, or tune on fewer (images)"
            )
        return votes.subset(kept | {failure.image_id for failure in votes.failures if failure.image_id not in ids})


def tune(
    config: TuneConfig,
    votes: Sequence[Votes],
    *,
    out: str | Path | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """The rule, and the votes, that certify most at one radius on a random part of the images.

    The claims on every other image hold with probability 1 - alpha for the chosen rule as for any other, because its
    draws had no part in the choice: certify `Tuned.others(votes)`. Of equal scores the first in order is taken.

    Args:
        config: The radius, the score and the sample. The threshold rule returns more labels the smaller t is, so that
            recall alone always chooses the smallest.
        votes: Votes with ground truth and a fixed number of draws, one entry per model or noise, of the same images.
        out: A file for the record, which `read_tuned` reads.
        force: Whether to replace another choice.
        progress: Called with the number of candidates done and of all candidates.

    >>> from multiguard import read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> tuned = tune(TuneConfig(radius=0.1, k=20, images=3), [votes])  # all 20 labels are returned: nothing is lost
    >>> tuned.best.config.rule, len(tuned.ids), len(tuned.others(votes))
    (TopK(k=20, k_prime=1), 3, 2)
    """
    if out is None:
        return _choose(config, votes, progress)
    path, hashes = Path(out), [one.manifest_hash for one in votes]
    request = {"tune": to_tree(config), "votes": hashes, "multiguard": __version__}
    with staged(path, request, kind="another choice", folders=(), force=force) as stage:
        if stage is not None:
            tuned = _choose(config, votes, progress)
            (stage / path.name).write_bytes(encode_checked(msgspec.to_builtins(tuned), **_FORMAT))
            return tuned
    return read_tuned(path)


def _choose(config: TuneConfig, votes: Sequence[Votes], progress: Callable[[int, int], None] | None) -> Tuned:
    """The choice of `tune`."""
    if not votes:
        raise InvalidInputError("nothing to choose from: name at least one votes folder")
    at = check_radius(config.radius, votes[0].provenance.noise)[:1]
    ids = _tuning_ids(votes, config)
    offered = [candidate_rules(one.provenance, config.k) for one in votes]
    rules = [rule for rule in offered[0] if all(rule in each for each in offered)]
    metric = config.metric or ("recall" if votes[0].rule == "top-k" else "f1")
    found: list[Candidate] = []
    for number, one in enumerate(votes):
        part, method = one.subset(ids), config.method or label_method(one.provenance)
        base = CertifyConfig(alpha=config.alpha, draws=config.draws, methods=(method,))
        for rule in rules:
            resolved = base.with_rule(rule).resolve(one.provenance)
            (proved,) = certify_configs([resolved], part, "truth", None, sets_only=True)
            curve = curves(proved, at, bands=INTERVAL)[0]
            numbers = (getattr(curve.scores, metric), *getattr(curve.bands, metric))
            found.append(Candidate(number, str(proved.noise), resolved, *(float(each[0]) for each in numbers)))
            if progress is not None:
                progress(len(found), len(votes) * len(rules))
    chosen = max(range(len(found)), key=lambda index: found[index].score)  # the first of equal ones
    if found[chosen].score == 0:
        raise InvalidInputError(
            f"none of the {len(found)} candidates certifies anything at radius {config.radius:g} on the {len(ids)} "
            "tuning images; take a smaller radius, votes of more noise, or more draws"
        )
    best = votes[found[chosen].votes]
    hashes = dict(zip(best.ids, best.image_hashes, strict=True))
    named, pixels = config.replace(metric=metric, method=method), tuple(hashes[name] for name in ids)
    return Tuned(named, chosen, tuple(found), _classifier(best.provenance), ids, pixels)


def candidate_rules(run: Provenance, k: int | None = None) -> list[Rule]:
    """The rules that votes of this run can be certified with: k' = 1 .. k for the top-k rule, or t = 0.05 .. 0.95.

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


def read_tuned(path: str | Path) -> Tuned:
    """A record as it was written; a damaged or edited one raises `DataError`."""
    try:
        tuned = convert(decode_checked(read_regular(Path(path), _MOST), **_FORMAT), Tuned)
        if not 0 <= tuned.chosen < len(tuned.candidates) or len(tuned.ids) != len(tuned.image_hashes):
            raise ValueError("its parts do not fit each other")
        for one in tuned.candidates:
            _ = one.config.rule
    except OSError as error:
        raise DataError(f"{path} cannot be used: {error.strerror or error}; `multiguard tune` writes it") from error
    except ValueError as error:
        raise DataError(f"{path} cannot be used: {error}; tune again to write it") from error
    return tuned


def _tuning_ids(votes: Sequence[Votes], config: TuneConfig) -> tuple[str, ...]:
    """A random sample of the images that all votes hold; raises unless their labels are known, and alike."""
    for one in votes:
        _check_votes(one, votes[0])
    common = set.intersection(*(set(one.ids) for one in votes))
    ids = [name for name in votes[0].ids if name in common]
    if not ids:
        raise VotesError("no image has votes in every folder, so that nothing can be compared")
    count = -(-len(ids) // 2) if config.images is None else config.images
    chosen = np.random.default_rng(config.seed).permutation(len(ids))[:count]
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


def _classifier(run: Provenance) -> dict[str, Any]:
    """What distinguishes the smoothed classifier of this run, as a file holds it."""
    return {name: getattr(run, name) for name in _CLASSIFIER} | {"noise": str(run.noise)}
