"""A calibration: how many draws must hit a label so that the returned labels keep a recall under attack.

`docs/calibration.md` says what is promised, over which randomness, and proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from multiguard.certify.arguments import Bools, Ints, check_count
from multiguard.certify.noise import Noise, parse_noise
from multiguard.certify.rules import Threshold, TopK
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate.curves import mean_at_least
from multiguard.evaluate.risk import Risk
from multiguard.io.config import Config, Count, Fraction, NotNegative, Positive, Whole, described, from_tree, to_tree
from multiguard.io.files import read_regular
from multiguard.io.records import checksum, decode_checked, encode_checked
from multiguard.io.rounding import percent, plain, plain_percent, round_up
from multiguard.io.writer import staged
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.evaluate.results import Results
    from multiguard.votes import Votes

CALIBRATION_NAME = "calibration.json"
NOT_PROMISED = (
    "This is no promise for one image alone, for images unlike the calibration images, or for an attacker who also "
    "chooses which images are sent."
)
_FORMAT: dict[str, Any] = {"format": "multiguard-calibration", "version": 4}
_MOST = 1 << 28  # bytes of a file
_TEST_CONFIDENCE = 0.95  # of the wrong labels where no confidence is asked for
_DEFAULT_DRAWS, _FEWEST = 120, 5
_OFFERED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # the recalls of the offers
_CLASSIFIER = ("classifier_hash", "weights_hash", "code_hash", "score_threshold", "precision", "clamp")


class CalibrateConfig(Config, frozen=True):
    """What is promised of the labels that a deployed classifier returns.

    >>> CalibrateConfig(recall=0.8, radius=0.5, wrong=6)
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: confidence is missing; a promise of at most 6 wrong labels needs one, ...
    """

    recall: Annotated[Fraction, described("The fraction of the true labels to promise, on average.")]
    radius: Annotated[NotNegative, described("The largest perturbation under which it is promised.")]
    wrong: Annotated[Positive | None, described("Promise at most this many wrong labels, too, on average.")] = None
    confidence: Annotated[
        Fraction | None,
        described("Promise it with this confidence over the calibration images [on average over them]."),
    ] = None
    k_prime: Annotated[
        tuple[Count, ...], described("Labels that the model returns per draw [the best of all that the votes keep].")
    ] = ()
    draws: Annotated[
        Count | None, described("Fresh draws of each new image [120, or all of the votes; of bands always all].")
    ] = None
    seed: Annotated[Whole, described("Seed of the split of the images.")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wrong is not None and self.confidence is None:
            raise InvalidInputError(
                f"confidence is missing; a promise of at most {plain(self.wrong)} wrong labels needs one, such as 0.95"
            )


class Offer(Config, frozen=True):
    """What a calibration's images can promise with its k' at another recall or radius; each offer holds alone.

    >>> Offer(recall=0.9, radius=0.5, least_hits=20, returned=7.2, wrong=6.1).radius
    0.5
    """

    recall: Annotated[Fraction, described("The fraction of the true labels, on average.")]
    radius: Annotated[NotNegative, described("The largest perturbation.")]
    least_hits: Annotated[Count, described("The fewest hits of a returned label, h.")]
    returned: Annotated[NotNegative, described("Labels returned without attack, on average over the test images.")]
    wrong: Annotated[NotNegative, described("Wrong labels at most under attack, on average, with 95 % confidence.")]


class Calibration(Config, frozen=True):
    """The labels that `least_hits` of `draws` fresh draws hit hold at least the promised recall, on average.

    That holds under every perturbation up to the radius, even one chosen with knowledge of everything but the draws.
    The average is over new images like the calibration images, the draws, and, without a confidence, the calibration
    images; otherwise it holds with that confidence over the calibration images.

    >>> import numpy as np
    >>> calibration = Calibration(
    ...     config=CalibrateConfig(recall=0.8, radius=0.5), k_prime=4, least_hits=67, draws=1000, noise="gaussian:0.5",
    ...     label_names=("cat", "dog"), model="m", image_size=None, classifier={}, images=400, votes_draws=1000,
    ...     votes=("v",), used=(),
    ... )
    >>> calibration.chosen(np.array([66, 67]))
    (1,)
    >>> calibration.sentence
    'On average the returned labels hold at least 80 % of the true labels of an image, even under ...'
    """

    config: Annotated[CalibrateConfig, described("What is promised.")]
    k_prime: Annotated[Count | None, described("Labels that the model returns per draw; None: any set.")]
    least_hits: Annotated[Count, described("A label is returned if at least this many draws hit it, h.")]
    draws: Annotated[Count, described("The fresh draws of each image, m.")]
    noise: Annotated[str, described("The noise, as in votes.")]
    label_names: Annotated[tuple[str, ...], described("The names of all labels, in index order.")]
    model: Annotated[str, described("The name of the model.")]
    image_size: Annotated[
        tuple[Count, Count] | None, described("The height and width of every image; None: any, or not images.")
    ]
    classifier: Annotated[dict[str, str | float | bool | None], described("What its votes say of the classifier.")]
    images: Annotated[Count, described("The calibration images with labels, N.")]
    votes_draws: Annotated[Count, described("The draws of each calibration image, n.")]
    votes: Annotated[tuple[str, ...], described("The checksums of the manifests of the votes.")]
    used: Annotated[tuple[str, ...], described("The pixel hashes (or ids) of the images that chose or calibrated.")]
    wrong: Annotated[NotNegative | None, described("Wrong labels at most, on average, under attack.")] = None
    wrong_confidence: Annotated[Fraction | None, described("The confidence of that number.")] = None
    test_images: Annotated[Whole, described("Images that had no part, for the next two numbers.")] = 0
    returned: Annotated[NotNegative | None, described("Labels returned without attack, on average.")] = None
    achieved: Annotated[NotNegative | None, described("Recall without attack.")] = None
    offers: Annotated[tuple[Offer, ...], described("Other promises of the same images, each alone.")] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_noise(self.noise)
        if self.least_hits > self.draws:
            raise InvalidInputError(f"least_hits is {self.least_hits}, more than the {self.draws} draws")

    @property
    def rule(self) -> Threshold:
        """The smoothed classifier that the returned labels estimate; h hits of m draws are enough for its threshold."""
        return Threshold((2 * self.least_hits - 1) / (2 * self.draws), k_prime=self.k_prime)

    def others(self, votes: Votes) -> Votes:
        """The votes of all images that neither chose nor calibrated; of another classifier, `InvalidInputError`."""
        check_classifier(self, classifier_facts(votes.provenance), votes.provenance.label_names)
        used = set(self.used)
        kept = {name for name, pixel_hash in _pixels(votes).items() if (pixel_hash or name) not in used}
        if not kept:
            raise InvalidInputError(
                f"all {len(votes)} images of these votes calibrated, so none is left; vote on others"
            )
        return votes.subset(kept | {failure.image_id for failure in votes.failures})

    @property
    def num_labels(self) -> int:
        """How many labels there are, c."""
        return len(self.label_names)

    def chosen(self, hits: Ints) -> tuple[int, ...]:
        """The labels that enough of the draws hit, most hits first, ties by index.

        Args:
            hits: (c,) in how many of the `draws` draws the model returned each label among its top k'.
        """
        given = np.asarray(hits)
        whole = given.shape == (self.num_labels,) and given.dtype.kind in "iu"
        if not whole or given.min() < 0 or given.max() > self.draws:
            raise InvalidInputError(f"hits must be {self.num_labels} whole numbers, one per label, 0 to {self.draws}")
        order = np.argsort(-given.astype(np.int64), kind="stable")
        return tuple(int(label) for label in order if given[label] >= self.least_hits)

    @property
    def sentence(self) -> str:
        """What is promised, as a sentence."""
        config, allowed = self.config, parse_noise(self.noise).threat_words(self.config.radius)
        sure = f", with {plain_percent(config.confidence)} % confidence" if config.confidence is not None else ""
        attack = f", even under {allowed}" if config.radius else " that is not attacked"
        words = f"On average the returned labels hold at least {plain_percent(config.recall)} % of the true labels"
        wrong = ""
        if self.wrong is not None:
            alone = self.wrong_confidence if config.wrong is None else None
            seen = f"with {plain_percent(alone)} % confidence " if alone is not None else ""
            wrong = f"; {seen}at most {round_up(self.wrong, 2)} of them are wrong on average"
        return f"{words} of an image{attack}{sure}{wrong}."

    @property
    def how(self) -> str:
        """How the labels are found, as a sentence."""
        top = "" if self.k_prime is None else f" among the {self.k_prime} best"
        return (
            f"A label is returned if at least {self.least_hits} of {self.draws} fresh draws have it{top} (noise "
            f"{self.noise}). {self.images} images with labels, {self.votes_draws} draws each, calibrated this."
        )

    @property
    def expected(self) -> str:
        """What images that had no part show, as a sentence."""
        if self.returned is None or self.achieved is None:
            return ""
        return (
            f"Without attack, {self.test_images} other images get {round_up(self.returned, 1)} labels on average, "
            f"which hold {percent(self.achieved)} of their true ones."
        )


def calibrate(
    config: CalibrateConfig,
    votes: Sequence[Votes],
    *,
    out: str | Path | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """On average the labels returned for a new image hold the recall of its true ones under attack, as the config says.

    The images are split at random: one part chooses k' and the noise where there is a choice, the largest part sets how
    many draws must hit a label, and the last one says what to expect. The promise needs calibration images and new
    images that are exchangeable: several images of one patient or scene are not, so keep one of each. If only the set
    of all labels would keep the promise, `InvalidInputError` says what can be promised instead.

    Args:
        config: What is promised.
        votes: Votes of labelled images with a fixed number of draws, one entry per model or noise, of the same images.
        out: A file for the calibration, which `read_calibration` reads.
        force: Whether to replace another calibration.
        progress: Called with the candidates done and all candidates.

    >>> from multiguard import read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> calibrate(CalibrateConfig(recall=0.8, radius=0.1), [votes])
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: recall: a promise of 80 % takes at least 5 labelled images to set the hits, ...
    """
    if out is None:
        return _calibrate(config, votes, progress)
    path, taken = Path(out), [[one.manifest_hash, checksum({"ids": [*one.ids]})] for one in votes]
    request = {"calibrate": to_tree(config), "votes": taken, "sizes": [one.image_size for one in votes]}
    request |= {"multiguard": __version__}
    with staged(path, request, kind="another calibration", folders=(), force=force) as stage:
        if stage is not None:
            found = _calibrate(config, votes, progress)
            (stage / path.name).write_bytes(encode_checked(to_tree(found), **_FORMAT))
            return found
    return read_calibration(path)


def read_calibration(path: str | Path) -> Calibration:
    """A calibration as it was written; a damaged or edited file raises `DataError`."""
    try:
        return from_tree(Calibration, decode_checked(read_regular(Path(path), _MOST), **_FORMAT))
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be read: {reason}; `multiguard calibrate` writes it") from error
    except (ValueError, InvalidInputError) as error:
        raise DataError(f"{path} cannot be used: {error}; calibrate again to write it") from error


def calibration_of_run(certificates: Path, run: Results) -> Calibration | None:
    """The calibration in the folder that the certificates are in, if there is one of their classifier and noise."""
    path = certificates.parent / CALIBRATION_NAME
    if not path.is_file():
        return None
    found = read_calibration(path)
    try:
        check_classifier(found, classifier_facts(SimpleNamespace(**run.provenance)), run.certificates.label_names)
    except InvalidInputError:
        return None
    return found


@dataclass(frozen=True, eq=False)
class Part:
    """Some images of one candidate, and what they prove; images are rows."""

    hits: Ints  # (images, c) in how many of all draws each label was returned
    first: Ints  # the same for the first m draws
    true: Bools  # (images, c) the true labels
    k_prime: int | None
    risk: Risk

    @property
    def labelled(self) -> Bools:
        """(images,) whether an image has labels."""
        return np.asarray(self.true.any(axis=1))

    def returned(self, least: int) -> float:
        """How many labels an image gets without attack, on average."""
        return float(np.mean(np.sum(self.first >= least, axis=1)))

    def recall(self, least: int) -> float | None:
        """Which fraction of the true labels is among them, on average; None if no image has a label."""
        first, true = self.first[self.labelled], self.true[self.labelled]
        found = np.sum(first >= least, axis=1, where=true) / true.sum(axis=1)
        return float(np.mean(found)) if len(found) else None

    def loss(self, least: int, confidence: float | None) -> float:
        """The fraction of labels that is missed at most, on average over new images."""
        missed = self.risk.missed(self.hits[self.labelled], self.true[self.labelled], least)
        if confidence is None:
            return (float(np.sum(missed)) + 1) / (len(missed) + 1) + self.risk.gap
        return 1 - mean_at_least(1 - missed, confidence) + self.risk.gap

    def most_hits(self, loss: float, confidence: float | None) -> int:
        """The most hits that a label may need; 0, so that all labels are returned, if there is none.

        What is missed rises with the hits for every image, and both bounds of its mean rise with it.
        """
        return _last(lambda least: self.loss(least, confidence) <= loss, self.risk.draws + 1)

    def wrong(self, least: int, confidence: float | None) -> float:
        """The wrong labels at most, on average over new images; without a confidence over these images."""
        (images, labels), risk = self.true.shape, self.risk
        found = risk.wrong(self.hits, self.true, least)
        if confidence is None:
            mean = float(np.sum(found)) / images
        else:
            most = risk.most_wrong(labels, self.k_prime, least)
            mean = most * (1 - mean_at_least(np.clip(1 - found / most, 0, 1), confidence))
        cap = labels if self.k_prime is None else min(labels, risk.draws * self.k_prime // least)
        return float(min(mean + risk.gap * labels, cap))

    def cost(self, loss: float) -> tuple[bool, float]:
        """Labels returned without attack and wrong ones under it, on average; first whether nothing is promised."""
        least = self.most_hits(loss, None)
        return least == 0, self.loss(1, None) if least == 0 else self.returned(least) + self.wrong(least, None)

    def at(self, noise: Noise, radius: float) -> Part:
        """The same images under another attack."""
        return replace(self, risk=Risk(self.risk.votes_draws, self.risk.draws, noise, radius))


def _last(holds: Callable[[int], bool], end: int) -> int:
    """The last number below `end` for which it holds, if it holds up to one and for none after it; 0 is not asked."""
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _calibrate(
    config: CalibrateConfig, votes: Sequence[Votes], progress: Callable[[int, int], None] | None
) -> Calibration:
    """The calibration of `calibrate`."""
    names, draws = _check_votes(votes), _fresh_draws(config, votes)
    each = [_counts(one, names, config.k_prime, draws) for one in votes]
    candidates = [(index, k_prime) for index, counts in enumerate(each) for k_prime in counts]
    choosing, setting, testing = _split(len(names), config.seed, choose=len(candidates) > 1)
    risks = [Risk(one.provenance.draws, draws, one.provenance.noise, config.radius) for one in votes]

    def part(candidate: int, rows: Ints) -> Part:
        index, k_prime = candidates[candidate]
        hits, first, true = each[index][k_prime]
        return Part(hits[rows], first[rows], true[rows], k_prime, risks[index])

    costs = list[tuple[bool, float]]()
    for candidate in range(len(candidates)) if len(candidates) > 1 else ():
        if progress is not None:
            progress(candidate, len(candidates))
        costs.append(part(candidate, choosing).cost(1 - config.recall))
    if progress is not None:
        progress(len(candidates), len(candidates))
    best = min(range(len(costs)), key=costs.__getitem__, default=0)
    used = {names[row] for row in (*choosing, *setting)}
    pixels = [pixel_hash or name for one in votes for name, pixel_hash in _pixels(one).items() if name in used]
    hashes = tuple(one.manifest_hash for one in votes)
    parts = part(best, setting), part(best, testing)
    return _promise(config, votes[candidates[best][0]], *parts, votes=hashes, used=tuple(dict.fromkeys(pixels)))


def _promise(config: CalibrateConfig, chosen: Votes, own: Part, test: Part, **origin: tuple[str, ...]) -> Calibration:
    """What the images that set the hits promise, and what the test images show of it."""
    run, seen = chosen.provenance, config.confidence or _TEST_CONFIDENCE
    sure = config.confidence if config.confidence is None or config.wrong is None else (1 + config.confidence) / 2
    least = own.most_hits(1 - config.recall, sure)
    if least == 0:
        raise InvalidInputError(_instead(config, own, sure, run.noise))
    _check_wrong(config, own, least)
    return Calibration(
        config=config,
        k_prime=own.k_prime,
        least_hits=least,
        draws=own.risk.draws,
        noise=str(run.noise),
        label_names=run.label_names,
        model=run.model,
        image_size=chosen.image_size,
        classifier=classifier_facts(run),
        images=int(own.labelled.sum()),
        votes_draws=run.draws,
        **origin,
        wrong=test.wrong(least, seen) if config.wrong is None else config.wrong,
        wrong_confidence=seen,
        test_images=len(test.true),
        returned=test.returned(least),
        achieved=test.recall(least),
        offers=tuple(_offers(config, own, test, run.noise)),
    )


def _fresh_draws(config: CalibrateConfig, votes: Sequence[Votes]) -> int:
    """The draws of each new image, m: as in the config; where every band votes, all."""
    kept = [one.provenance.draws for one in votes]
    most = min(kept)
    if not votes[0].provenance.noise.enumerated:
        return check_count("draws", min(_DEFAULT_DRAWS, most) if config.draws is None else config.draws, most)
    if {config.draws or most, *kept} != {most}:
        raise InvalidInputError(
            f"draws: every band of an image must vote, and the votes have {', '.join(map(str, kept))} bands; leave "
            "draws out, and calibrate votes of one number of bands"
        )
    return most


def _offers(config: CalibrateConfig, own: Part, test: Part, noise: Noise) -> Iterator[Offer]:
    """What the images that set and test can promise at other radii and recalls, as the config's promise is made."""
    for radius in sorted({0.0, *noise.default_radii, config.radius}):
        setting, testing = own.at(noise, radius), test.at(noise, radius)
        for recall in sorted({*_OFFERED, config.recall}):
            if least := setting.most_hits(1 - recall, config.confidence):
                wrong = testing.wrong(least, _TEST_CONFIDENCE)
                yield Offer(recall, radius, least, testing.returned(least), wrong)


