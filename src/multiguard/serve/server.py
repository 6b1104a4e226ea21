"""The server: it listens on one port until it is interrupted, and then ends all work."""

import asyncio
import socket
import webbrowser
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from multiguard.errors import InvalidInputError
from multiguard.serve.access import own_names
from multiguard.serve.app import Service, make_app
from multiguard.serve.limits import ServeConfig, is_address

_HEADER_BYTES = 16_384
_CONNECTIONS = 256
_IDLE_SECONDS = 10
_GRACE_SECONDS = 5
FIRST_REQUEST_SECONDS = 10.0  # for all headers of the first request of a connection


class _Impatient(H11Protocol):
    """Closes a connection whose first request has not come in time, so that silent ones cannot fill the server."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.loop.call_later(FIRST_REQUEST_SECONDS, self._give_up)

    def _give_up(self) -> None:
        request: object = self.cycle  # None before the first request has come
        if request is None:
            self.transport.close()


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


def run_server(service: Service, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal comes, whose handler may raise; `ready` is called once the page can be opened."""
    try:
        make_server(service, ready).run([listening])
    finally:
        service.worker.stop()
        service.worker.join(_GRACE_SECONDS)


def make_server(service: Service, ready: Callable[[], None]) -> uvicorn.Server:
    """The server of a service: plain HTTP, small headers, a bounded number of connections."""
    host = service.part.host
    config = uvicorn.Config(
        make_app(service, own_names() if is_address(host) else (*own_names(), host)),
        http=_Impatient,
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


def listen(part: ServeConfig) -> tuple[socket.socket, str]:
    """A socket that listens where the options say, and the address of the page."""
    family = socket.AF_INET6 if ":" in part.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((part.host, part.port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"--host {part.host} --port {part.port}: cannot listen there ({why}); --port 0 takes any free port"
        ) from error
    listening.listen(128)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(part.host, part.host)
    name = f"[{host}]" if family == socket.AF_INET6 else host
    return listening, f"http://{name}:{listening.getsockname()[1]}/"


def open_page(address: str) -> None:
    """Open the page in the user's browser."""
    webbrowser.open(address)
