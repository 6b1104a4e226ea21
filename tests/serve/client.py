"""A client as a program would write it: plain HTTP, and server-sent events."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)


class Client:
    def __init__(self, address: str) -> None:
        self.host = urlsplit(address).netloc

    def open(self, method: str, path: str, body=None, headers=None, timeout=60) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.host, timeout=timeout)
        connection.request(method, path, body, headers or {})
        return connection

    def ask(self, method: str, path: str, body=None, headers=None) -> Reply:
        connection = self.open(method, path, body, headers)
        response = connection.getresponse()
        reply = Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return reply

    def predict(self, image: bytes, kind="image/png", query="", **headers) -> Reply:
        return self.ask("POST", f"/api/predict{query}", image, {"Content-Type": kind, **headers})

    def stream(self, path: str, body=None) -> Iterator[tuple[str, dict]]:
        """The events of a request; the connection closes with the iterator."""
        headers = {"Accept": "text/event-stream", "Content-Type": "image/png"}
        connection = self.open("POST", path, body, headers)
        try:
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"] == "text/event-stream"
            kind = ""
            for line in response:
                name, _, value = line.decode().strip().partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)
        finally:
            connection.close()


def until(condition, seconds=20) -> bool:
    """Whether the condition comes true within these seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()