def classifier_facts(run: Any) -> dict[str, Any]:
    """What is the same wherever the same classifier runs with the same noise, from the provenance of its votes."""
    return {name: getattr(run, name) for name in _CLASSIFIER} | {"noise": str(run.noise)}


def check_classifier(calibration: Calibration, facts: Mapping[str, Any], label_names: Sequence[str]) -> None:
    """Raises `InvalidInputError` unless these `classifier_facts` and labels belong to a calibration."""
    different = [name for name, value in facts.items() if calibration.classifier.get(name) != value]
    if tuple(label_names) != calibration.label_names:
        different.append("labels")
    if different:
        raise InvalidInputError(
            f"calibration: it is of {calibration.model} with noise {calibration.noise}, and this classifier differs in "
            f"{', '.join(different)}; calibrate this one"
        )


def check_size(calibration: Calibration, size: tuple[int, int] | None) -> None:
    """Raises `InvalidInputError` unless images of this height and width are of the size that a calibration is about."""
    if size != calibration.image_size:
        given, own = ("any size" if each is None else f"{each[0]}x{each[1]}" for each in (size, calibration.image_size))
        raise InvalidInputError(f"size is {given}, but the calibration is about images of {own}; calibrate for {given}")


def _check_wrong(config: CalibrateConfig, part: Part, least: int) -> None:
    """Raises unless no more wrong labels than the config says are promised from all draws down to `least` hits."""
    if config.wrong is None or config.confidence is None:
        return
    for hits in range(part.risk.draws, least - 1, -1):
        if (found := part.wrong(hits, (1 + config.confidence) / 2)) > config.wrong:
            raise InvalidInputError(
                f"wrong is {plain(config.wrong)}, and {plain_percent(config.recall)} % recall at R = "
                f"{plain(config.radius)} goes with {round_up(found, 2)} wrong labels here; promise a lower recall, a "
                "smaller radius or more wrong labels, or take more images"
            )


