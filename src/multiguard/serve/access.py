"""Who may talk to the server: this machine's own pages and programs, never another site in the same browser."""

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multiguard.serve.limits import is_address

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
    attacker's page and this server for one site. So the Host must be an IP address, which no name server decides, or a
    name that this machine has itself. A request that changes something must come from a page of this server, or from no
    page at all.

    Args:
        app: The application.
        names: The names by which this machine may be called, beside IP addresses and localhost.
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
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return "this server answers to IP addresses, localhost and its own name only; open it by one of these"
        if method in _SAFE_METHODS:
            return None
        origins = headers.getlist("origin")
        if any(_netloc(origin) != hosts[0].lower() for origin in origins):
            return "this request comes from a page of another site"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "this request comes from a page of another site"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name.lower().rstrip(".") in self._names or is_address(name)


def own_names() -> tuple[str, ...]:
    """The names that this machine gives itself."""
    name = socket.gethostname()
    return (name, f"{name.partition('.')[0]}.local")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
