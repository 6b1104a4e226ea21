"""The application: the page, its examples, the interface that programs use, and the server that listens for them."""

import asyncio
import hashlib
import math
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import FrameType

import numpy as np
import uvicorn
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from multiguard.data.image import decode_image
from multiguard.errors import ImageError, InvalidInputError
from multiguard.models.config import ModelConfig
from multiguard.serve.access import Access, Impatient, listen, own_names, read_upload
from multiguard.serve.answer import STREAM, Answer, BusyError, Task, Work, Worker
from multiguard.serve.config import ServeConfig, is_address
from multiguard.serve.live_page import Example, find_examples, make_page, model_facts
from multiguard.serve.runs import Run, attack_run
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Predictor, make_predictor

_MOST_DRAWS = 1_000_000
_MOST_RUNS = 64  # kept in memory; the one that was not used for longest goes first
_MOST_TYPICAL = 20.0  # typical radii of the noise, of a perturbation
_RETRY_SECONDS = 10
_HEADER_BYTES = 16_384
_CONNECTIONS = 256
_IDLE_SECONDS = 10
_GRACE_SECONDS = 5


class Service:
    """Answers the requests; every number it tells to be proved holds, with probability 1 - alpha for each image.

    All inference is done by one thread, image after image. `make_app` has an example.
    """

    def __init__(self, predictor: Predictor, config: ServeConfig, examples: Sequence[Example] = ()) -> None:
        self.predictor, self.config, self.examples = predictor, config, tuple(examples)
        self.worker, self.runs = Worker(config.queue, config.seconds), OrderedDict[str, Run]()
        self._decoding = asyncio.Lock()  # one image at a time is held in full
        self._page, self._policy = make_page(predictor, config, self.examples)

    @property
    def routes(self) -> list[Route]:
        """What is answered, by path."""
        shown = {"/": self._show_page, "/examples/{index}": self._example, "/api/model": self._model}
        done = {"more": self._more, "stop": self._stop, "attack": self._attack}
        posted = {"/api/predict": self._predict, **{f"/api/runs/{{run}}/{name}": each for name, each in done.items()}}
        gets = [Route(path, each) for path, each in shown.items()]
        return gets + [Route(path, each, methods=["POST"]) for path, each in posted.items()]

    async def _show_page(self, request: Request) -> Response:
        return HTMLResponse(self._page, headers={"Content-Security-Policy": self._policy})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(model_facts(self.predictor, self.config))

    async def _example(self, request: Request) -> Response:
        known = {str(index): content for index, (_, content, _) in enumerate(self.examples)}
        if (content := known.get(request.path_params["index"])) is None:
            raise HTTPException(404, "there is no such example")
        return Response(content, media_type="application/octet-stream")

    async def _predict(self, request: Request) -> Answer:
        draws, task = self._draws(request), self._place()
        try:
            content = await read_upload(request, self.config.bytes)
            run = Run(self.predictor, await self._decode(content), hashlib.sha256(content).hexdigest())
        except BaseException:
            task.close()
            raise
        self.runs[run.id] = run
        while len(self.runs) > _MOST_RUNS:
            self.runs.popitem(last=False)
        return self._start(request, task, run, partial(run.grow, draws=draws, copies=_streams(request)))

    async def _more(self, request: Request) -> Answer:
        run, draws = self._idle_run(request), self._draws(request)
        if run.live.draws >= run.live.most_draws:
            raise HTTPException(400, f"all {run.live.draws} draws are made; send the image again for fresh ones")
        if run.live.draws + draws > _MOST_DRAWS:
            raise HTTPException(
                400, f"a run takes {_MOST_DRAWS} draws at most, and has {run.live.draws}; send the image again"
            )
        return self._start(request, self._place(), run, partial(run.grow, draws=draws, copies=_streams(request)))

    async def _stop(self, request: Request) -> Response:
        run = self._run(request)
        run.stopped.set()
        return JSONResponse({"run": run.id})

    async def _attack(self, request: Request) -> Answer:
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
                f"{self.config.queue} requests are under way, as many as this server takes; come back in a while",
                {"Retry-After": str(_RETRY_SECONDS)},
            ) from None

    def _run(self, request: Request) -> Run:
        name = request.path_params["run"]
        if name not in self.runs:
            raise HTTPException(404, "there is no such run; it may have been too long ago: send the image again")
        self.runs.move_to_end(name)
        return self.runs[name]

    def _idle_run(self, request: Request) -> Run:
        run = self._run(request)
        if run.busy:
            raise HTTPException(409, "this run is under way; stop it first")
        return run

    def _draws(self, request: Request) -> int:
        given = request.query_params.get("draws", str(self.config.draws))
        if not (given.isascii() and given.isdigit() and len(given) < 8 and 1 <= int(given) <= _MOST_DRAWS):
            raise HTTPException(400, f"draws must be a whole number from 1 to {_MOST_DRAWS}")
        return int(given)

    def _radius(self, request: Request) -> float | None:
        """The radius of an attack; None if none is given."""
        if (given := request.query_params.get("radius")) is None:
            return None
        noise, radius = self.predictor.smoother.noise, math.nan
        with suppress(ValueError):
            radius = float(given)
        most = _MOST_TYPICAL * noise.typical_radius
        if not 0 < radius <= most:
            raise HTTPException(400, f"radius must be a number above 0, at most {most:g}")
        if noise.whole and radius != int(radius):
            raise HTTPException(400, "radius counts pixels and must be a whole number")
        return radius

    async def _decode(self, content: bytes) -> NDArray[np.uint8]:
        async with self._decoding:
            try:
                decode = partial(decode_image, size=self.predictor.size, most_pixels=self.config.pixels)
                return await asyncio.to_thread(decode, content)
            except ImageError as error:
                raise HTTPException(
                    422, str(error).replace("replace the file or leave it out", "try another")
                ) from None
            except MemoryError:
                raise HTTPException(413, "the image needs more memory than there is; shrink it") from None


