"""Tasks in one thread, in their order; a client that is gone, or does not read its answer, loses its place."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from multiguard.errors import ModelError
from multiguard.serve import answer
from multiguard.serve.answer import Answer, BusyError, Worker


def run_alone(coroutine):
    """The result of a coroutine, in a thread of its own: a browser that is open runs an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.mark.parametrize("as_stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("read", [0, 1, 2])
def test_slow_reader(monkeypatch, as_stream, read):
    """After the time limit the place is free, though the client never goes: at the head, an event or the end."""
    monkeypatch.setattr(answer, "_SEND_SECONDS", 0.1)

    async def main():
        worker, sent = Worker(places=1, seconds=10), []
        worker.begin()
        task = worker.place()
        task.start(lambda task: task.tell("done", {"reason": "draws"}))

        async def send(message):
            sent.append(message["type"])
            if len(sent) > read:
                await asyncio.Event().wait()

        async def receive():
            await asyncio.Event().wait()

        async with asyncio.timeout(20):
            try:
                await Answer(task, as_stream, task.close)({"type": "http"}, receive, send)
            except TimeoutError:
                sent.append("late")
        worker.stop()
        worker.join(10)
        return worker.tasks, sent

    tasks, sent = run_alone(main())
    assert tasks == []
    assert sent[-1] == ("late" if as_stream or read < 2 else "http.response.body")


async def taken(task):
    """All events of a task."""
    found = []
    while (event := await task.take(10)) is not None:
        found.append(event)
    return found


def with_worker(test, places=2, seconds=10.0):
    async def run():
        worker = Worker(places, seconds)
        worker.begin()
        try:
            await test(worker)
        finally:
            worker.stop()
            worker.join(10)
            assert not worker._thread.is_alive()

    run_alone(run())


def test_order():
    """Tasks run one after the other, in the order in which they came; a third one finds no place."""

    async def test(worker):
        gate, said = threading.Event(), []
        first, second = worker.place(), worker.place()
        assert (first.ahead(), second.ahead()) == (0, 1)
        with pytest.raises(BusyError):
            worker.place()
        first.start(lambda task: (gate.wait(10), said.append("first")))
        second.start(lambda task: said.append("second"))
        assert said == []
        gate.set()
        assert await taken(second) == []
        assert said == ["first", "second"]
        first.close()
        first.close()
        worker.place().close()

    with_worker(test)


def test_failures():
    """What the caller can fix is said; a bug is not, and the worker lives on."""

    async def test(worker):
        for error, status, words in (
            (ModelError("no\nscores"), 422, "no scores"),
            (KeyError("x"), 500, "the server failed"),
        ):

            def work(task, error=error):
                raise error

            task = worker.place()
            task.start(work)
            ((kind, told),) = await taken(task)
            assert (kind, told["status"]) == ("error", status)
            assert words in told["error"]
            task.close()

    with_worker(test)


def test_stop():
    """When the server stops, clients are told, running work ends, and no new one begins."""

    async def test(worker):
        began = threading.Event()

        def work(task):
            began.set()
            while True:
                task.tell("word", {})

        task, waiting = worker.place(), worker.place()
        task.start(work)
        assert began.wait(10)
        worker.stop()
        for each in (task, waiting):
            assert next(event for event in await taken(each) if event[0] == "error")[1]["status"] == 503
        with pytest.raises(BusyError):
            worker.place()

    with_worker(test)


def test_shared_time(monkeypatch):
    """The time of a task is divided by the tasks under way."""

    async def test(worker):
        running = worker.place()
        running._began, running._seconds = 0.0, 8.0
        for now, waiting, late in ((7.0, 0, False), (7.0, 1, True), (3.0, 1, False), (3.0, 2, True), (9.0, 0, True)):
            monkeypatch.setattr(answer.time, "monotonic", lambda now=now: now)
            others = [worker.place() for _ in range(waiting)]
            assert running.late == late
            for each in others:
                each.close()
        monkeypatch.undo()

    with_worker(test, places=3)
