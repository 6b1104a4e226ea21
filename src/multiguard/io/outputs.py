"""The files of one result: replaced together under a lock, and only where multiguard itself wrote what is there.

A result is a head, such as certificates.parquet, and followers made from it, such as tables and figures. A record
beside the head holds the sha256 of each file and of the request that they answer. Each rule prevents an accident:

- New files are made in private folders, so that two writers share no file and a failure changes nothing.
- The record is written before the first file is moved: after a kill at any moment every file is known to be ours.
- Old followers go before the head is replaced, and new ones come after it: none lies beside a head of other content.
- A file whose sha256 is not on record, or a link, is somebody else's, and is neither replaced nor removed.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from multiguard.errors import InvalidInputError
from multiguard.io.files import (
    file_checksum,
    is_regular,
    read_regular,
    remove_partial_files,
    require_folder,
    sync_folder,
    write_atomically,
)
from multiguard.io.lock import folder_lock
from multiguard.io.records import checksum, convert, decode_checked, encode_checked

_FORMAT: dict[str, Any] = {"format": "multiguard-files", "version": 1}
_STAGE = re.compile(r"\.multiguard-\w{8}\.part")


@dataclass(frozen=True)
class _Record:
    """What is known of a result."""

    request: str = ""  # the checksum of what was requested
    finished: bool = False  # whether all files were there
    files: Mapping[str, str] = field(default_factory=dict)  # their sha256, by their path from the folder of the head
    replaced: Mapping[str, str] = field(default_factory=dict)  # those of older files, while they are being replaced


class Outputs:
    """A result that is written inside a `with` block, which locks its folders.

    Without `force` the block is refused with `InvalidInputError` if the head is there and answers another request, or
    if it is missing and a folder holds files of somebody else. Those are never overwritten, with `force` or without.

    Args:
        head: The file that makes the result count.
        kind: What the head holds, as in "certificates".
        request: Everything that decides the content; the same request resumes, or finds its work done.
        folders: Where followers go; the head's own folder if not given.
        names: The followers that are known beforehand.
        force: Whether to replace an older result, and to write beside files of somebody else.
        recognise: Whether the content of a head without a record shows that multiguard wrote it.

    Example:
        >>> def write(text):
        ...     with Outputs(out / "head.txt", "a text", {"text": text}) as outputs:
        ...         if not outputs.finished:
        ...             _ = (outputs.stage(out) / "head.txt").write_text(text)
        ...             outputs.publish()
        ...         return (out / "head.txt").read_text()
        >>> write("one"), write("one")
        ('one', 'one')
        >>> write("two")
        Traceback (most recent call last):
        multiguard.errors.InvalidInputError: ... holds a text already, made with other settings; --force replaces ...
    """

    def __init__(
        self,
        head: Path,
        kind: str,
        request: Mapping[str, Any] | None,
        *,
        folders: Sequence[Path] | None = None,
        names: Iterable[str] = (),
        force: bool = False,
        recognise: Callable[[Path], bool] = lambda path: False,
    ) -> None:
        self.head, self._kind, self._force, self._recognise = head, kind, force, recognise
        self._request = "" if request is None else checksum(request)
        self._folders = [head.parent] if folders is None else list(folders)
        self._names = [head.with_name(name) for name in names]
        self._locks, self._stages = ExitStack(), dict[Path, Path]()
        self._record = _Record()

    @property
    def record_path(self) -> Path:
        """The file that holds the checksums."""
        return self.head.with_name(f".{self.head.name}.json")

    @property
    def finished(self) -> bool:
        """Whether an earlier call has answered the same request completely, and every file is as it was written."""
        paths = [self.head.parent / key for key in self._record.files]
        return self._record.finished and self.has_head and all(map(self._is_current, paths))

    @property
    def has_head(self) -> bool:
        """Whether the head answers the same request, so that only followers may be missing."""
        return bool(self._request) and self._record.request == self._request and self._is_current(self.head)

    @property
    def head_hash(self) -> str:
        """The sha256 on record of the head, as it was written."""
        return self._record.files[self._key(self.head)]

    @property
    def holds_other(self) -> bool:
        """Whether the head is there and answers another request."""
        self._read_record()
        return self.head.exists() and not (self._request and self._record.request == self._request)

    def files_in(self, folder: Path) -> list[Path]:
        """The files on record that are in this folder."""
        paths = [folder / Path(key).name for key in self._record.files]
        return [path for path in paths if self._key(path) in self._record.files]

    def __enter__(self) -> "Outputs":
        try:
            for folder in self._all_folders():
                self._locks.enter_context(folder_lock(folder))
            self._read_record()
            self._check()
            self._clean()
        except BaseException:
            self._locks.close()
            raise
        return self

    def __exit__(self, *raised: tuple[type[BaseException], BaseException, TracebackType] | None) -> None:
        for stage in self._stages.values():
            shutil.rmtree(stage, ignore_errors=True)
        self._stages.clear()
        self._locks.close()

    def stage(self, folder: Path) -> Path:
        """A private folder in which to write the files that `publish` moves to this folder."""
        if folder not in self._stages:
            require_folder(folder)
            self._stages[folder] = Path(tempfile.mkdtemp(prefix=".multiguard-", suffix=".part", dir=folder))
        return self._stages[folder]

    def publish(self, *, finished: bool = True) -> None:
        """Move the staged files to their folders, the head first, in place of all older files of the result.

        Args:
            finished: Whether these are the last files; otherwise the followers are still to come.
        """
        staged = {
            folder / path.name: path for folder, stage in self._stages.items() for path in sorted(stage.iterdir())
        }
        self._check_targets(staged)
        kept = [] if self.head in staged else [self.head]
        old = [path for path in self._own_files() if path not in kept]
        self._write_record(
            _Record(
                self._request,
                files={self._key(path): file_checksum(path) for path in kept}
                | {self._key(path): file_checksum(file) for path, file in staged.items()},
                replaced={self._key(path): file_checksum(path) for path in old},
            )
        )
        for path in old:
            if path != self.head:
                path.unlink()
        for path in sorted(staged, key=lambda path: path != self.head):
            staged[path].replace(path)
            sync_folder(path.parent)
        self._write_record(replace(self._record, finished=finished, replaced={}))

    def _all_folders(self) -> list[Path]:
        return list(dict.fromkeys((self.head.parent, *self._folders)))

    def _key(self, path: Path) -> str:
        return Path(os.path.relpath(path, self.head.parent)).as_posix()

    def _is_current(self, path: Path) -> bool:
        known = self._record.files.get(self._key(path))
        return known is not None and is_regular(path) and file_checksum(path) == known

    def _is_ours(self, path: Path) -> bool:
        """Whether multiguard wrote exactly this file; a link or a folder is never ours."""
        if not is_regular(path):
            return False
        known = [files.get(self._key(path)) for files in (self._record.files, self._record.replaced)]
        if any(known) and file_checksum(path) in known:
            return True
        return path == self.head and self._recognise(path)

    def _own_files(self) -> list[Path]:
        """The files of an older result that are still there; nothing outside the folders of this one."""
        inside = [path for folder in self._folders if folder.is_dir() for path in sorted(folder.iterdir())]
        on_record = {*self._record.files, *self._record.replaced}
        paths = dict.fromkeys((self.head, *inside))
        return [path for path in paths if self._key(path) in on_record and self._is_ours(path)]

    def _check(self) -> None:
        """Raises unless this result may be written here."""
        self._check_targets((self.head, *self._names))
        if self._force:
            return
        if self.holds_other:
            where = f"{self.head.parent} holds {self._kind} already"
            raise InvalidInputError(
                f"{where}, made with other settings; --force replaces what is there, or name another folder"
            )
        if not self.head.exists():
            check_foreign(self._folders, lambda path: path in self._folders or self._is_ours(path))

    def _check_targets(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if os.path.lexists(path) and not self._is_ours(path):
                raise InvalidInputError(
                    f"{path} is not as multiguard wrote it, so it is not replaced; move it, or name another folder"
                )

    def _clean(self) -> None:
        """Remove what killed writers left: nobody else is writing now."""
        for folder in self._all_folders():
            for path in list(folder.iterdir()):
                if _STAGE.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
        remove_partial_files(self.head.parent, lambda name: name == self.record_path.name)

    def _read_record(self) -> None:
        """Read the record; a damaged one, or somebody else's, proves nothing."""
        if is_regular(self.record_path):
            try:
                self._record = convert(decode_checked(read_regular(self.record_path), **_FORMAT), _Record)
            except (OSError, ValueError):
                self._record = _Record()

    def _write_record(self, record: _Record) -> None:
        content = encode_checked(record, **_FORMAT)
        write_atomically(self.record_path, lambda file: file.write(content))
        self._record = record


def check_foreign(folders: Iterable[Path], is_ours: Callable[[Path], bool]) -> None:
    """Raise `InvalidInputError` if a folder holds something of somebody else; hidden files do not count.

    Args:
        folders: The folders, there or not.
        is_ours: Whether multiguard wrote a file.
    """
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not path.name.startswith(".") and not is_ours(path):
                raise InvalidInputError(
                    f"{folder} holds {path.name}, which is not of this command; --force writes beside it, "
                    "or name another folder"
                )
