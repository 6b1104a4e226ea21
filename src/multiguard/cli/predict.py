"""`multiguard predict`: the smoothed classifier's labels for images of your own, each with what is proved of it."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from multiguard.cli.options import (
    Clamp,
    Device,
    Mean,
    Model,
    Output,
    Precision,
    Rule,
    ScoreThreshold,
    Size,
    Std,
    Weights,
    one_of,
)
from multiguard.cli.progress import progress_bar
from multiguard.cli.scores import as_chosen, radius_text, rule_text
from multiguard.cli.terminal import PlainConsole, echo

if TYPE_CHECKING:
    from multiguard.pipeline.predicting import Predicted, Predictions, PredictJob
    from multiguard.smooth import Prediction

_Images = Annotated[list[Path], Argument(help="Image files.")]
_K = Annotated[int | None, Option(help="How many labels to predict [5, or all].")]
_KPrime = Annotated[int | None, Option(help="Labels that the model returns for a noisy copy [half of k, rounded up].")]
_Threshold = Annotated[
    float | None, Option(help="For --rule threshold, the share of copies from which on a label is predicted [0.5].")
]
_Sigma = Annotated[float | None, Option(help="The noise, in pixels of [0, 1] [the model folder's].")]
_Draws = Annotated[int, Option(help="Noisy copies that certify.")]
_Pilot = Annotated[int, Option(help="Further noisy copies that choose the labels.")]
_Alpha = Annotated[float, Option(help="The probability that anything said of an image is wrong.")]
_Seed = Annotated[int, Option(help="The seed of the noise.")]
_Labels = Annotated[Path | None, Option(help="A label name a line, in the order of the scores [the model's].")]
_OnError = Annotated[
    str, Option(help="Where an image cannot be predicted: stop, or record it and go on with the others.")
]
_Json = Annotated[bool, Option("--json", help="Print JSON: a radius is null where unconfirmed, 'inf' where unlimited.")]

_MOST_OTHERS = 3


def predict_command(
    images: _Images,
    model: Model,
    k: _K = None,
    k_prime: _KPrime = None,
    rule: Rule = "top-k",
    threshold: _Threshold = None,
    score_threshold: ScoreThreshold = None,
    sigma: _Sigma = None,
    draws: _Draws = 1000,
    pilot_draws: _Pilot = 100,
    alpha: _Alpha = 0.001,
    seed: _Seed = 0,
    labels: _Labels = None,
    weights: Weights = None,
    output: Output = None,
    mean: Mean = None,
    std: Std = None,
    size: Size = None,
    device: Device = None,
    precision: Precision = None,
    clamp: Clamp = False,
    on_error: _OnError = "stop",
    json_: _Json = False,
) -> None:
    """Predict the labels of images, and certify how far each label, and the set of them, stays.

    Some draws choose the labels, others certify them: a label that these cannot tell of is marked unconfirmed.
    The noise follows from an image's bytes and the seed, so that a renamed file has the same answer.

    Example: multiguard predict digit.png --model runs/digits --k 4
    """
    _predict(**locals())


def _predict(*, images: list[Path], model: str, json_: bool, **rest: Any) -> None:
    from multiguard.cli.vote import model_part
    from multiguard.pipeline.predicting import PredictJob, predict
    from multiguard.smooth.dataset import OnError
    from multiguard.votes import Rule as Rules

    one_of("rule", rest["rule"], get_args(Rules))
    one_of("on-error", rest["on_error"], get_args(OnError))
    part = model_part(model, rest)
    chosen = {name: value for name, value in rest.items() if name in PredictJob.__dataclass_fields__}
    job = PredictJob(tuple(images), part, **chosen)
    with progress_bar("images") as progress:
        found = predict(job, lambda done, total: progress("predicting", done, total))
    if json_:
        echo(json.dumps(_as_json(job, found), indent=1, ensure_ascii=False, allow_nan=False))
        return
    console = PlainConsole()
    for one in found.images:
        _show(one, console)
    for failure in found.failures:
        console.print(f"{failure.image_id}: could not be predicted: {failure.reason}")
    console.print(
        f"{rule_text(found.config.rule)}, sigma = {as_chosen(found.sigma)}; "
        f"{job.pilot_draws} draws chose the labels, {job.draws} others certify"
    )
    console.print(f"what is said of an image is wrong, in any part, with probability {as_chosen(job.alpha)} at most")


def _show(one: "Predicted", console: Console) -> None:
    console.print(str(one.file))
    if one.names:
        console.print(_stays(one), soft_wrap=False)
    else:
        console.print("  no label is predicted")
    others = _others(one.prediction)
    if others:
        console.print(_comes_in(others), soft_wrap=False)
    console.print()


def _others(said: "Prediction") -> tuple[float, ...]:
    """The radii of the labels that are not predicted; the top-k rule has none."""
    return said.other_radii or ()


def _stays(one: "Predicted") -> Table:
    """Each label with its radius, and beside it how many of them stay together."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 2))
    for head, side in (("label", "left"), ("stays up to", "right"), ("of these", "left"), ("stay up to", "right")):
        table.add_column(head, justify=side, no_wrap=head != "label", overflow="fold")  # type: ignore[arg-type]
    rows = zip(one.names, one.prediction.radii, one.prediction.set_radii, strict=True)
    for place, (name, radius, together) in enumerate(rows):
        table.add_row(name, radius_text(radius), f"at least {place + 1}", radius_text(together))
    return table


def _comes_in(radii: Sequence[float]) -> Table:
    """How many labels beside those predicted may come in: the first few numbers, each where it reaches further."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 2))
    table.add_column("other labels that may come in", no_wrap=True)
    table.add_column("up to", justify="right", no_wrap=True)
    proved = [number for number, radius in enumerate(radii) if radius >= 0]
    further = [number for number in proved if number == 0 or radii[number] > radii[number - 1]]
    if 0 not in proved:
        least = proved[0] if proved else len(radii)
        table.add_row("none" if least == 1 else f"fewer than {least}", radius_text(-math.inf))
    for number in further[:_MOST_OTHERS]:
        table.add_row(f"at most {number}" if number else "none", radius_text(radii[number]))
    return table


def _as_json(job: "PredictJob", found: "Predictions") -> dict[str, Any]:
    said = {"model": job.model.spec, "rule": job.rule, **found.config.record, "sigma": found.sigma}
    if found.score_threshold is not None:
        said["score_threshold"] = found.score_threshold
    asked = {name: getattr(job, name) for name in ("pilot_draws", "seed")}
    failed = [{"file": failure.image_id, "reason": failure.reason} for failure in found.failures]
    return {**said, **asked, "images": [_image_json(one) for one in found.images], "failed": failed}


def _image_json(one: "Predicted") -> dict[str, Any]:
    said = one.prediction
    labels = [
        {"label": name, "radius": _number(radius), "confirmed": sure}
        for name, radius, sure in zip(one.names, said.radii, said.confirmed, strict=True)
    ]
    others = _others(said)
    return {
        "file": str(one.file),
        "sha256": one.sha256,
        "labels": labels,
        "set_radii": [_number(radius) for radius in said.set_radii],
        **({"other_radii": [_number(radius) for radius in others]} if others else {}),
    }


def _number(radius: float) -> float | str | None:
    if math.isinf(radius):
        return "inf" if radius > 0 else None
    return radius
