"""From votes to certified radii: the public functions of this room, for both rules."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import length_hint
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify.arguments import Floats, Ints, check_alpha, check_labels, each_image
from multiguard.certify.bands import enumerated_radii
from multiguard.certify.betting import BETTING_METHODS, betting_radii, label_r, read_bets
from multiguard.certify.bounds import Bounds, ClopperPearson, Exact
from multiguard.certify.draws import Group, VoteCounts, count_votes, equal_groups, fixed_permutation, out_of_order
from multiguard.certify.joint import (
    independent_ceilings,
    independent_floors,
    jia_radii,
    joint_ceilings,
    joint_floors,
    joint_radii,
    paper_radii,
)
from multiguard.certify.noise import Noise, SampledNoise, check_sampled, resolve_noise
from multiguard.certify.rules import (
    COUPLED_FROM,
    Method,
    Rule,
    check_method,
    default_label_method,
    default_method,
    own_method,
)
from multiguard.errors import InvalidInputError
from multiguard.io.names import short_repr

# How often independent draws may fail the test of their order that the default method makes.
_OUT_OF_ORDER = 1e-3
# From a group of images, the rule, alpha and bounds to (images, claims) r: of floors, and of ceilings if there are any.
Solver = Callable[[Group, Any, float, Bounds], Floats]
_TOP_K: dict[Method, tuple[Solver, None]] = {
    "joint": (joint_radii, None),
    "paper": (paper_radii, None),
    "independent": (partial(paper_radii, second_terms=False), None),
    "jia": (jia_radii, None),
}
_THRESHOLD: dict[Method | None, tuple[Solver, Solver | None]] = {
    "joint": (joint_floors, joint_ceilings),
    "independent": (independent_floors, independent_ceilings),
    None: (independent_floors, None),  # of a single label
}
# The methods that prove what is claimed of a single label.
LABEL_METHODS: tuple[Method, ...] = ("joint", "enumerated", *BETTING_METHODS)


@dataclass(frozen=True, eq=False)
class Radii:
    """What is proved about one image with the labels L, d of c, for every perturbation up to a radius.

    The unit is that of the noise: l2-norm, l1-norm, changed pixels or the side of a patch. -inf where nothing is proved
    even at radius 0, +inf where nothing can fail; radii are never rounded up.

    Attributes:
        true: At least e labels of L are returned up to true[e-1], e = 1..min(d, k), or 1..d for `Threshold`.
        false: At most m labels outside L are returned up to false[m], m = 0..c-d-1; None for `TopK`.

    >>> radii = Radii(true=np.array([0.5, 0.2]), false=None)
    >>> certified_size(radii.true, 0.3)
    np.int64(1)
    """

    true: Floats
    false: Floats | None

    __repr__ = short_repr

    @property
    def row(self) -> Floats:
        """Every radius in one row, `true` before `false`."""
        return self.true if self.false is None else np.concatenate([self.true, self.false])


def certified_radii(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    sigma: float | None = None,
    noise: Noise | None = None,
    alpha: float = 0.001,
    method: Method | None = None,
    num_labels: int | None = None,
) -> Radii:
    """With probability at least 1 - alpha over the draws, every radius returned holds, all of them at once.

    `true[e-1]` holds if the smoothed classifier returns at least e labels of L under every perturbation up to it
    (Gaussian noise: of l2-norm up to it); `false[m]` if it returns at most m other labels. (With `jia` each radius
    holds alone, and so does the certified size at each fixed radius.) The promise is about one choice of `labels`,
    `rule`, noise and draws, made without looking at these votes; `labels` picked from the votes void it. For a
    `BandAblation` nothing is random: its radii hold for certain, and `labels` may be picked from the votes.

    Args:
        votes: The votes of independent draws of the noise, or of every band in order: integers (draws, K'), the labels
            of each draw from the highest score down, of which the first k' count; or boolean (draws, num_labels), as
            `Threshold` without k' needs them. Give rows as they were drawn: their order must not depend on their
            content. Rows that no independent draws have, such as those rebuilt from counts, are certified by "joint"
            unless a method is named, and refused by "betting"; "coupled" mixes them (`docs/theory.md` 4).
        labels: The indices of L, the labels to protect (the ground truth); `Threshold` allows none.
        rule: The smoothed classifier.
        sigma: The standard deviation of Gaussian noise, in the unit of the input (pixels in [0, 1]) and of the radii;
            short for `noise=Gaussian(sigma)`. Give exactly one of the two.
        noise: The noise, which says what the attacker may do and what a radius counts.
        alpha: The error allowed; `Threshold` spends half of it on `true` and half on `false`.
        method: "coupled", "joint", "betting" or "independent" (without joint terms); for `TopK` also "paper" (Theorem
            1, corrected) and "jia" (each label on its own). By default what proves most: "coupled" for `TopK`, Gaussian
            noise and 80 to 50,000 draws (100,000 if k' > 1), otherwise "joint"; "joint" also for rows whose order fails
            a test that independent draws fail once in 1,000 images, both with alpha / 1.001. "betting" holds for any
            number of draws, also one that was decided by looking at the votes, and a run may be extended; the others
            need a number fixed beforehand. "enumerated" is the one method of a `BandAblation`.
        num_labels: c, the number of labels there are; boolean votes have it.

    >>> from multiguard.certify import TopK, Uniform
    >>> draws = np.random.default_rng(0)
    >>> ranked = draws.permutation([[0, 1]] * 90 + [[1, 2]] * 10)  # 100 draws, the best label first
    >>> certified_radii(ranked, [0], TopK(k=1, k_prime=1), sigma=0.5, num_labels=3).true.round(1)
    array([0.3])
    >>> certified_radii(ranked, [0], TopK(k=1, k_prime=1), noise=Uniform(0.5), num_labels=3).true.round(3)
    array([0.265])
    """
    given = np.atleast_1d(votes)
    if num_labels is None:
        num_labels = _columns("votes", given, ", or ranked integers together with num_labels")
    resolved = resolve_noise(sigma, noise)
    read = _reader(rule, num_labels, resolved, alpha, method)
    check_labels(labels, num_labels, allow_none=rule.has_ceilings)
    return _solved([read(given, labels)], rule, resolved, alpha, method)[0]


def certified_radii_batch(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    sigma: float | None = None,
    noise: Noise | None = None,
    alpha: float = 0.001,
    method: Method | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Radii]:
    """For each image the promise of `certified_radii`, each with its own probability of at least 1 - alpha.

    Images are read one by one, so `votes` may be a generator; they may differ in their number of draws. The arguments
    are as in `certified_radii`, `votes` and `labels` one entry per image. Without labels `true` is empty. `progress` is
    called with 1 for each image that is done.

    >>> from multiguard.certify import TopK
    >>> images = [np.random.default_rng(0).permutation([[0], [0], [1]] * 30), [[2]] * 90]
    >>> radii = certified_radii_batch(images, [[0], [2]], TopK(k=1, k_prime=1), num_labels=3, sigma=0.5)
    >>> [each.true.round(3).tolist() for each in radii]
    [[-inf], [0.65]]
    """
    resolved = resolve_noise(sigma, noise)
    read = _reader(rule, num_labels, resolved, alpha, method)
    slow = (method or default_method(rule, resolved, COUPLED_FROM)) in BETTING_METHODS
    images: list[Radii | VoteCounts] = []
    for image in each_image(votes, labels, read, length_hint(labels) if slow else 0):
        if images and progress is not None:
            progress(1)
        images.append(image)
    radii = _solved(images, rule, resolved, alpha, method)
    if images and progress is not None:
        progress(1)
    return radii


def exact_radii(
    vote_sets: ArrayLike,
    probabilities: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    sigma: float | None = None,
    noise: Noise | None = None,
    method: Method | None = None,
) -> Radii:
    """What `certified_radii` would prove with infinitely many draws: nothing is estimated, nothing can fail.

    `vote_sets`, boolean (sets, num_labels), are the sets of labels that the base classifier can return, each with one
    of the `probabilities`, which sum to 1. The other arguments are as in `certified_radii`, the method "joint" by
    default; neither a method that bets nor a `BandAblation` has exact radii.

    >>> from multiguard.certify import TopK
    >>> sets = np.eye(2, dtype=bool)  # {0} with probability 0.9, {1} with probability 0.1
    >>> exact_radii(sets, [0.9, 0.1], [0], TopK(k=1, k_prime=1), sigma=1.0).true.round(4)
    array([1.2816])
    """
    sets = np.asarray(vote_sets)
    num_labels = _columns("vote_sets", sets)
    sampled, method = check_sampled(resolve_noise(sigma, noise)), method or "joint"
    rule.check(num_labels)
    check_method(method, rule, sampled)
    check_labels(labels, num_labels, allow_none=rule.has_ceilings)
    weights = np.asarray(probabilities, dtype=np.float64)
    if weights.shape != (len(sets),) or not (np.all(weights >= 0) and abs(weights.sum() - 1) < 1e-9):
        raise InvalidInputError(
            f"probabilities must be one per vote set, ({len(sets)},), none negative, and must sum to 1, got shape "
            f"{weights.shape} and a sum of {weights.sum()}"
        )
    if own_method(method) is not None or method in BETTING_METHODS:
        raise InvalidInputError(f"the method {method!r} is a function of draws, so it has no exact radii; use 'joint'")
    weights /= weights.sum()
    counts = count_votes(sets, labels, rule, num_labels, weights, layers=method == "joint")
    return _few_returned(solve([counts], rule, Exact(weights), sampled, 0.5, method)[0], rule)


def certified_size(radii: ArrayLike, radius: ArrayLike) -> Ints:
    """How many labels of L are proved to survive every perturbation of at most `radius`.

    It holds wherever the radii do: at all values of `radius`, an array of any shape, if they were proved at once.

    >>> certified_size([0.5, 0.2], [0.0, 0.2, 0.3, 1.0])
    array([2, 2, 1, 0])
    """
    proved, requested = np.asarray(radii, dtype=np.float64), np.asarray(radius, dtype=np.float64)
    if proved.ndim != 1 or np.any(np.isnan(proved)) or np.any(proved[1:] > proved[:-1]):
        raise InvalidInputError("radii must be the non-increasing radii of one image, as certified_radii returns them")
    if not np.all(requested >= 0):
        raise InvalidInputError(f"radius must not be negative or NaN, got {radius!r}")
    sizes: Ints = np.sum(proved >= requested[..., None], axis=-1, dtype=np.int64)
    return sizes


def _columns(name: str, votes: NDArray[Any], otherwise: str = "") -> int:
    """The number of labels of boolean votes (draws, num_labels)."""
    if votes.dtype != np.bool_ or votes.ndim != 2:
        raise InvalidInputError(
            f"{name} must be boolean (draws, num_labels){otherwise}, got {votes.dtype} {votes.shape}"
        )
    return int(votes.shape[1])


def _reader(
    rule: Rule, num_labels: int, noise: Noise, alpha: float, method: Method | None
) -> Callable[[ArrayLike, ArrayLike], Radii | VoteCounts]:
    """`_read` with these options, checked; it can be pickled."""
    rule.check(num_labels)
    check_method(method or default_method(rule, noise, COUPLED_FROM), rule, noise)
    return partial(_read, rule=rule, num_labels=num_labels, noise=noise, alpha=check_alpha(alpha), method=method)


def _read(
    votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int, noise: Noise, alpha: float, method: Method | None
) -> Radii | VoteCounts:
    """The counts of an image, or its radii if the method takes images one by one.

    By default `coupled` leaves rows to `joint` that fail a test of their order. Given the rows, independent draws fail
    it with probability at most t, and `joint` does not depend on their order: so both, at level alpha / (1 + t), make a
    false claim with probability at most alpha.
    """
    rows, level = np.atleast_1d(votes), alpha
    by = method or default_method(rule, noise, len(rows))
    if method is None and by == "coupled":
        level /= 1 + _OUT_OF_ORDER
        if out_of_order(rows, rule, num_labels, _OUT_OF_ORDER) is not None:
            return _solved([count_votes(rows, labels, rule, num_labels)], rule, noise, level, "joint")[0]
    if by in BETTING_METHODS:
        (draws, course), sampled = read_bets(by, rows, labels, rule, num_labels), check_sampled(noise)
        return _radii(sampled, *betting_radii(draws, rule, level, sampled, course))
    if (own := own_method(by)) is not None:
        true = check_labels(labels, num_labels, allow_none=True).tolist()
        return Radii(*own.solve(rule.sets(rows, num_labels), true, rule, noise, alpha))
    if by == "enumerated":
        return Radii(*enumerated_radii(rows, labels, rule, num_labels, noise))
    return count_votes(rows, labels, rule, num_labels, layers=by == "joint")


def _solved(
    images: Sequence[Radii | VoteCounts], rule: Rule, noise: Noise, alpha: float, method: Method | None
) -> list[Radii]:
    """The radii of all images; counts are solved together."""
    counted = [each for each in images if isinstance(each, VoteCounts)]
    solved = iter(solve(counted, rule, ClopperPearson(), noise, alpha, method or "joint") if counted else ())
    return [_few_returned(each if isinstance(each, Radii) else next(solved), rule) for each in images]


def _few_returned(radii: Radii, rule: Rule) -> Radii:
    """The radii, where at most w labels are returned in all: while e of L stay, at most w - e others come in."""
    if radii.false is None:
        return radii
    d, others = len(radii.true), len(radii.false)
    kept = rule.most_returned(d + others) - np.arange(others)  # w - m of L leave room for m others at most
    known = np.where((kept >= 1) & (kept <= d), np.append(radii.true, -np.inf)[np.clip(kept - 1, 0, d)], -np.inf)
    return Radii(radii.true, np.maximum(radii.false, np.where(kept <= 0, np.inf, known)))


def _radii(noise: SampledNoise, true: Floats, false: Floats | None) -> Radii:
    """The radii of these r."""
    return Radii(noise.radii(true), None if false is None else noise.radii(false))


def solve(
    counts: Sequence[VoteCounts], rule: Rule, bounds: Bounds, noise: Noise, alpha: float, method: Method | None
) -> list[Radii]:
    """The radii of each image; without a method each has one label, and the only claim is that it is returned."""
    sampled, radii = check_sampled(noise), dict[int, Radii]()
    for indices in equal_groups(counts, rule):
        group = Group([counts[i] for i in indices], sampled.shift)
        floors, ceilings = _TOP_K[method or "joint"] if rule.k else _THRESHOLD[method]
        share, others = alpha / 2 if ceilings else alpha, group.num_labels - group.num_true
        none = np.empty((group.images, 0))
        true = floors(group, rule, share, bounds) if group.num_true else none
        false = None
        if ceilings is not None:
            false = ceilings(group, rule, share, bounds) if others else none
        for row, i in enumerate(indices):
            radii[i] = _radii(sampled, true[row], None if false is None else false[row])
    return [radii[i] for i in range(len(counts))]


def label_radii(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    num_labels: int,
    sigma: float | None = None,
    noise: Noise | None = None,
    alpha: float = 0.001,
    method: Method | None = None,
) -> Floats:
    """For each label alone, with probability at least 1 - alpha: it is returned up to its radius.

    For `TopK` that is against all other labels. Several labels together hold with what is left of 1 after alpha for
    each. The arguments are as in `certified_radii`; the method is "joint", the default, "coupled" or "betting", or
    "enumerated" for a band. The radii are in the order of `labels`, -inf where the draws do not decide even at 0.

    >>> from multiguard.certify import Threshold
    >>> sets = np.random.default_rng(0).permutation([[True, True], [True, False]] * 100)
    >>> label_radii(sets, [1, 0], Threshold(t=0.4), num_labels=2, sigma=0.5).round(3)
    array([-inf, 1.04])
    """
    options: dict[str, Any] = {"num_labels": num_labels, "sigma": sigma, "noise": noise, "method": method}
    return label_radii_batch([votes], [labels], rule, alphas=[alpha], **options)[0]


def label_radii_batch(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    alphas: Sequence[float],
    sigma: float | None = None,
    noise: Noise | None = None,
    method: Method | None = None,
) -> list[Floats]:
    """For each image the promise of `label_radii`, each with an alpha of its own."""
    rule.check(num_labels)
    resolved, alphas = resolve_noise(sigma, noise), [check_alpha(alpha) for alpha in alphas]
    by = check_method(method or default_label_method(resolved), rule, resolved)
    if by not in LABEL_METHODS:
        raise InvalidInputError(
            f"the method of single labels must be joint, coupled, betting or enumerated, got {method!r}"
        )
    if by != "joint":
        alone = partial(_alone, method=by, rule=rule, num_labels=num_labels, noise=resolved)
        return list(each_image(votes, zip(labels, alphas, strict=True), alone, slow=len(alphas)))

    def read(given: ArrayLike, true: ArrayLike) -> list[VoteCounts]:
        check_labels(true, num_labels, allow_none=True)
        hits = rule.sets(np.atleast_1d(given), num_labels)
        return [count_votes(hits, [label], rule, num_labels) for label in np.asarray(true)]

    images = list(each_image(votes, labels, read))
    radii = [np.empty(0)] * len(images)
    for alpha in dict.fromkeys(alphas):
        same = [i for i, each in enumerate(alphas) if each == alpha]
        counts = [counts for i in same for counts in images[i]]
        solved = iter(solve(counts, rule, ClopperPearson(), resolved, alpha, None))
        for i in same:
            radii[i] = np.array([next(solved).true[0] for _ in images[i]])
    return radii


def _alone(
    votes: ArrayLike, given: tuple[ArrayLike, float], method: Method, rule: Rule, num_labels: int, noise: Noise
) -> Floats:
    """(d,) the radius of each label of one image, each at the same alpha, by a method that bets or enumerates."""
    own, alpha = [[label] for label in np.atleast_1d(given[0]).tolist()], given[1]
    if method == "enumerated":
        return np.array([enumerated_radii(votes, label, rule, num_labels, noise)[0][0] for label in own])
    sampled = check_sampled(noise)
    read = (read_bets(method, votes, label, rule, num_labels) for label in own)
    return sampled.radii(np.array([label_r(draws, rule, alpha, sampled, course) for draws, course in read]))


def largest_radius(
    draws: int, rule: Rule, num_labels: int, noise: Noise, alpha: float, method: Method | None = None
) -> float:
    """The radius that this number of draws proves if all of them agree on one label; -inf if they prove nothing.

    >>> from multiguard.certify import Gaussian, TopK
    >>> round(largest_radius(1000, TopK(k=1, k_prime=1), 10, Gaussian(0.5), 0.001), 2)
    1.22
    """
    hits = np.zeros((draws, num_labels), bool)
    hits[:, 0] = True
    others, each = (rule.k_prime or 1) - 1, np.arange(draws)
    for place in range(others):
        hits[each, 1 + (each * others + place) % (num_labels - 1)] = True
    rows = hits if noise.enumerated else hits[fixed_permutation(draws)]
    radius = float(certified_radii(rows, [0], rule, noise=noise, alpha=alpha, method=method).true[0])
    return radius if radius >= 0 else -np.inf


def fewest_draws(rule: Rule, num_labels: int, alpha: float, method: Method | None = None) -> int:
    """The fewest draws that prove anything by a method if all of them agree on one label.

    >>> from multiguard.certify import TopK
    >>> fewest_draws(TopK(k=1, k_prime=1), 10, 0.001), fewest_draws(TopK(k=1, k_prime=1), 10, 0.001, "coupled")
    (12, 30)
    """
    fewest = 1
    while largest_radius(fewest, rule, num_labels, resolve_noise(1.0, None), alpha, method) < 0:
        fewest += 1
    return fewest


def nothing_words(draws: int, rule: Rule, num_labels: int, alpha: float, method: Method | None = None) -> str:
    """Why this number of draws proves nothing, and how many would."""
    fewest = fewest_draws(rule, num_labels, alpha, method)
    by = "" if method is None else f" by the method {method}"
    return (
        f"{draws} draws prove nothing{by}, even if all of them agree: at alpha = {alpha:g} "
        f"({rule.text}) it takes {fewest} draws or more"
    )
