"""Votes that lie in a folder, held against the images as they are now."""

from pathlib import Path

from multiguard.data.sample import Dataset
from multiguard.errors import ImageError, VotesError
from multiguard.votes import image_hash, read_votes


def of_these_images(folder: Path, images: Dataset) -> bool:
    """Whether every vote in the folder is of the image that now has its id; failed images have no votes."""
    try:
        votes = read_votes(folder, partial=True)
        places = {image_id: position for position, image_id in enumerate(images.ids)}
        return all(
            image_hash(images[places[image_id]].image) == voted
            for image_id, voted in zip(votes.ids, votes.image_hashes, strict=True)
        )
    except (VotesError, ImageError, KeyError):
        return False
