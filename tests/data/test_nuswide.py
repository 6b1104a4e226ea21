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


def test_concepts_in_file_order_and_paths_as_written_or_below_images(nuswide):
    train = open_nuswide(nuswide, "train", size=8)
    assert train[0].labels == (0, 1)
    assert train.ids == ["images/0001_1.jpg"]
    val = open_nuswide(nuswide, "val", size=8)
    assert [val[i].labels for i in range(2)] == [(2,), ()]
    assert len(val.label_names) == 81


def test_unknown_concept_names_the_line_and_the_nearest(nuswide):
    path = nuswide / "nus_wid_data.csv"
    path.write_text(HEADER + "images/0001_1.jpg,['cloud'],train\n")
    with pytest.raises(DataError, match="line 2: unknown label 'cloud': did you mean 'clouds'"):
        open_nuswide(nuswide, "train")


@pytest.mark.parametrize("text", ["sky", "[1]", "['sky'"])
def test_label_field_that_is_no_list_of_names_is_quoted(nuswide, text):
    (nuswide / "nus_wid_data.csv").write_text(HEADER + f"images/0001_1.jpg,{text},train\n")
    with pytest.raises(DataError, match=r"line 2: label .* is not a list of names"):
        open_nuswide(nuswide, "train")


def test_one_image_under_two_names_is_refused_with_both_lines(nuswide):
    rows = "images/0001_1.jpg,['sky'],train\n0001_1.jpg,['clouds'],train\n"
    (nuswide / "nus_wid_data.csv").write_text(HEADER + rows)
    with pytest.raises(DataError, match=r"line 3: the image '0001_1\.jpg' stands already in line 2"):
        open_nuswide(nuswide, "train")
    faults = []
    assert len(open_nuswide(nuswide, "train", faults=faults)) == len(faults) == 1


def test_wrong_number_of_concepts_raises(nuswide):
    (nuswide / "Concepts81.txt").write_text("sky\n")
    with pytest.raises(DataError, match="1 concepts; expected 81"):
        open_nuswide(nuswide)


def test_missing_column_shows_the_header(nuswide):
    (nuswide / "nus_wid_data.csv").write_text("filepath,label\na.jpg,[]\n")
    with pytest.raises(DataError, match="no column 'split_name'; its header is filepath,label"):
        open_nuswide(nuswide)


def test_unknown_split_lists_what_the_table_has(nuswide):
    with pytest.raises(DataError, match="unknown split 'holdout': known: train, val"):
        open_nuswide(nuswide, "holdout")
