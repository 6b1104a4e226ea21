"""Folders of images, with and without a CSV of labels."""

import numpy as np
import pytest
from PIL import Image

from multiguard.data import open_images
from multiguard.data.image_folder import open_folder
from multiguard.errors import DataError


@pytest.fixture
def images(tmp_path):
    for name in ("a.jpg", "b, c.jpg", "größe-日本.png"):
        Image.new("L", (6, 6)).save(tmp_path / name)
    return tmp_path


def write(root, text, name="labels.csv", encoding="utf-8"):
    (root / name).write_text(text, encoding=encoding)


def listed(dataset):
    return {id_: [dataset.label_names[i] for i in dataset[n].labels] for n, id_ in enumerate(dataset.ids)}


def test_one_field_of_labels(images):
    """Labels in one field, with quotes and Unicode."""
    write(images, 'file,labels\na.jpg,Hund;Käfer\n"b, c.jpg","say ""hi"";Hund;Hund"\ngröße-日本.png,\n')
    dataset = open_folder(images, size=4)
    assert dataset.label_names == ("Hund", "Käfer", 'say "hi"')
    assert listed(dataset) == {"a.jpg": ["Hund", "Käfer"], "b, c.jpg": ["Hund", 'say "hi"'], "größe-日本.png": []}


def test_one_column_per_label(images):
    """One column per label; labels keep the order of the header."""
    write(images, "zebra,file,apple\n1,a.jpg,0\n1,größe-日本.png,1\n", encoding="utf-8-sig")
    dataset = open_folder(images)
    assert dataset.label_names == ("zebra", "apple")
    assert listed(dataset) == {"a.jpg": ["zebra"], "größe-日本.png": ["zebra", "apple"]}


def test_split_column(images):
    """The column split selects rows; all splits share the labels."""
    write(images, 'file,labels,split\na.jpg,x,train\n"b, c.jpg",y,val\n')
    dataset = open_folder(images, "val")
    assert dataset.label_names == ("x", "y")
    assert listed(dataset) == {"b, c.jpg": ["y"]}
    with pytest.raises(DataError, match="unknown split 'vale': did you mean 'val'"):
        open_folder(images, "vale")


def test_given_label_names(images):
    """Given label names fix the order, and other labels are refused."""
    write(images, "file,labels\na.jpg,cat|dog\n", "tags.csv")
    dataset = open_folder(images, separator="|", label_names=["dog", "bird", "cat"])
    assert dataset[0].labels == (0, 2)
    with pytest.raises(DataError, match="line 2: unknown label 'cat': did you mean 'cats'"):
        open_folder(images, separator="|", label_names=["cats", "dog"])


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("image,labels\na.jpg,cat|dog\n", "|"),
        ('filename,labels\na.jpg,"cat,dog"\n', ","),
        ("path;labels\na.jpg;cat|dog\n", "|"),
        ("path\tlabels\na.jpg\tcat,dog\n", ","),
        ("labels,image,source\ncat;dog,a.jpg,web\n", ";"),
        ("image;cat;dog\na.jpg;1;1\n", ";"),
    ],
)
def test_found_forms(images, text, separator):
    """The column of the images, the separator of columns and that of labels are found; the name tells the last."""
    write(images, text)
    dataset = open_folder(images)
    assert listed(dataset) == {"a.jpg": ["cat", "dog"]}
    assert dataset.name == f"folder {images.name}" + ("" if separator == ";" else f", labels separated by {separator}")


