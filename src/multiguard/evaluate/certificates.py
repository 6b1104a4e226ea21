"""From votes to certificates: what is proved of every image with one config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from multiguard.certify import Method, Radii, RuleName, TopK
from multiguard.certify.arrays import Floats
from multiguard.certify.noise import Noise
from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate import scores
from multiguard.evaluate.certifier import Certifier, Labels, LabelSource, resolve_methods
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.scores import CertifiedCounts
from multiguard.io.ragged import Ragged
from multiguard.io.short_repr import short_repr

if TYPE_CHECKING:
    from multiguard.votes import VoteRow, Votes

Progress = Callable[[int, int], None]

# The votes of about this many bytes are held at a time; each is read from the disk once.
_BYTES_AT_A_TIME = 1 << 26
# Images with equally many labels are solved together: more than this many gain little, and would hide progress.
_IMAGES_AT_A_TIME = 512
_RAGGED: dict[str, DTypeLike] = {
    **dict.fromkeys(("ids", "image_hashes"), str),
    **dict.fromkeys(("labels", "predicted", "predicted_hits", "bare"), np.int64),
    "label_radii": np.float64,
}


@dataclass(frozen=True, eq=False)
class Certificates:
    """What is proved of a set of images with one config: the claims on each image hold with probability 1 - alpha.

    The probability is over the draws, for each image and method alone. About the ground truth (`labelled`) the claims
    on L as a set hold at once, and the radius of each label holds alone, as it spends all of alpha. About labels chosen
    from pilot draws (not `labelled`) the claims on the set and the radii of its labels hold all at once, so that e
    labels with such radii prove as much of the set (method joint); they say how many of the predicted labels stay, not
    that these are right. With the method `jia` the claims on a set hold each alone, for its own number of labels.

    Attributes:
        config: What is certified; n is a number, in an adaptive run the most draws that an image took.
        noise: The noise, and so the attacker: what a radius is the size of.
        label_names: The c label names, in index order.
        ids: The ids of the images that were voted on.
        labelled: Whether L is the ground truth; if not, pilot draws chose it, which certify nothing.
        labels: For each image the indices of L, d of them; chosen ones most hits first.
        radii: For each method and image up to which radius at least e = 1, 2, ... labels of L are returned:
            (min(d, k),) for the top-k rule, (d,) for the threshold rule.
        false_radii: For each method and image up to which radius at most m = 0, 1, ... labels outside L are returned,
            (c - d,), together with `radii`; None for the top-k rule, where at most k - e are.
        label_radii: For each image and each label of L, in the order of `labels`, the radius up to which that label
            alone is returned: for the top-k rule against all other labels (method joint, for adaptive votes betting).
        predicted: For each image the labels that the smoothed classifier would return if the certifying draws were
            all, most hits first, ties by index: an estimate, not a claim.
        predicted_hits: In how many draws each of them was hit.
        bare: For each image the labels that the base classifier returns without noise, as many as the smoothed one: it
            is what the classifier was before smoothing, not a claim. None where the votes do not say.
        draws: How many draws certify each image; all alike unless the run was adaptive.
        image_hashes: For each image the `image_hash` of the pixels that were voted on; None where the votes do not have
            it.
        failures: The images that could not be voted on, and why. Nothing is proved of them: no number here includes
            them, and every summary says how many they are.

    >>> from multiguard import TopK, read_votes
    >>> certificates = certify_votes(read_votes(folder), CertifyConfig(TopK(k=10, k_prime=3)))
    >>> certificates.ids[1], certificates.labels[1], certificates.draws[1]  # a folder with the votes of 5 images
    ('image-é-1', (0,), 7)
    """

    config: CertifyConfig
    noise: Noise
    label_names: tuple[str, ...]
    ids: Ragged[str]
    labelled: bool
    labels: Ragged[Labels]
    radii: Mapping[Method, Ragged[Floats]]
    false_radii: Mapping[Method, Ragged[Floats]] | None
    label_radii: Ragged[Floats]
    predicted: Ragged[Labels]
    predicted_hits: Ragged[tuple[int, ...]]
    bare: Ragged[Labels | None]
    draws: tuple[int, ...]
    image_hashes: Ragged[str | None]
    failures: tuple[ImageFailure, ...]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        for name, dtype in _RAGGED.items():
            object.__setattr__(self, name, Ragged.of(getattr(self, name), dtype))
        for name in ("radii", "false_radii"):
            if (by_method := getattr(self, name)) is not None:
                rows = {method: Ragged.of(radii, np.float64) for method, radii in by_method.items()}
                object.__setattr__(self, name, rows)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that the radii were proved with."""
        return tuple(self.radii)

    @property
    def rule_name(self) -> RuleName:
        """The rule that is certified, "top-k" or "threshold"."""
        return self.config.rule.name

    def only(self, ids: Sequence[str]) -> Certificates:
        """The claims on these images alone, in this order; images that failed are left out."""
        positions = {image_id: position for position, image_id in enumerate(self.ids)}
        return replace(self._at([positions[image_id] for image_id in ids]), failures=())

    def parts(self) -> Iterator[Certificates]:
        """The claims on some images at a time, in order."""
        for start in range(0, max(1, len(self.ids)), scores.IMAGES_AT_A_TIME):
            yield self._at(range(len(self.ids))[start : start + scores.IMAGES_AT_A_TIME])

    def _at(self, chosen: Sequence[int]) -> Certificates:
        """The claims on the images at these positions."""
        fields: dict[str, Any] = {name: getattr(self, name).take(chosen) for name in _RAGGED}
        radii = {method: each.take(chosen) for method, each in self.radii.items()}
        false = None if self.false_radii is None else {m: each.take(chosen) for m, each in self.false_radii.items()}
        draws = tuple(self.draws[position] for position in chosen)
        return replace(self, **fields, radii=radii, false_radii=false, draws=draws)

    def set_radii(self, method: Method) -> list[Radii]:
        """For each image what this method proves of L as a set."""
        true = self.radii[method]
        false = [None] * len(true) if self.false_radii is None else self.false_radii[method]
        return [Radii(*each) for each in zip(true, false, strict=True)]

    def counts(self, method: Method, radius: Floats) -> CertifiedCounts:
        """What this method certifies of each image at these radii."""
        false = None if self.false_radii is None else self.false_radii[method]
        return CertifiedCounts(self.radii[method], false, self.labels.lengths, self.config.rule, radius)


