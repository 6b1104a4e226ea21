"""Processes share the work once, whoever comes when, and whatever an earlier start left in the store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from torch.distributed import HashStore
from toy import Images, linear

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io import ranks
from multiguard.io.ranks import Rank
from multiguard.smooth import Smoother, distributed, vote_dataset
from multiguard.smooth.dataset import VoteRun
from multiguard.smooth.distributed import Team
from multiguard.votes import read_votes

SHARDS = list(range(5, 105))


def member(store, number, count=3):
    return Team(Rank(number, count, number), store)


def take_all(store, stop=lambda: False):
    """The shards that each of three processes took."""

    def follow(number):
        with member(store, number).join(stop) as work:
            return take(work)

    def take(work):
        taken = []
        for shard in work:
            taken.append(shard)
            work.count_image()
        work.leave()
        return taken

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(follow, number) for number in (1, 2)]
        with member(store, 0).lead(SHARDS, 7, stop) as work:
            taken = [take(work)]
            work.wait(lambda images: None)
        taken += [other.result() for other in others]
    return taken, work.count_image() - 1 - 7


def test_each_shard_once():
    """Every shard is taken by exactly one process."""
    taken, counted = take_all(HashStore())
    assert sorted(chain(*taken)) == SHARDS
    assert counted == len(SHARDS)


def test_restarted_group():
    """A restarted group begins again, although torchrun's store still has the values of the dead processes."""
    store = HashStore()
    for number in (1, 2):
        store.set(f"multiguard/request/{number}", f"request of a dead process {number}")
    for _ in range(2):
        taken, _ = take_all(store)
        assert sorted(chain(*taken)) == SHARDS


def test_late_process():
    """A process that comes late gets the same work, with nothing left to take."""
    store, over = HashStore(), threading.Event()
    with member(store, 0, count=2).lead([1, 2], 0, lambda: False) as work:
        assert list(work) == [1, 2]
        with member(store, 1, count=2).join(lambda: False) as late:
            assert (late.todo, list(late)) == ([1, 2], [])
            late.leave()
        work.leave()
        work.wait(lambda images: over.set())


def test_stop_of_one():
    """If one process is asked to stop, all do."""
    store, stop = HashStore(), threading.Event()
    with (
        member(store, 0, count=2).lead(SHARDS, 0, lambda: False) as work,
        member(store, 1, count=2).join(stop.is_set) as other,
    ):
        mine, others = iter(work), iter(other)
        assert [next(mine), next(others)] == SHARDS[:2]
        stop.set()
        assert list(others) == []
        assert list(mine) == []


def test_stop_while_waiting():
    """A process that waits for a dead main process can be stopped."""
    stop = iter([False, True])
    with member(HashStore(), 1, count=2).join(lambda: next(stop)) as work:
        assert work is None


def test_heartbeats(monkeypatch):
    """Without heartbeats a process is given up, with them it is awaited: 1 came and died, 2 never came, 3 is slow."""
    monkeypatch.setattr(distributed, "_HEARTBEAT", 0.02)
    store, events = HashStore(), []
    main, *_ = members = [Team(Rank(number, 4, number), store, timeout=0.4) for number in range(4)]

    def slow():
        with members[3].join(lambda: False) as work:
            time.sleep(1)
            events.append("done")
            work.leave()

    with main.lead(SHARDS, 0, lambda: False) as work, ThreadPoolExecutor(1) as pool:
        working = pool.submit(slow)
        with members[1].join(lambda: False) as died:
            assert next(iter(died)) == SHARDS[0]
        work.leave()
        work.wait(lambda images: None)
        assert events == ["done"]
        working.result()


@pytest.mark.parametrize(("restarts", "timeout"), [(None, 120.0), ("0", None)])
def test_timeout_without_torchrun(monkeypatch, restarts, timeout):
    """Only without torchrun, which notices dead processes itself, there is a timeout."""
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    if restarts is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    assert Team.current().timeout == timeout


def test_lost_store():
    """A store that is gone raises an error that tells how to resume."""

    class Gone(HashStore):
        def add(self, *_):
            raise RuntimeError("connection reset by peer")

    leading = member(Gone(), 0, count=1).lead([1], 0, lambda: False)
    with leading as work, pytest.raises(VotesError, match="cannot be reached any more; finished votes are kept"):
        list(work)


@pytest.mark.parametrize("seed", [0, None])
def test_votes_of_a_team(tmp_path, seed):
    """Two processes end with the files of one; the second only follows, also with the main one's random seed."""
    one = Smoother(linear(), sigma=0.5, k_max=3, device="cpu", batch_size=5)
    options, store = {"draws": 5, "noise_seed": seed}, HashStore()
    images = Images(12), Images(12)
    runs = [VoteRun(one, each, shard_images=1, **options) for each in images]
    done: list[tuple[int, int]] = []

    def progress(*counts):
        done.append(counts)
        while len(images[1].reads) <= 1 and not other.done():
            time.sleep(0.01)

    (tmp_path / "two").mkdir()
    with ThreadPoolExecutor(1) as pool:
        rest = (tmp_path / "two", progress, lambda: False, None)
        other = pool.submit(member(store, 1, count=2).write, runs[1], *rest)
        member(store, 0, count=2).write(runs[0], *rest)
        other.result()
    used = read_votes(tmp_path / "two").provenance.noise_seed
    vote_dataset(one, Images(12), tmp_path / "one", draws=5, noise_seed=used, shard_images=1)
    two, alone = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("two", "one"))
    assert two == alone
    assert len(images[1].reads) > 1, "the second process voted as well"
    assert done[-1] == (12, 12)


def test_other_code(monkeypatch):
    """A process whose multiguard was edited takes no part, though its version is the same."""
    store = HashStore()
    with member(store, 0).lead(SHARDS, 0, lambda: False):
        monkeypatch.setattr(ranks, "package_checksum", lambda: "edited")
        with pytest.raises(InvalidInputError, match="other code of multiguard"), member(store, 1).join(lambda: False):
            pass
