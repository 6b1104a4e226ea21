"""What attacks achieved and what was proved, and attack.parquet; the true worst case lies between the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from multiguard.certify import Method, Rule, certified_size, clopper_pearson_lower, clopper_pearson_upper
from multiguard.certify.arguments import Floats, Ints
from multiguard.certify.noise import NoiseField, as_noise
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.config import CertifyConfig, check_methods
from multiguard.evaluate.results import TableFile
from multiguard.io.config import from_tree, to_tree
from multiguard.io.names import short_repr
from multiguard.io.records import convert
from multiguard.io.writer import staged
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

# What an attack minimizes: how many labels of L stay in, or (threshold rule) how many others stay out.
Goal = Literal["in", "out"]
CLEAN, BEST = "none", "best"
_FILE = TableFile("attack.parquet", "multiguard-attack", 5, "an attack folder", "attack again")
_FOLLOWERS = tuple(f"attack.{kind}" for kind in ("csv", "tex", "png", "svg", "pdf"))  # its table and figure


def goals(rule: Rule) -> tuple[Goal, ...]:
    """What can be attacked; the top-k rule returns k labels, so the labels of L that stay in decide the others, too."""
    return ("in", "out") if rule.has_ceilings else ("in",)


def evaluated_size(
    counts: ArrayLike, draws: int, labels: Sequence[int], rule: Rule, goal: Goal, *, beta: float | None
) -> tuple[int, int]:
    """An estimate of how many labels stay, and an upper bound that holds with probability at least 1 - beta.

    The probability is over the draws, which must be fresh: the perturbation was fixed before them. A label whose
    fraction ties with another's, or with t, counts as in: a label of L stays, another label does not stay out. The
    estimate counts no label that no draw hit, unless too few other labels are left to take its place.

    Args:
        counts: (c,), how many draws of the perturbed image f returned each label in.
        draws: How many draws there were.
        labels: L.
        rule: Which smoothed classifier.
        goal: What is counted: labels of L that stay in, or others that stay out.
        beta: The probability that the bound may be too small; None if the draws are all bands of an ablation, so that
            estimate and bound are the truth.

    >>> from multiguard.certify import TopK
    >>> evaluated_size([100, 900, 800, 200], 1000, (0, 1), TopK(k=2, k_prime=2), "in", beta=0.001)
    (1, 1)
    >>> evaluated_size([1, 9, 8, 2], 10, (0, 1), TopK(k=2, k_prime=2), "in", beta=0.001)  # ten draws say little
    (1, 2)
    """
    hits = np.asarray(counts)
    inside = np.zeros(len(hits), dtype=np.bool_)
    inside[list(labels)] = True
    fractions = hits / draws
    size = _most_staying(fractions, np.where(hits > 0, fractions, -1.0), inside, rule, goal)
    if beta is None:
        return size, size
    level = beta / (2 * len(hits))
    low, high = clopper_pearson_lower(hits, draws, level), clopper_pearson_upper(hits, draws, level)
    return size, _most_staying(low, high, inside, rule, goal)


def smallest_bound(draws: int, num_true: int, num_labels: int, rule: Rule, goal: Goal, *, beta: float) -> int:
    """No draws, whatever they hit, give an upper bound of `evaluated_size` below this number.

    So few draws cannot break a certificate of this many labels or fewer. L has `num_true` of the `num_labels` labels.
    """
    # At worst L is never hit, and some other labels share all hits: one for each place (top-k), or every label.
    num_false = num_labels - num_true
    few = num_false if rule.k is None else min(rule.k, num_false)
    rivals = [num_false] if rule.k_prime is None else range(few + 1)
    hits = [draws if rule.k_prime is None else min(draws, rule.k_prime * draws // max(1, each)) for each in rivals]
    worst = [[0] * (num_labels - each) + [hit] * each for each, hit in zip(rivals, hits, strict=True)]
    return min(evaluated_size(counts, draws, range(num_true), rule, goal, beta=beta)[1] for counts in worst)


def _most_staying(low: Floats, high: Floats, inside: NDArray[np.bool_], rule: Rule, goal: Goal) -> int:
    """The most labels that can stay if each probability lies between `low` and `high`."""
    if goal == "in":
        return rule.most_staying(low, high, inside)
    assert rule.t is not None
    return rule.most_out(low, inside)


@dataclass(frozen=True)
class AttackOutcome:
    """What one perturbation achieved: about `size` labels stay, and with probability 1 - beta at most `at_most` do."""

    attack: str  # what found the perturbation; "none" for the clean image
    goal: Goal  # what is counted: labels of L that stay "in", or others that stay "out"
    radius: (
        float  # what is allowed, in the unit of the noise's attacker: a norm, a number of pixels, the side of a patch
    )
    norm: float  # what the perturbation takes of it, never more than `radius`
    size: int  # the estimate, from draws that had no part in the search
    at_most: int  # the upper bound; beta is for all perturbations of the image together


@dataclass(frozen=True, eq=False)
class AttackedImage:
    """One image: what was proved of it, and what attacks achieved."""

    id: str
    labels: tuple[int, ...]  # the indices of L, at least one
    proved: Mapping[Goal, Mapping[Method, Floats]]  # the radii up to which at least 1, 2, ... labels stay
    outcomes: tuple[AttackOutcome, ...]  # what was found, the clean image included

    __repr__ = short_repr

    def certified(self, goal: Goal, method: Method, radius: ArrayLike) -> Ints:
        """How many labels are proved to stay, in the shape of `radius`."""
        return certified_size(self.proved[goal][method], radius)

    def sizes(self, goal: Goal, attack: str, radius: ArrayLike) -> Ints:
        """The fewest labels that an attack, or the "best", left at each radius or below; the clean image counts."""
        counted = [o for o in self.outcomes if o.goal == goal and (attack == BEST or o.attack in (attack, CLEAN))]
        within = np.array([outcome.radius for outcome in counted]) <= np.asarray(radius)[..., None]
        left = np.array([outcome.size for outcome in counted])
        fewest: Ints = np.where(within, left, left.max()).min(axis=-1)
        return fewest

    def breaks(self, method: Method, *, surely: bool) -> bool:
        """Whether some perturbation leaves fewer labels than the method proved."""
        sizes = ((o, o.at_most if surely else o.size) for o in self.outcomes)
        return any(size < int(self.certified(o.goal, method, o.radius)) for o, size in sizes)

    def tests(self, method: Method, least: Mapping[Goal, int]) -> bool:
        """Whether an attack ran within a radius up to which more than the `least` labels are proved to stay."""
        attacked = (outcome for outcome in self.outcomes if outcome.attack != CLEAN)
        return any(int(self.certified(o.goal, method, o.radius)) > least[o.goal] for o in attacked)


@dataclass(frozen=True, eq=False)
class Attacks:
    """Attacks on a set of images, and which certificates they broke; for an example see `attack_curves`."""

    config: CertifyConfig  # which smoothed classifier, and the alpha of the certificates
    noise: NoiseField  # the noise, and so the attacker; its text in the file
    label_names: tuple[str, ...]  # the c label names
    labelled: bool  # whether L is the ground truth; if not, pilot draws chose it
    methods: tuple[Method, ...]  # what the certificates were proved with
    radii: tuple[float, ...]  # the radii at which every image was attacked, from small to large, 0 first
    names: tuple[str, ...]  # the attacks
    beta: float  # the probability per image that some upper bound is too small; 0 where every band votes
    draws: int  # how many fresh draws evaluate each perturbation; of a band ablation its bands
    images: tuple[AttackedImage, ...]  # the images that have labels
    without_labels: int  # how many images were left out because they have none
    failed: int = 0  # how many images could not be voted on, so that nothing was proved of them
    adaptive: bool = False  # whether each image had as many certifying draws as it needed
    flat: int = 0  # at how many images some gradient was 0 or not finite, so that a step of pgd led nowhere
    plan: Mapping[str, Any] = field(default_factory=dict)  # how the attacks searched, for the record
    certificates_hash: str = ""  # the sha256 of the certificates.parquet that was attacked
    command: str | None = None  # the command that attacked; None if it is not known

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", as_noise(self.noise))

    def broken(self, method: Method, *, surely: bool = True) -> tuple[str, ...]:
        """The ids of the images whose certificate an attack broke; if not `surely`, by the estimates."""
        return tuple(image.id for image in self.images if image.breaks(method, surely=surely))

    def tested(self, method: Method) -> tuple[str, ...]:
        """The ids of the images that were attacked within a certified radius, or whose clean image breaks theirs."""
        nothing: Mapping[Goal, int] = {"in": 0, "out": 0}
        return tuple(i.id for i in self.images if i.tests(method, nothing) or i.breaks(method, surely=True))

    def undecidable(self, method: Method) -> tuple[str, ...]:
        """The ids of the tested images that these draws are too few to find broken, whatever they hit."""
        tested = set(self.tested(method))
        return tuple(i.id for i in self.images if i.id in tested and not i.tests(method, self._smallest_bounds(i)))

    @property
    def exact(self) -> bool:
        """Whether every band of an ablation votes: then nothing is estimated, and nothing holds by probability."""
        return self.noise.enumerated

    def _smallest_bounds(self, image: AttackedImage) -> dict[Goal, int]:
        if self.exact:
            return {"in": 0, "out": 0}
        beta, sizes = self.beta / len(image.outcomes), (len(image.labels), len(self.label_names))
        rule = self.config.rule
        return {goal: smallest_bound(self.draws, *sizes, rule, goal, beta=beta) for goal in goals(rule)}

    def chance(self, broken: int, method: Method) -> float:
        """An upper bound on the probability of this many broken certificates, or more, if everything is sound.

        With `jia` each number of labels is proved alone: each of an image's min(d, k) proofs may fail with alpha.
        """
        if self.exact or not broken:
            return 0.0 if broken else 1.0
        most = max(self.config.rule.sizes(len(image.labels)) for image in self.images)
        wrong = min(1.0, (most if method == "jia" else 1) * self.config.alpha + self.beta)
        # The upper tail of a binomial is the distribution function of a beta.
        return float(scipy.special.betainc(broken, len(self.images) - broken + 1, wrong))


@dataclass(frozen=True, eq=False)
class AttackCurve:
    """Averages over images at each radius: for the goal "in" fractions of L, for "out" how many others come in."""

    goal: Goal  # what is averaged
    radius: Floats  # (radii,)
    certified: Mapping[Method, Floats]  # what each method proves: a floor for "in", a ceiling for "out"
    reached: Mapping[str, Floats]  # what each attack, and the "best" of them per image, achieved, by estimates

    __repr__ = short_repr


def attack_curves(attacks: Attacks, radius: ArrayLike | None = None) -> list[AttackCurve]:
    """Certified and reached averages of each goal; at each radius the best of what was reached there and below.

    `radius` is (radii,), in the unit of the noise's attacker; None for those at which every image was attacked.
    """
    grid = np.asarray(attacks.radii if radius is None else radius, dtype=np.float64)
    return [_curve(attacks, goal, grid) for goal in goals(attacks.config.rule)]


def _curve(attacks: Attacks, goal: Goal, radius: Floats) -> AttackCurve:
    lines = (*attacks.names, BEST) if len(attacks.names) > 1 else attacks.names
    images, num_labels = attacks.images, len(attacks.label_names)

    def average(sizes: Sequence[Ints]) -> Floats:
        pairs = [(each, len(image.labels)) for each, image in zip(sizes, images, strict=True)]
        return np.asarray(np.mean([each / d if goal == "in" else num_labels - d - each for each, d in pairs], axis=0))

    certified = {m: average([image.certified(goal, m, radius) for image in images]) for m in attacks.methods}
    reached = {name: average([image.sizes(goal, name, radius) for image in images]) for name in lines}
    return AttackCurve(goal, radius, certified, reached)


def proved_sizes(certificates: Certificates, index: int) -> dict[Goal, dict[Method, Floats]]:
    """Per goal and method, the radii up to which at least 1, 2, ... labels of this image stay."""
    proved: dict[Goal, dict[Method, Floats]] = {"in": {m: radii[index] for m, radii in certificates.radii.items()}}
    if certificates.false_radii is not None:
        # At most m of them in is at least c - d - m of them out.
        proved["out"] = {m: radii[index][::-1] for m, radii in certificates.false_radii.items()}
    return proved


def finite_radii(proved: Mapping[Goal, Mapping[Method, Floats]], methods: Sequence[Method]) -> set[float]:
    """Every finite radius above 0 at which the proof of one of these methods ends."""
    radii = {float(radius) for each in proved.values() for method in methods for radius in each[method]}
    return {radius for radius in radii if 0 < radius < np.inf}


def attack_stage(
    folder: Path, request: Mapping[str, Any] | None = None, *, force: bool = False
) -> AbstractContextManager[Path | None]:
    """A private folder for the files of an attack folder; see `staged`."""
    return staged(folder / _FILE.name, request, kind="an attack", names=_FOLLOWERS, force=force)


def stage_attacks(stage: Path, attacks: Attacks) -> None:
    """Write attack.parquet to a folder that `attack_stage` has made."""
    import pyarrow as pa

    rows = [
        {
            "id": image.id,
            "labels": image.labels,
            "proved": [
                {"goal": goal, "method": method, "radii": radii.tolist()}
                for goal, by_method in image.proved.items()
                for method, radii in by_method.items()
            ],
            "outcomes": [asdict(outcome) for outcome in image.outcomes],
        }
        for image in attacks.images
    ]
    record = {**vars(attacks), "config": to_tree(attacks.config), "noise": str(attacks.noise)}
    del record["images"]
    _FILE.write(stage, pa.Table.from_pylist(rows, _schema()), {**record, "attacked_with": __version__})


def read_attacks(folder: str | Path) -> Attacks:
    """The attacks in a folder as they were written; a damaged or edited file raises `DataError` naming it.

    >>> read_attacks(out)
    Traceback (most recent call last):
    multiguard.errors.DataError: ... is not an attack folder: it has no attack.parquet
    """
    return _FILE.read(Path(folder), lambda stored, table, _: _parse(stored, table))


def _parse(stored: dict[str, Any], table: pa.Table) -> Attacks:
    config = from_tree(CertifyConfig, stored["config"])
    known = {name: value for name, value in stored.items() if name != "attacked_with"}
    attacks = convert({**known, "config": config, "images": []}, Attacks)
    config.rule.check(len(attacks.label_names))
    check_methods(attacks.methods, config.rule, attacks.noise)
    return replace(attacks, images=tuple(_image(row, attacks) for row in table.cast(_schema()).to_pylist()))


def _image(row: Mapping[str, Any], attacks: Attacks) -> AttackedImage:
    labels = tuple(row["labels"])
    radii = {(each["goal"], each["method"]): np.array(each["radii"], np.float64) for each in row["proved"]}
    proved = {goal: {m: radii[goal, m] for m in attacks.methods} for goal in goals(attacks.config.rule)}
    outcomes = tuple(AttackOutcome(**each) for each in row["outcomes"])
    if not {outcome.goal for outcome in outcomes} <= proved.keys() or max(labels) >= len(attacks.label_names):
        raise ValueError(f"image {row['id']!r} has another label or goal than the attack")
    return AttackedImage(row["id"], labels, proved, outcomes)


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, real, integer = pa.string(), pa.float64(), pa.int64()
    proved = pa.struct([("goal", text), ("method", text), ("radii", pa.list_(real))])
    reals, integers = [("radius", real), ("norm", real)], [("size", integer), ("at_most", integer)]
    outcome = pa.struct([("attack", text), ("goal", text), *reals, *integers])
    columns = [
        ("id", text),
        ("labels", pa.list_(pa.uint16())),
        ("proved", pa.list_(proved)),
        ("outcomes", pa.list_(outcome)),
    ]
    return pa.schema(columns)