def _instead(config: CalibrateConfig, part: Part, confidence: float | None, noise: Noise) -> str:
    """Why nothing can be promised, and what can."""
    images, loss = int(part.labelled.sum()), 1 - config.recall
    wanted = f"{plain_percent(config.recall)} % at {noise.radius_words(config.radius)}"
    needed = int(np.ceil(1 / max(loss - part.risk.gap, 1e-9))) - 1
    if confidence is None and images < needed:
        return (
            f"recall: a promise of {plain_percent(config.recall)} % takes at least {needed} labelled images to set the "
            f"hits, and there are {images}; vote on about {2 * needed} or more in all"
        )
    possible = int(100 * (1 - part.loss(1, confidence)))
    step, end = (float(each) for each in noise.default_grid)
    most = int(min(end, config.radius) / step) + 1
    # The place of a radius on the grid, from 1 on; 0 is none.
    place = _last(lambda place: part.at(noise, step * (place - 1)).loss(1, confidence) <= loss, most + 1)
    offers = [f"{possible} % at this radius"] if possible > 0 else []
    if place:
        offers.append(f"{plain_percent(config.recall)} % up to R = {plain(round(step * (place - 1), 9))}")
    instead = f"these {images} calibration images can promise {' or '.join(offers)}" if offers else "take more images"
    return (
        f"recall: only the set of all labels would keep {wanted}, so nothing is promised; {instead} (to choose from "
        "these numbers and be sure, calibrate other images)"
    )


