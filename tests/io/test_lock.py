"""Two runs never write into one folder at the same time, and no lock outlives its process."""

import errno
import multiprocessing
import os
import signal
import threading

import pytest

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io.lock import LOCK_NAME, NoLocksWarning, folder_lock

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


def make_file(_, path):
    path.write_text("mine")


@pytest.mark.parametrize("make", [os.symlink, os.link, make_file])
def test_foreign_lock_file(tmp_path, make):
    """A link, or a file of others, in place of the lock file is refused, and nothing is written to it."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("")
    make(outside, folder / LOCK_NAME)
    before = (folder / LOCK_NAME).read_text()
    with pytest.raises(InvalidInputError, match="is a link, or not the lock file of a run"), folder_lock(folder):
        pass
    assert (folder / LOCK_NAME).read_text() == before


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


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks."""

    def refuse(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)


def test_file_system_without_locks(tmp_path, no_locks):
    """On a file system without locks the block runs after a warning; the thread may lock the folder again."""
    warned = pytest.warns(NoLocksWarning, match="is on a file system without locks: a second run")
    with warned, folder_lock(tmp_path), folder_lock(tmp_path):
        (tmp_path / "done").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


@pytest.mark.parametrize("ends", ["first", "second"])
@pytest.mark.filterwarnings("ignore::multiguard.io.lock.NoLocksWarning")
def test_two_writers_without_locks(tmp_path, no_locks, ends):
    """Without locks two writers of one folder never both succeed; the next run does."""
    failed = []

    def write(wait_for, began, ended):
        try:
            with folder_lock(tmp_path):
                began.set()
                wait_for.wait(30)
        except FolderInUseError:
            failed.append(ended)
        ended.set()

    began, ended = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]
    waits = (began[1], ended[0]) if ends == "first" else (ended[1], began[1])
    threads = [threading.Thread(target=write, args=each) for each in zip(waits, began, ended, strict=True)]
    for thread, start in zip(threads, began, strict=True):
        thread.start()
        start.wait(30)
    for thread in threads:
        thread.join()
    assert failed == ([ended[0], ended[1]] if ends == "first" else [ended[0]])
    with folder_lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_processes_that_work_together(tmp_path, monkeypatch, held_elsewhere):
    """Among processes that work together the main one holds the lock for all."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert not refused(tmp_path)
    monkeypatch.setenv("RANK", "0")
    assert refused(tmp_path)
