"""An image that cannot be used stops the run, or is recorded while all the others get their own votes."""

import numpy as np
import pytest
import torch
from bad_draws import failing, smoother_of
from test_schedule import PLAN, is_image
from torch import Tensor
from toy import Images, linear

from multiguard.data.sample import Sample
from multiguard.errors import DataError, ImageError, InvalidInputError, ModelError, VotesError
from multiguard.models import load
from multiguard.smooth import Smoother, vote_dataset
from multiguard.votes import read_votes

FIXED = {"draws": 20, "noise_seed": 0, "shard_images": 3}
KINDS = {"fixed": FIXED, "pilot": {**FIXED, "pilot_draws": 7}, "adaptive": {**FIXED, "draws": None, "adaptive": PLAN}}


def smoother() -> Smoother:
    return Smoother(linear(), sigma=0.5, k_max=3, device="cpu", batch_size=16)


def test_stop_and_record(tmp_path):
    """A run that stopped resumes with record; a later one with stop tries recorded images again."""
    images = Images(8, unreadable={4})
    for _ in range(2):
        with pytest.raises(DataError, match=r"4.jpg: cannot\s+be decoded"):
            vote_dataset(smoother(), images, tmp_path, **FIXED)
        vote_dataset(smoother(), images, tmp_path, **FIXED, on_error="record")
        assert len(read_votes(tmp_path)) == 7
    vote_dataset(smoother(), Images(8, unreadable={4, 1, 7}), tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path).failures) == 1, "finished shards are not read again"
    vote_dataset(smoother(), Images(8), tmp_path, **FIXED)
    assert (len(read_votes(tmp_path)), read_votes(tmp_path).failures) == (8, ())


@pytest.mark.parametrize("fixed", [{0}, {0, 1}, {0, 4}])
def test_fixed_first_image(tmp_path, fixed):
    """A run whose first image was fixed, or is gone later, is the same run."""
    broken = {0, 1, 4}
    vote_dataset(smoother(), Images(8, unreadable=broken), tmp_path, **FIXED, on_error="record")
    vote_dataset(smoother(), Images(8, unreadable=broken - fixed), tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path).failures) == 3, "recorded failures stay"
    if fixed == {0}:
        with pytest.raises(DataError, match=r"1\.jpg"):
            vote_dataset(smoother(), Images(8, unreadable=broken - fixed), tmp_path, **FIXED)
    vote_dataset(smoother(), Images(8), tmp_path, **FIXED)
    assert (len(read_votes(tmp_path)), read_votes(tmp_path).failures) == (8, ())
    vote_dataset(smoother(), Images(8, unreadable={0}), tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path)) == 8, "an image that is gone after it was voted on"


