"""The errors a user can cause: each says what was given, what was expected and how to mend it."""


class MultiGuardError(Exception):
    """Any mistake that the caller can mend; the command prints it in one line and exits with code 2."""


class InvalidInputError(MultiGuardError, ValueError):
    """An argument, or the data in it, breaks a condition that the guarantee stands on."""


class DataError(MultiGuardError):
    """A dataset, an image, its labels or a file of results cannot be read as they are."""


class ImageError(DataError):
    """One image cannot be used as it is, while others may be; `vote_dataset(on_error="record")` goes on past it.

    Args:
        place: The image, by its file or its id.
        reason: What is wrong with it and how to mend it, without its name.

    Attributes:
        reason: The same.
    """

    def __init__(self, place: object, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = reason


class ModelError(MultiGuardError):
    """A base classifier cannot be loaded, or returned something that is not one finite score per label."""


class VotesError(MultiGuardError):
    """A votes folder is damaged, incomplete, or not what the caller takes it for."""


class FolderInUseError(MultiGuardError):
    """Another run is writing into the folder at this moment."""
