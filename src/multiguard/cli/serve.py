"""`multiguard serve`: a page on this machine that shows what is proved of a photo, live, and attacks it."""

from typing import Annotated, Any

from multiguard.cli.options import Fields, with_options
from multiguard.cli.terminal import echo
from multiguard.pipeline.parts import ModelPart, PredictPart
from multiguard.serve.limits import ServePart

_PREDICT = ("k", "k_prime", "rule", "threshold", "score_threshold", "sigma", "pilot_draws", "alpha", "size", "device")
_Predict = Annotated[dict[str, Any], Fields(PredictPart, only=_PREDICT)]


@with_options
def serve_command(model: ModelPart, predict: _Predict, part: ServePart) -> None:
    """Show live what is proved of a photo: a page on this machine, with an attack to try.

    Example: multiguard serve --model runs/digits --k 4
    """
    from multiguard.errors import InvalidInputError
    from multiguard.pipeline.predict_job import make_predictor
    from multiguard.serve import Service, listen, run_server
    from multiguard.serve.examples import folder_examples
    from multiguard.serve.server import open_page

    predictor = make_predictor(model, PredictPart(**predict))
    if predictor.size is None:
        raise InvalidInputError(f"{model.spec} takes images of any size; give --size, such as 224")
    examples = () if part.examples is None else folder_examples(part.examples)
    service = Service(predictor, part, examples)
    listening, address = listen(part)

    def ready() -> None:
        echo(f"{predictor.model}: {address}  (Ctrl-C stops)")
        if part.open:
            open_page(address)

    try:
        run_server(service, listening, ready)
    except KeyboardInterrupt:
        echo("stopped")
