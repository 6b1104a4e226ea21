"""The record of a choice: what was tuned, on which images, and what it was chosen from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiguard.certify import Method, Rule, make_rule
from multiguard.certify.noise import parse_noise
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Candidate, Metric, Tuned
from multiguard.io.files import mentions, read_regular, remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.records import convert, decode_checked, encode_checked

_FORMAT: dict[str, Any] = {"format": "multiguard-tuned", "version": 2}
_MOST = 1 << 28  # bytes
_SAME = ("radius", "metric", "method", "alpha", "ids", "image_hashes")  # fields that the file holds as they are


@dataclass(frozen=True)
class _Candidate:
    """A candidate as the file holds it."""

    votes: int
    noise: str
    rule: dict[str, Any]
    score: float
    low: float
    high: float


@dataclass(frozen=True)
class _Record:
    """The content of the file."""

    radius: float
    metric: Metric
    method: Method
    alpha: float
    best: int  # the position of the chosen candidate
    candidates: tuple[_Candidate, ...]
    classifier: dict[str, Any]
    ids: tuple[str, ...]
    image_hashes: tuple[str | None, ...]


def write_tuned(path: str | Path, tuned: Tuned, *, force: bool = False) -> None:
    """Write the record, complete or not at all; another choice is replaced only with `force`, other files never.

    >>> from multiguard import TopK, read_votes
    >>> from multiguard.evaluate import tune
    >>> tuned = tune([read_votes(folder)], [TopK(20, 1)], 0.1)  # a folder with the votes of 5 images
    >>> write_tuned(out / "tuned.json", tuned)
    >>> read_tuned(out / "tuned.json").best == tuned.best
    True
    """
    path = Path(path)
    content = encode_checked(_record(tuned), **_FORMAT)
    with folder_lock(path.parent):
        if os.path.lexists(path):
            if not mentions(path, _FORMAT["format"]):
                raise InvalidInputError(
                    f"{path} was not written by multiguard tune, so it is not replaced; name another"
                )
            if not force and read_regular(path, _MOST) != content:
                raise InvalidInputError(f"{path} holds another choice; --force replaces it, or name another file")
        remove_partial_files(path.parent, lambda name: name == path.name)
        write_atomically(path, lambda file: file.write(content))


def read_tuned(path: str | Path) -> Tuned:
    """A record as it was written; a damaged or edited one raises `DataError`. For an example see `write_tuned`.

    >>> read_tuned(out / "tuned.json")
    Traceback (most recent call last):
    multiguard.errors.DataError: ...tuned.json cannot be used: ...
    """
    try:
        stored = convert(decode_checked(read_regular(Path(path), _MOST), **_FORMAT), _Record)
        return _parse(stored)
    except OSError as error:
        raise DataError(f"{path} cannot be used: {error.strerror or error}; `multiguard tune` writes it") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be used: {error}; tune again to write it") from error


def _record(tuned: Tuned) -> _Record:
    candidates = tuple(
        _Candidate(**{**vars(one), "noise": str(one.noise), "rule": _rule_record(one.rule)}) for one in tuned.candidates
    )
    best = tuned.candidates.index(tuned.best)
    more: dict[str, Any] = {name: getattr(tuned, name) for name in _SAME}
    return _Record(best=best, candidates=candidates, classifier=dict(tuned.classifier), **more)


def _parse(stored: _Record) -> Tuned:
    candidates = tuple(
        Candidate(**{**vars(one), "noise": parse_noise(one.noise), "rule": _parse_rule(one.rule)})
        for one in stored.candidates
    )
    if not 0 <= stored.best < len(candidates) or len(stored.ids) != len(stored.image_hashes):
        raise ValueError("its parts do not fit each other")
    more: dict[str, Any] = {name: getattr(stored, name) for name in _SAME}
    return Tuned(best=candidates[stored.best], candidates=candidates, classifier=stored.classifier, **more)


def _rule_record(rule: Rule) -> dict[str, Any]:
    return {"name": rule.name, **rule.options}


def _parse_rule(record: Mapping[str, Any]) -> Rule:
    return make_rule(record["name"], **{name: value for name, value in record.items() if name != "name"})