class Darker(Images):
    """The same ids with other images."""

    def __getitem__(self, index: int, /) -> Sample:
        sample = super().__getitem__(index)
        return Sample(sample.id, sample.image // 2, sample.labels)


@pytest.mark.parametrize("broken", [{0}, set()])
def test_other_images(tmp_path, broken):
    """Other images under the same ids are another run, whichever of them can be read."""
    vote_dataset(smoother(), Images(8, unreadable=broken), tmp_path, **FIXED, on_error="record")
    for now in (set(), {0}, {0, 1}):
        with pytest.raises(VotesError, match="another run: the first image"):
            vote_dataset(smoother(), Darker(8, unreadable=now), tmp_path, **FIXED, on_error="record")


class Vanishing(Images):
    """All images are gone after a number of reads."""

    def __init__(self, count: int, left: int, **options) -> None:
        super().__init__(count, **options)
        self.left = left

    def __getitem__(self, index: int, /) -> Sample:
        self.left -= 1
        if self.left < 0:
            raise ImageError(f"{index}.jpg", "no such image")
        return super().__getitem__(index)


@pytest.mark.parametrize("left", [1, 5, 9])
def test_vanished_images(tmp_path, left):
    """Images that are all gone during the run are not recorded."""
    record = {**FIXED, "on_error": "record"}
    with pytest.raises(DataError, match="no such image; but it could be read when the run began"):
        vote_dataset(smoother(), Vanishing(12, left, unreadable={2}), tmp_path, **record, readers=1)
    assert {failure.image_id for failure in read_votes(tmp_path, partial=True).failures} <= {"image-2"}
    vote_dataset(smoother(), Images(12, unreadable={2}), tmp_path, **record)
    assert [failure.image_id for failure in read_votes(tmp_path).failures] == ["image-2"]


@pytest.mark.parametrize("count", [0, 2])
def test_no_usable_image(tmp_path, count):
    """A dataset without a usable image is refused."""
    with pytest.raises((DataError, InvalidInputError), match="'generated'"):
        vote_dataset(smoother(), Images(count, unreadable={0, 1}), tmp_path, **FIXED, on_error="record")


class Floats(Images):
    """The same images in float32, times a factor."""

    def __init__(self, count: int, factor: float) -> None:
        super().__init__(count)
        self._images = [image.astype(np.float32) * np.float32(factor) for image in self._images]


@pytest.mark.parametrize("factor", [1.0, -1 / 255, np.nan])
def test_values_outside_pixels(tmp_path, factor):
    """An image whose values are not pixels is refused by its id."""
    with pytest.raises(DataError, match=r"image 'image-0': holds values from .* \[0, 1\]"):
        vote_dataset(smoother(), Floats(2, factor), tmp_path, **FIXED)
    vote_dataset(smoother(), Floats(2, 1 / 255), tmp_path / "pixels", **FIXED)


class Odd(Images):
    """One image has another size, one holds no pixels, one is gone."""

    def __getitem__(self, index: int, /) -> Sample:
        sample = super().__getitem__(index)
        if index == 1:
            return Sample(sample.id, np.zeros((3, 9, 9), dtype=np.uint8), sample.labels)
        if index == 2:
            return Sample(sample.id, np.full((3, 4, 4), 2, dtype=np.float32), sample.labels)
        if index == 3:
            raise ImageError("c/d.jpg", "no such image")
        return sample


def test_unsuitable_images(tmp_path):
    """Images that the classifier does not accept are failures too."""
    f = load(failing({}), labels=list("abcde"), output="logits", name="l", image_size=(4, 4))
    run, options = Smoother(f, sigma=0.5, k_max=3, device="cpu"), {"draws": 4, "pilot_draws": 2, "noise_seed": 0}
    with pytest.raises(InvalidInputError, match=r"image 'image-1' has shape \(3, 9, 9\)"):
        vote_dataset(run, Odd(5), tmp_path / "stop", **options)
    vote_dataset(run, Odd(5), tmp_path / "record", **options, on_error="record")
    votes = read_votes(tmp_path / "record")
    assert votes.ids == ("image-0", "image-4")
    assert [failure.reason.split(";")[0] for failure in votes.failures] == [
        "image 'image-1' has shape (3, 9, 9), but the classifier takes (channels, height, width) with 4 x 4 pixels",
        "holds values from 2 to 2",
        "no such image",
    ]


def test_contract_broken_everywhere(tmp_path):
    """A classifier that breaks its contract on every image stops the run, recorded or not."""
    few = smoother_of(lambda images: linear()(images)[:, :4])
    with pytest.raises(ModelError, match=r"image-0.*it returned shape \(\d+, 4\).*also fails on a black image"):
        vote_dataset(few, Images(3), tmp_path, draws=4, noise_seed=0, on_error="record")


def test_all_failed(tmp_path):
    """A run in which every image fails is no success, now or again."""

    def broken(images: Tensor) -> Tensor:
        if is_image(images):
            raise OverflowError("too large")
        return torch.zeros(len(images), 5)

    options = {"draws": 3, "noise_seed": 0, "shard_images": 2}
    for _ in range(2):
        with pytest.raises(VotesError, match=r"none of 3 images.*'image-0': draw 0: .*OverflowError.*tries them again"):
            vote_dataset(smoother_of(broken), Images(3), tmp_path, **options, on_error="record")
    vote_dataset(smoother_of(failing({})), Images(3), tmp_path, **options)
    assert len(read_votes(tmp_path)) == 3
