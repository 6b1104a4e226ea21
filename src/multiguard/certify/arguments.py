"""What a caller may hand in, and one clear sentence for each thing that is not allowed."""

import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from typing import TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.group import Setting
from multiguard.certify.types import Bools, Floats, Ints, Method, ThresholdMethod
from multiguard.errors import InvalidInputError

METHODS: tuple[Method, ...] = get_args(Method)
_THRESHOLD_METHODS: tuple[ThresholdMethod, ...] = get_args(ThresholdMethod)

_Name = TypeVar("_Name", bound=str)
_Read = TypeVar("_Read")

# Alpha is divided among many bounds; below this the parts would leave what a double can hold.
_LEAST_ALPHA = 1e-200


def checked_hits(hits: ArrayLike) -> Bools:
    """The votes as a boolean matrix (draws, num_labels) with at least one draw and one label."""
    votes = np.asarray(hits)
    if votes.dtype != np.bool_ or votes.ndim != 2:
        raise InvalidInputError(f"hits must be boolean (draws, num_labels), got {votes.dtype} {votes.shape}")
    if votes.shape[0] < 1 or votes.shape[1] < 1:
        raise InvalidInputError(f"hits must hold at least one draw and one label, got shape {votes.shape}")
    return votes


def checked_sets(hits: ArrayLike, num_labels: int | None = None) -> Bools:
    """The votes of the threshold rule as a boolean matrix (draws, num_labels)."""
    votes = np.asarray(hits)
    if np.issubdtype(votes.dtype, np.integer):
        raise InvalidInputError(
            "the threshold rule needs the set of each draw, boolean (draws, num_labels); ranked votes, "
            f"{votes.dtype} {votes.shape}, do not say which labels passed"
        )
    votes = checked_hits(votes)
    if num_labels is not None and votes.shape[1] != num_labels:
        raise InvalidInputError(f"hits must have one column per label, {num_labels}, got {votes.shape[1]}")
    return votes


def check_rows(votes: Bools, k_prime: int) -> None:
    """Raises unless every row holds exactly k' hits."""
    wrong = np.flatnonzero(votes.sum(axis=1) != k_prime)
    if len(wrong):
        row, count = int(wrong[0]), int(votes[wrong[0]].sum())
        raise InvalidInputError(f"every draw must hit exactly k_prime = {k_prime} labels, but row {row} has {count}")


def checked_labels(labels: ArrayLike, num_labels: int, *, allow_none: bool = False) -> Ints:
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


def checked_setting(k: int, k_prime: int, alpha: float, num_labels: int) -> Setting:
    """k, k' and alpha, each within its range."""
    check_count("num_labels", num_labels, None)
    check_count("k", k, num_labels)
    check_count("k_prime", k_prime, num_labels)
    return Setting(int(k), int(k_prime), checked_alpha(alpha))


def checked_alpha(alpha: float) -> float:
    """The error allowed, above 0 and below 1."""
    if not (_is_real(alpha) and _LEAST_ALPHA <= alpha < 1):
        raise InvalidInputError(
            f"alpha is the error allowed: above 0 (not below {_LEAST_ALPHA}) and below 1, but it is {alpha!r}"
        )
    return float(alpha)


def checked_threshold(threshold: float) -> float:
    """The threshold t of g_t, strictly between 0 and 1."""
    if not (_is_real(threshold) and 0 < threshold < 1):
        raise InvalidInputError(
            f"threshold is the share of draws from which a label counts as returned: it must lie strictly between 0 "
            f"and 1, got {threshold!r}"
        )
    return float(threshold)


def checked_radii(radii: Sequence[float]) -> Floats:
    """The radii asked for, at least one, none negative."""
    asked = np.asarray(radii, dtype=np.float64)
    if asked.ndim != 1 or asked.size == 0 or not np.all((asked >= 0) & np.isfinite(asked)):
        raise InvalidInputError(f"radii must be one or more numbers that are finite and not negative, got {radii!r}")
    return asked


def checked_forecast_margin(forecast_margin: float) -> float:
    """How kind a forecast is, not negative; infinity is allowed."""
    if not (_is_real(forecast_margin) and forecast_margin >= 0):
        raise InvalidInputError(
            f"forecast_margin must be a number of standard deviations, at least 0, got {forecast_margin!r}"
        )
    return float(forecast_margin)


def checked_sigma(sigma: float) -> float:
    """The noise's standard deviation, positive and finite."""
    if not (_is_real(sigma) and math.isfinite(sigma) and sigma > 0):
        raise InvalidInputError(
            f"sigma is the noise's standard deviation and must be positive and finite, got {sigma!r}"
        )
    return float(sigma)


def checked_method(method: str) -> Method:
    """The method, if it is a known one."""
    return _one_of(METHODS, method, "method")


def checked_threshold_method(method: str) -> ThresholdMethod:
    """The method, if the threshold rule knows it."""
    return _one_of(_THRESHOLD_METHODS, method, "method of the threshold rule")


def checked_distribution(probabilities: ArrayLike, sets: int) -> Floats:
    """One probability per vote set, not negative and summing to 1."""
    weights = np.asarray(probabilities, dtype=np.float64)
    if weights.shape != (sets,):
        raise InvalidInputError(f"probabilities must be one per vote set, ({sets},), got shape {weights.shape}")
    if not (np.all(weights >= 0) and abs(weights.sum() - 1) < 1e-9):
        raise InvalidInputError(f"probabilities must not be negative and must sum to 1, got a sum of {weights.sum()}")
    return weights


def each_image(
    votes: Iterable[ArrayLike], labels: Iterable[ArrayLike], name: str, read: Callable[[ArrayLike, ArrayLike], _Read]
) -> Iterator[_Read]:
    """What `read` makes of each image's votes and labels, one by one; an error says which image it was.

    Args:
        votes: One entry per image.
        labels: One entry per image.
        name: What the caller calls the votes.
        read: From the votes and the labels of one image.
    """
    for index, (given, true) in enumerate(zip_longest(votes, labels)):
        if given is None or true is None:
            short = name if given is None else "labels"
            raise InvalidInputError(f"{name} and labels must have one entry per image, but {short} ends at {index}")
        try:
            yield read(given, true)
        except InvalidInputError as error:
            raise InvalidInputError(f"image {index}: {error}") from error


def _one_of(known: tuple[_Name, ...], given: str, what: str) -> _Name:
    for name in known:
        if given == name:
            return name
    near = get_close_matches(str(given), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"unknown {what} {given!r}: choose one of {', '.join(known)}{hint}")


def check_count(name: str, value: int, most: int | None) -> None:
    """Raises unless the value is a whole number from 1 to `most`."""
    if not _is_whole(value) or value < 1 or (most is not None and value > most):
        upper = "" if most is None else f" and at most the number of labels, {most}"
        raise InvalidInputError(f"{name} must be a whole number of at least 1{upper}, got {value!r}")


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
