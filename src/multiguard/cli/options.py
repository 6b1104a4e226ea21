"""The options that several commands share, worded once."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from multiguard.errors import InvalidInputError

Data = Annotated[str, Option(help="voc2007, coco, nuswide, folder or digits.")]
Root = Annotated[Path | None, Option(help="The folder that holds the dataset; digits need none.")]
Table = Annotated[Path | None, Option(help="The CSV of labels (folder, nuswide), if not the usual one.")]
Separator = Annotated[str | None, Option(help="What stands between two labels in a CSV field (folder) [;].")]
Difficult = Annotated[bool | None, Option("--difficult", help="Count difficult-only labels as present (voc2007).")]
Images = Annotated[int | None, Option(help="Read a random part of so many images [all].")]
Seed = Annotated[int, Option(help="Which part that is.")]
Workers = Annotated[int | None, Option(help="Decoding threads [one a core].")]
Force = Annotated[bool, Option("--force", help="Replace what is there.")]
ForceOther = Annotated[
    bool, Option("--force", help="Throw away another run's work that is there; the same run is always taken up.")
]

Model = Annotated[str, Option(help="A model folder, timm:NAME, hf:FOLDER, onnx:FILE or module:function.")]
Labels = Annotated[Path | None, Option(help="A label name a line, in the order of the scores [the dataset's].")]
Weights = Annotated[Path | None, Option(help="A .safetensors or .pth file (timm).")]
Output = Annotated[str | None, Option(help="What the scores are: logits or probabilities (onnx, module).")]
Mean = Annotated[str | None, Option(help="Subtracted inside the model, as in 0.48,0.46,0.41 [the model's].")]
Std = Annotated[str | None, Option(help="Divided by inside the model, as in 0.23,0.22,0.23 [the model's].")]
Size = Annotated[int | None, Option(help="Height and width of the images [the model's].")]
Device = Annotated[str | None, Option(help="Where the model runs, such as cpu or cuda:1 [a GPU, if any].")]
Precision = Annotated[str | None, Option(help="float32, bfloat16 or float16 [float32; on a GPU bfloat16].")]
BatchSize = Annotated[int | None, Option(help="Noisy images at a time [what fits].")]
Clamp = Annotated[bool, Option("--clamp", help="Clamp noisy images to [0, 1] first.")]

Rule = Annotated[str, Option(help="What the model returns: top-k, its first labels; threshold, those that pass.")]
ScoreThreshold = Annotated[
    float | None, Option(help="For --rule threshold, the probability at which a label passes [0.5].")
]


def given(**options: object) -> dict[str, object]:
    """Those of the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """The numbers of an option such as 0.48,0.46,0.41; anything else raises `InvalidInputError`."""
    if text is None:
        return None
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise InvalidInputError(f"--{name} {text}: expected numbers with commas between them") from None


def one_of(name: str, value: str | None, known: tuple[Any, ...]) -> Any:
    """The value, if it is one of those known; anything else is a usage error."""
    if value is not None and value not in known:
        raise typer.BadParameter(f"'{value}' is none of {', '.join(known)}", param_hint=f"--{name}")
    return value
