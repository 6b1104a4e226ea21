"""`multiguard wrap`: a model and everything that must be said of it, in one folder."""

from pathlib import Path
from typing import Annotated

from typer import Option

from multiguard.cli.options import Force, with_options
from multiguard.cli.terminal import echo
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import named_noise

_Out = Annotated[Path, Option(help="The folder to write; every command takes it as --model.")]
_Size = Annotated[int | None, Option(help="Height and width of the images [the model's].", min=1)]
_Sigma = Annotated[float | None, Option(help="Gaussian noise to vote with, for pixels in [0, 1] [left open].")]
_Noise = Annotated[str | None, Option("--noise", help="Other noise to vote with, such as uniform:0.5 [left open].")]


@with_options
def wrap_command(
    model: ModelConfig,
    out: _Out,
    size: _Size = None,
    sigma: _Sigma = None,
    noise: _Noise = None,
    force: Force = False,
) -> None:
    """Describe a model once: write a folder that other commands take without further options.

    Files of the model are copied. Code is named with its hash, and runs only for you, here.

    Example: multiguard wrap --model tagger.onnx --labels names.txt --output probabilities --size 224 --out mymodel
    """
    from multiguard.pipeline.wrap_job import WrapJob, wrap

    classifier = wrap(WrapJob(model, out, size, named_noise(sigma, noise), force))
    echo(f"{model.spec}: {len(classifier.label_names)} labels; multiguard vote --model {out} --data ...")
    echo(f"model: {out}")
