"""A folder of good and bad images."""

import numpy as np
from PIL import Image


def write_mixed_folder(root):
    """Six listed images of which one is truncated, one is missing and one has no label."""
    rows = ["file,labels"]
    for number in range(5):
        noise = np.random.default_rng(number).integers(0, 256, (30, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).save(root / f"{number}.jpg")
        rows.append(f"{number}.jpg,{'x' if number else ''}")
    truncated = root / "2.jpg"
    truncated.write_bytes(truncated.read_bytes()[:300])
    (root / "labels.csv").write_text("\n".join([*rows, "gone.jpg,x;y"]))
    return root
