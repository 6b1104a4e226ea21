"""Attacks on any classifier: hide labels, add labels, or change as many as possible; and radius by radius on images."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.config import AttackConfig, AttackName
from multiguard.attack.search import Candidates, ImageGroup, Kind, Objective, Progress, Search
from multiguard.attack.target import SmoothedTarget, Target
from multiguard.attack.threats import THREATS, Attacker
from multiguard.certify import Rule, Threshold
from multiguard.certify.noise import Noise, resolve_noise
from multiguard.data.in_memory import label_set
from multiguard.errors import DataError, InvalidInputError, ModelError
from multiguard.evaluate.attacks import CLEAN, Goal, goals
from multiguard.io.names import short_repr, unknown_name
from multiguard.models import load
from multiguard.models.classifier import Classifier, is_module
from multiguard.smooth import Smoother
from multiguard.smooth.torch_engine import image_tensor, to_pixels, torch_device

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

OnImages = Callable[[int], None]  # with the number of images done

_DEFAULT = AttackConfig()
_HALF = Threshold(0.5)
_TIE = 1e-6  # far less than one draw or one step changes a value by
_BATCH_DIMENSIONS = 4  # images, channels, height and width
_SCORE_THRESHOLD = 0.5  # from which a model that is to be smoothed returns a label under the threshold rule
# Images attacked at once: they fill batches, and the random search steps from one towards another. Everything found
# is held in memory until it is evaluated, so large images come in smaller groups.
_GROUP_IMAGES, _GROUP_NUMBERS = 64, 1 << 22
# Below this value no label is left by a clear margin: larger radii need no new search.
_NOTHING_LEFT = -0.25


@dataclass(frozen=True)
class AttackGoal:
    """What an attack shall achieve: `Hide`, `Add` or `Change`."""

    labels: Any  # a label, by index or name, or a list of them, for all inputs; or a multi-hot array (inputs, labels)
    kind: ClassVar[Kind]


class Hide(AttackGoal):
    """The labels shall not be returned: one, by index or name, a list, or a multi-hot array (inputs, labels).

    >>> Hide("cat").labels
    'cat'
    """

    kind = "hide"


class Add(AttackGoal):
    """The labels shall be returned; `labels` as in `Hide`.

    >>> Add([3, 7]).labels
    [3, 7]
    """

    kind = "add"


class Change(AttackGoal):
    """As many labels as possible shall leave or come in.

    >>> Change().kind
    'change'
    """

    kind = "change"

    def __init__(self) -> None:
        super().__init__(None)


@dataclass(frozen=True, eq=False)
class AdversarialBatch:
    """Perturbed inputs, none further from its input than the radius allows, and what the classifier makes of them.

    Scores are the model's or, if it is smoothed, the fraction of fresh draws that hit each label.
    """

    inputs: Floats  # (N, ...), the perturbed inputs; uint8 images are in [0, 1] here
    delta: Floats  # (N, ...), what was added
    norms: NDArray[np.float64]  # (N,), in exact differences: its norm, the number of pixels, or the side of the patch
    scores_before: Floats  # (N, c), at the inputs
    scores_after: Floats  # (N, c), at the perturbed inputs
    labels_before: Bools  # (N, c), the labels returned for the inputs
    labels_after: Bools  # (N, c), those returned for the perturbed inputs
    success: Bools  # (N,), whether no label to hide is returned, all labels to add are, or some label has changed

    def __repr__(self) -> str:
        changed = float((self.labels_before != self.labels_after).sum(axis=1).mean())
        return (
            f"AdversarialBatch({int(self.success.sum())} of {len(self.success)} succeeded, {changed:.1f} labels "
            f"changed on average, norms up to {self.norms.max():.3g})"
        )


def pgd(
    model: Any,
    inputs: Any,
    goal: AttackGoal,
    rule: Rule = _HALF,
    *,
    radius: float,
    sigma: float | None = None,
    noise: Noise | None = None,
    attacker: Attacker | None = None,
    config: AttackConfig = _DEFAULT,
    progress: Progress | None = None,
    search: AttackName = "pgd",
    **options: Any,
) -> AdversarialBatch:
    """Projected gradient descent: no perturbation is larger than `radius` allows; the best found is returned.

    A smoothed classifier is attacked through its noise (EOT), and fresh draws, which had no part in the search,
    evaluate what was found. A failure to find a perturbation proves nothing; certificates do.

    Args:
        model: A differentiable model, in any form that `Smoother` takes; or a `Smoother`.
        inputs: (N, ...), a batch of inputs.
        goal: `Hide`, `Add` or `Change`.
        rule: Which labels are returned. A model without noise returns the k labels of largest score (`TopK`), or those
            with probability at least t (`Threshold`); by default those with probability 1/2 or more.
        radius: How large a perturbation may be: its norm in the unit of the inputs, how many pixels, or the side of
            the patch.
        sigma: The Gaussian noise of the smoothed classifier; without it and `noise` the model is attacked as it is.
        noise: Any other noise of the smoothed classifier.
        attacker: What a perturbation may be: "l2-norm", "linf-norm", "l1-norm", "pixels" (any m pixels) or "patch" (a
            square, anywhere), the last two with any content in [0, 1]; default: what the noise certifies against.
        config: How hard to search.
        progress: Called with the fraction of the search that is done; an exception from it ends the attack.
        search: "random" needs no gradients: it is `random_search`.
        options: `labels`, `output`, `image_size` and `device` of the model, as in `Smoother`.

    >>> import numpy as np
    >>> from multiguard import TopK
    >>> from multiguard.attack import Hide, pgd
    >>> rows = np.array([[0.4, 0.0], [3.0, 0.0]])  # the first label leads by 0.4 and by 3
    >>> pgd(lambda x: 2 * x, rows, Hide("cat"), TopK(1, 1), radius=0.5, labels=["cat", "dog"], device="cpu").success
    array([ True, False])
    """
    given = _batch(inputs)
    smoothed = None if sigma is None and noise is None else resolve_noise(sigma, noise)
    target = _make_target(model, rule, given[0], config.seed, smoothed, options)
    name = attacker or target.attacker
    if not 0 < radius < float("inf"):
        raise InvalidInputError(f"radius must be positive and finite, not {radius!r}.")
    if name not in THREATS:
        raise InvalidInputError(unknown_name("attacker", name, THREATS))
    threat = THREATS[name]
    threat.check(given, radius)
    clean = given.to(target.device)
    if search == "pgd" and (error := target.gradient_error(iter(clean[:, None]))) is not None:
        raise ModelError(f"the model has no gradients ({error}); use random_search, which needs none.")
    ids, names = tuple(str(index) for index in range(len(clean))), target.classifier.label_names
    before = target.evaluate(ids, clean, config.draws)
    aim = before[1] if goal.kind == "change" else _aim(goal, len(clean), names)
    group = ImageGroup(ids, config.seed, clean, torch.from_numpy(aim).to(target.device))
    objective = Objective(target.rule, goal.kind)
    steps = Search(search, target, threat, objective, config, keep_best=True, progress=progress)
    allowed = torch.full((len(clean),), radius, dtype=torch.float64, device=clean.device)
    start = steps.compare(group, clean)
    start = Candidates(start.images, start.values + _TIE)  # of equals the perturbed one, which fresh draws evaluate
    found = steps.improve(group, 0, allowed, start).images
    after = target.evaluate(ids, found, config.draws)
    missed = np.any(aim & (after[1] if goal.kind == "hide" else ~after[1]), axis=1)
    changed = np.any(before[1] != after[1], axis=1)
    return AdversarialBatch(
        inputs=found.cpu().numpy(),
        delta=(found - clean).cpu().numpy(),
        norms=threat.distances(clean, found).cpu().numpy(),
        scores_before=before[0],
        scores_after=after[0],
        labels_before=before[1],
        labels_after=after[1],
        success=np.asarray(changed if goal.kind == "change" else ~missed),
    )


def random_search(model: Any, inputs: Any, goal: AttackGoal, rule: Rule = _HALF, **how: Any) -> AdversarialBatch:
    """As `pgd`, by scores alone: it tries perturbations and keeps what brings the goal nearer, for any model.

    >>> import numpy as np
    >>> from multiguard import TopK
    >>> from multiguard.attack import Add, random_search
    >>> rows = np.array([[0.4, 0.0]])
    >>> found = random_search(lambda x: x.clone(), rows, Add(1), TopK(1, 1), radius=0.5, labels=["cat", "dog"])
    >>> found.success, bool(found.norms[0] <= 0.5)
    (array([ True]), True)
    """
    return pgd(model, inputs, goal, rule, search="random", **how)


def perturb(
    model: Any,
    images: Any,
    labels: Any,
    eps: float,
    *,
    norm: str = "l2",
    goal: Literal["hide", "add"] = "hide",
    rule: Rule = _HALF,
    **how: Any,
) -> Any:
    """Adversarial images, none further from its image than `eps`, that hide as many of its labels as possible.

    Args:
        model: A torch module that returns logits, in any other form that `Smoother` takes, or a `Smoother`.
        images: (N, ...), a tensor or an array; images in [0, 1] stay in it.
        labels: Multi-hot (N, labels), as data loaders give them; or labels for all images, by index or by the model's
            names; None to change as many labels as possible.
        eps: How large a perturbation may be, in the unit of the images; for pixels how many, for a patch its side.
        norm: "l2", "linf", "l1", "pixels" or "patch".
        goal: Whether the labels shall not be returned ("hide"), or shall be ("add").
        rule: Which labels are returned: by default those with probability 1/2 or more.
        how: Further keywords of `pgd`, such as search="random" for models without gradients.

    >>> network = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(network.weight)
    >>> rows, labels = torch.tensor([[0.2, -0.5], [0.9, 0.5]]), torch.tensor([[1, 0], [1, 0]])
    >>> network(perturb(network, rows, labels, 0.3)) > 0
    tensor([[False, False],
            [ True,  True]])
    """
    given = _batch(images)
    if is_module(model) and not isinstance(model, Classifier):
        how.setdefault("output", "logits")
    pixels = given.ndim == _BATCH_DIMENSIONS and bool(given.min() >= 0) and bool(given.max() <= 1)
    how.setdefault("config", AttackConfig(box=pixels))
    wanted = labels.cpu() if isinstance(labels, Tensor) else labels
    aim = Change() if wanted is None else Hide(wanted) if goal == "hide" else Add(wanted)
    attacker: Any = norm if norm in THREATS else f"{norm}-norm"
    if isinstance(images, Tensor) and not isinstance(model, Smoother):
        how.setdefault("device", str(images.device))
    modes = [(part, part.training) for part in model.modules()] if is_module(model) else []
    found = pgd(model, given, aim, rule, radius=eps, attacker=attacker, **how).inputs
    for part, training in modes:  # a network in training stays in training
        part.training = training
    return torch.from_numpy(found).to(images.device) if isinstance(images, Tensor) else found


def _make_target(
    model: Any, rule: Rule, first: Tensor, seed: int, noise: Noise | None, options: dict[str, Any]
) -> Target:
    """The smoothed classifier, or the model as it is; the first input counts labels without names."""
    if isinstance(model, Smoother):
        if noise is not None or options:
            raise InvalidInputError("a Smoother has its own noise and options; leave these out.")
        smoother = model
    elif noise is not None:
        votes = {"k_max": rule.k_prime} if rule.ranked else {"score_threshold": _SCORE_THRESHOLD}
        smoother = Smoother(model, noise=noise, **{**votes, **options})
    else:
        device = torch_device(options.pop("device", None))
        classifier = load(model, **options)
        if is_module(classifier):
            classifier = classifier.module().eval().to(device)
        classifier = classifier.ready(to_pixels(first).numpy()[None], str(device))
        rule.check(len(classifier.label_names))
        return Target(classifier.module(), rule, device)
    labels = len(smoother.find_labels(first))
    smoother.settings.check_rule(rule, labels)
    return SmoothedTarget(smoother, rule, seed)


def _batch(inputs: Any) -> Tensor:
    """The inputs as one float32 tensor; a uint8 value x of an image is x / 255."""
    given = inputs if isinstance(inputs, Tensor) else np.asarray(inputs)
    tensor = image_tensor("inputs", given, None)
    if tensor.ndim < 2:
        shape = tuple(tensor.shape)
        raise InvalidInputError(f"inputs has shape {shape}; expected a batch (inputs, ...): use inputs[None].")
    is_bytes = str(given.dtype).endswith("uint8") and tensor.ndim == _BATCH_DIMENSIONS
    return tensor.to(torch.float32) / (255 if is_bytes else 1)


def _aim(goal: AttackGoal, count: int, names: Sequence[str]) -> Bools:
    """(N, c), the labels of the goal for each input."""
    if np.ndim(goal.labels) == 2 and hasattr(goal.labels, "shape"):
        aim: Bools = np.asarray(goal.labels).astype(np.bool_)
        if aim.shape != (count, len(names)):
            raise InvalidInputError(f"the goal's labels have shape {aim.shape}; expected ({count}, {len(names)}).")
        return aim
    try:
        chosen = label_set(goal.labels, names)
    except DataError as error:
        raise InvalidInputError(f"{goal}: {error}.") from error
    if not chosen:
        raise InvalidInputError(f"{goal} names no label; give at least one.")
    aim = np.zeros((count, len(names)), dtype=np.bool_)
    aim[:, list(chosen)] = True
    return aim


@dataclass(frozen=True, eq=False)
class Victim:
    """An image to attack.

    >>> Victim("000042", np.zeros((3, 8, 8), np.uint8), labels=(3, 7), radii=(0.5, 1.0)).radii
    (0.5, 1.0)
    """

    id: str  # its id, which keys the noise
    image: NDArray[np.generic]  # (3, height, width), uint8 (x / 255 is meant) or floating point; or any other shape
    labels: tuple[int, ...]  # the indices of L, at least one
    radii: tuple[float, ...]  # the radii allowed, in the unit of the noise's attacker, from small to large, all above 0

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A perturbed image and its hits in fresh draws; see `attack_images`."""

    attack: str  # what found it; "none" for the clean image
    goal: Goal  # what was minimized
    radius: float  # the radius allowed: a norm, a number of pixels, or the side of a patch
    norm: float  # that of the perturbation, in exact differences of the float32 values, never more than `radius`
    image: NDArray[np.float32]  # the perturbed image
    counts: NDArray[np.int64]  # (c,), how many of the evaluation draws hit each label

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class AttackResult:
    """A victim and every perturbation that was found, the clean image first; see `attack_images`."""

    victim: Victim  # the image
    perturbations: tuple[Perturbation, ...]  # what was found
    flat: bool = False  # whether some gradient was 0 or not finite, so that a step of pgd led nowhere

    __repr__ = short_repr