def certify_votes(
    votes: Votes,
    config: CertifyConfig,
    *,
    methods: Sequence[Method] | None = None,
    labels: LabelSource = "truth",
    progress: Progress | None = None,
) -> Certificates:
    """The claims on each image, by each method, hold with probability at least 1 - alpha over its draws.

    The votes of every image are read once. Adaptive votes are certified by the method betting only.

    Args:
        votes: What `read_votes` returns.
        config: The rule, alpha and n.
        methods: The methods to prove with, on the same votes; by default that of `certified_radii` for this rule, noise
            and n, for adaptive votes "betting". The threshold rule has "joint", "coupled", "betting" and "independent".
        labels: "truth", to certify the true labels, which must not have been chosen from these draws; or "pilot", to
            certify the labels that the pilot draws choose. Then recall is the fraction of the predicted labels that
            provably stay.
        progress: Called with the number of images done and of all images.

    >>> from multiguard import TopK, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> certificates = certify_votes(votes, CertifyConfig(TopK(k=10, k_prime=3)), methods=["joint", "paper"])
    >>> certificates.methods, certificates.config.n, len(certificates.radii["joint"])
    (('joint', 'paper'), 7, 5)
    """
    configs = [config.resolve(votes.provenance)]
    proven_by = resolve_methods(methods, config, votes.provenance)
    return certify_configs(votes, configs, proven_by, labels, per_unit(progress, len(votes)))[0]


def certify_configs(
    votes: Votes,
    configs: Sequence[CertifyConfig],
    methods: Sequence[Method],
    source: LabelSource,
    progress: Progress | None,
    *,
    sets_only: bool = False,
) -> list[Certificates]:
    """The promise of `certify_votes` for each of these resolved configs; the votes of every image are read once.

    `progress` counts steps. With `sets_only`, `label_radii` and `predicted` are left empty where they are not needed.
    """
    certifiers = [Certifier(votes, config, methods, source) for config in configs]
    done, steps = 0, len(votes) * sum(1 + len(certifier.radii) for certifier in certifiers)
    for rows in _portions(votes):
        for certifier in certifiers:
            for _ in certifier.take(rows, sets_only=sets_only):
                done += len(rows)
                if progress is not None:
                    progress(done, steps)
    return [_collect(votes, certifier, source) for certifier in certifiers]


def _collect(votes: Votes, certifier: Certifier, source: LabelSource) -> Certificates:
    run, many = votes.provenance, isinstance(certifier.config.rule, TopK)
    ceilings = None if many else {method: radii.build() for method, radii in certifier.false_radii.items()}
    return Certificates(
        config=certifier.config,
        noise=run.noise,
        label_names=run.label_names,
        ids=Ragged.of(votes.ids, str),
        labelled=source == "truth",
        labels=certifier.labels.build(),
        radii={method: radii.build() for method, radii in certifier.radii.items()},
        false_radii=ceilings,
        label_radii=certifier.label_radii.build(),
        predicted=certifier.predicted.build(),
        predicted_hits=certifier.predicted_hits.build(),
        bare=certifier.bare.build(),
        draws=draws_taken(votes, certifier.config),
        image_hashes=Ragged.of(votes.image_hashes, str),
        failures=votes.failures,
    )


def per_unit(progress: Progress | None, total: int) -> Progress | None:
    """Progress in steps, reported as progress in `total` units; the last unit only when all is done."""
    return None if progress is None else lambda done, steps: progress(total * done // steps, total)


def draws_taken(votes: Votes, config: CertifyConfig) -> tuple[int, ...]:
    """How many draws of each image certify it."""
    return tuple(min(config.draws, votes.draws_of(position)) for position in range(len(votes)))


def _portions(votes: Votes) -> Iterator[list[VoteRow]]:
    """All images in order, in runs whose votes fit in memory together."""
    if len(votes) == 0:
        failed = f": all {len(votes.failures)} images failed" if votes.failures else ""
        raise InvalidInputError(f"these votes hold no image, so there is nothing to certify{failed}")
    rows: list[VoteRow] = []
    held = 0
    for row in votes.rows(adaptive=votes.adaptive):
        rows.append(row)
        held += _bytes(row)
        if held >= _BYTES_AT_A_TIME or len(rows) == _IMAGES_AT_A_TIME:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows


def _bytes(row: VoteRow) -> int:
    return row.votes.nbytes if isinstance(row.votes, np.ndarray) else row.votes.packed.nbytes
