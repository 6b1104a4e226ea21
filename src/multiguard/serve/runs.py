"""Runs: an image and its draws, kept in memory between the requests about it, and attacks on it."""

import math
import secrets
import threading
import time
from importlib.util import find_spec
from secrets import randbits
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiguard.attack.config import AttackConfig
from multiguard.certify import Rule, Threshold, TopK
from multiguard.certify.wealth import BETTING_CUTS
from multiguard.errors import InvalidInputError
from multiguard.evaluate.attacks import evaluated_size
from multiguard.report.thumbnails import data_uri
from multiguard.serve.answer import Task
from multiguard.serve.live_page import slider_radii
from multiguard.smooth import LivePrediction
from multiguard.smooth.prediction import LiveVotes
from multiguard.smooth.predictor import LiveCalibrated, Predictor

if TYPE_CHECKING:
    from multiguard.attack import AdversarialBatch
    from multiguard.attack.search import Progress

Part = Literal["bare", "smoothed"]
_STEP = 0.12  # seconds between two messages about draws
_MOST_DRAWS = 1024  # between two messages
_OFTEN, _COST = 0.4, 4.0  # a certificate is computed after this many seconds, or this many times what the last one took
_OTHERS = 6  # labels shown after the chosen ones
_COPY_QUALITY = 60
_SMALL = 96  # pixels per side, up to which an image is sent without loss
_QUALITY = 85
_DRAWS = 100  # fresh draws that evaluate what was found, without a calibration
# What a search may spend. A gradient of the smoothed classifier takes several noisy copies.
_EFFORTS: dict[Part, AttackConfig] = {
    "bare": AttackConfig(steps=20, starts=2, tries=100, box=True),
    "smoothed": AttackConfig(steps=12, starts=1, tries=30, copies=4, box=True),
}
_QUICK = AttackConfig(steps=10, starts=1, tries=40, box=True)  # of each radius, to find the first that changes a label
_BETA = 0.001  # the probability of ever calling a sound proof of a run contradicted
_HALF = Threshold(0.5)  # where a classifier without noise returns a label if its scores are probabilities or logits