def test_several_separators(images):
    """Of several separators the labels of the model tell the right one; without them one must be named."""
    write(images, 'file,labels\na.jpg,"hair, long;cat"\n')
    with pytest.raises(DataError, match="the labels hold ; and ,; name what separates them"):
        open_folder(images)
    assert listed(open_folder(images, label_names=["cat", "hair, long"])) == {"a.jpg": ["cat", "hair, long"]}
    write(images, 'file,labels\na.jpg,"hair, long"\n')
    assert listed(open_folder(images, label_names=["cat", "hair, long"])) == {"a.jpg": ["hair, long"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,labels\na.jpg,x,y\n", "line 2: 3 fields under 2 columns; quote fields"),
        ("name,labels\na.jpg,x\n", "no column of images \\(file, image, filename, path\\); its header is name,labels"),
        ("file,labels\n", "no rows below the header"),
        ("", "the file, or its first line, is empty; expected a header such as file,labels"),
        ("file,x,x\na.jpg,1,0\n", "the column 'x' is in the header twice"),
        ("file,labels\na.jpg,x\n./a.jpg,y\n", "line 3: image 'a.jpg' is already listed in line 2"),
        ("file,x,y\na.jpg,yes,2\n", "line 2: 'yes' under 'x', '2' under 'y'; expected 0 or 1"),
        ("file\na.jpg\n", "no column 'labels' and no 0/1 column"),
        ("file,labels\na.jpg,\n", "no label is named"),
        ('file,labels\na.jpg,"x\n', "not readable as a UTF-8 CSV file"),
    ],
)
def test_bad_table(images, text, message):
    """A bad table is refused with its line."""
    write(images, text)
    with pytest.raises(DataError, match=message):
        open_folder(images)


def test_several_tables(images):
    """Of several tables one must be named."""
    write(images, "file,labels\na.jpg,x\n", "one.csv")
    write(images, "file,labels\na.jpg,y\n", "two.csv")
    with pytest.raises(DataError, match="2 CSV files"):
        open_folder(images)
    with pytest.raises(DataError, match="the separator is empty"):
        open_folder(images, table=images / "two.csv", separator="")
    assert open_folder(images, table=images / "two.csv").label_names == ("y",)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / ".cache").mkdir()
    for name in ("b/deep/z.JPG", "a.png", "b/größe-日本.webp", ".hidden.png", ".cache/x.png"):
        Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,labels\n")
    return tmp_path


def test_open_images_of_folder(folder):
    """A folder gives every image in it and its subfolders, in order, and nothing else."""
    images = open_images(folder, ["cat", "dog"], size=8)
    assert list(images.ids) == ["a.png", "b/deep/z.JPG", "b/größe-日本.webp"]
    assert images.label_names == ("cat", "dog")
    assert images.name == f"images {folder.name}"
    sample = images[0]
    assert (sample.id, sample.labels, sample.image.shape, sample.image.dtype) == ("a.png", (), (3, 8, 8), np.uint8)
    assert list(images.labels) == [()] * 3


def test_open_images_of_files(folder):
    """Files keep their order and are identified by their names."""
    Image.new("RGB", (6, 4)).save(folder / "no suffix", format="png")
    images = open_images([folder / "no suffix", str(folder / "b/deep/z.JPG")], ["cat"])
    assert list(images.ids) == ["no suffix", "z.JPG"]
    assert images[1].image.shape == (3, 4, 6)


def test_two_files_of_one_name(folder):
    """Two files of one name are refused: they would share their noise."""
    Image.new("RGB", (6, 4)).save(folder / "b" / "a.png")
    with pytest.raises(DataError, match=r"several files are named 'a\.png'.*folder instead"):
        open_images([folder / "a.png", folder / "b" / "a.png"], ["cat"])
    assert len(open_images(folder, ["cat"])) == 4


def test_folder_without_images(tmp_path):
    """A folder without images is refused."""
    with pytest.raises(DataError, match=r"no image in it or its subfolders; expected files ending in \.bmp"):
        open_images(tmp_path, ["cat"])
    with pytest.raises(DataError, match="no such folder"):
        open_images(tmp_path / "none", ["cat"])
    with pytest.raises(DataError, match="no image is listed"):
        open_images([], ["cat"])


def test_columns_of_model(images):
    """A 0/1 table without a column for a label of the model does not say that the label is absent, and is refused."""
    (images / "labels.csv").write_text("file,cat,dog\na.jpg,1,0\n")
    with pytest.raises(DataError, match=r"no column for 2 of the model's labels: emu, fox; add a column of 0 and 1"):
        open_folder(images, label_names=["dog", "emu", "cat", "fox"])
    assert open_folder(images, label_names=["dog", "cat"]).labels == [(1,)]
