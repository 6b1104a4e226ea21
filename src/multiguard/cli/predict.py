"""`multiguard predict`: the smoothed classifier's labels for your own images, each with its certified radius."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from multiguard.cli.options import with_options
from multiguard.cli.progress import progress_bar
from multiguard.cli.score_table import rule_text
from multiguard.cli.terminal import PlainConsole, echo
from multiguard.pipeline.parts import ModelPart, PredictPart
from multiguard.report.rounding import plain, radius_text

if TYPE_CHECKING:
    from multiguard.pipeline.predict_job import ImagePrediction, PredictJob, PredictResult

_Images = Annotated[list[Path], Argument(help="Image files.")]
_Json = Annotated[bool, Option("--json", help="Print JSON: a radius is null where unconfirmed, 'inf' where unlimited.")]

_MOST_OTHERS = 3


@with_options
def predict_command(images: _Images, model: ModelPart, part: PredictPart, json_: _Json = False) -> None:
    """Predict the labels of images, and certify how far each label, and the set of them, stays.

    Some draws choose the labels, others certify them: a label that these cannot confirm is marked unconfirmed.
    The seed of the noise is random and shown: --seed repeats a prediction, also of a renamed file.

    Example: multiguard predict digit.png --model runs/digits --k 4
    """
    from multiguard.pipeline.predict_job import PredictJob, predict

    job = PredictJob(tuple(images), model, part)
    with progress_bar("images") as progress:
        result = predict(job, lambda done, total: progress("predicting", done, total))
    if json_:
        echo(json.dumps(_as_json(job, result), indent=1, ensure_ascii=False, allow_nan=False))
        return
    console = PlainConsole()
    for image in result.images:
        _show(image, console)
    for failure in result.failures:
        console.print(f"{failure.image_id}: could not be predicted: {failure.reason}")
    console.print(
        f"{rule_text(result.config.rule)}, sigma = {plain(result.sigma)}; "
        f"{part.pilot_draws} draws chose the labels, {part.draws} others certify"
    )
    console.print(f"noise of seed {result.seed}: --seed repeats it")
    console.print(f"for each image, all of this is right with probability at least 1 - {plain(part.alpha)}")


def _show(image: "ImagePrediction", console: Console) -> None:
    console.print(str(image.file))
    if image.names:
        console.print(_label_table(image), soft_wrap=False)
    else:
        console.print("  no label is predicted")
    if others := image.prediction.other_radii:
        console.print(_others_table(others), soft_wrap=False)
    console.print()


def _label_table(image: "ImagePrediction") -> Table:
    """Each label with its radius, and beside it how many of them stay together."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 2))
    for head, side in (("label", "left"), ("stays up to", "right"), ("of these", "left"), ("stay up to", "right")):
        table.add_column(head, justify=side, no_wrap=head != "label", overflow="fold")  # type: ignore[arg-type]
    rows = zip(image.names, image.prediction.radii, image.prediction.set_radii, strict=True)
    for number, (name, radius, together) in enumerate(rows, 1):
        table.add_row(name, radius_text(radius), f"at least {number}", radius_text(together))
    return table


def _others_table(radii: Sequence[float]) -> Table:
    """How many labels besides those predicted may come in: the first few numbers, each where it reaches further."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 2))
    table.add_column("other labels that may come in", no_wrap=True)
    table.add_column("up to", justify="right", no_wrap=True)
    certified = [number for number, radius in enumerate(radii) if radius >= 0]
    further = [number for number in certified if number == 0 or radii[number] > radii[number - 1]]
    if 0 not in certified:
        least = certified[0] if certified else len(radii)
        table.add_row("none" if least == 1 else f"fewer than {least}", radius_text(-math.inf))
    for number in further[:_MOST_OTHERS]:
        table.add_row(f"at most {number}" if number else "none", radius_text(radii[number]))
    return table


def _as_json(job: "PredictJob", result: "PredictResult") -> dict[str, Any]:
    part = job.part
    return {
        "model": job.model.spec,
        "rule": part.rule,
        **result.config.record,
        "sigma": result.sigma,
        **({} if result.score_threshold is None else {"score_threshold": result.score_threshold}),
        "pilot_draws": part.pilot_draws,
        "seed": result.seed,
        "images": [_image_json(image) for image in result.images],
        "failed": [{"file": failure.image_id, "reason": failure.reason} for failure in result.failures],
    }


def _image_json(image: "ImagePrediction") -> dict[str, Any]:
    prediction = image.prediction
    labels = [
        {"label": name, "radius": _number(radius), "confirmed": sure}
        for name, radius, sure in zip(image.names, prediction.radii, prediction.confirmed, strict=True)
    ]
    others = prediction.other_radii
    return {
        "file": str(image.file),
        "sha256": image.sha256,
        "labels": labels,
        "set_radii": [_number(radius) for radius in prediction.set_radii],
        **({"other_radii": [_number(radius) for radius in others]} if others else {}),
    }


def _number(radius: float) -> float | str | None:
    if math.isinf(radius):
        return "inf" if radius > 0 else None
    return radius
