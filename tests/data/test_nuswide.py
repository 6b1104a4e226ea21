import pytest
from PIL import Image

from multiguard.data.annotations import open_nuswide
from multiguard.errors import DataError

HEADER = "filepath,label,split_name\n"


@pytest.fixture
def nuswide(tmp_path):
    concepts = ["airport", "sky", "clouds"] + [f"concept{i}" for i in range(78)]
    (tmp_path / "Concepts81.txt").write_text("\n".join(concepts) + "\n\n")
    (tmp_path / "images").mkdir()
    for name in ("0001_1.jpg", "0002_2.jpg", "0003_3.jpg"):
        Image.new("CMYK", (10, 10)).save(tmp_path / "images" / name)
    rows = ["images/0001_1.jpg,\"['sky', 'airport']\",train", "0002_2.jpg,['clouds'],val", "images/0003_3.jpg,[],val"]
    (tmp_path / "nus_wid_data.csv").write_text(HEADER + "\n".join(rows))
    return tmp_path


def test_concepts_and_paths(nuswide):
    """Concepts are in the order of the file; images are where the CSV says, or in `images`."""
    train = open_nuswide(nuswide, "train", size=8)
    assert train[0].labels == (0, 1)
    assert train.ids == ["images/0001_1.jpg"]
    val = open_nuswide(nuswide, "val", size=8)
    assert [val[i].labels for i in range(2)] == [(2,), ()]
    assert len(val.label_names) == 81


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("images/0001_1.jpg,sky,train\n", "line 2: label .* is not a list of names"),
        ("images/0001_1.jpg,[1],train\n", "line 2: label .* is not a list of names"),
        (
            "images/0001_1.jpg,['sky'],train\n0001_1.jpg,['clouds'],train\n",
            r"line 3: image '0001_1\.jpg' is already listed",
        ),
    ],
)
def test_bad_row(nuswide, rows, message):
    """A field that is no list of names, and one image under two names, are named with their line."""
    (nuswide / "nus_wid_data.csv").write_text(HEADER + rows)
    with pytest.raises(DataError, match=message):
        open_nuswide(nuswide, "train")


def test_wrong_number_of_concepts(nuswide):
    """Anything but 81 concepts raises."""
    (nuswide / "Concepts81.txt").write_text("sky\n")
    with pytest.raises(DataError, match="1 concepts; expected 81"):
        open_nuswide(nuswide)
