"""Which images a step read, in a few hashes."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from multiguard.data.sample import Catalogued


def image_hashes(place: str, images: Catalogued, root: Path | None, *, labelled: bool = True) -> dict[str, str]:
    """Hashes that change with any image's name, labels, file or decoded size, and not where the folder moves.

    Args:
        place: What to call the images.
        images: None of them is decoded.
        root: The folder that they lie in.
        labelled: Whether their labels are read at all.
    """
    home = "" if root is None else str(root.resolve())
    return {
        f"{place}.name": images.name,
        f"{place}.labels": _hash(images.label_names),
        f"{place}.ids": _hash(images.ids),
        f"{place}.truth": _hash(str(labels) for labels in images.labels if labelled),
        f"{place}.files": _hash(origin.removeprefix(home) for origin in images.origins),
    }


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
