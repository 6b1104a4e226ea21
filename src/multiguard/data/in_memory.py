"""Data that Python programs hold: arrays, torch datasets and data loaders as datasets to vote on. Never imports torch.

A label set is given per input: an array holds one 0 or 1 per label (multi-hot), a list holds label indices or names, a
number or a name alone is one label. Nothing is guessed from values: a list that could be either, one 0 or 1 per label
or indices, raises `DataError`.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.data.image import image_hash, image_pixels
from multiguard.data.sample import Dataset, Sample
from multiguard.errors import DataError, ImageError
from multiguard.io.names import shorten_names

Labels = tuple[int, ...]
_OURS = ("name", "label_names", "ids")
_LOADERS = ("dataset", "batch_sampler", "collate_fn")
_NAMES_SHOWN = 5
_FIX = "give an array for one 0 or 1 per label, np.asarray(Y); names or a set of indices, such as {0, 2}, otherwise"


class MemoryDataset:
    """Inputs of any shape with their label sets, read one by one; an input that cannot be used raises `ImageError`.

    Numbers of any type become float32, in their own unit; only uint8 inputs (channels, height, width) are pixels and
    stay as they are (x / 255 is meant).
    """

    def __init__(
        self,
        name: str,
        label_names: Sequence[str],
        count: int,
        read: Callable[[int], tuple[Any, Any]],
        *,
        label_sets: Sequence[Any] | None = None,
        labelled: bool = True,
    ) -> None:
        self.name, self.label_names = name, tuple(label_names)
        self.ids: Sequence[str] = [str(index) for index in range(count)]
        self.labelled = labelled  # whether label sets are given at all
        self._read, self._label_sets = read, label_sets

    @cached_property
    def labels(self) -> list[Labels] | None:
        """The label set of each input; None if they are known only when it is read."""
        return None if self._label_sets is None else [label_set(each, self.label_names) for each in self._label_sets]

    pixels = False  # floating-point inputs have any range, unless the classifier declares them to be images

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int, /) -> Sample:
        with self._named(index):
            given, labels = self._read(index)
            return Sample(self.ids[index], as_input(given), label_set(labels, self.label_names))

    def read_input(self, index: int) -> NDArray[Any]:
        """An input without its labels."""
        with self._named(index):
            return as_input(self._read(index)[0])

    def some_inputs(self, most: int) -> list[NDArray[Any]]:
        """At most this many inputs, spread evenly over all, without unusable ones."""
        found = []
        for index in np.unique(np.linspace(0, len(self) - 1, most).astype(int)):
            with suppress(ImageError):
                found.append(self.read_input(int(index)))
        return found

    @contextmanager
    def _named(self, index: int) -> Iterator[None]:
        """Whatever is wrong with an input, or is raised by the caller's own dataset, becomes an `ImageError`."""
        try:
            yield
        except DataError as error:
            raise ImageError(f"input {self.ids[index]}", str(error)) from error
        except Exception as error:
            raise ImageError(f"input {self.ids[index]}", f"cannot be read ({type(error).__name__}: {error})") from error

    def __repr__(self) -> str:
        return f"MemoryDataset({self.name!r}, {len(self)} inputs, {len(self.label_names)} labels)"


def as_dataset(data: Any, label_names: Sequence[str], feature_names: Sequence[str] | None = None) -> Dataset:
    """The data as a dataset whose labels are these; anything else raises `DataError` and says what is accepted.

    Accepted are a pair (X, Y) of inputs, or PIL images, and label sets, Y None where they are unknown; a torch dataset
    of items (x, y), or a data loader of one; and a `Dataset`, returned as it is. The columns of data frames take the
    classifier's order, that of `label_names` and `feature_names`; a missing or a further column raises `DataError`.

    >>> data = as_dataset((np.zeros((3, 4)), np.array([[1, 0], [0, 0], [1, 1]])), ["cat", "dog"])
    >>> [sample.labels for sample in map(data.__getitem__, range(3))]
    [(0,), (), (0, 1)]
    """
    dataset = _open(data, label_names, feature_names)
    _ = dataset.labels if isinstance(dataset, MemoryDataset) else None  # those that are known are checked now
    return dataset


def first_input(data: Any, feature_names: Sequence[str] | None = None) -> NDArray[Any]:
    """The first input of the data that can be used, in whose form the model takes all of them; labels are not read."""
    dataset = _open(data, (), feature_names)
    error: DataError = DataError("the data holds no input; give at least one")
    for index in range(len(dataset)):
        try:
            return dataset.read_input(index) if isinstance(dataset, MemoryDataset) else dataset[index].image
        except ImageError as failure:
            error = failure
    raise error


