"""Runs: an image whose draws go on, kept in memory between the requests about it, and attacks on it."""

import base64
import io
import math
import secrets
import threading
import time
from secrets import randbits
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from multiguard.attack import AdversarialBatch, AttackConfig, Change, gradient_error, pgd, random_search
from multiguard.certify import Rule, Threshold
from multiguard.certify.wealth import BETTING_CUTS
from multiguard.errors import InvalidInputError
from multiguard.evaluate.attacks import evaluated_size
from multiguard.io.rounding import radius_json
from multiguard.serve.answer import Task
from multiguard.smooth import LivePrediction, Prediction
from multiguard.smooth.predictor import Predictor

Part = Literal["bare", "smoothed"]
_STEP = 0.12  # seconds between two messages about draws
_MOST_DRAWS = 1024  # between two messages
_OFTEN, _COST = 0.4, 4.0  # a certificate is computed after this many seconds, or this many times what the last one took
_OTHERS = 6  # labels shown beside the chosen ones
_COPY_QUALITY = 60
_SMALL = 96  # pixels per side, up to which an image is sent without loss
_QUALITY = 85
# What a search may spend. A gradient of the smoothed classifier takes several noisy copies.
_DRAWS = 100  # fresh draws that evaluate what was found
_EFFORTS: dict[Part, AttackConfig] = {
    "bare": AttackConfig(steps=20, starts=2, tries=100, box=True),
    "smoothed": AttackConfig(steps=12, starts=1, tries=30, copies=4, draws=_DRAWS, box=True),
}
_BETA = 0.001  # the probability of calling a sound proof contradicted


def _claims(found: Prediction) -> dict[str, Any]:
    """What is proved, as JSON."""
    rows = zip(found.labels, found.names, found.radii, found.confirmed, strict=True)
    labels = [
        {"index": index, "label": name, "radius": radius_json(radius), "confirmed": sure}
        for index, name, radius, sure in rows
    ]
    others = found.other_radii
    return {
        "draws": found.draws,
        "labels": labels,
        "set_radii": [radius_json(radius) for radius in found.set_radii],
        **({} if others is None else {"other_radii": [radius_json(radius) for radius in others]}),
    }


