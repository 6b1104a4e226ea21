"""Array types, and what a caller may hand in, with one clear sentence for each thing that is not allowed.

The axes of arrays: images, draws, labels (c), true labels (d), sizes (e), terms, layers.
"""

import math
import numbers
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.errors import InvalidInputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_Read = TypeVar("_Read")
_Labels = TypeVar("_Labels")

# Alpha is divided among many bounds; below this the parts would leave what a double can hold.
_LEAST_ALPHA = 1e-200
# Images are read by one process for some seconds of its time, then by several if two are expected to save some.
_SECONDS_ALONE, _SECONDS_SAVED = 0.5, 1.5


def check_count(name: str, value: int, most: int | None = None) -> int:
    """The value, if it is a whole number from 1 to `most`."""
    if not is_whole(value) or value < 1 or (most is not None and value > most):
        upper = "" if most is None else f" and at most the number of labels, {most}"
        raise InvalidInputError(f"{name} must be a whole number of at least 1{upper}, got {value!r}")
    return int(value)


def _real(value: float, holds: Callable[[float], bool], words: str) -> float:
    """The value, if it is a real number for which it holds."""
    if not (is_real(value) and holds(value)):
        raise InvalidInputError(f"{words}, got {value!r}")
    return float(value)


def check_fraction(name: str, value: float) -> float:
    """The value, if it lies strictly between 0 and 1."""
    return _real(value, lambda each: 0 < each < 1, f"{name} must lie strictly between 0 and 1")


def check_alpha(alpha: float) -> float:
    """The error allowed, if it is above 0 and below 1."""
    words = f"alpha is the error allowed: above 0 (not below {_LEAST_ALPHA}) and below 1"
    return _real(alpha, lambda each: _LEAST_ALPHA <= each < 1, words)


def check_width(name: str, value: float, words: str) -> float:
    """A width of noise, if it is positive and finite, and so is its double."""
    return _real(value, lambda each: each > 0 and math.isfinite(2 * each), f"{name} is {words}, positive and finite")


def check_forecast_margin(forecast_margin: float) -> float:
    """The forecast margin, if it is not negative; infinity is allowed."""
    words = "forecast_margin must be a number of standard deviations, at least 0"
    return _real(forecast_margin, lambda each: each >= 0, words)


def check_radii(radii: ArrayLike, name: str = "radii") -> Floats:
    """(radii,) the requested radii, if there is at least one and none is negative."""
    requested = np.asarray(radii, dtype=np.float64)
    if requested.ndim != 1 or requested.size == 0 or not np.all((requested >= 0) & np.isfinite(requested)):
        raise InvalidInputError(f"{name} must be a list of at least one finite number, none negative, got {radii!r}")
    return requested


def check_labels(labels: ArrayLike, num_labels: int, *, allow_none: bool = False) -> Ints:
    """L as sorted, different label indices."""
    indices = np.asarray(labels)
    if indices.size == 0 and allow_none:
        return np.empty(0, np.int64)
    if indices.size == 0:
        raise InvalidInputError("labels is empty: there is nothing to protect; leave such an image out and count it")
    if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer):
        raise InvalidInputError(f"labels must be a list of integer label indices, got {indices.dtype} {indices.shape}")
    if indices.min() < 0 or indices.max() >= num_labels:
        raise InvalidInputError(f"labels must lie in 0..{num_labels - 1}, got {indices.min()}..{indices.max()}")
    ordered = np.sort(indices).astype(np.int64)
    if np.any(ordered[1:] == ordered[:-1]):
        raise InvalidInputError(f"labels must be different from each other, got {indices.tolist()}")
    return ordered


def each_image(
    votes: Iterable[ArrayLike], labels: Iterable[_Labels], read: Callable[[ArrayLike, _Labels], _Read], slow: int = 0
) -> Iterator[_Read]:
    """What `read` makes of the votes and labels of each image, in order; an error names the image by its index.

    Of `slow` images the first show how long all take. Where it is worth it, the others are read by a process for each
    CPU: `read` must then be one that can be pickled, and depend on its arguments alone.
    """
    calls = ((read, index, given, true) for index, (given, true) in enumerate(zip_longest(votes, labels)))
    begin = time.process_time()
    for done, call in enumerate(calls, start=1):
        yield _one(*call)
        spent = time.process_time() - begin
        if spent > _SECONDS_ALONE and spent / done * (slow - done) / 2 > _SECONDS_SAVED:
            break
    else:
        return
    from joblib import Parallel, delayed  # a second to import

    yield from Parallel(-1, return_as="generator", max_nbytes=None)(delayed(_one)(*call) for call in calls)


def _one(
    read: Callable[[ArrayLike, _Labels], _Read], index: int, votes: ArrayLike | None, labels: _Labels | None
) -> _Read:
    if votes is None or labels is None:
        short = "votes" if votes is None else "labels"
        raise InvalidInputError(f"votes and labels must have one entry per image, but {short} ends at {index}")
    try:
        return read(votes, labels)
    except InvalidInputError as error:
        raise InvalidInputError(f"image {index}: {error}") from error


def is_real(value: object) -> bool:
    """Whether the value is a real number, of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether the value is an integer, of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
