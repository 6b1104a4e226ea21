"""The votes of one image: ranked labels or sets of labels, their bytes, and whether they fit their run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.rules import Rule
from multiguard.errors import ImageFailure, InvalidInputError, VotesError
from multiguard.io.names import short_repr
from multiguard.votes.provenance import Provenance

DEFAULT_RANKS = 10  # the ranked labels stored per draw by default, or all labels if there are fewer
Ranked = NDArray[np.uint8 | np.uint16]  # (draws, K'): the labels of each draw, best first


def vote_dtype(num_labels: int) -> type[np.uint8] | type[np.uint16]:
    """The dtype of a label index: one byte up to 256 labels, two up to 65,536."""
    if not 1 <= num_labels <= 1 << 16:
        raise InvalidInputError(f"votes hold between 1 and 65536 labels, not {num_labels}.")
    return np.uint8 if num_labels <= 1 << 8 else np.uint16


def packed_width(num_labels: int) -> int:
    """The bytes of one set of labels: ceil(c / 8)."""
    return -(-num_labels // 8)


@dataclass(frozen=True, eq=False)
class LabelSets:
    """The set of labels that each draw returned; not an array, so that it cannot be mistaken for ranked votes.

    Example:
        >>> sets = LabelSets.from_hits(np.array([[True, False, True]]))
        >>> sets.packed.tolist(), sets.hits().tolist()
        ([[5]], [[True, False, True]])
    """

    packed: NDArray[np.uint8]  # (draws, ceil(c / 8)): label i is bit i % 8, lowest first, of byte i // 8; else 0
    num_labels: int  # c, the number of labels

    __repr__ = short_repr

    def __post_init__(self) -> None:
        width = packed_width(self.num_labels)
        if self.packed.dtype != np.uint8 or self.packed.ndim != 2 or self.packed.shape[1] != width:
            given = f"sets in {self.packed.dtype} of shape {self.packed.shape}"
            expected = f"expected uint8 of shape (draws, {width}) for {self.num_labels} labels"
            raise InvalidInputError(f"{given}, {expected}.")
        if np.any(self.packed[:, -1] >> np.uint8((self.num_labels - 1) % 8) > 1):
            raise InvalidInputError(f"sets with a label index beyond {self.num_labels - 1}.")

    def __len__(self) -> int:
        return len(self.packed)

    def hits(self) -> NDArray[np.bool_]:
        """(draws, c): whether each label is in the set of each draw."""
        return np.unpackbits(self.packed, axis=1, count=self.num_labels, bitorder="little").astype(np.bool_)

    @classmethod
    def from_hits(cls, hits: NDArray[np.bool_]) -> "LabelSets":
        """The sets that boolean hits (draws, c) mark."""
        return cls(np.packbits(hits, axis=1, bitorder="little"), hits.shape[1])


DrawVotes = Ranked | LabelSets


@dataclass(frozen=True, eq=False)
class VoteRow:
    """The votes of one image.

    Example:
        >>> row = VoteRow("000042.jpg", labels=(3,), votes=np.array([[3, 1], [1, 3]], np.uint8))
        >>> row.draws, row.ranked[0].tolist()
        (2, [3, 1])
    """

    image_id: str
    labels: tuple[int, ...]  # the indices of its labels, the ground truth; empty in a run without labels
    votes: DrawVotes  # of the draws that certify: ranked labels (draws, K'), or `LabelSets` for the threshold rule
    pilot: DrawVotes | None = None  # of the draws that choose labels and never certify; None if there are none
    image_hash: str | None = None  # the `image_hash` of the image that was voted on; None if unknown
    bare: DrawVotes | None = None  # of the image without noise, one draw that certifies nothing; None if unknown

    __repr__ = short_repr

    @property
    def draws(self) -> int:
        """The number of draws that certify this image."""
        return len(self.votes)

    @property
    def ranked(self) -> Ranked:
        """(draws, K'): the labels of each draw, best first; votes of the threshold rule raise `VotesError`."""
        return as_ranked(self.votes)

    @property
    def hits(self) -> NDArray[np.bool_]:
        """(draws, c): the set of each draw; votes of the top-k rule raise `VotesError`."""
        return as_hits(self.votes)


def as_ranked(votes: DrawVotes) -> Ranked:
    """Votes of the top-k rule, ranked; votes of the threshold rule raise `VotesError`."""
    if isinstance(votes, LabelSets):
        remedy = "certify them with --rule threshold (Votes.hits)"
        raise VotesError(f"these are votes of the threshold rule: each draw has a set of labels, unranked; {remedy}.")
    return votes


def as_hits(votes: DrawVotes) -> NDArray[np.bool_]:
    """Votes of the threshold rule, (draws, c) boolean; votes of the top-k rule raise `VotesError`."""
    if not isinstance(votes, LabelSets):
        remedy = "certify them with k and k_prime, or threshold and k_prime, or vote again with --rule threshold"
        raise VotesError(f"these are votes of the top-k rule: which labels pass a threshold is not known; {remedy}.")
    return votes.hits()


def as_array(votes: DrawVotes, rule: Rule) -> NDArray[Any]:
    """The votes as the functions of this rule take them; votes of the other form raise `VotesError`."""
    return as_ranked(votes) if rule.ranked else as_hits(votes)


def packed_array(votes: DrawVotes) -> NDArray[np.uint8 | np.uint16]:
    """(draws, width) whole numbers, a row per draw, as they are stored."""
    return votes.packed if isinstance(votes, LabelSets) else votes


def encode_votes(votes: DrawVotes) -> bytes:
    """The votes as bytes, draw after draw, little-endian."""
    array = packed_array(votes)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def record_of(row: VoteRow) -> dict[str, Any]:
    """What is stored of an image."""
    votes = {"votes": row.votes, "pilot": row.pilot, "bare": row.bare}
    return {
        "image_id": row.image_id,
        "labels": [int(label) for label in row.labels],
        "draws": row.draws,
        "image_sha256": row.image_hash,
        **{name: None if each is None else encode_votes(each) for name, each in votes.items()},
    }


def decode_votes(data: bytes, draws: int, run: Provenance) -> DrawVotes:
    """The votes of this many draws; bytes that do not fit the run raise `InvalidInputError`."""
    width, dtype = _layout(run)
    if len(data) != draws * width * dtype.itemsize:
        one = f"{run.k_max} labels" if run.k_max is not None else f"sets of {len(run.label_names)} labels"
        raise InvalidInputError(f"{len(data)} bytes of votes, expected {draws} draws of {one}.")
    array = np.frombuffer(data, dtype=dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(draws, width)
    return LabelSets(array, len(run.label_names)) if run.rule == "threshold" else array


def consist_of(ids: Sequence[str], voted: Sequence[str], failures: Sequence[ImageFailure]) -> bool:
    """Whether the images with votes and those that failed, each in order, are exactly these images."""
    failed = dict.fromkeys(failure.image_id for failure in failures)
    in_order = list(failed) == [i for i in ids if i in failed] and len(failed) == len(failures)
    return in_order and list(voted) == [i for i in ids if i not in failed]


def check_rows(rows: Sequence[VoteRow], failures: Sequence[ImageFailure], ids: Sequence[str], run: Provenance) -> None:
    """Raises `InvalidInputError` unless these are votes and failures of exactly these images, and fit the run."""
    if not consist_of(ids, [row.image_id for row in rows], failures):
        raise InvalidInputError(f"votes must hold the images {list(ids)}, in this order, each once.")
    for row in rows:
        try:
            check_row(row, run)
        except InvalidInputError as error:
            raise InvalidInputError(f"image {row.image_id!r} cannot be stored: it has {error}") from error


def check_row(row: VoteRow, run: Provenance) -> None:
    """Raises `InvalidInputError` unless the labels, draws and votes of the row fit the run."""
    check_head(row.labels, row.draws, run)
    _check_votes(row.votes, row.draws, run)
    if (row.pilot is None) != (run.pilot_draws == 0):
        raise InvalidInputError(f"{'no' if row.pilot is None else 'some'} pilot draws, expected {run.pilot_draws}.")
    for votes, draws in ((row.pilot, run.pilot_draws), (row.bare, 1)):
        if votes is not None:
            _check_votes(votes, draws, run)


def check_head(labels: tuple[int, ...], draws: int, run: Provenance) -> None:
    """Raises `InvalidInputError` unless an image of the run may have these labels and this many draws."""
    if draws not in (run.stops or (run.draws,)):
        expected = f"one of the stops {run.stops}" if run.stops else run.draws
        raise InvalidInputError(f"{draws} draws, expected {expected}.")
    if labels and not run.labelled:
        raise InvalidInputError("labels, in a run without labels.")
    if not all(0 <= label < len(run.label_names) for label in labels):
        raise InvalidInputError(f"a label index outside 0 .. {len(run.label_names) - 1}.")


def _check_votes(votes: DrawVotes, draws: int, run: Provenance) -> None:
    if isinstance(votes, LabelSets) != (run.rule == "threshold"):
        raise InvalidInputError(f"votes of another rule, expected the {run.rule} rule.")
    array, (width, dtype) = packed_array(votes), _layout(run)
    if array.shape != (draws, width) or array.dtype != dtype:
        expected = f"expected {dtype} of shape {(draws, width)}"
        raise InvalidInputError(f"votes of {array.dtype} and shape {array.shape}, {expected}.")
    if run.rule == "top-k" and int(array.max()) >= len(run.label_names):
        raise InvalidInputError(f"votes with a label index outside 0 .. {len(run.label_names) - 1}.")


def _layout(run: Provenance) -> tuple[int, np.dtype[Any]]:
    """The width and dtype of the votes of one draw."""
    width, labels = run.k_max, len(run.label_names)
    return (packed_width(labels), np.dtype(np.uint8)) if width is None else (width, np.dtype(vote_dtype(labels)))
