"""Files that are no longer what was written: bytes flipped, cut and spliced, and JSON with a stranger's values in it.

A reader passes if it reads the file or raises a `MultiGuardError`; anything else fails, and so do a hang and a large
part of the memory.
"""

import contextlib
import json
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multiguard.errors import MultiGuardError

MOST_BYTES = 1 << 30
MOST_SECONDS = 30

soaked = pytest.mark.parametrize("examples", [15, pytest.param(2000, marks=pytest.mark.soak)])
few = pytest.mark.parametrize("examples", [8, pytest.param(1000, marks=pytest.mark.soak)])


class Hang(BaseException):
    """A reader did not come to an end."""


def fuzz(check: Callable[[Any], object], cases: st.SearchStrategy[Any], examples: int) -> None:
    """Run the check on this number of cases, the same ones each time."""

    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(cases)
    def run(case: Any) -> None:
        check(case)

    run()


def read_or_refused(read: Callable[[], Any]) -> Any:
    """What the reader returns, or None where it refuses the file with an error of ours."""
    with bounded():
        try:
            return read()
        except MultiGuardError:
            return None


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Within the block memory may grow by a gigabyte and time by half a minute; more than that is an error."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _hang)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES, hard))
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
        signal.signal(signal.SIGALRM, handler)


def _hang(signum: int, frame: object) -> None:
    raise Hang(f"no end after {MOST_SECONDS} s")


# ------------------------------------------------------------------------------------------------- bytes


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content after one to three accidents."""
    for _ in range(draw(st.integers(1, 3))):
        content = draw(st.sampled_from(_ACCIDENTS))(draw, content)
    return content


def _place(draw: st.DrawFn, content: bytes) -> int:
    return draw(st.integers(0, max(0, len(content) - 1)))


def _flip(draw: st.DrawFn, content: bytes) -> bytes:
    place = _place(draw, content)
    return content[:place] + bytes([draw(st.integers(0, 255))]) + content[place + 1 :]


def _cut(draw: st.DrawFn, content: bytes) -> bytes:
    return content[: _place(draw, content)]


def _lose(draw: st.DrawFn, content: bytes) -> bytes:
    place = _place(draw, content)
    return content[:place] + content[place + draw(st.integers(1, 64)) :]


def _splice(draw: st.DrawFn, content: bytes) -> bytes:
    start, place, length = _place(draw, content), _place(draw, content), draw(st.integers(1, 200))
    return content[:place] + content[start : start + length] + content[place:]


def _insert(draw: st.DrawFn, content: bytes) -> bytes:
    place = _place(draw, content)
    return content[:place] + draw(st.sampled_from(_STRANGE)) + content[place:]


def _overwrite(draw: st.DrawFn, content: bytes) -> bytes:
    place, strange = _place(draw, content), draw(st.sampled_from(_STRANGE))
    return content[:place] + strange + content[place + len(strange) :]


_STRANGE = (
    b"\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff" * 8, b"\x7f" * 8, b"\n", b"\r", b'"', b",",
    b"\xed\xa0\x80", b"\xc3", b"[" * 200, b"9" * 400, b"NaN", b"-1", b"../../", b"\x1b[31m", b"=1+1", b"<script>",
    b"\xef\xbb\xbf",
)  # fmt: skip
_ACCIDENTS = (_flip, _flip, _cut, _lose, _splice, _insert, _overwrite)


# -------------------------------------------------------------------------------------------------- JSON

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"),
    "", "a", "\x00", "\x1b[31m", "../../out", "/etc/passwd", "os:getcwd", "\ud800", "x" * 5000, "=1+1", "NaN",
    [], {}, [None], [[]], [0] * 100, {"": None}, {"__class__": "x"}, [{}], ["a", 1, None],
)  # fmt: skip
_hostile = st.sampled_from(HOSTILE).map(deepcopy)


@st.composite
def estranged(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with one to three strange values in it, or parts missing, added or nested without end."""
    value = deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(list(_places(value))))
        value = _changed(value, place, draw)
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], draw: st.DrawFn) -> Any:
    if not path:
        return _strange(value, draw)
    key, rest = path[0], path[1:]
    if not rest and draw(st.integers(0, 3)) == 0:
        del value[key]
    else:
        value[key] = _changed(value[key], rest, draw)
    return value


def _strange(value: Any, draw: st.DrawFn) -> Any:
    kind = draw(st.integers(0, 5))
    if kind == 0 and isinstance(value, dict):
        return {**value, draw(st.sampled_from(["", "unknown", "__init__", "\ud800"])): draw(_hostile)}
    if kind == 1 and isinstance(value, list) and value:
        return [*value, value[0]]
    if kind == 2 and isinstance(value, int | float) and not isinstance(value, bool):
        return draw(st.sampled_from([-value, value * 2, value + 1, value // 3, str(value)[:50]]))
    if kind == 3:
        nested: Any = value
        for _ in range(draw(st.sampled_from([1, 30]))):
            nested = [nested]
        return nested
    return draw(_hostile)


@st.composite
def estranged_text(draw: st.DrawFn, value: Any) -> bytes:
    """JSON text with strange values in it, or damaged as bytes are, or with one key twice, or nested without end."""
    kind, text = draw(st.integers(0, 9)), json.dumps(value)
    if kind == 0:
        return draw(damaged(text.encode()))
    if kind == 1:
        name, other = draw(st.sampled_from(sorted(value))), draw(st.sampled_from(HOSTILE))
        return text.replace("{", f"{{{json.dumps(name)}: {json.dumps(other)}, ", 1).encode()
    if kind == 2:
        deep = draw(st.sampled_from([b"[", b'{"a":']))
        return deep * 100_000
    return json.dumps(draw(estranged(value))).encode()


# ------------------------------------------------------------------------------------------------- files


def copy_folder(folder: Path, target: Path) -> Path:
    """The folder copied to the target, whatever was there."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target))


def write_file(path: Path, data: bytes) -> Path:
    """The path, after these bytes were written to it."""
    path.write_bytes(data)
    return path
