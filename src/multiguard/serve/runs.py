"""Runs: an image whose draws go on, kept in memory between the requests about it."""

import secrets
import threading
import time
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.wealth import BETTING_CUTS
from multiguard.io.rounding import radius_json
from multiguard.pipeline.predict_job import Predictor
from multiguard.serve.image_uri import image_uri
from multiguard.serve.worker import Task
from multiguard.smooth import LivePrediction, Prediction

_MOST_RUNS = 64  # kept in memory; the one that was not used for longest goes first
_STEP = 0.12  # seconds between two messages about draws
_MOST_DRAWS = 1024  # between two messages
_OFTEN, _COST = 0.4, 4.0  # a certificate is computed after this many seconds, or this many times what the last one took
_OTHERS = 6  # labels shown beside the chosen ones
_COPY_QUALITY = 60


def claims_json(found: Prediction) -> dict[str, Any]:
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
    """One image and its draws; every number that it sends holds when it is sent.

    Attributes:
        id: A name that nobody can guess.
        image: (3, height, width) uint8, as the model gets it.
        live: The draws, and what they prove.
        stopped: Set to end the draws after the next few.
    """

    def __init__(self, predictor: Predictor, image: NDArray[np.uint8], digest: str) -> None:
        self.id, self.predictor, self.image = secrets.token_urlsafe(16), predictor, image
        part = predictor.part
        how: dict[str, Any] = {"pilot_draws": part.pilot_draws, "alpha": part.alpha, "image_id": digest}
        self.live = LivePrediction(predictor.smoother, image, predictor.rule, **how)
        self.stopped = threading.Event()
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
                task.tell("claims", self.claims())
                look = time.monotonic() + max(_OFTEN, _COST * (time.monotonic() - began))
        complete = live.labels is not None and live.draws >= goal
        if live.labels is not None and live.draws != seen:
            task.tell("claims", self.claims())
        task.tell("done", {"reason": "draws" if complete else "stopped" if self.stopped.is_set() else "time"})

    def claims(self) -> dict[str, Any]:
        """What is proved so far."""
        return claims_json(self.live.prediction())

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
        live, part = self.live, self.predictor.part
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
        live, choosing = self.live, self.live.draws == 0
        hits = live.hits  # none in the moment when the labels are chosen
        shown = [*(live.labels or ()), *np.argsort(-hits, kind="stable")[: _OTHERS + len(live.labels or ())].tolist()]
        known = list(dict.fromkeys(label for label in shown if label in (live.labels or ()) or hits[label]))
        made = live.pilot_draws_made if choosing else live.draws
        message: dict[str, Any] = {"phase": "pilot" if choosing else "certify", "draws": made}
        message |= {"chosen": list(live.labels or ()), "hits": [[label, int(hits[label])] for label in known]}
        if copy:
            message |= {"copy": self._copy("pilot" if choosing else "certify", made - 1)}
        return message

    def _copy(self, stream: Any, draw: int) -> dict[str, Any]:
        """The noisy copy of a draw."""
        live, smoother = self.live, self.predictor.smoother
        noisy = smoother.noisy(self.image, draw, noise_seed=live.noise_seed, image_id=live.image_id, stream=stream)
        return {"draw": draw, "uri": image_uri(noisy, _COPY_QUALITY)}


class Runs:
    """The latest runs by their id."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def add(self, run: Run) -> None:
        """Keep a run; where there are too many, the one that was not used for longest goes."""
        self._runs[run.id] = run
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)

    def get(self, name: str) -> Run | None:
        """The run of this id, if it is still there."""
        if name in self._runs:
            self._runs.move_to_end(name)
        return self._runs.get(name)
