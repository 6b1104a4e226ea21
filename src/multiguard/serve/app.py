"""The application: the page, its examples, and the interface that the page and other programs use."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from multiguard.data.image import decode_image
from multiguard.errors import ImageError
from multiguard.pipeline.predict_job import Predictor
from multiguard.serve.access import Access
from multiguard.serve.answer import STREAM, Answer
from multiguard.serve.examples import Example
from multiguard.serve.limits import ServeConfig
from multiguard.serve.live_attack import attack_run
from multiguard.serve.live_page import make_page, model_facts
from multiguard.serve.runs import Run, Runs
from multiguard.serve.worker import BusyError, Task, Work, Worker

_UPLOAD_SECONDS = 60.0  # for an upload to arrive
_MOST_DRAWS = 1_000_000
_MOST_TYPICAL = 20.0  # typical radii of the noise, of a perturbation
_RETRY_SECONDS = 10


class Service:
    """Answers the requests; every number it tells to be proved holds, with probability 1 - alpha for each image.

    All inference is done by one thread, image after image.

    Args:
        predictor: The smoothed classifier, and how its draws are made.
        part: What a request may cost.
        examples: The images that the page offers.

    >>> from multiguard import Smoother, TopK
    >>> from multiguard.smooth.config import PredictConfig
    >>> colours = Smoother(lambda x: x.mean((2, 3)), 0.5, labels=["red", "green", "blue"], device="cpu")
    >>> service = Service(Predictor(colours, TopK(1, k_prime=1), 8, "colours", PredictConfig()), ServeConfig())
    >>> service.part.draws
    300
    """

    def __init__(self, predictor: Predictor, part: ServeConfig, examples: Sequence[Example] = ()) -> None:
        self.predictor, self.part, self.examples = predictor, part, tuple(examples)
        self.worker, self.runs = Worker(part.queue, part.seconds), Runs()
        self._decoding = asyncio.Lock()  # one image at a time is held in full
        self._page, self._policy = make_page(predictor, part, self.examples)

    async def page(self, request: Request) -> Response:
        """The page."""
        return HTMLResponse(self._page, headers={"Content-Security-Policy": self._policy})

    async def model(self, request: Request) -> Response:
        """What the server predicts with."""
        return JSONResponse(model_facts(self.predictor, self.part))

    async def example(self, request: Request) -> Response:
        """The file of an example."""
        index = request.path_params["index"]
        if index >= len(self.examples):
            raise HTTPException(404, "there is no such example")
        return Response(self.examples[index].content, media_type="application/octet-stream")

    async def predict(self, request: Request) -> Answer:
        """Predict an uploaded image."""
        draws, task = self._draws(request), self._place()
        try:
            content = await _read(request, self.part.bytes)
            run = Run(self.predictor, await self._decode(content), hashlib.sha256(content).hexdigest())
        except BaseException:
            task.close()
            raise
        self.runs.add(run)
        return self._start(request, task, run, partial(run.grow, draws=draws, copies=_streams(request)))

    async def more(self, request: Request) -> Answer:
        """Make more draws of a run."""
        run, draws = self._idle_run(request), self._draws(request)
        if run.live.draws + draws > _MOST_DRAWS:
            raise HTTPException(
                400, f"a run takes {_MOST_DRAWS} draws at most, and has {run.live.draws}; send the image again"
            )
        return self._start(request, self._place(), run, partial(run.grow, draws=draws, copies=_streams(request)))

    async def stop(self, request: Request) -> Response:
        """End the draws of a run soon; its stream ends with what is proved."""
        run = self._run(request)
        run.stopped.set()
        return JSONResponse({"run": run.id})

    async def attack(self, request: Request) -> Answer:
        """Attack the image of a run."""
        run, radius = self._idle_run(request), self._radius(request)
        return self._start(request, self._place(), run, partial(attack_run, run, radius=radius))

    def _start(self, request: Request, task: Task, run: Run, work: Work) -> Answer:
        def close() -> None:
            run.busy = False
            task.close()

        run.busy = True
        run.stopped.clear()
        task.start(work)
        return Answer(task, _streams(request), close)

    def _place(self) -> Task:
        try:
            return self.worker.place()
        except BusyError:
            raise HTTPException(
                429,
                f"{self.part.queue} requests are under way, as many as this server takes; come back in a while",
                {"Retry-After": str(_RETRY_SECONDS)},
            ) from None

    def _run(self, request: Request) -> Run:
        run = self.runs.get(request.path_params["run"])
        if run is None:
            raise HTTPException(404, "there is no such run; it may have been too long ago: send the image again")
        return run

    def _idle_run(self, request: Request) -> Run:
        run = self._run(request)
        if run.busy:
            raise HTTPException(409, "this run is under way; stop it first")
        return run

    def _draws(self, request: Request) -> int:
        given = request.query_params.get("draws", str(self.part.draws))
        if not (given.isascii() and given.isdigit() and len(given) < 8 and 1 <= int(given) <= _MOST_DRAWS):
            raise HTTPException(400, f"draws must be a whole number from 1 to {_MOST_DRAWS}")
        return int(given)

    def _radius(self, request: Request) -> float:
        noise = self.predictor.smoother.settings.noise
        most = _MOST_TYPICAL * noise.typical_radius
        try:
            radius = float(request.query_params.get("radius", "nan"))
        except ValueError:
            radius = math.nan
        if not 0 < radius <= most:
            raise HTTPException(400, f"radius must be a number above 0, at most {most:g}")
        if noise.whole and radius != int(radius):
            raise HTTPException(400, "radius counts pixels and must be a whole number")
        return radius

    async def _decode(self, content: bytes) -> NDArray[np.uint8]:
        async with self._decoding:
            try:
                decode = partial(decode_image, size=self.predictor.size, most_pixels=self.part.pixels)
                return await asyncio.to_thread(decode, content)
            except ImageError as error:
                raise HTTPException(
                    422, str(error).replace("replace the file or leave it out", "try another")
                ) from None
            except MemoryError:
                raise HTTPException(413, "the image needs more memory than there is; shrink it") from None


def make_app(service: Service, names: Sequence[str] = ()) -> Starlette:
    """The application around a service, for any ASGI server; it refuses what another site's page asks for.

    Args:
        service: What answers.
        names: The names by which this machine may be called, beside IP addresses and localhost.

    >>> from multiguard import Smoother, TopK
    >>> from multiguard.smooth.config import PredictConfig
    >>> colours = Smoother(lambda x: x.mean((2, 3)), 0.5, labels=["red", "green", "blue"], device="cpu")
    >>> app = make_app(Service(Predictor(colours, TopK(1, k_prime=1), 8, "colours", PredictConfig()), ServeConfig()))
    >>> [route.path for route in app.routes][:3]
    ['/', '/examples/{index:int}', '/api/model']
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.worker.begin()
        yield
        service.worker.stop()

    routes = [
        Route("/", service.page),
        Route("/examples/{index:int}", service.example),
        Route("/api/model", service.model),
        Route("/api/predict", service.predict, methods=["POST"]),
        Route("/api/runs/{run}/more", service.more, methods=["POST"]),
        Route("/api/runs/{run}/stop", service.stop, methods=["POST"]),
        Route("/api/runs/{run}/attack", service.attack, methods=["POST"]),
    ]
    guard = Middleware(Access, names=names)
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan, exception_handlers={HTTPException: _error})


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _streams(request: Request) -> bool:
    """Whether the client asks for events as they come."""
    return STREAM in request.headers.get("accept", "")


async def _read(request: Request, most: int) -> bytes:
    """The body, if it is an image by its type and not too large; it is kept in memory only."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not kind.startswith("image/") and kind != "application/octet-stream":
        raise HTTPException(415, "send the image file itself as the body, with a Content-Type such as image/jpeg")
    too_large = HTTPException(413, f"the upload is larger than the {most:,} bytes allowed; shrink the image")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length) > most:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(_UPLOAD_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > most:
                    raise too_large
    except ClientDisconnect:
        raise HTTPException(400, "the upload broke off") from None
    except TimeoutError:
        raise HTTPException(408, f"the upload did not arrive within {_UPLOAD_SECONDS:g} s") from None
    if not content:
        raise HTTPException(422, "the body is empty; send the image file itself as the body")
    return bytes(content)
