"""Attacks on any classifier, smoothed or not: hide labels, add labels, or change as many as possible."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from multiguard.attack.candidates import Candidates, ImageGroup, Progress, SearchDraws
from multiguard.attack.config import AttackConfig, AttackName
from multiguard.attack.goals import Add, AdversarialBatch, AttackGoal, Bools, Change, Hide, Objective
from multiguard.attack.search import make_search
from multiguard.attack.target import PlainTarget, SmoothedTarget, Target, find_gradient_error
from multiguard.attack.threats import THREATS, Attacker, Ball, Threat
from multiguard.certify import Rule
from multiguard.certify.noise import Noise, resolve_noise
from multiguard.data.in_memory import label_set
from multiguard.errors import DataError, InvalidInputError, ModelError
from multiguard.io.names import unknown_name
from multiguard.models import load
from multiguard.smooth import Smoother
from multiguard.smooth.engine import image_tensor
from multiguard.smooth.noise_source import noise_key
from multiguard.smooth.settings import resolve_device

_DEFAULT = AttackConfig()
_TIE = 1e-6  # far less than one draw or one step changes a value by
_BATCH_DIMENSIONS = 4  # images, channels, height and width
_SCORE_THRESHOLD = 0.5  # from which a model that is to be smoothed returns a label under the threshold rule


def pgd(
    model: Any,
    inputs: Any,
    goal: AttackGoal,
    rule: Rule,
    *,
    radius: float,
    sigma: float | None = None,
    noise: Noise | None = None,
    attacker: Attacker | None = None,
    config: AttackConfig = _DEFAULT,
    progress: Progress | None = None,
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
            with probability at least t (`Threshold`).
        radius: How large a perturbation may be: its norm in the unit of the inputs, how many pixels, or the side of
            the patch.
        sigma: The Gaussian noise of the smoothed classifier; without it and `noise` the model is attacked as it is.
        noise: Any other noise of the smoothed classifier, instead of sigma.
        attacker: What a perturbation may be: "l2-norm", "l1-norm", "pixels" (any m pixels) or "patch" (a square of side
            m, anywhere), the last two with any content in [0, 1]; by default what the noise certifies against, and
            "l2-norm" without noise.
        config: How hard to search: steps, starts, copies, draws, box and seed.
        progress: Called with the fraction of the search that is done; an exception from it ends the attack.
        options: Options of `Smoother` for the model: labels, output, image_size and device.

    >>> import numpy as np
    >>> from multiguard import TopK
    >>> from multiguard.attack import Hide, pgd
    >>> rows = np.array([[0.4, 0.0], [3.0, 0.0]])  # the first label leads by 0.4 and by 3
    >>> pgd(lambda x: 2 * x, rows, Hide("cat"), TopK(1, 1), radius=0.5, labels=["cat", "dog"], device="cpu").success
    array([ True, False])
    """
    given = _batch(inputs)
    target = _make_target(model, rule, given[0], config.seed, sigma, noise, options)
    return _attack("pgd", target, given, goal, radius, attacker, config, progress)


def random_search(
    model: Any,
    inputs: Any,
    goal: AttackGoal,
    rule: Rule,
    *,
    radius: float,
    sigma: float | None = None,
    noise: Noise | None = None,
    attacker: Attacker | None = None,
    config: AttackConfig = _DEFAULT,
    progress: Progress | None = None,
    **options: Any,
) -> AdversarialBatch:
    """As `pgd`, by scores alone: it tries perturbations and keeps what brings the goal nearer, for any model.

    The arguments are those of `pgd`; of the config, tries, copies, draws, box and seed count.

    >>> import numpy as np
    >>> from multiguard import TopK
    >>> from multiguard.attack import Add, random_search
    >>> rows = np.array([[0.4, 0.0]])
    >>> found = random_search(lambda x: x.clone(), rows, Add(1), TopK(1, 1), radius=0.5, labels=["cat", "dog"])
    >>> found.success, bool(found.norms[0] <= 0.5)
    (array([ True]), True)
    """
    given = _batch(inputs)
    target = _make_target(model, rule, given[0], config.seed, sigma, noise, options)
    return _attack("random", target, given, goal, radius, attacker, config, progress)


