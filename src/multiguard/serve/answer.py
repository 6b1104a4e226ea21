"""The answer to a request for work: its events as they come, or one JSON object at the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from multiguard.serve.worker import Event, Task

STREAM = "text/event-stream"
_SEND_SECONDS = 20  # that a client may take to read a part of an answer
_PATIENCE = 0.5  # seconds between two looks at the queue
_SILENT = 30  # looks after which a silent stream says that it is alive


class Answer:
    """Sends what a task tells. If the client goes, the task ends.

    Args:
        task: The task; it has been started.
        as_stream: Whether to send events as they come, as server-sent events; otherwise one JSON object.
        close: Called once when the answer has ended, in whatever way.
    """

    def __init__(self, task: Task, as_stream: bool, close: Callable[[], None]) -> None:
        self._task, self._as_stream, self._close = task, as_stream, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        send = _impatient(send)
        sending = asyncio.ensure_future(self._stream(send) if self._as_stream else self._whole(scope, receive, send))
        leaving = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            self._close()

    async def _events(self) -> AsyncIterator[Event]:
        """The events, and meanwhile how many tasks come before this one."""
        ahead, silent = 0, 0
        while True:
            try:
                event = await self._task.take(_PATIENCE)
            except TimeoutError:
                now, silent = self._task.ahead(), silent + 1
                if now != ahead or silent % _SILENT == 0:
                    ahead = now
                    yield "waiting", {"ahead": ahead}
                continue
            if event is None:
                return
            yield event

    async def _stream(self, send: Send) -> None:
        headers = [(b"content-type", STREAM.encode()), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for kind, data in self._events():
            body = f"event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One object: the last message of each kind that matters at the end."""
        answer: dict[str, Any] = {}
        status = 200
        async for kind, data in self._events():
            if kind == "error":
                answer, status = {"error": data["error"]}, data["status"]
            elif kind == "run":
                answer |= {name: value for name, value in data.items() if name != "image"}
                answer["image"] = {name: value for name, value in data["image"].items() if name != "uri"}
            elif kind in ("claims", "attack"):
                answer |= data
            elif kind in ("bare", "smoothed"):
                answer[kind] = data
            elif kind == "done":
                answer["ended"] = data["reason"]
        await JSONResponse(answer, status)(scope, receive, send)


def _impatient(send: Send) -> Send:
    """The same, but raises `TimeoutError`: a client that does not read must not keep its place."""

    async def limited(message: Message) -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await send(message)

    return limited


async def _disconnect(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