class Run:
    """One image, (3, height, width) uint8 as the model gets it, and its draws; what it sends holds when it is sent."""

    def __init__(self, predictor: Predictor, image: NDArray[np.uint8], digest: str) -> None:
        self.id, self.predictor, self.image = secrets.token_urlsafe(16), predictor, image
        config, calibrated = predictor.config, predictor.calibrated
        how: dict[str, Any] = {"alpha": config.alpha, "image_id": digest}  # and a random seed of its own
        self.live: LiveVotes = (
            LivePrediction(predictor.smoother, image, predictor.rule, pilot_draws=config.pilot_draws, **how)
            if calibrated is None
            else LiveCalibrated(calibrated, image, **how)
        )
        self.stopped = threading.Event()  # set to end the draws after the next few
        self.busy = False
        self.attacks = 0  # so far
        self._chunk = self.live.batch

    def grow(self, task: Task, draws: int, *, copies: bool) -> None:
        """Make further draws: messages about them, the claims as they come, and the last ones at the end."""
        live = self.live
        goal = live.draws + draws if live.most_draws == math.inf else int(live.most_draws)
        task.tell("run", self._head(goal))
        look, seen = time.monotonic(), -1
        while (live.labels is None or live.draws < goal) and not self.stopped.is_set() and not task.late:
            self._draw(goal)
            task.tell("draws", self._progress(copies and not task.backlog))
            if live.labels is not None and live.draws > BETTING_CUTS[0] and time.monotonic() >= look:
                began, seen = time.monotonic(), live.draws
                task.tell("claims", live.prediction().claims)
                look = time.monotonic() + max(_OFTEN, _COST * (time.monotonic() - began))
        complete = live.labels is not None and live.draws >= goal
        if live.labels is not None and live.draws != seen:
            task.tell("claims", live.prediction().claims)
        task.tell("done", {"reason": "draws" if complete else "stopped" if self.stopped.is_set() else "time"})

    def _draw(self, goal: int) -> None:
        """A few draws, as many as take about `_STEP` seconds."""
        live = self.live
        left = live.pilot_draws - live.pilot_draws_made or goal - live.draws
        began = time.monotonic()
        live.draw(min(self._chunk, left))
        if time.monotonic() - began < _STEP / 2 and self._chunk <= left:
            self._chunk = min(2 * self._chunk, _MOST_DRAWS)
        elif time.monotonic() - began > 2 * _STEP:
            self._chunk = max(live.batch, self._chunk // 2)

    def _head(self, goal: int) -> dict[str, Any]:
        live, (height, width) = self.live, self.image.shape[1:]
        return {
            "run": self.id,
            "noise_seed": str(live.noise_seed),  # larger than the whole numbers of JavaScript
            "goal": goal,
            "pilot_draws": live.pilot_draws,
            "image": {"width": width, "height": height, "sha256": live.image_id, "uri": image_uri(self.image)},
        }

    def _progress(self, copy: bool) -> dict[str, Any]:
        """How many draws there are, which labels they returned, and on request the last noisy copy."""
        live, chosen, hits = self.live, list(self.live.labels or ()), self.live.hits  # none when labels are just chosen
        frequent = np.argsort(-hits, kind="stable")[: _OTHERS + len(chosen)].tolist()
        known = [label for label in dict.fromkeys([*chosen, *frequent]) if label in chosen or hits[label]]
        phase: Literal["pilot", "certify"] = "certify" if live.draws else "pilot"
        made = live.draws or live.pilot_draws_made
        message: dict[str, Any] = {"phase": phase, "draws": made, "chosen": chosen}
        message |= {"hits": [[label, int(hits[label])] for label in known]}
        if copy:
            seeds: dict[str, Any] = {"noise_seed": live.noise_seed, "image_id": live.image_id, "stream": phase}
            noisy = self.predictor.smoother.noisy(self.image, made - 1, **seeds)
            message |= {"copy": {"draw": made - 1, "uri": image_uri(noisy, _COPY_QUALITY)}}
        return message


def attack_run(run: Run, task: Task, radius: float | None) -> None:
    """Show what a perturbation of this radius does to the image of a run, also if it does nothing.

    Without a radius it is the first of the slider's at which the attack changes a label of the classifier without
    noise, or the last one. Both classifiers are attacked on their own: as many labels as possible shall change.
    Perturbed images are images, with values in [0, 1].
    """
    if find_spec("torch") is None:
        raise InvalidInputError(
            "an attack needs torch, which is not installed where this page runs: pip install 'multiguard[torch]'"
        )
    from multiguard.attack import gradient_error

    predictor, run.attacks = run.predictor, run.attacks + 1
    smoother, error = predictor.smoother, gradient_error(predictor.smoother, [run.image])
    settings, method = smoother.settings, "pgd" if error is None else "random"
    # Without noise it returns labels by score, as it would alone: by its threshold, or the k best.
    threshold = settings.score_threshold
    bare: Rule = predictor.rule if threshold is None else Threshold(threshold)
    if predictor.calibrated is not None and threshold is None:
        bare = TopK(predictor.rule.k_prime or 1, predictor.rule.k_prime or 1)
        bare = bare if smoother.classifier.output is None else _HALF
    how: dict[str, Any] = {"attacker": settings.noise.attacker, "device": settings.device}
    found = None
    if radius is None:
        places = [place for place in slider_radii(settings.noise) if place > 0]
        for number, place in enumerate(radii := [*places[:2], *places[3:-1:4], places[-1]]):
            task.tell("progress", {"part": "search", "done": number / len(radii)})
            found = _search(_QUICK, smoother.classifier, run, bare, lambda _: _check(task), place, method, **how)
            radius = place
            if _changed(found):
                break
    assert radius is not None
    attacked = {"radius": radius, "threat": settings.noise.threat_words(radius), "method": method}
    task.tell("attack", {**attacked, "no_gradients": error, "original": image_uri(run.image)})
    if found is None:
        told = _telling(task, "bare")
        found = _search(_EFFORTS["bare"], smoother.classifier, run, bare, told, radius, method, **how)
    task.tell("bare", _as_json(run, found))
    draws = _DRAWS if predictor.calibrated is None else predictor.calibrated.calibration.draws
    effort, told = _EFFORTS["smoothed"].replace(draws=draws), _telling(task, "smoothed")
    found = _search(effort, smoother, run, predictor.rule, told, radius, method)
    task.tell("smoothed", {**_as_json(run, found), **_proof(run, found, radius, draws), "draws": draws})
    task.tell("done", {"reason": "attack"})


def _check(task: Task) -> None:
    """Raises if the task has no time left, or if its client is gone."""
    if task.late:
        raise InvalidInputError("the attack takes longer than this server allows (seconds)")
    task.check()


def _telling(task: Task, part: Part) -> "Progress":
    def progress(done: float) -> None:
        _check(task)
        task.tell("progress", {"part": part, "done": done})

    progress(0.0)
    return progress


def _search(
    effort: AttackConfig,
    model: Any,
    run: Run,
    rule: Rule,
    progress: "Progress",
    radius: float,
    method: str,
    **options: Any,
) -> "AdversarialBatch":
    from multiguard.attack import Change, pgd, random_search

    config = effort.replace(seed=randbits(62))  # no image can be made for its draws
    attack = pgd if method == "pgd" else random_search
    return attack(model, run.image[None], Change(), rule, radius=radius, config=config, progress=progress, **options)


def _changed(found: "AdversarialBatch") -> bool:
    return bool(np.any(found.labels_before[0] != found.labels_after[0]))


def _as_json(run: Run, found: "AdversarialBatch") -> dict[str, Any]:
    shown, factor = magnified(found.delta[0])
    return {
        "norm": float(found.norms[0]),
        "changed": _changed(found),
        "before": _labels(run, found.labels_before[0], found.scores_before[0]),
        "after": _labels(run, found.labels_after[0], found.scores_after[0]),
        "perturbation": image_uri(shown),
        "factor": factor,
        "result": image_uri(found.inputs[0]),
    }


def _labels(run: Run, returned: Any, scores: Any) -> list[dict[str, Any]]:
    """The returned labels, highest score first."""
    order = [int(label) for label in np.argsort(-scores, kind="stable") if returned[label]]
    names = run.live.label_names
    return [{"index": label, "label": names[label], "score": float(scores[label])} for label in order]


def _proof(run: Run, found: "AdversarialBatch", radius: float, draws: int) -> dict[str, Any]:
    """The labels proved at this radius, and whether fresh draws contradict the proof beyond doubt.

    The n-th attack on a run has the level beta / (n (n + 1)), so however many follow, a sound proof looks contradicted
    with probability beta at most.
    """
    if run.live.labels is None:
        return {"proved": [], "contradicted": False}
    prediction = run.live.prediction()
    proved = [label for label, own in zip(prediction.labels, prediction.radii, strict=True) if own >= radius]
    counts = np.round(found.scores_after[0].astype(np.float64) * draws)
    beta = _BETA / (run.attacks * (run.attacks + 1))
    most = evaluated_size(counts, draws, proved, run.live.rule, "in", beta=beta)[1] if proved else 0
    return {"proved": proved, "contradicted": most < len(proved)}


def image_uri(pixels: NDArray[Any], quality: int = _QUALITY) -> str:
    """The image (3, height, width) as a data URI, a small one without loss."""
    return data_uri(pixels, "png" if max(pixels.shape[1:]) <= _SMALL else "jpeg", quality)


def magnified(delta: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """The perturbation around middle grey, times a factor that is shown: the largest 1, 2 or 5 times 10^n that fits."""
    largest = float(np.abs(delta).max())
    if largest == 0:
        return np.full_like(delta, 0.5), 1.0
    power = 10.0 ** math.floor(math.log10(0.5 / largest))
    factor = next(step * power for step in (5, 2, 1) if step * power * largest <= 0.5)
    return np.asarray(0.5 + factor * delta, dtype=np.float32), factor