def named_row(given: Any, names: Sequence[str] | None, what: str = "the input") -> Any:
    """The values of a pandas Series, or of a data frame of one row, in the order of these names; other data as it is.

    A missing or a further name raises `DataError`.
    """
    frame = given.to_frame().T.infer_objects() if _is_series(given) else given
    if (rows := _values(what, frame, names)) is frame:
        return given
    if len(rows) != 1:
        raise DataError(f"the input is a data frame of {len(rows)} rows; expected one row")
    return as_input(rows[0])


def _open(data: Any, label_names: Sequence[str], feature_names: Sequence[str] | None) -> Dataset:
    if all(hasattr(data, name) for name in _OURS):
        dataset: Dataset = data
        return dataset
    if isinstance(data, tuple | list) and len(data) == 2:
        inputs, labels = (_values(*each) for each in (("X", data[0], feature_names), ("Y", data[1], label_names)))
        if isinstance(inputs, tuple | list) and any(map(_is_series, inputs)):
            inputs = [named_row(row, feature_names) for row in inputs]
        return _from_arrays(inputs, labels, label_names)
    if all(hasattr(data, name) for name in _LOADERS):
        return _from_loader(data, label_names, feature_names)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "shape"):
        return _from_items(data, label_names, feature_names)
    raise DataError(
        f"data is {_kind(data)}; expected a pair (X, Y), a torch Dataset or DataLoader with items (x, y), or a "
        "multiguard dataset. Give (X, None) for inputs without labels."
    )


def _is_series(given: Any) -> bool:
    """Whether it is a pandas Series, whose values have names."""
    return hasattr(given, "to_frame") and hasattr(given, "array")


def _values(what: str, given: Any, names: Sequence[str] | None) -> Any:
    """The values of a data frame, its columns in the order of these names if there are any; other data as it is."""
    if not (hasattr(given, "columns") and hasattr(given, "dtypes")):
        return given
    columns = {str(column): np.asarray(given[column]) for column in given.columns}
    unusable = [name for name, column in columns.items() if column.ndim > 1 or column.dtype.kind not in "biuf"]
    if unusable or not columns:
        raise DataError(f"{what} has columns without numbers, or with one name: {_shown(unusable)}; encode them first")
    missing, extra = ([one for one in a if one not in b] for a, b in ((names or (), columns), (columns, names or ())))
    if names and (missing or extra):
        known = "labels (labels=[...] names them in the order of the scores)" if what == "Y" else "own columns"
        raise DataError(
            f"the columns of {what} are not the classifier's {known}, missing: {_shown(missing)}; unknown: "
            f"{_shown(extra)}"
        )
    return np.stack([columns[name] for name in names or columns], axis=1)


def _from_arrays(inputs: Any, labels: Any, label_names: Sequence[str]) -> MemoryDataset:
    rows = _array(inputs)
    if rows.ndim < 2:
        raise DataError(f"X has shape {rows.shape}; expected one row or image per input, such as (inputs, features).")
    sets: Sequence[Any] = [()] * rows.shape[0] if labels is None else _entries(labels)
    if len(sets) != rows.shape[0]:
        raise DataError(f"X holds {rows.shape[0]} inputs and Y the labels of {len(sets)}; give one label set each.")
    name = f"data in memory, {' x '.join(map(str, rows.shape))}, sha256 {image_hash(rows)[:16]}"
    pairs, labelled = list(zip(rows, sets, strict=True)), labels is not None
    return MemoryDataset(name, label_names, len(sets), pairs.__getitem__, label_sets=sets, labelled=labelled)


def _from_items(items: Any, label_names: Sequence[str], feature_names: Sequence[str] | None) -> MemoryDataset:
    name = f"{type(items).__name__}, {len(items)} items"

    def read(index: int) -> tuple[Any, Any]:
        item = items[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"an item is {_kind(item)}; expected a pair (x, y) of an input and its labels")
        return item[0] if feature_names is None else named_row(item[0], feature_names), item[1]

    return MemoryDataset(name, label_names, len(items), read)


def _from_loader(loader: Any, label_names: Sequence[str], feature_names: Sequence[str] | None) -> MemoryDataset:
    """All items of the loader's dataset, in its order; a loader that picks items, or makes them, raises `DataError`."""
    items, batches = loader.dataset, type(loader.batch_sampler).__name__
    plain = getattr(loader.collate_fn, "__name__", "") in ("default_collate", "default_convert")
    sampled = type(loader.sampler).__name__ in ("SequentialSampler", "RandomSampler")
    if not hasattr(items, "__getitem__") or not hasattr(items, "__len__"):
        raise DataError(f"{type(items).__name__} is read in a stream; stack its items and give a pair (X, Y).")
    if not (plain and sampled and batches in ("BatchSampler", "NoneType")):
        raise DataError("the loader has a sampler or a collate function of its own; give a dataset of pairs (x, y).")
    return _from_items(items, label_names, feature_names)


