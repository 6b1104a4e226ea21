"""Two runs never write into one folder at the same time, and no lock outlives its process."""

import errno
import multiprocessing
import os
import signal
import threading

import pytest
from tests.pipeline.tiny_run import command

from multiguard.errors import FolderInUseError, InvalidInputError
from multiguard.io.lock import LOCK_NAME, NoLocksWarning, folder_lock

FORK = multiprocessing.get_context("fork")


def held_elsewhere(folder):
    """Another process that holds the folder until it is killed."""

    def hold():
        with folder_lock(folder):
            mine.send("held")
            signal.pause()

    ours, mine = FORK.Pipe()
    process = FORK.Process(target=hold)
    process.start()
    assert ours.recv() == "held"
    return process


def test_folder_in_use(tmp_path):
    """A folder in use is refused, with the process that holds it, until that process has ended."""
    process = held_elsewhere(tmp_path)
    with (
        pytest.raises(
            FolderInUseError, match=rf"another run \(process {process.pid} on .*\) is writing into {tmp_path};"
        ),
        folder_lock(tmp_path),
    ):
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert (tmp_path / LOCK_NAME).exists()
    with folder_lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, "", "process 7"])
def test_linked_lock(tmp_path, content):
    """A link in place of the lock file is refused, and nothing is created or written behind it."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    if content is not None:
        outside.write_text(content)
    (folder / LOCK_NAME).symlink_to(outside)
    with pytest.raises(InvalidInputError, match="is a link, or not the lock file of a run"), folder_lock(folder):
        pass
    assert outside.read_text() == content if content is not None else not outside.exists()


def test_second_lock_of_a_thread(tmp_path):
    """The thread that holds a folder may lock it again; another thread may not."""
    found = []

    def other():
        try:
            with folder_lock(tmp_path):
                found.append("got in")
        except FolderInUseError:
            found.append("refused")

    with folder_lock(tmp_path), folder_lock(tmp_path / ".." / tmp_path.name):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == ["refused"]


def test_empty_folder(tmp_path):
    """A folder that was created for the lock and stayed empty is removed."""
    with folder_lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()


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


def no_locks(handle):
    raise OSError(errno.ENOLCK, "No locks available")


def test_file_system_without_locks(tmp_path, monkeypatch):
    """On a file system without locks the run continues after a warning."""
    monkeypatch.setattr("multiguard.io.lock._lock", no_locks)
    with pytest.warns(NoLocksWarning, match="is on a file system without locks: a second run"), folder_lock(tmp_path):
        pass


def test_note_of_the_command(tmp_path, monkeypatch):
    """The command shows the warning as one line."""
    pytest.importorskip("torch")
    monkeypatch.setattr("multiguard.io.lock._lock", no_locks)
    options = [
        "--data",
        "digits",
        "--model",
        "cnn:2",
        "--images",
        8,
        "--val-images",
        8,
        "--batch-size",
        8,
        "--epochs",
        0,
    ]
    code, _, err = command("train", *options, "--out", tmp_path / "model")
    assert code == 0
    assert err.startswith(f"multiguard: note: {tmp_path / 'model'} is on a file system without locks: ")
    assert err.count("\n") == 1


def test_processes_that_work_together(tmp_path, monkeypatch):
    """Among processes that work together the main one holds the lock for all."""
    process = held_elsewhere(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with folder_lock(tmp_path):
        pass
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(FolderInUseError), folder_lock(tmp_path):
        pass
    process.kill()
    process.join()
