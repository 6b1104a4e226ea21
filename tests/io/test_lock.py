"""Two runs never write into one folder at the same time, and no lock outlives its process."""

import errno
import multiprocessing
import os
import signal
import threading

import pytest

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io import lock
from multiguard.io.lock import LOCK_NAME, Rank, folder_lock, this_rank

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def held_elsewhere(tmp_path):
    """Another process that holds the folder until it is killed."""

    def hold():
        with folder_lock(tmp_path):
            mine.send("held")
            signal.pause()

    ours, mine = FORK.Pipe()
    process = FORK.Process(target=hold)
    process.start()
    assert ours.recv() == "held"
    yield process
    process.kill()
    process.join()


def refused(folder):
    try:
        with folder_lock(folder):
            return False
    except FolderInUseError:
        return True


def test_folder_in_use(tmp_path, held_elsewhere):
    """A folder in use is refused until the process that holds it has ended."""
    with pytest.raises(FolderInUseError, match=f"another run is writing into {tmp_path};"), folder_lock(tmp_path):
        pass
    os.kill(held_elsewhere.pid, signal.SIGKILL)
    held_elsewhere.join()
    assert not refused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_many_processes(tmp_path):
    """Only one process gets in at a time, though the name is removed on release: each adds to a number."""
    number = tmp_path / "number"
    number.write_text("0")

    def add():
        done = 0
        while done < 20:
            try:
                with folder_lock(tmp_path):
                    number.write_text(str(int(number.read_text()) + 1))
                    done += 1
            except FolderInUseError:
                continue

    processes = [FORK.Process(target=add) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert number.read_text() == "60"


def test_foreign_lock_file(tmp_path):
    """A link in place of the lock file is refused, and what is in a file of its name stays."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("mine")
    (folder / LOCK_NAME).symlink_to(outside)
    with pytest.raises(InvalidInputError, match="is a link, or not the lock file of a run"), folder_lock(folder):
        pass
    (folder / LOCK_NAME).unlink()
    os.link(outside, folder / LOCK_NAME)
    with folder_lock(folder):
        pass
    assert (folder / LOCK_NAME).read_text() == "mine"


def test_second_lock_of_a_thread(tmp_path):
    """The thread that holds a folder may lock it again, by any path; another thread may not, until both have ended."""
    found = []

    def ask():
        thread = threading.Thread(target=lambda: found.append(refused(tmp_path)))
        thread.start()
        thread.join()

    with folder_lock(tmp_path):
        with folder_lock(tmp_path / ".." / tmp_path.name):
            ask()
        ask()
    ask()
    assert found == [True, True, False]


def test_empty_folder(tmp_path):
    """A folder that was created for the lock and stayed empty is removed."""
    with folder_lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_file_system_without_locks(tmp_path, monkeypatch, number):
    """Without locks of the system the lock is a file: others are refused, a thread may lock again, a kill frees it."""

    def refuse(handle, how):
        raise OSError(number, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    found = []
    with folder_lock(tmp_path), folder_lock(tmp_path):
        other = FORK.Process(target=lambda: os._exit(refused(tmp_path)))
        other.start()
        other.join()
        found.append(other.exitcode)
    killed = FORK.Process(target=lambda: (held := folder_lock(tmp_path)).__enter__() or os._exit(held is None))
    killed.start()
    killed.join()
    assert (found, killed.exitcode, (tmp_path / lock._HELD_NAME).exists()) == ([1], 0, True)
    assert not refused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_work_together(tmp_path, monkeypatch, held_elsewhere):
    """Among processes that work together the main one holds the lock for all."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert not refused(tmp_path)
    monkeypatch.setenv("RANK", "0")
    assert refused(tmp_path)


@pytest.mark.parametrize(
    ("count", "number", "rank"),
    [(None, None, Rank()), ("1", "7", Rank()), ("4", "3", Rank(3, 4)), ("2", "0", Rank(0, 2))],
)
def test_rank(monkeypatch, count, number, rank):
    """The rank is read from the variables; a single process has none."""
    for name, value in (("WORLD_SIZE", count), ("RANK", number)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert this_rank() == rank
    assert rank.is_main == (rank.number == 0)


@pytest.mark.parametrize(("count", "number"), [("abc", "0"), ("0", "0"), ("2", ""), ("2", "2"), ("2", "-1")])
def test_bad_environment(monkeypatch, count, number):
    """Variables that give no rank are refused by name."""
    monkeypatch.setenv("WORLD_SIZE", count)
    monkeypatch.setenv("RANK", number)
    with pytest.raises(InvalidInputError, match=f"WORLD_SIZE is '{count}' and RANK '{number}' in the environment"):
        this_rank()
