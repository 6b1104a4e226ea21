"""Whether radii read from a file can be such as were proved: in order, as many as belong there, all of them numbers."""

import numpy as np

from multiguard.certify import TopK
from multiguard.certify.arrays import Floats
from multiguard.evaluate.certificates import Certificates


def check_claims(found: Certificates) -> None:
    """Raises `ValueError` unless every image's claims have the form in which they are proved.

    What is checked is the form: a forger who knows the formulas can write other radii and hash them anew.
    """
    if len({*found.ids, *(failure.image_id for failure in found.failures)}) < len(found.ids) + len(found.failures):
        raise ValueError("an image stands there twice")
    for place in range(len(found.ids)):
        try:
            _check_image(found, place)
        except ValueError as error:
            raise ValueError(f"image {found.ids[place]!r}: {error}") from error


def _check_image(found: Certificates, place: int) -> None:
    labels, draws = found.labels[place], found.draws[place]
    if len(set(labels)) < len(labels):
        raise ValueError("a label stands there twice")
    if not 1 <= draws <= found.config.draws:
        raise ValueError(f"{draws} draws, where 1 to {found.config.draws} belong")
    rule = found.config.rule
    sizes = min(len(labels), rule.k) if isinstance(rule, TopK) else len(labels)
    for radii in found.radii.values():
        _check_radii(radii[place], sizes)
        _check_order(radii[place][::-1])
    for false in (found.false_radii or {}).values():
        _check_radii(false[place], len(found.label_names) - len(labels))
        _check_order(false[place])
    _check_radii(found.label_radii[place], len(labels))
    hits = found.predicted_hits[place]
    if len(hits) != len(found.predicted[place]) or not all(0 <= hit <= draws for hit in hits):
        raise ValueError("the predicted labels do not have one number of hits each")


def _check_radii(radii: Floats, count: int) -> None:
    """Raises unless these are so many radii: numbers that are not negative, or -inf where nothing is proved."""
    if radii.shape != (count,) or not np.all((radii >= 0) | np.isneginf(radii)):
        raise ValueError(f"the radii {radii.tolist()}, where {count} belong, none of them negative")


def _check_order(radii: Floats) -> None:
    """Raises unless these never fall."""
    if np.any(radii[1:] < radii[:-1]):
        raise ValueError("the radii are not in order")
