"""From votes to certificates: what is proved of every image in one setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from multiguard.certify import Method, Radii, RuleName
from multiguard.certify.arrays import Floats
from multiguard.errors import InvalidInputError
from multiguard.evaluate.certifier import Certifier, Labels, LabelSource, check_methods
from multiguard.evaluate.config import CertifyConfig

if TYPE_CHECKING:
    from multiguard.votes import ImageFailure, VoteRow, Votes

Progress = Callable[[int, int], None]

# The votes of about this many bytes are held at a time; each is read from the disk once.
_BYTES_AT_A_TIME = 1 << 26
# Images with equally many labels are solved together: more than this many gain little, and would hide progress.
_IMAGES_AT_A_TIME = 512


@dataclass(frozen=True, eq=False)
class Certificates:
    """What is proved of a set of images in one setting: each image's claims hold with probability 1 - alpha.

    The probability is over the draws, for each image and method alone. About the ground truth (`labelled`) the claims
    on L as a set hold at once, and each label's own radius alone, as it spends the whole of alpha. About labels chosen
    from pilot draws (not `labelled`) the set's claims and its labels' radii hold all at once, so that e labels with
    such radii prove as much of the set (method joint); what they say is how many of the predicted labels stay, not that
    these are right. With the method `jia` a set's claims do not hold at once but each alone, for its own number of
    labels.

    Attributes:
        config: What is certified; n is a number, in an adaptive run the most draws that an image took.
        sigma: The noise.
        label_names: The c label names, in index order.
        ids: The ids of the images that were voted on.
        labelled: Whether L is the ground truth; if not, pilot draws chose it, which certify nothing.
        labels: For each image the indices of L, d of them; chosen ones most hits first.
        radii: For each method and image up to which radius at least e = 1, 2, ... labels of L are returned:
            (min(d, k),) for the top-k rule, (d,) for the threshold rule.
        false_radii: For each method and image up to which radius at most m = 0, 1, ... labels outside L are returned,
            (c - d,), together with `radii`; None for the top-k rule, where at most k - e are.
        label_radii: For each image and each label of L, in the order of `labels`, the radius up to which that label
            alone is returned: for the top-k rule against all other labels (method joint).
        predicted: For each image the labels that the smoothed classifier would return if the certifying draws were
            all there are, most hits first and of equals the smaller index: an estimate, not a claim.
        predicted_hits: In how many draws each of them was hit.
        draws: How many draws certify each image; all alike unless the run was adaptive.
        image_hashes: For each image the `image_hash` of the very pixels that were voted on; None where the votes
            do not tell.
        failures: The images that could not be voted on, and why. Nothing is proved of them: no number here counts
            them in, and every summary says how many they are.
    """

    config: CertifyConfig
    sigma: float
    label_names: tuple[str, ...]
    ids: tuple[str, ...]
    labelled: bool
    labels: tuple[Labels, ...]
    radii: Mapping[Method, tuple[Floats, ...]]
    false_radii: Mapping[Method, tuple[Floats, ...]] | None
    label_radii: tuple[Floats, ...]
    predicted: tuple[Labels, ...]
    predicted_hits: tuple[tuple[int, ...], ...]
    draws: tuple[int, ...]
    image_hashes: tuple[str | None, ...]
    failures: tuple[ImageFailure, ...]

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that the radii were proved with."""
        return tuple(self.radii)

    @property
    def rule_name(self) -> RuleName:
        """The rule that is certified, "top-k" or "threshold"."""
        return self.config.rule.name

    def set_radii(self, method: Method) -> list[Radii]:
        """For each image what this method proves of L as a set."""
        true = self.radii[method]
        false = [None] * len(true) if self.false_radii is None else self.false_radii[method]
        return [Radii(*each) for each in zip(true, false, strict=True)]


