import pytest
from PIL import Image

from multiguard.data.annotations import VOC_LABELS, open_voc2007
from multiguard.errors import DataError


@pytest.fixture
def devkit(tmp_path):
    """Three images: a grey one with a person and a difficult dog, one with a train, one with nothing."""
    home = tmp_path / "VOCdevkit" / "VOC2007"
    (home / "JPEGImages").mkdir(parents=True)
    main = home / "ImageSets" / "Main"
    main.mkdir(parents=True)
    ids = ["000001", "000002", "000003"]
    for id_, mode in zip(ids, ("L", "CMYK", "RGB"), strict=True):
        Image.new(mode, (20, 10)).save(home / "JPEGImages" / f"{id_}.jpg")
    marks = {("person", "000001"): " 1", ("dog", "000001"): " 0", ("train", "000002"): " 1"}
    for name in VOC_LABELS:
        lines = [f"{id_} {marks.get((name, id_), '-1')}" for id_ in ids]
        (main / f"{name}_train.txt").write_text("\n".join(lines) + "\n")
    (main / "train.txt").write_text("\n".join(ids) + "\n")
    return tmp_path


def names(dataset, index):
    return [dataset.label_names[label] for label in dataset[index].labels]


def test_labels_from_class_files(devkit):
    """Labels come from the class files, difficult ones on request; any folder of the layout can be the root."""
    dataset = open_voc2007(devkit, "train", size=8)
    assert dataset.ids == ["000001", "000002", "000003"]
    assert [names(dataset, i) for i in range(3)] == [["person"], ["train"], []]
    assert all(dataset[i].image.shape == (3, 8, 8) for i in range(3))
    assert list(dataset.label_names) == sorted(dataset.label_names)
    assert names(open_voc2007(devkit / "VOCdevkit", "train", difficult=True), 0) == ["dog", "person"]
    assert len(open_voc2007(devkit / "VOCdevkit/VOC2007", "train")) == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("000001 -1\n000003 -1\n", r"cat_train\.txt: no line for image '000002' \(1 missing\)"),
        ("000001 2\n", "'000001 2' is not 'ID MARK'"),
        ("000001 1\n000001 -1\n", "image '000001' has the marks 1 and -1; keep one"),
    ],
)
def test_bad_class_file(devkit, lines, message):
    """A class file that lacks an image, or has a bad mark, is named; so is a wrong root."""
    (devkit / "VOCdevkit/VOC2007/ImageSets/Main/cat_train.txt").write_text(lines)
    with pytest.raises(DataError, match=message):
        open_voc2007(devkit, "train")
    with pytest.raises(DataError, match="give the folder that contains VOCdevkit"):
        open_voc2007(devkit / "elsewhere")


def test_real_voc_images(voc_root):
    """The real images open, and difficult objects only add labels."""
    dataset = open_voc2007(voc_root, "trainval", size=32)
    assert len(dataset) == 126
    easy = dataset.labels
    hard = open_voc2007(voc_root, "trainval", difficult=True).labels
    assert all(set(a) <= set(b) for a, b in zip(easy, hard, strict=True))
    assert easy != hard
    assert dataset[5].image.shape == (3, 32, 32)
    assert dataset[5].image.std() > 10
