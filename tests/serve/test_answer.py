"""A client that does not read its answer loses its place, whichever part it does not read."""

import asyncio

import pytest

from multiguard.serve import answer
from multiguard.serve.answer import Answer
from multiguard.serve.worker import Worker


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
        return worker._tasks, sent

    tasks, sent = asyncio.run(main())
    assert tasks == []
    assert sent[-1] == ("late" if as_stream or read < 2 else "http.response.body")