def attack_images(
    smoother: Smoother, victims: Iterable[Victim], rule: Rule, config: AttackConfig, *, progress: OnImages | None = None
) -> Iterator[AttackResult]:
    """Per image and radius, the perturbation within that radius that leaves the fewest labels an attack could find.

    The noise decides what the attacker may do: a perturbation of that l2-norm or l1-norm, or any content in [0, 1] in
    that number of pixels, or in one square patch of that side.
    Draws of the search choose the perturbations, and draws that had no part in it evaluate them: `Perturbation.counts`
    are independent draws of the smoothed classifier at an image that was fixed before. Neither are the draws that
    certify. On a CPU the search is a function of the seed and the images. `progress` is called with the images done.

    >>> from multiguard import Smoother, TopK, load
    >>> classifier = load(lambda x: x.flatten(1)[:, :2], labels=["cat", "dog"], output="logits")
    >>> image = np.zeros((3, 2, 2), np.float32)
    >>> image[0, 0, 0] = 0.4  # "cat" wins by 0.4, so the robust radius is 0.4 / sqrt(2) = 0.28
    >>> config = AttackConfig(attacks=("pgd",), steps=5, draws=400)
    >>> smoother = Smoother(classifier, sigma=0.5, k_max=1, device="cpu")
    >>> (result,) = attack_images(smoother, [Victim("x", image, (0,), (0.1, 0.6))], TopK(1, 1), config)
    >>> [(found.attack, found.radius, found.counts.argmax().item()) for found in result.perturbations]
    [('none', 0.0, 0), ('pgd', 0.1, 0), ('pgd', 0.6, 1)]
    """
    smoother.settings.check_rule(rule, len(smoother.classifier.label_names))
    victims = iter(victims)
    for first in islice(victims, 1):
        smoother.find_labels(first.image)
        victims = chain([first], victims)
    target, done = SmoothedTarget(smoother, rule, config.seed), 0
    for shape, alike in groupby(victims, key=lambda victim: victim.image.shape):
        size = max(1, min(_GROUP_IMAGES, _GROUP_NUMBERS // max(1, math.prod(shape))))
        while batch := list(islice(alike, size)):
            yield from _attack_group(target, batch, config)
            done += len(batch)
            if progress is not None:
                progress(done)


def _attack_group(target: SmoothedTarget, victims: Sequence[Victim], config: AttackConfig) -> list[AttackResult]:
    """All attacks on images of one shape, and every perturbation evaluated by fresh draws."""
    rule, ids = target.rule, tuple(victim.id for victim in victims)
    inputs = [image_tensor(victim.id, victim.image, target.classifier.image_size) for victim in victims]
    clean = torch.stack([to_pixels(each.to(target.device)) for each in inputs])
    inside = torch.zeros(len(victims), len(target.classifier.label_names), dtype=torch.bool)
    for row, victim in zip(inside, victims, strict=True):
        row[list(victim.labels)] = True
    inside, flat = inside.to(target.device), set[str]()
    found: list[_Found] = [
        (index, CLEAN, goal, 0.0, image) for goal in goals(rule) for index, image in enumerate(clean)
    ]
    for goal in goals(rule):
        group = ImageGroup(ids, config.seed, clean, inside if goal == "in" else ~inside)
        objective = Objective(rule, "hide" if goal == "in" else "add")
        for name in config.attacks:
            search = Search(name, target, THREATS[target.attacker], objective, config)
            reached = _search_radii(search, group, [victim.radii for victim in victims])
            found += [(index, name, goal, radius, image) for index, radius, image in reached]
            flat |= search.flat
    perturbations: list[list[Perturbation]] = [[] for _ in victims]
    for index, found_at in _evaluated(target, ids, clean, found, config.draws):
        perturbations[index].append(found_at)
    pairs = zip(victims, perturbations, strict=True)
    return [AttackResult(victim, tuple(each), victim.id in flat) for victim, each in pairs]


_Found = tuple[int, str, Goal, float, Tensor]  # the index of the image, the attack, its goal, the radius, the image


def _search_radii(
    search: Search, group: ImageGroup, radii: Sequence[tuple[float, ...]]
) -> Iterator[tuple[int, float, Tensor]]:
    """What an attack finds at every radius of every image, each from what it found at the one before."""
    best = search.compare(group, group.clean)
    for turn in range(max(map(len, radii))):
        allowed = [index for index, own in enumerate(radii) if turn < len(own)]
        active = [index for index in allowed if best.values[index] > _NOTHING_LEFT]
        if active:
            radius = torch.tensor([radii[index][turn] for index in active], dtype=torch.float64)
            radius = radius.to(group.clean.device)
            best = best.put(active, search.improve(group.take(active), turn, radius, best.take(active)))
        yield from ((index, radii[index][turn], best.images[index]) for index in allowed)


def _evaluated(
    target: SmoothedTarget, ids: Sequence[str], clean: Tensor, found: Sequence[_Found], draws: int
) -> Iterator[tuple[int, Perturbation]]:
    """Every perturbation with its hits in fresh draws; equal images are evaluated once."""
    pixels = [image.cpu().numpy() for *_, image in found]
    keys = [(each[0], hashlib.blake2b(image.tobytes()).digest()) for each, image in zip(found, pixels, strict=True)]
    images = dict(zip(keys, pixels, strict=True))
    counted = target.counts([ids[index] for index, _ in images], images.values(), draws, "judge")
    counts = dict(zip(images, counted, strict=True))
    for key, (index, attack, goal, radius, image) in zip(keys, found, strict=True):
        norm = float(THREATS[target.attacker].distances(clean[index][None], image[None])[0])
        yield index, Perturbation(attack, goal, radius, norm, images[key], counts[key])
