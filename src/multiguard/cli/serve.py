"""`multiguard serve`: a page on this machine that shows what is proved of a photo, live, and attacks it."""

from typing import Annotated, Any

from multiguard.cli.console import echo
from multiguard.cli.options import Fields, with_options
from multiguard.models.config import ModelConfig
from multiguard.serve.limits import ServeConfig
from multiguard.smooth.config import PredictConfig

_MODEL = {
    "labels": "Label names, one per line, in score order.",
    "output": "What the scores are, for thresholds.",
    "spec": "A model, named as in predict [coco-0.5].",
}
_PREDICT = {
    "k": "Labels to predict [5, or all].",
    "rule": "The k most frequent labels, or all frequent.",
    "threshold": "The fraction of draws that a label needs [0.5].",
    "sigma": "Gaussian noise, for pixels in [0, 1] [the model's].",
    "noise": "Other noise, such as uniform:0.5.",
    "size": "Height and width of images [the model's].",
}
_Model = Annotated[dict[str, Any], Fields(ModelConfig, only=tuple(_MODEL), help=_MODEL, rest=True)]
_Predict = Annotated[dict[str, Any], Fields(PredictConfig, only=tuple(_PREDICT), help=_PREDICT, rest=True)]
_Serve = Annotated[ServeConfig, Fields(only=("host", "port", "examples"), rest=True)]


@with_options
def serve_command(config: _Serve, model: _Model, predict: _Predict) -> None:
    """Show live what is proved of a photo: a page on this machine, with an attack to try.

    Example: multiguard serve
    """
    from multiguard.models.spec import DEFAULT_MODEL
    from multiguard.serve import serve

    def ready(name: str, address: str) -> None:
        echo(f"{name}: {address}  (Ctrl-C stops it)")
        if not config.local:
            echo("note: everyone who can reach this machine can use the page; the connection is not encrypted")

    try:
        serve(config, ModelConfig(**{"spec": DEFAULT_MODEL, **model}), PredictConfig(**predict), ready=ready)
    except KeyboardInterrupt:
        echo("stopped")