def _entries(labels: Any) -> Sequence[Any]:
    """The label set of each input."""
    labels = labels.toarray() if hasattr(labels, "tocsr") else labels
    if hasattr(labels, "shape"):
        return list(np.asarray(labels))
    if isinstance(labels, Sequence) and not isinstance(labels, str):
        return labels
    raise DataError(f"Y is {_kind(labels)}; expected a multi-hot array (inputs, labels), or one list of labels each")


def label_set(labels: Any, label_names: Sequence[str]) -> Labels:
    """The sorted indices of a label set, as the head of this module describes it; anything else raises `DataError`.

    >>> names = ["cat", "dog", "emu"]
    >>> label_set(["dog", "cat"], names), label_set([2], names), label_set(np.array([0, 1, 1]), names)
    ((0, 1), (2,), (1, 2))
    >>> label_set([0, 1, 1], names)
    Traceback (most recent call last):
    multiguard.errors.DataError: the labels [0, 1, 1] are one 0 or 1 per label, or indices; ...
    """
    if hasattr(labels, "shape") and np.ndim(labels) == 1 and np.asarray(labels).dtype.kind in "biuf":
        labels = named_row(labels, label_names, "Y")
        return _from_multi_hot(np.asarray(labels), len(label_names))
    if isinstance(labels, set | frozenset):
        return tuple(sorted({_index(label, label_names) for label in labels}))
    given = [labels] if isinstance(labels, str) or np.ndim(labels) == 0 else list(labels)
    bits = all(not isinstance(label, str) and np.ndim(label) == 0 and label in (0, 1) for label in given)
    if bits and len(given) == len(label_names):
        raise DataError(f"the labels {given} are one 0 or 1 per label, or indices; {_FIX}")
    indices = sorted(_index(label, label_names) for label in given)
    if len(set(indices)) < len(indices):
        raise DataError(f"the labels {given} name a label twice; {_FIX}")
    return tuple(indices)


def _from_multi_hot(row: NDArray[Any], count: int) -> Labels:
    if len(row) != count:
        raise DataError(
            f"a label array has {len(row)} values, and there are {count} labels; an array is multi-hot, one 0 or 1 "
            "per label: give indices or names as a list"
        )
    if not np.all((row == 0) | (row == 1)):
        raise DataError(f"a multi-hot label array holds {row[(row != 0) & (row != 1)][0]}; expected 0 and 1 only")
    return tuple(np.flatnonzero(row).tolist())


def _index(label: Any, label_names: Sequence[str]) -> int:
    if isinstance(label, str):
        if label not in label_names:
            raise DataError(f"the label {label!r} is none of the classifier's {len(label_names)} labels")
        return label_names.index(label)
    try:
        if str(getattr(label, "dtype", type(label).__name__)).endswith("bool"):
            raise TypeError
        index = operator.index(label)
    except TypeError as error:
        raise DataError(f"a label is {label!r}; expected an index or a name: {_FIX}") from error
    if not 0 <= index < len(label_names):
        raise DataError(f"label {index} does not exist: the classifier has labels 0 to {len(label_names) - 1}")
    return index


def as_input(given: Any) -> NDArray[Any]:
    """The input as float32, or uint8 pixels; what is not a finite array of numbers raises `DataError`."""
    array = _array(given)
    if array.dtype == np.uint8 and array.ndim == 3:  # (channels, height, width)
        return array
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if not np.all(np.isfinite(values)):
        raise DataError("it holds a value that is NaN, infinite or too large for float32; clean the data first")
    return values


def _array(given: Any) -> NDArray[Any]:
    if hasattr(given, "detach"):  # a torch tensor
        given = given.detach().cpu()
    if hasattr(given, "getbands"):  # a PIL image
        return image_pixels(given)
    if isinstance(given, list | tuple) and any(hasattr(each, "getbands") for each in given):
        given = [_array(each) for each in given]
        if len(shapes := {image.shape for image in given}) > 1:
            raise DataError(
                f"X holds images of {len(shapes)} sizes; resize them to one, as in image.resize((224, 224))"
            )
    array = np.asarray(given)
    if array.dtype.kind in "SU" or hasattr(given, "tocsr"):
        raise DataError("an input is text, or sparse, and noise is added to every number; give embeddings of the texts")
    if array.dtype.kind not in "biuf":
        raise DataError(f"an input is {_kind(given)}; expected an array or tensor of numbers, in the model's shape")
    return array


def _shown(names: Sequence[str]) -> str:
    return shorten_names(names, _NAMES_SHOWN) if names else "none"


def _kind(value: object) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" if shape is None else f"a {type(value).__name__} of shape {tuple(shape)}"
