"""Certificates: an Arrow table with what is proved of each image, and the config that it was proved with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from multiguard.certify import Method, Rule
from multiguard.certify.arguments import Bools, Floats, Ints
from multiguard.certify.noise import Noise
from multiguard.errors import ImageFailure
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.scores import Counts, certified_counts
from multiguard.io.names import short_repr
from multiguard.io.records import Rows

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Labels = tuple[int, ...]


class _Column(cached_property[Rows[T]]):
    """A column of the table."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda certificates: Rows(certificates.table.column(name).combine_chunks()))


@dataclass(frozen=True, eq=False)
class Certificates:
    """What is proved of a set of images with one config: the claims on each image hold with probability 1 - alpha.

    The probability is over the draws, for each image and method alone. About the ground truth (`labelled`) the claims
    on L as a set hold at once, and the radius of each label holds alone, as it spends all of alpha. About labels chosen
    from pilot draws (not `labelled`) the claims on the set and the radii of its labels hold all at once, so that e
    labels with such radii prove as much of the set (method joint); they say how many of the predicted labels stay, not
    that these are right. With the method `jia` the claims on a set hold each alone, for its own number of labels.

    Each column of the table is an attribute. An image that could not be voted on has no row: nothing is proved of it,
    no number includes it, and every summary counts it.

    >>> from multiguard import CertifyConfig, certify_votes, read_votes
    >>> certificates = certify_votes(CertifyConfig(k=10, k_prime=3), read_votes(folder)).certificates
    >>> certificates.ids[1], certificates.labels[1], certificates.draws[1]  # a folder with the votes of 5 images
    ('image-é-1', (0,), 7)
    """

    config: CertifyConfig  # what is certified; its draws are a number, in an adaptive run the most that an image took
    noise: Noise  # the noise, and so the attacker: what a radius is the size of
    label_names: tuple[str, ...]  # the c label names, in index order
    labelled: bool  # whether L is the ground truth; if not, pilot draws chose it, which certify nothing
    table: pa.Table  # one row per image
    failures: tuple[ImageFailure, ...]  # the images that could not be voted on, and why

    __repr__ = short_repr

    def __len__(self) -> int:
        return int(self.table.num_rows)

    # What the votes were of, and what is proved of L; each is a row per image.
    ids = _Column[str]("id")  # of the images that were voted on
    labels = _Column[Labels]("labels")  # the indices of L, d of them; chosen ones most hits first
    label_radii = _Column[Floats]("label_radii")  # in this order: up to which each alone is returned, among all labels
    # What the smoothed classifier would return if the certifying draws were all, most hits first: no claim.
    predicted = _Column[Labels]("predicted")
    predicted_hits = _Column[tuple[int, ...]]("predicted_hits")  # the hit count of each predicted label
    # What the classifier returns without noise, as many labels as the smoothed one; None if unknown.
    bare = _Column[Labels | None]("bare")
    image_hashes = _Column[str | None]("image_sha256")  # the `image_hash` of what was voted on; None if unknown

    @cached_property
    def draws(self) -> tuple[int, ...]:
        """How many draws certify each image; all alike unless the run was adaptive."""
        return tuple(self.table.column("draws").to_numpy().tolist())

    @cached_property
    def radii(self) -> dict[Method, Rows[Floats]]:
        """For each method and image up to which radius at least e = 1, 2, ... labels of L are returned.

        They are (min(d, k),) for the top-k rule, (d,) for the threshold rule.
        """
        return self._by_method("radii")

    @cached_property
    def false_radii(self) -> dict[Method, Rows[Floats]] | None:
        """For each method and image up to which radius at most m = 0, 1, ... labels outside L are returned, (c - d,).

        They hold together with `radii`; None for the top-k rule, where at most k - e are returned.
        """
        return self._by_method("false_radii") if self.config.rule.has_ceilings else None

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that the radii were proved with."""
        return self.config.methods

    @property
    def alpha(self) -> float:
        """The probability of a false claim, per image; 0 where every band votes."""
        return 0.0 if self.noise.enumerated else self.config.alpha

    def only(self, ids: Sequence[str]) -> Certificates:
        """The claims on these images alone, in this order; images that failed are left out."""
        positions = {image_id: position for position, image_id in enumerate(self.ids)}
        chosen = [positions[image_id] for image_id in ids]
        return replace(self, table=self.table.take(chosen), failures=())

    def counts(self, method: Method, radius: Floats) -> Iterator[Counts]:
        """What this method certifies of each image at these radii, some images at a time."""
        false = None if self.false_radii is None else self.false_radii[method]
        return certified_counts(self.radii[method], false, self.labels.lengths, self.config.rule, radius)

    def _by_method(self, name: str) -> dict[Method, Rows[Floats]]:
        structure: Any = self.table.column(name).combine_chunks()
        return {method: Rows(structure.field(method)) for method in self.methods}


def certificates_schema(methods: Sequence[Method], rule: Rule) -> pa.Schema:
    """The columns of the table; `false_radii` is there for the threshold rule only."""
    import pyarrow as pa

    numbers, labels, counts = (pa.large_list(kind()) for kind in (pa.float64, pa.uint16, pa.int64))
    by_method = pa.struct([(method, numbers) for method in methods])
    columns = {
        "id": pa.string(),
        "labels": labels,
        "radii": by_method,
        **({"false_radii": by_method} if rule.has_ceilings else {}),
        "label_radii": numbers,
        "predicted": labels,
        "predicted_hits": counts,
        "draws": pa.int64(),
        "image_sha256": pa.string(),
        "bare": labels,
    }
    return pa.schema(columns.items())


def check_claims(certificates: Certificates) -> None:
    """Raises `ValueError` unless the claims have the form in which they are proved.

    Only the form is checked: a forger who knows the formulas can write other radii.
    """
    ids = [*certificates.ids, *(failure.image_id for failure in certificates.failures)]
    if len(set(ids)) < len(ids):
        raise ValueError("an image appears twice")
    c, d, draws = len(certificates.label_names), certificates.labels.lengths, np.array(certificates.draws)
    labels, predicted, hits = certificates.labels, certificates.predicted, certificates.predicted_hits
    sizes = np.array([certificates.config.rule.sizes(count) for count in range(c + 1)])
    indices = [each.array.flatten() for each in (labels, predicted, certificates.bare)]
    missing = any(each.null_count for each in (labels.array, predicted.array, *indices))
    if missing or any(np.any(each.to_numpy() >= c) for each in indices) or np.any(d > c):
        raise ValueError("an image has a label that the votes do not have")
    wrong = (draws < 1) | (draws > (certificates.config.draws or 0)) | (hits.lengths != predicted.lengths)
    wrong |= _any(hits, ~((hits.values >= 1) & (hits.values <= np.repeat(draws, hits.lengths))))
    wrong |= _are_wrong(certificates.label_radii, d)
    for radii in certificates.radii.values():
        wrong |= _are_wrong(radii, sizes[d], np.greater)
    for radii in (certificates.false_radii or {}).values():
        wrong |= _are_wrong(radii, c - d, np.less)
    if np.any(wrong):
        name = certificates.ids[int(np.argmax(wrong))]
        raise ValueError(f"image {name!r}: its claims are not of the form that is proved")


def _are_wrong(radii: Rows[Floats], sizes: Ints, disordered: Callable[..., Any] | None = None) -> Bools:
    """(images,) whether the number of radii is wrong, one is negative but not -inf, or two are out of order."""
    values, row = radii.values, np.repeat(np.arange(len(radii)), radii.lengths)
    bad = ~((values >= 0) | np.isneginf(values))
    if disordered is not None:
        bad[1:] |= disordered(values[1:], values[:-1]) & (row[1:] == row[:-1])
    return np.asarray((radii.lengths != sizes) | _any(radii, bad))


def _any(rows: Rows[Any], holds: Bools) -> Bools:
    """(images,) whether it holds of a value of the row."""
    return np.asarray(np.diff(np.concatenate([[0], np.cumsum(holds)])[rows.offsets]) > 0)
