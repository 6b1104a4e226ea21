"""Votes that lie in a folder, held against the pictures as they are now."""

from pathlib import Path

from multiguard.data.sample import Dataset
from multiguard.errors import PictureError, VotesError
from multiguard.votes import picture_hash, read_votes


def of_these_pictures(folder: Path, pictures: Dataset) -> bool:
    """Whether every vote in the folder is of the picture that now has its id; failed pictures have no votes."""
    try:
        votes = read_votes(folder, partial=True)
        places = {image_id: position for position, image_id in enumerate(pictures.ids)}
        return all(
            picture_hash(pictures[places[image_id]].image) == voted
            for image_id, voted in zip(votes.ids, votes.picture_hashes, strict=True)
        )
    except (VotesError, PictureError, KeyError):
        return False
