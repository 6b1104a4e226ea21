"""The errors that a user can cause; each message says what was given, what was expected and how to fix it."""

from dataclasses import dataclass


class MultiGuardError(Exception):
    """Any mistake that the caller can fix; the command prints it in one line and exits with code 2.

    >>> issubclass(InvalidInputError, MultiGuardError)
    True
    """


class InvalidInputError(MultiGuardError, ValueError):
    """An argument, or the data in it, breaks a condition that the guarantee rests on."""


class DataError(MultiGuardError):
    """A dataset, an image, its labels or a results file cannot be read."""


class ImageError(DataError):
    """One image cannot be used, while others may be; `vote_dataset(on_error="record")` continues without it.

    Args:
        source: The image: its path, its id, or the line of the table that lists it.
        reason: What is wrong and how to fix it, without naming the image.

    >>> raise ImageError("cat.jpg", "the file is empty; replace it")
    Traceback (most recent call last):
    multiguard.errors.ImageError: cat.jpg: the file is empty; replace it
    """

    def __init__(self, source: object, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = str(source)
        self.reason = reason


@dataclass(frozen=True)
class ImageFailure:
    """An image that could not be used, and why.

    Attributes:
        image_id: The image's id, or the line of the table that lists it.
        reason: What is wrong, in one line.

    >>> ImageFailure("cat.jpg", "the file is empty; replace it").reason
    'the file is empty; replace it'
    """

    image_id: str
    reason: str


class ModelError(MultiGuardError):
    """A base classifier cannot be loaded, or returned something other than one finite score per label."""


class VotesError(MultiGuardError):
    """A votes folder is damaged, incomplete, or not the one that the caller expects."""


class FolderInUseError(MultiGuardError):
    """Another run is writing into the folder."""
