"""An image that cannot be read stops the run, or is put on record while all the others get their own votes."""

import numpy as np
import pytest
from toy import Images, linear

from multiguard.certify import look_plan
from multiguard.data.sample import Sample
from multiguard.errors import DataError, ImageError, InvalidInputError, VotesError
from multiguard.smooth import AdaptivePlan, Smoother, vote_dataset
from multiguard.votes import ImageFailure, read_votes

FIXED = {"draws": 20, "seed": 0, "shard_images": 3}
PILOT = {**FIXED, "pilot_draws": 7}
ADAPTIVE = {
    "adaptive": AdaptivePlan(look_plan(160, first=20), (0.25,), k=2, k_prime=1, alpha=0.05),
    "seed": 0,
    "shard_images": 3,
}


class Torn(Images):
    """A dataset of which some images cannot be read."""

    def __init__(self, count: int, torn: set[int]) -> None:
        super().__init__(count)
        self.torn = torn

    def __getitem__(self, index: int, /) -> Sample:
        if index in self.torn:
            raise ImageError(f"{index}.jpg", "cannot\n  be decoded")
        return super().__getitem__(index)


def smoother() -> Smoother:
    return Smoother(linear(), sigma=0.5, k_max=3, device="cpu", batch_size=16)


@pytest.mark.parametrize("arguments", [FIXED, PILOT, ADAPTIVE], ids=["fixed", "pilot", "adaptive"])
@pytest.mark.parametrize("torn", [{4}, {0}, {2}, {3, 4, 5}, {7}, {0, 1, 2, 6, 7}, set()])
def test_the_others_have_the_votes_of_a_run_without_failures(tmp_path, arguments, torn):
    calls: list[tuple[int, int]] = []
    torn_images = Torn(8, torn)
    vote_dataset(
        smoother(),
        torn_images,
        tmp_path / "some",
        **arguments,
        on_error="record",
        progress=lambda *c: calls.append(c),
    )
    vote_dataset(smoother(), Images(8), tmp_path / "all", **arguments)
    some, every = read_votes(tmp_path / "some"), read_votes(tmp_path / "all")
    assert some.failures == tuple(ImageFailure(f"image-{i}", "cannot be decoded") for i in sorted(torn))
    assert some.ids == tuple(f"image-{i}" for i in range(8) if i not in torn)
    for found, position in zip(some.ids, range(len(some)), strict=True):
        own, other = (votes.row(at, looks=votes.looks) for votes, at in ((some, position), (every, int(found[-1]))))
        assert np.array_equal(own.ranked, other.ranked)
        assert (own.labels, own.image_hash) == (other.labels, other.image_hash)
    assert calls == [(done, 8) for done in range(1, 9)]


def test_a_run_that_stopped_goes_on_with_record_and_back(tmp_path):
    images = Torn(8, {4})
    with pytest.raises(DataError, match=r"4.jpg: cannot\s+be decoded"):
        vote_dataset(smoother(), images, tmp_path, **FIXED)
    vote_dataset(smoother(), images, tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path)) == 7
    with pytest.raises(DataError, match=r"4.jpg: cannot\s+be decoded"):
        vote_dataset(smoother(), images, tmp_path, **FIXED)
    vote_dataset(smoother(), Torn(8, {4, 1, 7}), tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path).failures) == 1, "shards that are done are not read again"
    vote_dataset(smoother(), Images(8), tmp_path, **FIXED)
    votes = read_votes(tmp_path)
    assert (len(votes), votes.failures) == (8, ())


@pytest.mark.parametrize("mended", [{0}, {0, 1}, {0, 4}])
def test_a_first_image_that_was_mended_is_the_same_run(tmp_path, mended):
    torn = {0, 1, 4}
    vote_dataset(smoother(), Torn(8, torn), tmp_path, **FIXED, on_error="record")
    vote_dataset(smoother(), Torn(8, torn - mended), tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path).failures) == 3, "what is recorded stays so"
    if mended == {0}:
        with pytest.raises(DataError, match=r"1\.jpg"):
            vote_dataset(smoother(), Torn(8, torn - mended), tmp_path, **FIXED)
    vote_dataset(smoother(), Images(8), tmp_path, **FIXED)
    votes = read_votes(tmp_path)
    assert (len(votes), votes.failures) == (8, ())
    vote_dataset(smoother(), Torn(8, {0}), tmp_path, **FIXED, on_error="record")
    assert len(read_votes(tmp_path)) == 8, "an image that is gone after it was voted on"


class Brighter(Torn):
    """The same dataset, decoded otherwise."""

    def __getitem__(self, index: int, /) -> Sample:
        sample = super().__getitem__(index)
        return Sample(sample.id, sample.image // 2, sample.labels)


@pytest.mark.parametrize("torn", [{0}, set()])
def test_images_that_are_decoded_otherwise_are_another_run_whichever_can_be_read(tmp_path, torn):
    vote_dataset(smoother(), Torn(8, torn), tmp_path, **FIXED, on_error="record")
    for now in (set(), {0}, {0, 1}):
        with pytest.raises(VotesError, match="another run: the first image"):
            vote_dataset(smoother(), Brighter(8, now), tmp_path, **FIXED, on_error="record")


class Vanishing(Torn):
    """A dataset whose images are all gone after so many were read."""

    def __init__(self, count: int, torn: set[int], reads: int) -> None:
        super().__init__(count, torn)
        self.reads = reads

    def __getitem__(self, index: int, /) -> Sample:
        self.reads -= 1
        if self.reads < 0:
            raise ImageError(f"{index}.jpg", "no such image")
        return super().__getitem__(index)


@pytest.mark.parametrize("reads", [1, 5, 9])
def test_images_that_are_all_gone_in_mid_run_are_not_recorded(tmp_path, reads):
    with pytest.raises(DataError, match="no such image; but it could be read when the run began"):
        vote_dataset(smoother(), Vanishing(12, {2}, reads), tmp_path, **FIXED, readers=1, on_error="record")
    assert {failure.image_id for failure in read_votes(tmp_path, partial=True).failures} <= {"image-2"}
    vote_dataset(smoother(), Torn(12, {2}), tmp_path, **FIXED, on_error="record")
    assert [failure.image_id for failure in read_votes(tmp_path).failures] == ["image-2"]


def test_a_dataset_without_any_image_that_can_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match="no image of 'generated' can be read"):
        vote_dataset(smoother(), Torn(2, {0, 1}), tmp_path, **FIXED, on_error="record")


def test_another_word_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="on_error must be one of stop, record, not 'skip'"):
        vote_dataset(smoother(), Images(2), tmp_path, **FIXED, on_error="skip")
