"""How the votes of an image lie in bytes, and what belongs to a run."""

from typing import Any

import numpy as np

from multiguard.errors import InvalidInputError
from multiguard.votes.provenance import Provenance
from multiguard.votes.ranked import vote_dtype
from multiguard.votes.row import DrawVotes, VoteRow
from multiguard.votes.sets import LabelSets, packed_width


def encoded(votes: DrawVotes) -> bytes:
    """Draw after draw, little-endian."""
    array = votes.packed if isinstance(votes, LabelSets) else votes
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def decoded(data: bytes, draws: int, run: Provenance) -> DrawVotes:
    """The votes of so many draws of this run; other bytes raise `InvalidInputError`."""
    width, dtype = _layout(run)
    if len(data) != draws * width * dtype.itemsize:
        raise InvalidInputError(f"{len(data)} bytes of votes, where {draws} draws of {_width_said(run)} belong.")
    array = np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(draws, width)
    return LabelSets(array, len(run.label_names)) if run.rule == "threshold" else array


def check_row(row: VoteRow, run: Provenance) -> None:
    """Raises `InvalidInputError` unless labels, draws and votes of the row are such as this run may have."""
    check_head(row.labels, row.draws, run)
    _check_votes(row.votes, row.draws, run)
    if (row.pilot is None) != (run.pilot_draws == 0):
        raise InvalidInputError(f"{'no' if row.pilot is None else 'some'} pilot draws, where {run.pilot_draws} belong.")
    if row.pilot is not None:
        _check_votes(row.pilot, run.pilot_draws, run)


def check_head(labels: tuple[int, ...], draws: int, run: Provenance) -> None:
    """Raises `InvalidInputError` unless an image of this run may have these labels and so many draws."""
    if not run.allows(draws):
        allowed = f"one of the looks {run.looks}" if run.looks else f"{run.draws}"
        raise InvalidInputError(f"{draws} draws, where {allowed} belong.")
    if labels and not run.labelled:
        raise InvalidInputError("labels, in a run without labels.")
    if not all(0 <= label < len(run.label_names) for label in labels):
        raise InvalidInputError(f"a label index outside 0 .. {len(run.label_names) - 1}.")


def _check_votes(votes: DrawVotes, draws: int, run: Provenance) -> None:
    if isinstance(votes, LabelSets) != (run.rule == "threshold"):
        raise InvalidInputError(f"votes of another rule, where those of the {run.rule} rule belong.")
    array, (width, dtype) = votes.packed if isinstance(votes, LabelSets) else votes, _layout(run)
    if array.shape != (draws, width) or array.dtype != dtype:
        raise InvalidInputError(
            f"votes of {array.dtype} and shape {array.shape}, where {dtype} of shape {(draws, width)} belongs."
        )
    if run.rule == "top-k" and int(array.max()) >= len(run.label_names):
        raise InvalidInputError(f"votes with a label index outside 0 .. {len(run.label_names) - 1}.")


def _layout(run: Provenance) -> tuple[int, np.dtype[Any]]:
    """The width and dtype of the votes of one draw."""
    labels = len(run.label_names)
    if run.k_max is None:
        return packed_width(labels), np.dtype(np.uint8)
    return run.k_max, np.dtype(vote_dtype(labels))


def _width_said(run: Provenance) -> str:
    return f"sets of {len(run.label_names)} labels" if run.k_max is None else f"{run.k_max} labels"
