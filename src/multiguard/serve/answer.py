"""Work and its answer: one thread does all inference, and the events of a task go to its client as they come."""

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from multiguard.errors import MultiGuardError

Event = tuple[str, dict[str, Any]]  # its kind, and its data
Work = Callable[["Task"], None]
STREAM = "text/event-stream"
_FEW = 4  # events that may wait for a slow client before copies of the image are left out
_SEND_SECONDS = 10  # that a client may take to read a part of an answer
_PATIENCE = 0.5  # seconds between two looks at the queue
_SILENT = 30  # looks after which a silent stream says that it is alive
_log = logging.getLogger("multiguard.serve")


class BusyError(Exception):
    """As many tasks are under way as may be; the client should come again later."""


class CancelledTaskError(Exception):
    """The client is gone, or the server stops."""


class Task:
    """The work of one request, and its events on their way to the client.

    `work` is set before the worker takes the task; `late` and `check` are for the work itself.
    """

    def __init__(self, worker: "Worker") -> None:
        self._worker, self._loop = worker, asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._cancelled = threading.Event()
        self._began, self._seconds = math.inf, math.inf
        self._work: Work = lambda task: None

    @property
    def late(self) -> bool:
        """Whether its time, which counts from when it runs, is over: it is divided by the tasks under way."""
        return time.monotonic() - self._began > self._seconds / max(1, len(self._worker.tasks))

    @property
    def backlog(self) -> bool:
        """Whether the client is slow to take its events."""
        return self._events.qsize() > _FEW

    def check(self) -> None:
        """Raises `CancelledTaskError` if no client waits for the work any more."""
        if self._cancelled.is_set():
            raise CancelledTaskError

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to the client; raises as `check`."""
        self.check()
        self._put((kind, data))

    def start(self, work: Work) -> None:
        """Let the worker do this work when it comes to it."""
        self._work = work
        self._worker.queue.put(self)

    async def take(self, seconds: float) -> Event | None:
        """The next event, None after the last one; `TimeoutError` if there is none for so long."""
        async with asyncio.timeout(seconds):
            return await self._events.get()

    def close(self) -> None:
        """Cancel the work if it is not done, and free its place. From the event loop only; may be called twice."""
        self._cancelled.set()
        if self in self._worker.tasks:
            self._worker.tasks.remove(self)

    def run(self, seconds: float) -> None:
        """Do the work. In the worker's thread."""
        self._began, self._seconds = time.monotonic(), seconds
        try:
            self.check()
            self._work(self)
        except CancelledTaskError:
            pass
        except MultiGuardError as error:
            self._fail(422, " ".join(str(error).split()))
        except Exception:
            _log.exception("a task failed")
            self._fail(500, "the server failed on this image; its log says why")
        self._put(None)

    def stop(self) -> None:
        """Cancel the work because the server stops. From any thread."""
        self._cancelled.set()
        self._fail(503, "the server is stopping")
        self._put(None)

    def ahead(self) -> int:
        """How many tasks come before this one."""
        tasks = self._worker.tasks
        return tasks.index(self) if self in tasks else 0

    def _fail(self, status: int, message: str) -> None:
        self._put(("error", {"error": message, "status": status}))

    def _put(self, event: Event | None) -> None:
        with suppress(RuntimeError):  # the server has ended, and its event loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)


class Worker:
    """One thread that runs tasks in the order they came, each for `seconds` at most, less if others wait.

    `tasks` are those under way, at most `places`, those that still receive their image among them.
    """

    def __init__(self, places: int, seconds: float) -> None:
        self._places, self._seconds = places, seconds
        self.tasks: list[Task] = []
        self.queue: SimpleQueue[Task | None] = SimpleQueue()  # those to run; None ends the thread
        self._thread = threading.Thread(target=self._run, name="multiguard-serve", daemon=True)
        self._stopping = False

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def place(self) -> Task:
        """A task with a place of its own; `BusyError` if all are taken."""
        if self._stopping or len(self.tasks) >= self._places:
            raise BusyError
        self.tasks.append(task := Task(self))
        return task

    def stop(self) -> None:
        """End all work: running tasks stop at their next step, and no new one starts. May be called twice."""
        self._stopping = True
        for task in tuple(self.tasks):
            task.stop()
        self.queue.put(None)

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, for so long at most."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while (task := self.queue.get()) is not None and not self._stopping:
            task.run(self._seconds)


class Answer:
    """Sends what a started task tells, as server-sent events or as one JSON object at the end.

    If the client goes, or does not read, the task ends; `close` is called once, however the answer ends.
    """

    def __init__(self, task: Task, as_stream: bool, close: Callable[[], None]) -> None:
        self._task, self._as_stream, self._close = task, as_stream, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""

        async def limited(message: Message) -> None:
            async with asyncio.timeout(_SEND_SECONDS):
                await send(message)

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        answer = self._stream(limited) if self._as_stream else self._whole(scope, receive, limited)
        sending, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(leave())
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
