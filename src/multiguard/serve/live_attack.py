"""Attack it: a real search for a perturbation of a given radius, on the bare classifier and on the smoothed one."""

from typing import Any, Literal

import numpy as np

from multiguard.attack import AdversarialBatch, Change, gradient_error, pgd, random_search
from multiguard.certify import Rule, Threshold
from multiguard.errors import InvalidInputError
from multiguard.evaluate.attack_outcomes import evaluated_size
from multiguard.serve.image_uri import image_uri, magnified
from multiguard.serve.runs import Run
from multiguard.serve.worker import Task

Part = Literal["bare", "smoothed"]
# What a search may spend. A gradient of the smoothed classifier takes several noisy copies.
_PGD: dict[Part, dict[str, Any]] = {
    "bare": {"steps": 20, "starts": 2},
    "smoothed": {"steps": 12, "starts": 1, "eot": 4},
}
_RANDOM: dict[Part, dict[str, Any]] = {"bare": {"tries": 100}, "smoothed": {"tries": 30, "eot": 4}}
_DRAWS = 100  # fresh draws that evaluate what was found
_BETA = 0.001  # the probability of calling a sound proof contradicted


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
    found = _search("smoothed", smoother, run, rule, task, radius, method, draws=_DRAWS)
    task.tell("smoothed", {**_as_json(run, found), **_beside_proof(run, found, radius), "draws": _DRAWS})
    task.tell("done", {"reason": "attack"})


def _search(
    part: Part, model: Any, run: Run, rule: Rule, task: Task, radius: float, method: str, **options: Any
) -> AdversarialBatch:
    def progress(done: float) -> None:
        if task.late:
            raise InvalidInputError("the attack takes longer than the server allows; start it with more --seconds")
        task.tell("progress", {"part": part, "done": done})

    task.tell("progress", {"part": part, "done": 0.0})
    attack, budget = (pgd, _PGD[part]) if method == "pgd" else (random_search, _RANDOM[part])
    found: AdversarialBatch = attack(
        model, run.image[None], Change(), rule, radius=radius, box=True, progress=progress, **budget, **options
    )
    return found


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