def _pixels(votes: Votes) -> dict[str, str | None]:
    """The pixel hash of each image by its id."""
    return dict(zip(votes.ids, votes.image_hashes, strict=True))


def _check_votes(votes: Sequence[Votes]) -> list[str]:
    """The ids of the images that all votes hold, each different in its pixels."""
    if not votes:
        raise InvalidInputError("votes: nothing to calibrate from; name at least one votes folder")
    first = votes[0]
    for one in votes:
        if not one.provenance.labelled:
            raise VotesError("a calibration needs the true labels, and these votes have none; vote on labelled images")
        if one.adaptive:
            raise VotesError("a calibration needs the same number of draws for all images; vote with a fixed number")
        if one.provenance.earlier_draws:
            raise VotesError(
                f"these votes were extended from {one.provenance.earlier_draws[0]} draws, perhaps for what those "
                "showed; a calibration needs a number of draws fixed beforehand: vote again"
            )
        if one.provenance.noise.attacker != first.provenance.noise.attacker:
            raise VotesError("the votes are about different attackers, so that one radius is not the same attack")
        if (one.rule, one.provenance.label_names) != (first.rule, first.provenance.label_names):
            raise VotesError("the votes have different labels or rules, so that they cannot be compared")
    common = set.intersection(*(set(one.ids) for one in votes))
    different = {pixel_hash or name: name for name, pixel_hash in _pixels(first).items() if name in common}
    if len(different) < _FEWEST:
        raise VotesError(f"{len(different)} different images have votes everywhere; a calibration needs {_FEWEST}")
    return list(different.values())


