"""The one writer: the files of a result are replaced together, and only where multiguard itself wrote what is there.

A result is a head, such as certificates.parquet, and followers made from it, such as tables and figures. A record
next to the head, its marker, holds the checksum of the request that they answer and the sha256 of each file.

- New files are made in a private folder, so that two writers share no file and a failure changes nothing.
- The record is written before the first file is moved: after a kill at any moment every file is known to be ours.
- Old followers go before the head is replaced, and new ones come after it: none lies next to a head of other content.
- A file whose sha256 is not on record, or a link, belongs to others, and is neither replaced nor removed.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from multiguard.errors import InvalidInputError
from multiguard.io.files import file_checksum, is_regular, read_regular, remove_partial_files, sync, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.records import checksum, decode_json, encode_json

_STAGE = re.compile(r"\.multiguard-\w{8}\.part")


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a result."""

    request: str = ""  # the checksum of what was requested; empty if that is unknown
    finished: bool = False  # whether all files were there
    files: dict[str, str] = {}  # their sha256, by their path from the folder of the head
    replaced: dict[str, str] = {}  # the same of older files, while they are being replaced


@contextmanager
def staged(
    head: Path,
    request: Mapping[str, Any] | None,
    *,
    kind: str,
    names: Iterable[str] = (),
    folders: Iterable[str] = (".",),
    force: bool = False,
) -> Iterator[Path | None]:
    """A private folder, whose files become the result when the block ends; None if the result is complete already.

    The folder of the head is locked for the block. A block that fails, or that stages no head, changes nothing. Without
    `force` the block is refused with `InvalidInputError` if the head answers another request, or if it is missing and a
    folder holds files of others, which are never overwritten, with `force` or without.

    Args:
        head: The file that makes the result count; staged under its name.
        request: Plain values that decide the content; the same request finds its work done. None if unknown.
        kind: What the head holds, as in "certificates".
        names: The followers that are known beforehand, by their path from the folder of the head.
        folders: The folders of the result, in that of the head, that must hold nothing of others.
        force: Whether to replace another result, and to write into a folder with files of others.
    """
    home = head.parent
    with folder_lock(home):
        _clean(head)
        record = _read(head)
        _check_targets(home, (head.name, *names), record)
        if not force and holds_other(head, request):
            raise InvalidInputError(
                f"{home} holds {kind} already, made with other settings; --force replaces what is there, "
                "or name another folder"
            )
        if not force and not head.exists():
            inner = [home / folder for folder in folders]
            check_foreign(inner, lambda path: path in inner or _is_ours(home, _key(home, path), record))
        if is_complete(head, request):
            yield None
            return
        stage = Path(tempfile.mkdtemp(prefix=".multiguard-", suffix=".part", dir=home))
        try:
            yield stage
            if (stage / head.name).exists():
                _publish(head, stage, record, "" if request is None else checksum(request))
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def is_complete(head: Path, request: Mapping[str, Any] | None) -> bool:
    """Whether the same request was answered completely before, and every file is as it was written."""
    record = _read(head)
    finished = record.finished and head.name in record.files and not holds_other(head, request)
    return finished and all(_is_ours(head.parent, key, record) for key in record.files)


def holds_other(head: Path, request: Mapping[str, Any] | None) -> bool:
    """Whether the head is there and answers another request."""
    return head.exists() and (request is None or _read(head).request != checksum(request))


def check_foreign(folders: Iterable[Path], is_ours: Callable[[Path], bool]) -> None:
    """Raise `InvalidInputError` if a folder, if it is there, holds a visible file that is not ours."""
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not path.name.startswith(".") and not is_ours(path):
                raise InvalidInputError(
                    f"{folder} holds {path.name}, which is not of this command; --force writes next to it, "
                    "or name another folder"
                )


def _publish(head: Path, stage: Path, record: _Record, wanted: str) -> None:
    """Move the staged files to their places, the head first, in place of all older files of the result."""
    home, paths = head.parent, sorted(path for path in stage.rglob("*") if path.is_file())
    for path in paths:
        sync(path)
    new = {_key(stage, path): file_checksum(path) for path in paths}
    _check_targets(home, new, record)
    old = {key: file_checksum(home / key) for key in record.files | record.replaced if _is_ours(home, key, record)}
    _write(head, _Record(wanted, files=new, replaced=old))
    for key in old.keys() - {head.name}:
        (home / key).unlink()
        sync((home / key).parent)
    for key in sorted(new, key=lambda key: key != head.name):
        (home / key).parent.mkdir(exist_ok=True)
        (stage / key).replace(home / key)
        sync((home / key).parent)
    _write(head, _Record(wanted, finished=True, files=new))


def _check_targets(home: Path, keys: Iterable[str], record: _Record) -> None:
    for key in keys:
        if _is_behind_link(home, key) or (os.path.lexists(home / key) and not _is_ours(home, key, record)):
            raise InvalidInputError(
                f"{home / key} is not as multiguard wrote it, so it is not replaced; move it, or name another folder"
            )


def _is_ours(home: Path, key: str, record: _Record) -> bool:
    """Whether multiguard wrote exactly this file; a link, or a file behind one or outside, is never ours."""
    if ".." in PurePosixPath(key).parts or PurePosixPath(key).is_absolute() or _is_behind_link(home, key):
        return False
    known = [files[key] for files in (record.files, record.replaced) if key in files]
    return bool(known) and is_regular(home / key) and file_checksum(home / key) in known


def _is_behind_link(home: Path, key: str) -> bool:
    return any((home / folder).is_symlink() for folder in PurePosixPath(key).parents[:-1])


def _key(home: Path, path: Path) -> str:
    return path.relative_to(home).as_posix()


def _clean(head: Path) -> None:
    """Remove what killed writers left: no other run is writing now."""
    for path in list(head.parent.iterdir()):
        if _STAGE.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
    remove_partial_files(head.parent, lambda name: name == _record_path(head).name)


def _record_path(head: Path) -> Path:
    return head.with_name(f".{head.name}.json")


def _read(head: Path) -> _Record:
    """The record; a damaged one, or one of others, proves nothing."""
    try:
        return decode_json(read_regular(_record_path(head)), _Record) if is_regular(_record_path(head)) else _Record()
    except (OSError, ValueError):
        return _Record()


def _write(head: Path, record: _Record) -> None:
    write_atomically(_record_path(head), lambda file: file.write(encode_json(asdict(record))))