def certify_votes(
    votes: Votes,
    config: CertifyConfig,
    *,
    methods: Sequence[Method] = ("joint",),
    labels: LabelSource = "truth",
    progress: Progress | None = None,
) -> Certificates:
    """Each image's claims, of each method, hold with probability at least 1 - alpha over its draws.

    Every image's votes are read once. Votes of an adaptive run have alpha split over their looks.

    Args:
        votes: What `read_votes` returns.
        config: The rule, alpha and n.
        methods: The methods to prove with, on the same votes; the threshold rule knows "joint" and "independent".
        labels: "truth", to certify the true labels, which must not have been chosen from these draws; or "pilot", to
            certify the labels that the pilot draws choose. Then recall is the share of the predicted labels that
            provably stay.
        progress: Called with the number of images done and of all images.
    """
    certifier = Certifier(votes, config, labels)
    radii: dict[Method, list[Radii]] = {method: [] for method in check_methods(methods, config.rule)}
    protected: list[Labels] = []
    label_radii: list[Floats] = []
    predicted: list[tuple[Labels, tuple[int, ...]]] = []
    steps = Steps(len(votes), len(votes) * (len(radii) + 1), progress)
    for rows in portions(votes):
        own = [certifier.labels(row) for row in rows]
        alone = certifier.label_radii(rows, own)
        for method in radii:
            radii[method] += certifier.radii(rows, own, method, alone)
            steps.take(len(rows))
        protected += own
        label_radii += alone
        predicted += [certifier.predicted(row) for row in rows]
        steps.take(len(rows))
    return Certificates(
        config=certifier.config,
        sigma=votes.provenance.sigma,
        label_names=votes.provenance.label_names,
        ids=votes.ids,
        labelled=labels == "truth",
        labels=tuple(protected),
        radii={method: tuple(each.true for each in proved) for method, proved in radii.items()},
        false_radii=_false_radii(radii),
        label_radii=tuple(label_radii),
        predicted=tuple(own for own, _ in predicted),
        predicted_hits=tuple(hits for _, hits in predicted),
        draws=draws_taken(votes, certifier.config),
        image_hashes=votes.image_hashes,
        failures=votes.failures,
    )


def draws_taken(votes: Votes, config: CertifyConfig) -> tuple[int, ...]:
    """How many draws of each image certify it."""
    return tuple(min(votes.draws_of(position), config.draws) for position in range(len(votes)))


class Steps:
    """Work of many small steps, told as `total` larger ones; never backwards, and `total` only when all is done."""

    def __init__(self, total: int, steps: int, progress: Progress | None) -> None:
        self._total, self._steps, self._taken = total, steps, 0
        self._progress = progress

    def take(self, steps: int = 1) -> None:
        """Count steps that have been done."""
        self._taken += steps
        if self._progress is not None:
            self._progress(self._total * self._taken // self._steps, self._total)


def portions(votes: Votes) -> Iterator[list[VoteRow]]:
    """All images in order, in runs whose votes fit in memory together."""
    if len(votes) == 0:
        failed = f": all {len(votes.failures)} images failed" if votes.failures else ""
        raise InvalidInputError(f"these votes hold no image, so there is nothing to certify{failed}")
    rows: list[VoteRow] = []
    for position in range(len(votes)):
        rows.append(votes.row(position, looks=votes.looks))
        if sum(_bytes(row) for row in rows) >= _BYTES_AT_A_TIME or len(rows) == _IMAGES_AT_A_TIME:
            yield rows
            rows = []
    if rows:
        yield rows


def _bytes(row: VoteRow) -> int:
    return row.votes.nbytes if isinstance(row.votes, np.ndarray) else row.votes.packed.nbytes


def _false_radii(found: Mapping[Method, Sequence[Radii]]) -> dict[Method, tuple[Floats, ...]] | None:
    """The ceilings of every image; None where the rule has none."""
    ceilings = {
        method: tuple(each.false for each in proved if each.false is not None) for method, proved in found.items()
    }
    return ceilings if any(ceilings.values()) else None
