"""`multiguard predict`: the smoothed classifier's labels for your own images, each with its certified radius."""

import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, BadParameter, Option

from multiguard.cli.console import PlainConsole, echo, progress_bar
from multiguard.cli.options import MODEL, MODEL_HELP, Fields, with_options
from multiguard.errors import ImageFailure
from multiguard.io.rounding import plain, radius_text
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import PredictConfig

if TYPE_CHECKING:
    from multiguard.certify.noise import Noise
    from multiguard.evaluate import Results
    from multiguard.smooth.predictor import Outcome, Predictor

_EXAMPLES = Path(__file__).parents[1] / "data" / "photos"


def _named(text: str) -> Path:
    """The path, or the example photo of this name; an empty one would be the current folder."""
    if not text:
        raise BadParameter("a name is empty; name an image or a folder")
    examples = {each.name: each for each in _EXAMPLES.glob("*.jpg")}
    return examples[text] if text in examples and not Path(text).exists() else Path(text)


_IMAGES_HELP = "Image files, or folders of them with their subfolders; or an example photo, such as coffee.jpg."
_Images = Annotated[list[Path], Argument(parser=_named, metavar="IMAGES...", help=_IMAGES_HELP)]
_NAMES = ("recall", "radius", "calibration", "k", "rule", "threshold", "sigma", "noise", "draws", "noise_seed", "size")
_Model = Annotated[dict[str, Any], Fields(MODEL, ModelConfig, MODEL_HELP)]
_Predict = Annotated[PredictConfig, Fields(_NAMES)]
_Json = Annotated[bool, Option("--json", help="Print JSON: a radius is null where unconfirmed, 'inf' where unlimited.")]

_MOST_OTHERS = 3


@with_options
def predict_command(images: _Images, model: _Model, config: _Predict, json_: _Json = False) -> None:
    """Predict the labels of images, and certify how far each of them stays.

    With a calibration the labels hold the recall that it promises, on average, even under attack. The built-in tagger
    has calibrations (--recall, --radius); multiguard calibrate makes them for other models. Without one some draws
    choose the labels, and others certify them. The noise seed is random and shown: --noise-seed repeats a prediction,
    also of a renamed file. A file that cannot be predicted is named, the others are predicted; the exit code is 2.

    Example: multiguard predict photo.jpg
    """
    if not json_ and not any(path.exists() for path in images):
        for path in images:
            _show_failure(path, "no such image; check the name")
        raise typer.Exit(2)  # before the libraries of the model are imported, which takes seconds
    from multiguard.models.spec import DEFAULT_MODEL
    from multiguard.smooth.predictor import predict

    named, shown = ModelConfig(**{"spec": DEFAULT_MODEL, **model}), partial(_show, PlainConsole(), quiet=json_)
    with progress_bar("images") as progress:
        predictor, outcomes = predict(config, named, images, on_image=shown, progress=partial(progress, "predicting"))
    found = [(file, outcome) for file, outcome in outcomes if not isinstance(outcome, ImageFailure)]
    failures = [outcome for _, outcome in outcomes if isinstance(outcome, ImageFailure)]
    if json_:
        said = [{"file": str(file), "sha256": one.image_id, **one.claims} for file, one in found]
        failed = [{"file": failure.image_id, "reason": failure.reason} for failure in failures]
        document = {**predictor.facts, "images": said, "failed": failed}
        echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
    elif found:
        for note in filter(None, _notes(predictor)):
            echo(fill(note, 80, break_long_words=False, break_on_hyphens=False))
    if failures:
        raise typer.Exit(2)


def _show(console: Console, predictor: "Predictor", file: Path, outcome: "Outcome", *, quiet: bool) -> None:
    """Print what is said of a file, as soon as it is there."""
    if isinstance(outcome, ImageFailure):
        _show_failure(outcome.image_id, outcome.reason)
    elif not quiet:
        noise = predictor.smoother.noise
        name = file.name if file.parent == _EXAMPLES else file
        console.print(f"{name}  ({outcome.draws} {noise.draw_words})")
        together = () if outcome.promise else outcome.set_radii
        _show_labels(console, noise, outcome.names, outcome.radii, together)
        if others := outcome.other_radii:
            console.print(_others_table(noise, others), soft_wrap=False)
        console.print()


def _show_failure(name: object, reason: str) -> None:
    echo(f"multiguard: {name}: could not be predicted: {reason}", err=True)