def _counts(
    votes: Votes, names: list[str], wanted: Sequence[int], draws: int
) -> dict[int | None, tuple[Ints, Ints, Bools]]:
    """The hits of all and of the first draws, and the labels, of these images, for each k' that is considered."""
    run, position = votes.provenance, {name: place for place, name in enumerate(votes.ids)}
    labels, ranks = len(run.label_names), run.k_max
    if ranks is None and wanted:
        raise InvalidInputError("k_prime belongs to ranked votes, and these are sets of labels")
    kept = tuple(dict.fromkeys(wanted)) or tuple(range(1, min(ranks, labels) + 1)) if ranks is not None else (None,)
    for k_prime in kept:
        if k_prime is not None and ranks is not None:
            check_count("k_prime", k_prime, ranks)
    shape = (len(kept), len(names), labels)
    hits, first, true = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape[1:], np.bool_)
    place = {position[name]: row for row, name in enumerate(names)}
    for index, image in enumerate(votes):
        if index not in place:
            continue
        row = place[index]
        true[row, list(image.labels)] = True
        for number, k_prime in enumerate(kept):
            each = image.hits if k_prime is None else TopK(k_prime, k_prime).sets(image.ranked, labels)
            hits[number, row], first[number, row] = each.sum(axis=0), each[:draws].sum(axis=0)
    return {k_prime: (hits[number], first[number], true) for number, k_prime in enumerate(kept)}


def _split(images: int, seed: int, *, choose: bool) -> tuple[Ints, Ints, Ints]:
    """The rows that choose, set the hits and test: a fifth, three fifths and a fifth; without a choice none choose."""
    order = np.random.default_rng(seed).permutation(images)
    fifth = images // 5
    chosen = fifth if choose else 0
    return order[:chosen], order[chosen : images - fifth], order[images - fifth :]
