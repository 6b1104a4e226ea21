"""Two runs never write into one folder at the same time, and no lock outlives its process."""

import errno
import multiprocessing
import os
import signal
import threading

import pytest
from tests.pipeline.tiny_run import command

from multiguard.errors import FolderInUseError
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


def test_a_folder_in_use_is_refused_until_its_holder_is_gone(tmp_path):
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


def test_whoever_holds_a_folder_may_ask_again_but_not_another_thread(tmp_path):
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


def test_a_folder_that_stays_empty_goes(tmp_path):
    with folder_lock(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()


def test_only_one_of_many_gets_in_at_a_time(tmp_path):
    """Taking the name away on release must not let two in: each adds one to a number that only a holder may touch."""
    number = tmp_path / "number"
    number.write_text("0")

    def add():
        done = 0
        while done < 40:
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
    assert number.read_text() == "120"


def test_a_file_system_without_locks_is_written_to_after_a_warning(tmp_path, monkeypatch):
    def none(handle):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("multiguard.io.lock._lock", none)
    with pytest.warns(NoLocksWarning, match="is on a file system without locks: a second run"), folder_lock(tmp_path):
        pass
    asked = ["--data", "digits", "--model", "cnn:2", "--images", 8, "--val-images", 8, "--batch", 8, "--epochs", 0]
    code, _, err = command("train", *asked, "--out", tmp_path / "model")
    assert code == 0
    assert err.startswith(f"multiguard: note: {tmp_path / 'model'} is on a file system without locks: ")
    assert err.count("\n") == 1


def test_of_processes_that_work_together_the_main_one_holds_the_folder(tmp_path, monkeypatch):
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
