"""Reading a dataset from beginning to end."""

from mixed_folder import write_mixed_folder

from multiguard.data import check_dataset, open_dataset


def test_check_dataset(tmp_path):
    """Every image failure is reported, and the other images are counted."""
    report = check_dataset(open_dataset("folder", root=write_mixed_folder(tmp_path), split="all"))
    assert (report.images, report.readable) == (6, 4)
    assert [failure.image_id for failure in report.failures] == ["2.jpg", "gone.jpg"]
    assert report.failures[0].reason.startswith("not a readable image")
    assert report.frequencies == (3, 0)
    assert report.labels_per_image == {0: 1, 1: 3}
    assert report.shapes == {(30, 20): 4}
    assert report.empty_labels == ("y",)
    assert report.mean_labels == 0.75