def _attack(
    name: AttackName,
    target: Target,
    given: Tensor,
    goal: AttackGoal,
    radius: float,
    attacker: Attacker | None,
    config: AttackConfig,
    progress: Progress | None,
) -> AdversarialBatch:
    threat = _threat(attacker or target.attacker, given, radius)
    clean = given.to(target.device)
    if name == "pgd" and (error := find_gradient_error(target.scores, iter(clean[:, None]))) is not None:
        raise ModelError(f"the model has no gradients ({error}); use random_search, which needs none.")
    ids = tuple(str(index) for index in range(len(clean)))
    keys = tuple(noise_key(config.seed, each, "attack") for each in ids)
    names = target.classifier.label_names
    group = ImageGroup(ids, keys, clean, torch.zeros(len(clean), len(names), dtype=torch.bool, device=target.device))
    before = target.evaluate(group, clean, config.draws)
    aim = before[1] if isinstance(goal, Change) else _aim(goal, len(clean), names)
    group = ImageGroup(ids, keys, clean, torch.from_numpy(aim).to(target.device))
    draws = SearchDraws(target, Objective(target.rule, goal.kind), config, set(), progress)
    search = make_search(name, threat, draws, keep_best=True)
    allowed = torch.full((len(clean),), radius, dtype=torch.float64, device=clean.device)
    start = draws.compare(group, clean)
    start = Candidates(start.images, start.values + _TIE)  # of equals the perturbed one, which fresh draws evaluate
    found = search.improve(group, 0, allowed, start).images
    after = target.evaluate(group, found, config.draws)
    return AdversarialBatch(
        inputs=found.cpu().numpy(),
        delta=(found - clean).cpu().numpy(),
        norms=threat.distances(clean, found).cpu().numpy(),
        scores_before=before[0],
        scores_after=after[0],
        labels_before=before[1],
        labels_after=after[1],
        success=_succeeded(goal, aim, before[1], after[1]),
    )


def _make_target(
    model: Any,
    rule: Rule,
    first: Tensor,
    seed: int,
    sigma: float | None,
    noise: Noise | None,
    options: dict[str, Any],
) -> Target:
    """The smoothed classifier, or the model as it is; the first input counts labels that nobody has named."""
    named = sigma is not None or noise is not None
    if isinstance(model, Smoother):
        if named or options:
            raise InvalidInputError("a Smoother has its own noise and options; leave these out.")
        smoother = model
    elif named:
        votes = {"k_max": rule.k_prime} if rule.ranked else {"score_threshold": _SCORE_THRESHOLD}
        smoother = Smoother(model, noise=resolve_noise(sigma, noise), **{**votes, **options})
    else:
        device = resolve_device(options.pop("device", None))
        classifier = load(model, **options).eval().to(device)
        rule.check(len(classifier.find_labels(first[None].to(device))))
        return PlainTarget(classifier, rule, device)
    smoother.settings.check_rule(rule, len(smoother.find_labels(first)))
    return SmoothedTarget(smoother, rule, seed)


def _threat(attacker: str, inputs: Tensor, radius: float) -> Threat:
    """What the attacker may do; inputs without pixels are refused where these are counted."""
    if not 0 < radius < float("inf"):
        raise InvalidInputError(f"radius must be positive and finite, not {radius!r}.")
    if attacker not in THREATS:
        raise InvalidInputError(unknown_name("attacker", attacker, THREATS))
    threat = THREATS[attacker]
    if isinstance(threat, Ball):
        return threat
    if inputs.ndim != _BATCH_DIMENSIONS or inputs.min() < 0 or inputs.max() > 1:
        shape = tuple(inputs.shape)
        raise InvalidInputError(
            f"inputs has shape {shape}; this attacker needs images (images, channels, height, width) in [0, 1]."
        )
    if radius < 1:
        raise InvalidInputError(f"radius is {radius!r}; it counts pixels here, so give 1 or more.")
    return threat


def _batch(inputs: Any) -> Tensor:
    """The inputs as one float32 tensor; a uint8 value x of an image is x / 255."""
    given = inputs if isinstance(inputs, Tensor) else np.asarray(inputs)
    tensor = image_tensor("inputs", given, None)
    if tensor.ndim < 2:
        shape = tuple(tensor.shape)
        raise InvalidInputError(f"inputs has shape {shape}; expected a batch (inputs, ...): use inputs[None].")
    is_bytes = str(given.dtype).endswith("uint8")
    values = tensor.to(torch.float32)
    return values / 255 if is_bytes and values.ndim == _BATCH_DIMENSIONS else values


def _aim(goal: Hide | Add, count: int, names: Sequence[str]) -> Bools:
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


def _succeeded(goal: AttackGoal, aim: Bools, before: Bools, after: Bools) -> Bools:
    if isinstance(goal, Change):
        return np.asarray(np.any(before != after, axis=1))
    return np.asarray(~np.any(aim & (after if isinstance(goal, Hide) else ~after), axis=1))