def make_app(service: Service, names: Sequence[str] = ()) -> Starlette:
    """The application around a service, for any ASGI server; it refuses what another site's page asks for.

    `names` of this machine are allowed in addresses, as IP addresses and localhost are.

    >>> from multiguard import Smoother, TopK
    >>> from multiguard.smooth.config import PredictConfig
    >>> colours = Smoother(lambda x: x.mean((2, 3)), 0.5, labels=["red", "green", "blue"], device="cpu")
    >>> app = make_app(Service(Predictor(colours, TopK(1, k_prime=1), 8, "colours", PredictConfig()), ServeConfig()))
    >>> [route.path for route in app.routes][:3]
    ['/', '/examples/{index}', '/api/model']
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.worker.begin()
        yield
        service.worker.stop()

    guard = Middleware(Access, names=names)
    return Starlette(
        routes=service.routes, middleware=[guard], lifespan=lifespan, exception_handlers={HTTPException: _error}
    )


def serve(
    config: ServeConfig, model: ModelConfig, predict: PredictConfig, *, ready: Callable[[str, str], None]
) -> None:
    """Serve the live page until a signal comes; every number it tells to be proved holds, as `Service` says.

    A port in use raises an error before the model is loaded. `ready` is called with the name of the model and the
    address, once the page can be opened.
    """
    listening, address = listen(config)
    predictor = make_predictor(model, predict)
    if not predictor.size:
        raise InvalidInputError(f"{predictor.model} takes images of any size; give --size, such as 224")
    service = Service(predictor, config, find_examples(config.examples, predictor.size))
    try:
        make_server(service, partial(ready, predictor.model, address)).run([listening])
    finally:
        service.worker.stop()
        service.worker.join(_GRACE_SECONDS)


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _streams(request: Request) -> bool:
    """Whether the client asks for events as they come."""
    return STREAM in request.headers.get("accept", "")


class _Server(uvicorn.Server):
    """Ends the work of the service as soon as a signal comes, so that no stream keeps the server up."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal."""
        self._service.worker.stop()
        super().handle_exit(sig, frame)


def make_server(service: Service, ready: Callable[[], None]) -> uvicorn.Server:
    """The server of a service: plain HTTP, small headers, a bounded number of connections."""
    host = service.config.host
    config = uvicorn.Config(
        make_app(service, own_names() if is_address(host) else (*own_names(), host)),
        http=Impatient,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return _Server(config, service, ready)
