"""Every state that a crash or a power cut may leave of a folder, from a record of the changes that a run made.

A disk may lose, cut or blank content that was not synced, and any names that were given, moved or removed since their
folder was synced, each on its own and in any order. What was synced stays.
"""

import os
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

State = frozenset[tuple[str, bytes | None]]  # each path in the folder with its content, None for a folder

STAGE = ".multiguard-"  # the beginning of the name of a folder whose files are moved
_MOST_PENDING = 6  # names that change on their own; earlier ones change together


@dataclass
class File:
    """The contents of one file: what survives a crash, and what may."""

    synced: bytes = b""
    latest: bytes = b""

    def after_crash(self) -> list[bytes]:
        """What a crash may leave of it: of unsynced content nothing, half, zeros or all."""
        size = len(self.latest)
        if self.latest == self.synced:
            return [self.synced]
        return [self.synced, self.latest[: size // 2], self.latest[: size // 2] + bytes(size - size // 2), self.latest]


@dataclass
class Disk:
    """The names of files, those that survive a crash, and the changes since."""

    synced: dict[str, File | None]
    pending: list[tuple[str, dict[str, File | None], list[str]]]
    now: dict[str, File | None]

    def change(self, folder: str, named: dict[str, File | None], gone: list[str]) -> None:
        """Give and remove names; they survive once their folder is synced."""
        self.now = _changed(self.now, named, gone)
        self.pending.append((folder, named, gone))

    def sync(self, folder: str) -> None:
        """Names in this folder survive from now on."""
        for one in [one for one in self.pending if one[0] == folder]:
            self.synced = _changed(self.synced, *one[1:])
            self.pending.remove(one)

    def after_crash(self) -> set[State]:
        """Every state in which a crash at this moment may leave the folder."""
        found, early, late = set(), self.pending[:-_MOST_PENDING], self.pending[-_MOST_PENDING:]
        for chosen in product((False, True), repeat=len(late) + bool(early)):
            names = self.synced
            for one in early if early and chosen[-1] else ():
                names = _changed(names, *one[1:])
            for one, kept in zip(late, chosen, strict=False):
                names = _changed(names, *one[1:]) if kept else names
            found |= set(_states(names))
        return found


def _changed(names: dict, named: dict, gone: list[str]) -> dict:
    return {**{name: file for name, file in names.items() if name not in gone}, **named}


def _states(names: dict[str, File | None]) -> list[State]:
    there = [name for name in names if all(str(above) in names for above in list(Path(name).parents)[:-1])]
    contents = ([None] if names[name] is None else names[name].after_crash() for name in there)
    return [frozenset(zip(there, each, strict=True)) for each in product(*contents)]


class Recorder:
    """Records the changes of the files in a folder, in whichever thread; `states` is what a crash may have left."""

    def __init__(self, monkeypatch, home: Path) -> None:
        there = {name: content if content is None else File(content, content) for name, content in state_of(home)}
        self._home, self._disk, self._lock = home, Disk(there, [], there), threading.RLock()
        self._opened, self._staged, self.states = dict[int, str](), dict[str, File](), set[State]()
        for name in ("open", "fsync", "replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, self._recorded(getattr(os, name), getattr(self, f"_{name}")))

    def _recorded(self, call, note):
        def recorded(*args, **options):
            with self._lock:
                found = call(*args, **options)
                note(found, *args, **options)
                self.states |= self._disk.after_crash()
                return found

        return recorded

    def _name(self, path) -> str | None:
        """The path in the folder; None outside, and in a stage, whose files have no name yet."""
        if isinstance(path, int) or self._home not in Path(path).parents:
            return None
        name = os.path.relpath(os.path.realpath(path), self._home)
        return None if STAGE in name else name

    def _file(self, path) -> File:
        return self._disk.now.get(self._name(path)) or self._staged.setdefault(str(path), File())

    def _open(self, handle: int, path, flags=0, *_, **__) -> None:
        self._opened[handle] = path
        name = self._name(path)
        if name and flags & os.O_CREAT and name not in self._disk.now:
            self._disk.change(str(Path(name).parent), {name: File()}, [])

    def _fsync(self, _, handle: int) -> None:
        path = Path(self._opened.get(handle, "/"))
        if path.is_dir():
            self._disk.sync(os.path.relpath(path, self._home))
        elif self._home in path.parents:
            file = self._file(path)
            file.latest = path.read_bytes()
            self.states |= self._disk.after_crash()  # before it is synced
            file.synced = file.latest

    def _replace(self, _, old, new) -> None:
        if name := self._name(new):
            file = self._file(old)
            file.latest = Path(new).read_bytes()  # whether it was synced or not
            self._disk.change(str(Path(name).parent), {name: file}, [self._name(old)])

    def _unlink(self, _, path, *__, **___) -> None:
        if name := self._name(path):
            self._disk.change(str(Path(name).parent), {}, [name])

    _rmdir = _unlink

    def _mkdir(self, _, path, *__, **___) -> None:
        if name := self._name(path):
            self._disk.change(str(Path(name).parent), {name: None}, [])

    def recorded(self) -> State:
        """The folder as the record has it: equal to `state_of` it, or some change went past the record."""
        return frozenset((name, file and file.latest) for name, file in self._disk.now.items())


def state_of(home: Path) -> State:
    """The files and folders in a folder."""
    paths = [home, *home.rglob("*")]
    return frozenset((os.path.relpath(path, home), path.read_bytes() if path.is_file() else None) for path in paths)


def put(home: Path, state: State) -> Path:
    """Make a new folder with these files."""
    for name, content in sorted(state, key=lambda each: len(each[0])):
        if content is None:
            (home / name).mkdir()
        else:
            (home / name).write_bytes(content)
    return home


def crash_states(monkeypatch, home: Path, work: Callable[[], object], most: int | None) -> list[State]:
    """The states in which a crash may leave the folder during the work, or a seeded selection of `most`."""
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, home)
        work()
    assert recorder.recorded() == state_of(home), "every change goes through the calls that are recorded"
    states = sorted(recorder.states, key=names_and_sizes)
    assert len(states) > 10
    return states if most is None or most >= len(states) else random.Random(0).sample(states, most)


def names_and_sizes(state: State) -> list[tuple[str, int]]:
    """A short form of a state, whatever the random names of partial files are."""
    return sorted((re.sub(r"\.[^.]+\.part", ".part", path), len(content or b"")) for path, content in state)
