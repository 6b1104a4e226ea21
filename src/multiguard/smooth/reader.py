"""Reading the images of a run: each is decoded once, ahead of the device; one that cannot be used is named."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cached_property
from pathlib import Path

import numpy as np

from multiguard.certify.arguments import check_count
from multiguard.data.image import image_hash
from multiguard.data.sample import Dataset, Sample
from multiguard.errors import DataError, ImageError, ImageFailure, InvalidInputError, VotesError
from multiguard.votes import Manifest, read_votes

_MAX_KEPT = 64  # decoded images that wait for their shard


class ImageReader:
    """Decodes each image once, in threads ahead of the device; images that identify the run are kept for the voting."""

    def __init__(self, dataset: Dataset, readers: int, *, record: bool, pixels: bool) -> None:
        self._pixels = pixels  # whether values must lie in [0, 1]
        self._dataset, self._readers, self._record = dataset, check_count("readers", readers), record
        self._kept: dict[int, Sample | ImageError] = {}

    @cached_property
    def first(self) -> int:
        """The position of the first image that can be used; with `record` off, that must be image 0."""
        if len(self._dataset) == 0:
            raise InvalidInputError(f"the dataset {self._dataset.name!r} is empty; votes need at least one image.")
        for position in range(len(self._dataset)):
            with suppress(ImageError) if self._record else nullcontext():
                self.peek(position)
                return position
        raise DataError(f"no image of {self._dataset.name!r} can be used, such as {self._kept[0]}")

    def peek(self, position: int) -> Sample:
        """The image, kept so that `samples` need not decode it again; one that cannot be used raises `ImageError`."""
        outcome = self._kept.get(position) or self._decode(position)
        if isinstance(outcome, ImageError):
            self._kept[position] = outcome
            raise outcome
        if sum(isinstance(kept, Sample) for kept in self._kept.values()) < _MAX_KEPT:
            self._kept[position] = outcome
        return outcome

    def samples(self, positions: range) -> Iterator[Sample | ImageFailure]:
        """The images in order, or their failures."""
        for position, reading in zip(positions, self._read_ahead(positions), strict=True):
            outcome = reading.result()
            if not isinstance(outcome, ImageError):
                yield outcome
                continue
            if not self._record:
                raise outcome
            if position > self.first:
                self._check_first()
            yield ImageFailure(self._dataset.ids[position], " ".join(outcome.reason.split()))

    def are_those_of(self, folder: Path, stored: Manifest) -> bool:
        """Whether a folder holds votes on these images, although its run began with another first image.

        A run that recorded its first images as failures is identified by a later image, also after they were fixed.
        """
        try:
            votes = read_votes(folder, partial=True)
        except VotesError:  # the writer finds the same error and raises it
            return False
        hashes = dict(zip(votes.ids, votes.image_hashes, strict=True))
        failed = {failure.image_id for failure in votes.failures}
        for position, image_id in enumerate(self._dataset.ids):
            with suppress(ImageError):
                digest = image_hash(self.peek(position).image)
                if digest == stored.provenance.first_image_hash:
                    return True
                if image_id not in failed:
                    return digest == hashes.get(image_id)
        return False

    def _read_ahead(self, positions: Iterable[int]) -> Iterator[Future[Sample | ImageError]]:
        """The images in order while threads decode them, a few ahead of the current one."""
        ahead: deque[Future[Sample | ImageError]] = deque()
        with ThreadPoolExecutor(self._readers) as pool:
            for position in positions:
                ahead.append(pool.submit(self._take, position))
                if len(ahead) > 4 * self._readers:
                    yield ahead.popleft()
            yield from ahead

    def _take(self, position: int) -> Sample | ImageError:
        return self._kept.pop(position, None) or self._decode(position)

    def _decode(self, position: int) -> Sample | ImageError:
        try:
            sample = self._dataset[position]
            if self._pixels:
                _check_pixels(sample)
        except ImageError as error:
            return error
        return sample

    def _check_first(self) -> None:
        """Raises `DataError` if the first image cannot be read any more: then no image is to blame."""
        try:
            self._dataset[self.first]
        except ImageError as error:
            raise DataError(
                f"{error}; but it could be read when the run began, so the images may be gone or out of reach. "
                "Make them available and run the same command again to resume"
            ) from error


def _check_pixels(sample: Sample) -> None:
    """Raises `ImageError` unless the values are pixels: a radius must be in units of [0, 1]."""
    image = sample.image
    if image.dtype != np.uint8 and not (image.min() >= 0 and image.max() <= 1):
        raise ImageError(
            f"image {sample.id!r}",
            f"holds values from {image.min():g} to {image.max():g}; an image of {image.dtype} must lie in [0, 1]: "
            "divide it by 255, and leave normalisation to the classifier.",
        )