class Run:
    """One image, (3, height, width) uint8 as the model gets it, and its draws; what it sends holds when it is sent."""

    def __init__(self, predictor: Predictor, image: NDArray[np.uint8], digest: str) -> None:
        self.id, self.predictor, self.image = secrets.token_urlsafe(16), predictor, image
        part = predictor.config
        how: dict[str, Any] = {"pilot_draws": part.pilot_draws, "alpha": part.alpha, "image_id": digest}
        self.live = LivePrediction(predictor.smoother, image, predictor.rule, **how)
        self.stopped = threading.Event()  # set to end the draws after the next few
        self.busy = False
        self._chunk = self.live.batch

    def grow(self, task: Task, draws: int, *, copies: bool) -> None:
        """Make so many further draws: messages about them, the claims as they come, and the last ones at the end."""
        live, goal = self.live, self.live.draws + draws
        task.tell("run", self._head(goal))
        look, seen = time.monotonic(), -1
        while (live.labels is None or live.draws < goal) and not self.stopped.is_set() and not task.late:
            self._draw(goal)
            task.tell("draws", self._progress(copies and not task.backlog))
            if live.labels is not None and live.draws > BETTING_CUTS[0] and time.monotonic() >= look:
                began, seen = time.monotonic(), live.draws
                task.tell("claims", _claims(live.prediction()))
                look = time.monotonic() + max(_OFTEN, _COST * (time.monotonic() - began))
        complete = live.labels is not None and live.draws >= goal
        if live.labels is not None and live.draws != seen:
            task.tell("claims", _claims(live.prediction()))
        task.tell("done", {"reason": "draws" if complete else "stopped" if self.stopped.is_set() else "time"})

    def _draw(self, goal: int) -> None:
        """A few draws, as many as take about `_STEP` seconds."""
        live = self.live
        left = live.pilot_draws - live.pilot_draws_made if live.labels is None else goal - live.draws
        began = time.monotonic()
        live.draw(min(self._chunk, left))
        if time.monotonic() - began < _STEP / 2 and self._chunk <= left:
            self._chunk = min(2 * self._chunk, _MOST_DRAWS)
        elif time.monotonic() - began > 2 * _STEP:
            self._chunk = max(live.batch, self._chunk // 2)

    def _head(self, goal: int) -> dict[str, Any]:
        live, part = self.live, self.predictor.config
        height, width = self.image.shape[1:]
        return {
            "run": self.id,
            "noise_seed": str(live.noise_seed),  # larger than the whole numbers of JavaScript
            "goal": goal,
            "pilot_draws": part.pilot_draws,
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


def attack_run(run: Run, task: Task, radius: float) -> None:
    """Show what a perturbation of this radius does to the image of a run, also if it does nothing.

    Both classifiers are attacked on their own: as many labels as possible shall change. Perturbed images are images,
    with values in [0, 1].
    """
    smoother, error = run.predictor.smoother, gradient_error(run.predictor.smoother, [run.image])
    method = "pgd" if error is None else "random"
    attacker, threat = smoother.settings.noise.attacker, smoother.settings.noise.threat_words(radius)
    message = {"radius": radius, "threat": threat, "method": method, "no_gradients": error}
    task.tell("attack", {**message, "original": image_uri(run.image)})
    # Which labels are returned without noise: those of a draw, by score, or the k best.
    device = smoother.settings.device
    threshold, rule = smoother.settings.score_threshold, run.predictor.rule
    bare: Rule = rule if threshold is None else Threshold(threshold)
    found = _search("bare", smoother.classifier, run, bare, task, radius, method, attacker=attacker, device=device)
    task.tell("bare", _as_json(run, found))
    found = _search("smoothed", smoother, run, rule, task, radius, method)
    task.tell("smoothed", {**_as_json(run, found), **_beside_proof(run, found, radius), "draws": _DRAWS})
    task.tell("done", {"reason": "attack"})


def _search(
    part: Part, model: Any, run: Run, rule: Rule, task: Task, radius: float, method: str, **options: Any
) -> AdversarialBatch:
    def progress(done: float) -> None:
        if task.late:
            raise InvalidInputError("the attack takes longer than this server allows (seconds)")
        task.tell("progress", {"part": part, "done": done})

    task.tell("progress", {"part": part, "done": 0.0})
    attack = pgd if method == "pgd" else random_search
    config = _EFFORTS[part].replace(seed=randbits(62))  # no image can be made for its draws
    return attack(model, run.image[None], Change(), rule, radius=radius, config=config, progress=progress, **options)


def _as_json(run: Run, found: AdversarialBatch) -> dict[str, Any]:
    shown, factor = magnified(found.delta[0])
    return {
        "norm": float(found.norms[0]),
        "changed": bool(np.any(found.labels_before[0] != found.labels_after[0])),
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


def _beside_proof(run: Run, found: AdversarialBatch, radius: float) -> dict[str, Any]:
    """The labels proved at this radius, and whether fresh draws contradict the proof beyond doubt."""
    if run.live.labels is None:
        return {"proved": [], "contradicted": False}
    prediction = run.live.prediction()
    proved = [label for label, own in zip(prediction.labels, prediction.radii, strict=True) if own >= radius]
    counts = np.round(found.scores_after[0].astype(np.float64) * _DRAWS)
    most = evaluated_size(counts, _DRAWS, proved, run.live.rule, "in", beta=_BETA)[1] if proved else 0
    return {"proved": proved, "contradicted": most < len(proved)}


def image_uri(pixels: NDArray[Any], quality: int = _QUALITY) -> str:
    """The image (3, height, width) as a data URI; values outside [0, 1] are shown as 0 or 1.

    >>> image_uri(np.zeros((3, 2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    if pixels.dtype != np.uint8:
        pixels = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)))
    kind = "png" if max(image.size) <= _SMALL else "jpeg"
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def magnified(delta: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """The perturbation around middle grey, times a factor that is shown: the largest 1, 2 or 5 times 10^n that fits.

    >>> magnified(np.full((3, 1, 1), -0.004, np.float32))[1]
    100.0
    """
    largest = float(np.abs(delta).max())
    if largest == 0:
        return np.full_like(delta, 0.5), 1.0
    power = 10.0 ** math.floor(math.log10(0.5 / largest))
    factor = next(step * power for step in (5, 2, 1) if step * power * largest <= 0.5)
    return np.asarray(0.5 + factor * delta, dtype=np.float32), factor
