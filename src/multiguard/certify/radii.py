"""From votes to certified radii: the public functions of this room."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import check_alpha, check_distribution, check_labels, check_sigma, each_image
from multiguard.certify.arrays import Floats, Ints
from multiguard.certify.bounds import Bounds, ClopperPearson, Exact
from multiguard.certify.counts import MOST_SUSPECTS, Group, VoteCounts, count_votes, equal_groups
from multiguard.certify.floors import independent_ceilings, independent_floors, joint_ceilings, joint_floors, stays_in
from multiguard.certify.joint import joint_radii
from multiguard.certify.layers import At, scaled
from multiguard.certify.looks import Looks
from multiguard.certify.rules import Method, Rule, Threshold, TopK, check_method
from multiguard.certify.theorem1 import jia_radii, paper_radii
from multiguard.errors import InvalidInputError

_SOLVERS: dict[Method, Callable[[Group, TopK, float, Bounds, At], Floats]] = {
    "joint": joint_radii,
    "paper": paper_radii,
    "independent": partial(paper_radii, second_terms=False),
    "jia": jia_radii,
    "cohen": paper_radii,
}


@dataclass(frozen=True, eq=False)
class Radii:
    """What is proved about one image with the labels L, d of c, for every perturbation of l2-norm up to a radius.

    Attributes:
        true: Non-increasing: at least e labels of L are returned up to true[e-1]; (min(d, k),) for `TopK`, (d,) for
            `Threshold`.
        false: (c - d,), non-decreasing: at most m labels outside L are returned up to false[m], m = 0..c-d-1; None for
            `TopK`, which returns k labels in all.

    -inf where nothing is proved even at radius 0, +inf where nothing can fail; radii are never rounded up.

    >>> Radii(true=np.array([0.5, 0.2]), false=None).true
    array([0.5, 0.2])
    """

    true: Floats
    false: Floats | None

    @property
    def row(self) -> Floats:
        """Every radius in one row, those of `true` before those of `false`."""
        return self.true if self.false is None else np.concatenate([self.true, self.false])

    def best(self, other: "Radii") -> "Radii":
        """The larger of each two radii of the same claim."""
        false = None if self.false is None or other.false is None else np.maximum(self.false, other.false)
        return Radii(np.maximum(self.true, other.true), false)


def certified_radii(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
    num_labels: int | None = None,
    looks: Looks | None = None,
) -> Radii:
    """With probability at least 1 - alpha over the draws, every radius returned holds, all of them at once.

    A radius `true[e-1]` holds if at least e labels of L are returned by the smoothed classifier under every
    perturbation of l2-norm up to it; `false[m]` if at most m other labels are. (With `jia` each radius holds alone, or
    the certified size at each fixed radius.) The promise is about one choice of `labels`, `rule`, `sigma` and draws,
    made without looking at these votes; `labels` picked from the votes void it.

    Args:
        votes: The votes of independent draws, their noise N(0, sigma^2) in each coordinate: integers (draws, K'), the
            labels of each draw from the highest score down, of which the first k' count; or boolean (draws,
            num_labels), the labels that the base classifier returned. `Threshold` needs the latter.
        labels: The indices of L, the labels to protect (the ground truth); `Threshold` allows none.
        rule: The smoothed classifier.
        sigma: The standard deviation of the noise, in the unit of the input (pixels in [0, 1]) and of the radii.
        alpha: The error allowed; `Threshold` spends half of it on `true` and half on `false`.
        method: "joint" (the default), or "independent" (without joint terms); for `TopK` also "paper" (Theorem 1,
            corrected), "jia" (each label on its own) and "cohen" (k = k' = d = 1).
        num_labels: c, the number of labels there are; boolean votes have it.
        looks: For adaptive draws the looks, fixed before the draws; the number of draws must be one of `looks.draws`.
            The radii hold whatever rule decided at which look to stop.

    >>> ranked = [[0, 1]] * 90 + [[1, 2]] * 10  # 100 draws, the best label first
    >>> certified_radii(ranked, [0], TopK(k=1, k_prime=1), sigma=0.5, num_labels=3).true.round(3)
    array([0.353])
    """
    given = np.asarray(votes)
    if num_labels is None:
        if given.dtype != np.bool_ or given.ndim != 2:
            raise InvalidInputError(
                f"votes must be boolean (draws, num_labels), or ranked integers together with num_labels, got "
                f"{given.dtype} {given.shape} without num_labels"
            )
        num_labels = given.shape[1]
    if isinstance(rule, TopK):
        check_labels(labels, num_labels)
    sigma, alpha, method = check_options(rule, num_labels, sigma, alpha, method)
    counts = counts_at_looks(given, labels, rule, num_labels, looks)
    return best_over_looks([counts], rule, looks, sigma=sigma, alpha=alpha, method=method)[0]


def certified_radii_batch(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
    looks: Looks | None = None,
) -> list[Radii]:
    """For each image the promise of `certified_radii`, each with its own probability of at least 1 - alpha.

    Images are read one by one, so `votes` may be a generator over votes that do not fit in memory. Images may differ
    in their number of draws. The arguments are those of `certified_radii`, `votes` and `labels` one entry per image;
    an image without labels has an empty `true`, a claim about nothing.

    >>> images = [[[0], [0], [1]] * 30, [[2]] * 90]
    >>> radii = certified_radii_batch(images, [[0], [2]], TopK(k=1, k_prime=1), num_labels=3, sigma=0.5)
    >>> [each.true.round(3).tolist() for each in radii]
    [[-inf], [0.708]]
    """
    sigma, alpha, method = check_options(rule, num_labels, sigma, alpha, method)
    counts = each_image(votes, labels, lambda given, true: counts_at_looks(given, true, rule, num_labels, looks))
    return best_over_looks(list(counts), rule, looks, sigma=sigma, alpha=alpha, method=method)


def exact_radii(
    vote_sets: ArrayLike,
    probabilities: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    sigma: float,
    method: Method = "joint",
) -> Radii:
    """What `certified_radii` would prove with infinitely many draws: nothing is estimated, nothing can fail.

    Args:
        vote_sets: Boolean (sets, num_labels), the sets of labels that the base classifier can return.
        probabilities: (sets,) how probable each of them is; they sum to 1.
        labels: As in `certified_radii`.
        rule: As in `certified_radii`.
        sigma: As in `certified_radii`.
        method: As in `certified_radii`.

    >>> sets = np.eye(2, dtype=bool)  # {0} with probability 0.9, {1} with probability 0.1
    >>> exact_radii(sets, [0.9, 0.1], [0], TopK(k=1, k_prime=1), sigma=1.0).true.round(4)
    array([1.2816])
    """
    sets = np.asarray(vote_sets)
    if sets.dtype != np.bool_ or sets.ndim != 2:
        raise InvalidInputError(f"vote_sets must be boolean (sets, num_labels), got {sets.dtype} {sets.shape}")
    num_labels = sets.shape[1]
    if isinstance(rule, TopK):
        check_labels(labels, num_labels)
    sigma, alpha, method = check_options(rule, num_labels, sigma, 0.5, method)
    counts = count_votes(sets, labels, rule, num_labels, check_distribution(probabilities, len(sets)))
    return solve([counts], rule, Exact(), sigma=sigma, alpha=alpha, method=method)[0]


def label_radii(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    num_labels: int,
    sigma: float,
    alpha: float = 0.001,
    looks: Looks | None = None,
) -> Floats:
    """For each label alone, with probability at least 1 - alpha: it is returned up to its radius.

    For `TopK` that is against all other labels (method joint). Several labels together hold with what is left of 1
    after alpha for each. The arguments are those of `certified_radii`.

    Returns:
        (d,), in the order of `labels`; -inf where the draws do not decide it even at radius 0.

    >>> sets = np.array([[True, True], [True, False]] * 100)
    >>> label_radii(sets, [1, 0], Threshold(t=0.4), num_labels=2, sigma=0.5).round(3)
    array([ -inf, 1.035])
    """
    alphas = [check_alpha(alpha)]
    return label_radii_batch([votes], [labels], rule, num_labels=num_labels, sigma=sigma, alphas=alphas, looks=looks)[0]


def label_radii_batch(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    sigma: float,
    alphas: Sequence[float],
    looks: Looks | None = None,
) -> list[Floats]:
    """For each image the promise of `label_radii`, each with an alpha of its own."""
    check_options(rule, num_labels, sigma, 0.5, "joint")

    def read(given: ArrayLike, true: ArrayLike) -> tuple[Ints, list[list[VoteCounts]]]:
        check_labels(true, num_labels, allow_none=True)
        order = np.asarray(true, dtype=np.int64)
        claims = [order] if isinstance(rule, Threshold) else order[:, None]
        return order, [counts_at_looks(given, claim, rule, num_labels, looks) for claim in claims]

    images = list(each_image(votes, labels, read))
    if isinstance(rule, Threshold):
        fractions = (1.0,) if looks is None else looks.fractions
        return [
            _stay_in_radii(counts[0], order, rule, sigma, [alpha * fraction for fraction in fractions])
            for (order, counts), alpha in zip(images, alphas, strict=True)
        ]
    radii = [np.empty(0)] * len(images)
    for alpha in dict.fromkeys(alphas):
        same = [i for i in range(len(images)) if alphas[i] == alpha]
        alone = [counts for i in same for counts in images[i][1]]
        solved = iter(best_over_looks(alone, rule, looks, sigma=sigma, alpha=alpha, method="joint"))
        for i in same:
            radii[i] = np.array([next(solved).true[0] for _ in images[i][0]])
    return radii


def _stay_in_radii(
    counts: Sequence[VoteCounts], labels: Ints, rule: Threshold, sigma: float, alphas: Sequence[float]
) -> Floats:
    """(d,) the best radius, over the looks, up to which each of the labels stays in."""
    at_looks = [
        stays_in(ClopperPearson().lower(each.label_mass[labels], np.array(float(each.draws)), alpha), rule.t)
        for each, alpha in zip(counts, alphas, strict=False)
    ]
    best: Floats = np.maximum.reduce([scaled(r, sigma) for r in at_looks])
    return best


def certified_size(radii: ArrayLike, radius: ArrayLike) -> Ints:
    """How many labels of L are proved to survive every perturbation of l2-norm at most `radius`.

    It holds wherever the radii do, at all values of `radius` at once if they were proved at once.

    Args:
        radii: (sizes,) the `true` radii of one image, as `certified_radii` returns them.
        radius: A number or an array of any shape, not negative.

    Returns:
        Whole numbers in the shape of `radius`.

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


def check_options(rule: Rule, num_labels: int, sigma: float, alpha: float, method: str) -> tuple[float, float, Method]:
    """Sigma, alpha and the method, each within its range; the rule fits the number of labels."""
    rule.check(num_labels)
    return check_sigma(sigma), check_alpha(alpha), check_method(method, rule)


def counts_at_looks(
    votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int, looks: Looks | None
) -> list[VoteCounts]:
    """The counts of one image at every look that it has reached, its draws ending at a look; once without looks."""
    given = np.atleast_1d(votes)
    ends = [len(given)] if looks is None else looks.reached(len(given))
    return [count_votes(given[:draws], labels, rule, num_labels) for draws in ends]


def best_over_looks(
    counts: Sequence[Sequence[VoteCounts]],
    rule: Rule,
    looks: Looks | None,
    *,
    sigma: float,
    alpha: float,
    method: Method,
    at: At = None,
) -> list[Radii]:
    """For each image the best radii of the looks that it has reached, each look with its fraction of alpha."""
    best: dict[int, Radii] = {}
    for look, fraction in enumerate((1.0,) if looks is None else looks.fractions):
        reached = [i for i, image in enumerate(counts) if len(image) > look]
        chosen = [counts[i][look] for i in reached]
        solved = solve(chosen, rule, ClopperPearson(), sigma=sigma, alpha=alpha * fraction, method=method, at=at)
        for i, radii in zip(reached, solved, strict=True):
            best[i] = best[i].best(radii) if i in best else radii
    return [best[i] for i in range(len(counts))]


def solve(
    counts: Sequence[VoteCounts],
    rule: Rule,
    bounds: Bounds,
    *,
    sigma: float,
    alpha: float,
    method: Method,
    at: At = None,
) -> list[Radii]:
    """The radii of each image; images with equally many labels are solved together.

    With `at`, the only r = R / sigma that matter, a radius is the largest of them that is proved.
    """
    radii: dict[int, Radii] = {}
    for indices in equal_groups(counts, partial(_numbers, rule)):
        group = Group([counts[i] for i in indices])
        true, false = _solve_group(group, rule, alpha, method, bounds, at)
        for row, i in enumerate(indices):
            radii[i] = Radii(scaled(true[row], sigma), None if false is None else scaled(false[row], sigma))
    return [radii[i] for i in range(len(counts))]


def _solve_group(
    group: Group, rule: Rule, alpha: float, method: Method, bounds: Bounds, at: At
) -> tuple[Floats, Floats | None]:
    """(images, sizes) the r of `Radii.true`, and (images, c - d) those of `Radii.false`."""
    nothing = np.empty((group.images, 0))
    if isinstance(rule, TopK):
        _check_cohen(method, rule, group.num_true)
        return _SOLVERS[method](group, rule, alpha, bounds, at) if group.num_true else nothing, None
    floors, ceilings = (
        (joint_floors, joint_ceilings) if method == "joint" else (independent_floors, independent_ceilings)
    )
    true = floors(group, rule, alpha / 2, bounds, at) if group.num_true else nothing
    return true, ceilings(group, rule, alpha / 2, bounds, at) if group.num_true < group.num_labels else nothing


def _check_cohen(method: Method, rule: TopK, num_true: int) -> None:
    if method == "cohen" and num_true and not rule.k == rule.k_prime == num_true == 1:
        raise InvalidInputError(
            f"method 'cohen' is the case k = k_prime = 1 with one true label, got k = {rule.k}, k_prime = "
            f"{rule.k_prime} and {num_true} labels; use 'joint' or 'paper'"
        )


def _numbers(rule: Rule, num_true: int) -> int:
    """How many numbers one evaluation takes for an image with d labels."""
    subsets = min(1 << num_true, 4096)
    if isinstance(rule, TopK):
        return (subsets + rule.k) * rule.k_prime * min(num_true, rule.k)
    return int(subsets * num_true**2 + (1 << MOST_SUSPECTS) * MOST_SUSPECTS**2)