def show_predictions(results: "Results", console: Console) -> None:
    """Print what certificates without ground truth say of each image, and what it means."""
    found = results.certificates
    set_radii = found.radii[found.methods[0]]
    for number, (name, labels, radii) in enumerate(zip(found.ids, found.labels, found.label_radii, strict=True)):
        console.print(f"{name}  ({found.draws[number]} {found.noise.draw_words})")
        names = [found.label_names[label] for label in labels]
        _show_labels(console, found.noise, names, radii.tolist(), set_radii[number].tolist())
        console.print()
    size = results.source.get("data", {}).get("size")
    echo(fill(_promise(found.noise, size, found.config.alpha), 80))


def _show_labels(
    console: Console, noise: "Noise", names: Sequence[str], radii: Sequence[float], together: Sequence[float]
) -> None:
    """Each label with its radius, and how many of them stay together unless `together` is empty."""
    if not names:
        console.print("  no label is predicted")
        return
    table = _table("label", "stays up to", *(("of these", "stay up to") if together else ()))
    for number, (name, radius) in enumerate(zip(names, radii, strict=True), 1):
        joint = (f"at least {number}", _text(noise, together[number - 1])) if together else ()
        table.add_row(name, _text(noise, radius), *joint)
    console.print(table, soft_wrap=False)


def _others_table(noise: "Noise", radii: Sequence[float]) -> Table:
    """How many other labels may come in: the first few numbers, each where it reaches further."""
    table = _table("other labels that may come in", "up to")
    certified = [number for number, radius in enumerate(radii) if radius >= 0]
    further = [number for number in certified if number == 0 or radii[number] > radii[number - 1]]
    if 0 not in certified:
        least = certified[0] if certified else len(radii)
        table.add_row("none" if least == 1 else f"fewer than {least}", _text(noise, -math.inf))
    for number in further[:_MOST_OTHERS]:
        table.add_row(f"at most {number}" if number else "none", _text(noise, radii[number]))
    return table


def _table(*heads: str) -> Table:
    """An empty table with columns of names and of radii in turn. Only the first folds."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 2))
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number % 2 else "left", overflow="fold", no_wrap=number > 0)
    return table


def _text(noise: "Noise", radius: float) -> str:
    """A certified radius; where pixels are counted, what the attacker may change."""
    if not noise.whole or math.isinf(radius):
        return radius_text(radius)
    return noise.describe(radius) if radius else "no change"


def _notes(predictor: "Predictor") -> Iterator[str]:
    """What the tables mean."""
    config, noise = predictor.config, predictor.smoother.noise
    if predictor.calibrated is not None:
        facts = predictor.facts
        yield from (facts["promise"], facts["radius_words"], facts["not_promised"])
        yield (
            f"{predictor.calibrated.calibration.how} Up to its own radius, measured on the image as the model sees it, "
            "a label stays that frequent: "
            f"all radii of an image hold with probability at least 1 - {plain(config.alpha)}."
        )
        yield (
            f"{predictor.model}, {predictor.smoother.engine_words}; --noise-seed {config.noise_seed} repeats these "
            "draws. The sender of an image must not know them beforehand."
        )
        return
    from multiguard.cli.score_table import noise_text

    yield _promise(noise, predictor.size, config.alpha)
    how = (
        f"{config.pilot_draws} draws chose the labels, others certify them; --draws allows more than {config.draws}. "
        f"--noise-seed {config.noise_seed} repeats the noise."
    )
    if noise.enumerated:
        how = "Every band votes once: there are no draws to choose."
    yield f"{predictor.model}, {predictor.smoother.engine_words}, {predictor.rule.text}, {noise_text(noise)}. {how}"


def _promise(noise: "Noise", size: int | None, alpha: float) -> str:
    pixels = f"{size} x {size} pixels with " if size else ""
    counted = {"pixels": "any change of this number of pixels", "patch": "any change inside one such patch, anywhere"}
    what = counted.get(noise.attacker, f"any perturbation of {noise.attacker} up to its radius")
    sure = f" with probability at least 1 - {plain(alpha)}"
    return (
        f"A label stays predicted under {what}, measured on the image as the model sees it: {pixels}values from 0 to "
        "1. That says nothing about whether it is right. For each image, all of this holds"
        f"{', since nothing is random' if noise.enumerated else sure}."
    )
