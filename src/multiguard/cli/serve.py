"""`multiguard serve`: a page on this machine that shows what is proved of a photo, live, and attacks it."""

from typing import Annotated, Any

from multiguard.cli.options import Fields, with_options
from multiguard.cli.terminal import echo
from multiguard.errors import InvalidInputError
from multiguard.models.config import ModelConfig
from multiguard.serve.limits import ServeConfig
from multiguard.smooth.config import PredictConfig

_MODEL = {
    "spec": "A model, named as in predict [coco-0.5].",
    "labels": "Label names, one per line, in score order.",
    "weights": "A weights file (timm, module).",
}
_PREDICT = {
    "k": "Labels to predict [5, or all].",
    "k_prime": "Labels that a draw returns [half of k].",
    "rule": "The k most frequent labels, or all frequent.",
    "threshold": "The fraction of draws that a label needs [0.5].",
    "score_threshold": "Probability from which a draw has a label [0.5].",
    "sigma": "Gaussian noise, for pixels in [0, 1] [the model's].",
    "noise": "Other noise, such as uniform:0.5.",
    "alpha": "Probability that a proof is wrong.",
    "size": "Height and width of images [the model's].",
    "device": "Such as cpu or cuda:1 [a GPU, if any].",
}
_Model = Annotated[dict[str, Any], Fields(ModelConfig, only=(*_MODEL, "output"), help=_MODEL)]
_Predict = Annotated[dict[str, Any], Fields(PredictConfig, only=tuple(_PREDICT), help=_PREDICT)]


@with_options
def serve_command(model: _Model, predict: _Predict, part: ServeConfig) -> None:
    """Show live what is proved of a photo: a page on this machine, with an attack to try.

    Example: multiguard serve
    """
    from multiguard.models.spec import DEFAULT_MODEL
    from multiguard.pipeline.predict_job import make_predictor
    from multiguard.serve import Service
    from multiguard.serve.examples import find_examples
    from multiguard.serve.server import listen, open_page, run_server

    listening, address = listen(part)  # a port in use is said before a model is loaded
    predictor = make_predictor(ModelConfig(**{"spec": DEFAULT_MODEL, **model}), PredictConfig(**predict))
    if not predictor.size or predictor.size < 1:
        raise InvalidInputError(f"{predictor.model} takes images of any size; give --size, such as 224")
    service = Service(predictor, part, find_examples(part.examples, predictor.size))

    def ready() -> None:
        echo(f"{predictor.model}: {address}  (Ctrl-C stops it)")
        if not part.local:
            echo("note: everyone who can reach this machine can use the page; the connection is not encrypted")
        if part.open:
            open_page(address)

    try:
        run_server(service, listening, ready)
    except KeyboardInterrupt:
        echo("stopped")
