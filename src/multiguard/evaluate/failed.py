"""Images that could not be voted on, in the words that every summary shares."""


def failed_words(failed: int, total: int) -> str:
    """How many images could not be voted on, as a sentence without its full stop; empty where all could."""
    if not failed:
        return ""
    return f"{failed} of {total} images could not be voted on and {'is' if failed == 1 else 'are'} left out"
