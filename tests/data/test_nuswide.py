import pytest
from PIL import Image

from multiguard.data.nuswide import open_nuswide
from multiguard.errors import DataError

HEADER = "filepath,label,split_name\n"


@pytest.fixture
def nuswide(tmp_path):
    concepts = ["airport", "sky", "clouds"] + [f"concept{i}" for i in range(78)]
    (tmp_path / "Concepts81.txt").write_text("\n".join(concepts) + "\n\n")
    (tmp_path / "images").mkdir()
    for name in ("0001_1.jpg", "0002_2.jpg", "0003_3.jpg"):
        Image.new("CMYK", (10, 10)).save(tmp_path / "images" / name)
    rows = [
        "images/0001_1.jpg,\"['sky', 'airport']\",train",
        "0002_2.jpg,['clouds'],val",
        "images/0003_3.jpg,[],val",
    ]
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


@pytest.mark.parametrize("text", ["sky", "[1]", "['sky'"])
def test_bad_label_field(nuswide, text):
    """A label field that is not a list of names is quoted."""
    (nuswide / "nus_wid_data.csv").write_text(HEADER + f"images/0001_1.jpg,{text},train\n")
    with pytest.raises(DataError, match=r"line 2: label .* is not a list of names"):
        open_nuswide(nuswide, "train")


def test_one_image_under_two_names(nuswide):
    """One image under two names is refused with both lines."""
    rows = "images/0001_1.jpg,['sky'],train\n0001_1.jpg,['clouds'],train\n"
    (nuswide / "nus_wid_data.csv").write_text(HEADER + rows)
    with pytest.raises(DataError, match=r"line 3: image '0001_1\.jpg' is already listed in line 2"):
        open_nuswide(nuswide, "train")


def test_wrong_number_of_concepts(nuswide):
    """Anything but 81 concepts raises."""
    (nuswide / "Concepts81.txt").write_text("sky\n")
    with pytest.raises(DataError, match="1 concepts; expected 81"):
        open_nuswide(nuswide)
