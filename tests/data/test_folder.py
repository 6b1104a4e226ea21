import pytest
from PIL import Image

from multiguard.data.catalog import training_split, validation_split
from multiguard.data.folder import open_folder
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


def test_one_field_of_labels_with_quotes_and_unicode(images):
    write(images, 'file,labels\na.jpg,Hund;Käfer\n"b, c.jpg","say ""hi"";Hund;Hund"\ngröße-日本.png,\n')
    dataset = open_folder(images, size=4)
    assert dataset.label_names == ("Hund", "Käfer", 'say "hi"')
    assert listed(dataset) == {
        "a.jpg": ["Hund", "Käfer"],
        "b, c.jpg": ["Hund", 'say "hi"'],
        "größe-日本.png": [],
    }


def test_one_column_a_label_keeps_the_headers_order(images):
    write(images, "zebra,file,apple\n1,a.jpg,0\n1,größe-日本.png,1\n", encoding="utf-8-sig")
    dataset = open_folder(images)
    assert dataset.label_names == ("zebra", "apple")
    assert listed(dataset) == {"a.jpg": ["zebra"], "größe-日本.png": ["zebra", "apple"]}


def test_split_column_chooses_rows_and_keeps_all_labels(images):
    write(images, 'file,labels,split\na.jpg,x,train\n"b, c.jpg",y,val\n')
    dataset = open_folder(images, "val")
    assert dataset.label_names == ("x", "y")
    assert listed(dataset) == {"b, c.jpg": ["y"]}
    with pytest.raises(DataError, match="unknown split 'vale': did you mean 'val'"):
        open_folder(images, "vale")


def test_given_label_names_fix_the_order_and_refuse_others(images):
    write(images, "file,labels\na.jpg,cat|dog\n", "tags.csv")
    dataset = open_folder(images, separator="|", label_names=["dog", "bird", "cat"])
    assert dataset[0].labels == (0, 2)
    with pytest.raises(DataError, match="line 2: unknown label 'cat': did you mean 'cats'"):
        open_folder(images, separator="|", label_names=["cats", "dog"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,labels\na.jpg,x,y\n", "line 2: 3 fields under 2 columns; quote fields"),
        ("name,labels\na.jpg,x\n", "no column 'file'; its header is name,labels"),
        ("file,labels\n", "no rows below the header"),
        ("file,x\na.jpg,yes\n", "line 2: 'yes' under 'x'; expected 0 or 1"),
        ("file,x,x\na.jpg,1,0\n", "the column 'x' stands twice in the header"),
        ("file,labels\na.jpg,x\na.jpg,y\n", "line 3: the image 'a.jpg' stands already in line 2"),
        ("file,labels\na.jpg,x\n./a.jpg,y\n", "line 3: the image 'a.jpg' stands already in line 2"),
        ("file,x,y\na.jpg,yes,2\n", "line 2: 'yes' under 'x', '2' under 'y'; expected 0 or 1"),
        ("file\na.jpg\n", "no column 'labels' and no 0/1 column"),
        ("file,labels\na.jpg,\n", "not one label is named"),
        ('file,labels\na.jpg,"x\n', "not readable as a UTF-8 CSV"),
    ],
)
def test_a_bad_table_says_where_and_what(images, text, message):
    write(images, text)
    with pytest.raises(DataError, match=message):
        open_folder(images)


def test_a_table_in_another_encoding_is_refused(images):
    write(images, "file,labels\na.jpg,Käfer\n", encoding="latin-1")
    with pytest.raises(DataError, match="not readable as a UTF-8 CSV"):
        open_folder(images)


def test_several_tables_must_be_named(images):
    write(images, "file,labels\na.jpg,x\n", "one.csv")
    write(images, "file,labels\na.jpg,y\n", "two.csv")
    with pytest.raises(DataError, match="2 CSV files"):
        open_folder(images)
    assert open_folder(images, table=images / "two.csv").label_names == ("y",)


def test_every_fault_of_a_table_is_collected_where_a_list_is_given(images):
    write(images, "file,x,y\na.jpg,1,0\n./a.jpg,0,1\nb.jpg,yes,0\nc.jpg,1\ngr.png,0,1\n")
    faults = []
    dataset = open_folder(images, faults=faults)
    assert dataset.ids == ["a.jpg", "gr.png"]
    said = " ".join(fault.message for fault in faults)
    assert len(faults) == 3
    for part in ("line 3: the image 'a.jpg' stands already", "line 4: 'yes' under 'x'", "line 5: 2 fields"):
        assert part in said


def test_an_empty_separator_is_refused(images):
    write(images, "file,labels\na.jpg,x\n")
    with pytest.raises(DataError, match="the separator is empty"):
        open_folder(images, separator="")


def test_the_tables_splits_decide_what_training_and_validation_read(images):
    write(images, "file,labels,split\na.jpg,x,train\nb.jpg,y,val\nc.jpg,y,\n")
    assert training_split("folder", images) == "train"
    assert validation_split("folder", "train", images) == "val"
    assert validation_split("folder", "all", images) is None
    write(images, "file,labels,split\na.jpg,x,train\nb.jpg,y,test\n")
    assert validation_split("folder", "train", images) is None
    write(images, "file,labels,split\na.jpg,x,fit\nb.jpg,y,check\n")
    with pytest.raises(DataError, match="none is called train; the table's are check, fit"):
        training_split("folder", images)
    write(images, "file,labels\na.jpg,x\n")
    assert training_split("folder", images) == "all"


def test_other_datasets_hold_out_a_tenth_of_a_split_that_has_no_partner():
    assert validation_split("voc2007", "train") == "val"
    assert validation_split("voc2007", "trainval") is None
    assert validation_split("coco", "train2014") == "val2014"
