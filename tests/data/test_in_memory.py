"""Data in memory: arrays, torch datasets and loaders yield the inputs and label sets that they hold."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import sparse
from torch.utils.data import DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from multiguard.data.in_memory import as_dataset, label_set
from multiguard.errors import DataError, ImageError

NAMES = ("cat", "dog", "emu")
ROWS = np.arange(12.0).reshape(4, 3)
SETS = [(0,), (1, 2), (), (0, 1, 2)]
HOT = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]])


def contents(data):
    """The inputs and label sets of a dataset."""
    samples = [data[index] for index in range(len(data))]
    return np.stack([sample.image for sample in samples]), [sample.labels for sample in samples]


@pytest.mark.parametrize(
    "labels",
    [
        HOT,
        HOT.astype(bool),
        HOT.astype(np.float32),
        torch.from_numpy(HOT),
        sparse.csr_matrix(HOT),
        SETS,
        [["cat"], ["dog", "emu"], [], {"cat", "dog", "emu"}],
        [HOT[0], torch.from_numpy(HOT[1]), [], list(NAMES)],
    ],
    ids=["int", "bool", "float", "torch", "sparse", "indices", "names", "mixed"],
)
def test_label_forms(labels):
    """Multi-hot arrays, index lists and name lists mean the same label sets."""
    assert contents(as_dataset((ROWS, labels), NAMES))[1] == SETS


def test_single_labels():
    """A number, or a name, is one label."""
    assert contents(as_dataset((ROWS, np.array([2, 0, 1, 1])), NAMES))[1] == [(2,), (0,), (1,), (1,)]
    assert contents(as_dataset((ROWS, np.array(["emu", "cat", "dog", "dog"])), NAMES))[1] == [(2,), (0,), (1,), (1,)]


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ([0, 1, 1], NAMES),
        ([np.int64(1), 0, 1], NAMES),
        (list(torch.tensor([1, 0, 1])), NAMES),
        ([1, 0], NAMES[:2]),
        ([0], NAMES[:1]),
        (0, NAMES[:1]),
        ([1.0, 0.0, 1.0], NAMES),
        ([True, False, True], NAMES),
        ([torch.tensor(True)], NAMES),
        (True, NAMES),
        ([2, 2], NAMES),
        (["cat", "cat"], NAMES),
        ([0, 1, 1, 0], NAMES),
    ],
)
def test_ambiguous_lists(row, names):
    """A list that may be one 0 or 1 per label is not read as indices, and the message has the fix."""
    with pytest.raises(DataError, match=r"np\.asarray\(Y\); names or a set of indices"):
        label_set(row, names)
    for data in ((np.zeros((1, 3)), [row]), [(np.zeros(3), row)] * 3):
        with pytest.raises(DataError, match=r"np\.asarray\(Y\)"):
            _ = as_dataset(data, names)[0]


@pytest.mark.parametrize("rows", [ROWS, ROWS.astype(int), ROWS.astype(np.uint8), torch.from_numpy(ROWS), ROWS.tolist()])
def test_input_forms(rows):
    """Arrays, tensors and lists become float32 rows."""
    inputs, _ = contents(as_dataset((rows, SETS), NAMES))
    assert inputs.dtype == np.float32
    np.testing.assert_array_equal(inputs, ROWS)


def test_bytes():
    """Only images (channels, height, width) of uint8 are pixels; any other shape has values."""
    for shape, dtype in (((4,), np.float32), ((4, 4), np.float32), ((3, 4, 4), np.uint8), ((2, 3, 4, 4), np.float32)):
        image = as_dataset((np.full((1, *shape), 7, np.uint8), [[0]]), NAMES)[0].image
        assert (image.dtype, image.max()) == (dtype, 7)


def test_pil_images():
    """PIL images become pixels as files do, in a pair and in items; images of several sizes are refused."""
    images = [Image.new("L", (4, 2), 7), Image.new("RGBA", (4, 2), (0, 0, 0, 0))]
    for data in ((images, SETS[:2]), list(zip(images, SETS, strict=False)), (tuple(images), HOT[:2])):
        inputs, sets = contents(as_dataset(data if isinstance(data, tuple) else [*data, *data[:1]], NAMES))
        assert (inputs.dtype, inputs.shape[1:], sets[:2]) == (np.uint8, (3, 2, 4), SETS[:2])
        assert (inputs[0] == 7).all()
        assert (inputs[1] == 255).all()
    with pytest.raises(DataError, match="X holds images of 2 sizes; resize them to one"):
        as_dataset(([images[0], Image.new("L", (3, 3))], SETS[:2]), NAMES)


def test_frames():
    """Columns of data frames take the classifier's order by their names; without names, theirs."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(ROWS, columns=["x", "y", "z"])
    labels = pandas.DataFrame(HOT, columns=NAMES).astype({"dog": bool, "emu": float})
    data = as_dataset((table[["z", "x", "y"]], labels[["emu", "cat", "dog"]]), NAMES, ("x", "y", "z"))
    inputs, sets = contents(data)
    np.testing.assert_array_equal(inputs, ROWS)
    assert sets == SETS
    assert data.name == as_dataset((ROWS, SETS), NAMES).name
    np.testing.assert_array_equal(contents(as_dataset((table[["z", "x", "y"]], SETS), NAMES))[0], ROWS[:, [2, 0, 1]])
    numbered = pandas.DataFrame(HOT[:, ::-1], columns=[2, 1, 0])
    assert contents(as_dataset((ROWS, numbered), ("0", "1", "2")))[1] == SETS


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"y": "w"}, {}, "columns of X are not the classifier's own columns, missing: y; unknown: w"),
        ({}, {"dog": "fox"}, r"columns of Y are not .* \(labels=.*\), missing: dog; unknown: fox"),
        ({"y": "x"}, {}, "X has columns without numbers, or with one name: x"),
    ],
)
def test_other_columns(x, y, message):
    """Missing and unknown columns are named."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(ROWS, columns=["x", "y", "z"]).rename(columns=x)
    labels = pandas.DataFrame(HOT, columns=NAMES).rename(columns=y)
    with pytest.raises(DataError, match=message):
        as_dataset((table, labels), NAMES, ("x", "y", "z"))
    with pytest.raises(DataError, match="without numbers, or with one name: x"):
        as_dataset((table.assign(x="red"), HOT), NAMES)


def test_torch_data():
    """A torch dataset, and a loader of one, hold the same items, whatever the batches and the order."""
    items = TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(HOT))
    for data in (items, DataLoader(items, batch_size=3), DataLoader(items, batch_size=3, shuffle=True, drop_last=True)):
        inputs, labels = contents(as_dataset(data, NAMES))
        np.testing.assert_array_equal(inputs, ROWS)
        assert labels == SETS


@pytest.mark.parametrize(
    "more",
    [{"sampler": SubsetRandomSampler([3, 1])}, {"batch_sampler": [[3], [1]]}, {"collate_fn": lambda batch: batch}],
)
def test_special_loaders(more):
    """A loader that picks or makes items is refused; a torch Subset has its own."""
    items = TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(HOT))
    with pytest.raises(DataError, match="a sampler or a collate function of its own"):
        as_dataset(DataLoader(items, **more), NAMES)
    assert contents(as_dataset(Subset(items, [1, 3]), NAMES))[1] == [SETS[1], SETS[3]]


def test_content_in_name():
    """Other values are other data, also beyond the first row, so that no run resumes with them."""
    first, other = (as_dataset((rows, SETS), NAMES).name for rows in (ROWS, ROWS + (np.arange(4) == 3)[:, None]))
    assert first != other


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(ROWS[0], [0])])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ROWS, r"ndarray of shape \(4, 3\); expected a pair"),
        ((ROWS, HOT[:3]), "X holds 4 inputs and Y the labels of 3"),
        ((ROWS, HOT[:, :2]), "has 2 values, and there are 3 labels"),
        ((ROWS, HOT * 2), "holds 2; expected 0 and 1"),
        ((ROWS, [[0], [3], [], []]), "label 3 does not exist: the classifier has labels 0 to 2"),
        ((ROWS, [["bat"], [], [], []]), "'bat' is none of the classifier's 3 labels"),
        ((ROWS, [[0.5], [], [], []]), "0.5; expected an index or a name"),
        ((ROWS[0], [[0]] * 3), r"X has shape \(3,\)"),
        ((np.array(["a", "b"]), [[], []]), "an input is text, .* noise is added to every number; give embeddings"),
        ((sparse.csr_matrix(ROWS), SETS), "sparse, .* noise is added to every number; give embeddings"),
        (DataLoader(Stream()), "read in a stream; stack its items"),
        (7, "data is a int"),
    ],
)
def test_refusals(data, message):
    """What is not data is refused, and the message says what is."""
    with pytest.raises(DataError, match=message):
        as_dataset(data, NAMES)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((np.array([1.0, np.nan, 0.0]), [0]), "input 0: it holds a value that is NaN"),
        ((np.array([1e300, 0.0, 0.0]), [0]), "too large for float32"),
        ((np.array([None, 1]), [0]), "expected an array or tensor of numbers"),
        (np.zeros(3), r"expected a pair \(x, y\)"),
        ((ROWS[0], [9]), "label 9 does not exist"),
    ],
)
def test_bad_items(item, message):
    """A bad item of a torch dataset is an image failure with its number."""
    with pytest.raises(ImageError, match=message):
        _ = as_dataset([item, item, item], NAMES)[0]


def test_failing_items():
    """What the caller's own dataset raises names the item and its cause."""

    class Broken(list):
        def __getitem__(self, index):
            raise KeyError("pixels")

    with pytest.raises(ImageError, match=r"input 1: cannot be read \(KeyError: 'pixels'\)"):
        _ = as_dataset(Broken([1, 2, 3]), NAMES)[1]
