"""Who may talk to the server, and what they may send: never another site in the same browser, one image at a time."""

import asyncio
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from multiguard.errors import InvalidInputError
from multiguard.serve.config import ServeConfig, is_address

FIRST_REQUEST_SECONDS = 10.0  # for all headers of the first request of a connection
_UPLOAD_SECONDS = 60.0  # for an upload to arrive
_SAFE_METHODS = ("GET", "HEAD")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Access:
    """Refuses requests that another site makes through the user's browser, and adds headers that keep pages apart.

    A name that an attacker controls may resolve to this machine (DNS rebinding), and then the browser takes the
    attacker's page and this server for one site. So the Host must be an IP address, which no name server decides,
    localhost, or one of these names of the machine. A request that changes something must come from a page of this
    server, or from no page at all.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app, self._names = app, {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**_HEADERS, "Content-Security-Policy": _NO_CONTENT_POLICY}.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self.refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            await JSONResponse({"error": refusal}, 403)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def refusal(self, method: str, headers: Headers) -> str | None:
        """Why a request is refused; None if it is not."""
        hosts = headers.getlist("host")
        name = _host(f"//{hosts[0]}")[1] if len(hosts) == 1 else ""
        if name.rstrip(".") not in self._names and not is_address(name):
            return "this server answers to IP addresses, localhost and its own name only; open it by one of these"
        if method in _SAFE_METHODS:
            return None
        foreign = any(_host(origin)[0] != hosts[0].lower() for origin in headers.getlist("origin"))
        if foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from a page of another site"
        return None


def own_names() -> tuple[str, ...]:
    """The names that this machine gives itself."""
    name = socket.gethostname()
    return (name, f"{name.partition('.')[0]}.local")


def _host(address: str) -> tuple[str, str]:
    """The host of an address with its port, and without; empty for what is no address."""
    try:
        parts = urlsplit(address)
        return parts.netloc.lower(), parts.hostname or ""
    except ValueError:
        return "", ""


async def read_upload(request: Request, most: int) -> bytes:
    """The image in the body; it is not too large, and is kept in memory only."""
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
        raise HTTPException(422, "the upload is empty; send the image file as the body")
    return bytes(content)


class Impatient(H11Protocol):
    """Closes a connection whose first request has not come in time, so that silent ones cannot fill the server."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.loop.call_later(FIRST_REQUEST_SECONDS, self._give_up)

    def _give_up(self) -> None:
        request: object = self.cycle  # None before the first request has come
        if request is None:
            self.transport.close()


def listen(config: ServeConfig) -> tuple[socket.socket, str]:
    """A socket that listens where the options say, and the address of the page."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"--host {config.host} --port {config.port}: cannot listen there ({why}); --port 0 takes any free port"
        ) from error
    listening.listen(128)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    name = f"[{host}]" if family == socket.AF_INET6 else host
    return listening, f"http://{name}:{listening.getsockname()[1]}/"
