"""Work is shared out once, whoever asks when, and whatever an earlier group has left in the store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import torch
from torch.distributed import HashStore

from multiguard.errors import VotesError
from multiguard.io.ranks import Rank
from multiguard.pipeline.job_model import own_device
from multiguard.smooth import team
from multiguard.smooth.team import Team

SHARDS = list(range(5, 105))


def member(store, number, count=3):
    return Team(Rank(number, count, number), store)


def shared_out(store, stop=lambda: False):
    """The shards that each of three processes took."""

    def follow(number):
        with member(store, number).joined(stop) as work:
            return take(work)

    def take(work):
        taken = []
        for shard in work:
            taken.append(shard)
            work.count()
        work.leave()
        return taken

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(follow, number) for number in (1, 2)]
        with member(store, 0).leading(SHARDS, 7, stop) as work:
            taken = [take(work)]
            told = []
            work.wait(told.append)
        taken += [other.result() for other in others]
    return taken, work.count() - 1 - 7


def test_every_shard_is_taken_once():
    taken, counted = shared_out(HashStore())
    assert sorted(chain(*taken)) == SHARDS
    assert counted == len(SHARDS)


def test_a_group_that_is_started_again_begins_anew():
    """Torchrun may keep its store: the questions and the numbers of those who died are still there."""
    store = HashStore()
    for number in (1, 2):
        store.set(f"multiguard/question/{number}", f"question of one who died {number}")
    for _ in range(2):
        taken, _ = shared_out(store)
        assert sorted(chain(*taken)) == SHARDS


def test_a_process_that_comes_late_is_answered():
    store, over = HashStore(), threading.Event()
    with member(store, 0, count=2).leading([1, 2], 0, lambda: False) as work:
        assert list(work) == [1, 2]
        with member(store, 1, count=2).joined(lambda: False) as late:
            assert (late.todo, list(late)) == ([1, 2], [])
            late.leave()
        work.leave()
        work.wait(lambda images: over.set())


def test_where_one_is_asked_to_stop_all_do():
    store, asked = HashStore(), threading.Event()
    with (
        member(store, 0, count=2).leading(SHARDS, 0, lambda: False) as work,
        member(store, 1, count=2).joined(asked.is_set) as other,
    ):
        mine, others = iter(work), iter(other)
        assert [next(mine), next(others)] == SHARDS[:2]
        asked.set()
        assert list(others) == []
        assert list(mine) == []


def test_whoever_waits_for_a_main_process_that_is_gone_can_be_stopped():
    asked = iter([False, True])
    with member(HashStore(), 1, count=2).joined(lambda: next(asked)) as work:
        assert work is None


def test_whoever_gives_no_sign_of_life_is_given_up_and_whoever_does_is_waited_for(monkeypatch):
    """Without torchrun nobody else sees that a process has died: 1 came and died, 2 never came, 3 is slow."""
    monkeypatch.setattr(team, "_BEAT", 0.02)
    store, told = HashStore(), []
    main, *_ = members = [Team(Rank(number, 4, number), store, patience=0.4) for number in range(4)]

    def slow():
        with members[3].joined(lambda: False) as work:
            time.sleep(1)
            told.append("done")
            work.leave()

    with main.leading(SHARDS, 0, lambda: False) as work, ThreadPoolExecutor(1) as pool:
        working = pool.submit(slow)
        with members[1].joined(lambda: False) as died:
            assert next(iter(died)) == SHARDS[0]
        work.leave()
        work.wait(lambda images: None)
        assert told == ["done"]
        working.result()


@pytest.mark.parametrize(("restarts", "patience"), [(None, 120.0), ("0", None)])
def test_torchrun_sees_by_itself_who_is_dead(monkeypatch, restarts, patience):
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    if restarts is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    assert Team.here().patience == patience


def test_a_store_that_is_gone_is_said():
    class Gone(HashStore):
        def add(self, *_):
            raise RuntimeError("connection reset by peer")

    leading = member(Gone(), 0, count=1).leading([1], 0, lambda: False)
    with leading as work, pytest.raises(VotesError, match="cannot be reached any more; what was voted on is kept"):
        list(work)


@pytest.mark.parametrize(
    ("asked", "gpus", "local", "expected"),
    [
        (None, 4, 3, "cuda:3"),
        ("cuda", 4, 1, "cuda:1"),
        (None, 2, 3, "cuda:1"),
        ("cuda:0", 4, 3, "cuda:0"),
        ("cpu", 4, 3, "cpu"),
        (None, 0, 3, None),
    ],
)
def test_each_process_of_a_machine_takes_a_gpu_of_its_own(monkeypatch, asked, gpus, local, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert own_device(asked) == asked, "alone it takes what was asked for"
    for name, value in (("WORLD_SIZE", 8), ("RANK", 5), ("LOCAL_RANK", local)):
        monkeypatch.setenv(name, str(value))
    assert own_device(asked) == expected
