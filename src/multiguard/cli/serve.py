"""`multiguard serve`: a page on this machine that shows what is proved of a photo, live, and attacks it."""

from typing import Annotated, Any

from multiguard.cli.console import echo
from multiguard.cli.options import MODEL_HELP, Fields, with_options
from multiguard.models.config import ModelConfig
from multiguard.serve.config import ServeConfig
from multiguard.smooth.config import PredictConfig

_Model = Annotated[dict[str, Any], Fields(("spec", "labels", "output"), ModelConfig, MODEL_HELP)]
_Predict = Annotated[dict[str, Any], Fields(("calibration", "k", "sigma", "size"), PredictConfig)]
_Serve = Annotated[ServeConfig, Fields(("host", "port", "examples"))]


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
