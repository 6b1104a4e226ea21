"""Draws docs/images/how-it-works.svg from the built-in model and an example photo: `python docs/hooks/how_it_works.py`.

The file names the hashes of the model and of this script, so that a test fails when the figure is stale.
"""

import base64
import hashlib
from html import escape
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from multiguard import Smoother, TopK, load
from multiguard.data import open_images

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "how-it-works.svg"
PHOTO = ROOT / "src" / "multiguard" / "data" / "photos" / "cat.jpg"
DRAWS, PILOT, SEED, SHOWN = 1000, 100, 1, 3
RULE = TopK(k=5, k_prime=3)
INK, QUIET, ACCENT, WASH, PAPER = "#1a1c1f", "#5a6068", "#0a6aa6", "#e6eff5", "#fbfaf7"


def stamp() -> str:
    """The hashes of what the figure is made of."""
    model = load("coco-0.5").weights_hash
    script = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return f"model {str(model)[:16]}, script {script[:16]}"


def main() -> None:
    """Draw the figure."""
    model = load("coco-0.5")
    smoother = Smoother(model, sigma=0.5)
    image = open_images([PHOTO], model.label_names, size=448)[0].image
    options = {"noise_seed": SEED, "image_id": PHOTO.name}
    votes = smoother.votes(image, DRAWS, **options)[:, : RULE.k_prime]
    found = smoother.predict(image, RULE, draws=DRAWS, pilot_draws=PILOT, **options)
    hits = np.bincount(votes.ravel(), minlength=len(model.label_names))
    copies = [smoother.noisy(image, draw, **options) for draw in range(SHOWN)]
    words = [[model.label_names[label] for label in row] for row in votes[:SHOWN].tolist()]
    each = zip(found.labels, found.radii, found.confirmed, strict=True)
    rows = [(model.label_names[i], int(hits[i]), radius if sure else None) for i, radius, sure in each]
    PICTURE.write_text(_svg(image, copies, words, rows), encoding="utf-8")


def _svg(image: np.ndarray, copies: list, words: list, rows: list) -> str:
    parts = [
        _head(0, "1. A photo"),
        _photo(image, 0, 34, 190),
        _lines(0, 250, [PHOTO.name]),
        _head(220, f"2. {DRAWS:,} noisy copies, and the {RULE.k_prime} labels of each"),
    ]
    for place, (copy, own) in enumerate(zip(copies, words, strict=True)):
        x = 220 + 128 * place
        parts += [_photo(copy, x, 34, 118), _lines(x, 176, own)]
    parts += [_text(220, 250, "and so on", QUIET), _head(640, "3. Votes"), _head(850, "4. What they prove")]
    for place, (label, count, radius) in enumerate(rows):
        y = 52 + 36 * place
        parts.append(f'<rect x="640" y="{y + 6}" width="180" height="10" fill="{ACCENT}" fill-opacity="0.12"/>')
        parts.append(f'<rect x="640" y="{y + 6}" width="{180 * count / DRAWS:.1f}" height="10" fill="{ACCENT}"/>')
        parts.append(_text(640, y, f"{label}: {count:,}"))
        said = "unconfirmed" if radius is None else f"stays up to R = {int(1000 * radius) / 1000:.3f}"
        parts.append(_text(850, y + 4, said, QUIET if radius is None else ACCENT))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -6 1030 272" font-family="system-ui, sans-serif" '
        f'font-size="13" role="img">\n<title>How it works: a photo, noisy copies, votes and radii</title>\n'
        f"<desc>{stamp()}</desc>\n"
        f'<rect x="-10" y="-6" width="1030" height="272" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _photo(image: np.ndarray, x: int, y: int, size: int) -> str:
    pixels = image if image.dtype == np.uint8 else np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    file = BytesIO()
    small = Image.fromarray(np.moveaxis(pixels, 0, 2)).resize((size, size), Image.Resampling.NEAREST)
    small.save(file, "JPEG", quality=70)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<image x="{x}" y="{y}" width="{size}" height="{size}" href="data:image/jpeg;base64,{data}"/>'


def _head(x: int, words: str) -> str:
    return f'<text x="{x}" y="16" fill="{INK}" font-size="14" font-weight="600">{escape(words)}</text>'


def _text(x: int, y: int, words: str, fill: str = INK) -> str:
    return f'<text x="{x}" y="{y}" fill="{fill}">{escape(words)}</text>'


def _lines(x: int, y: int, words: list) -> str:
    return "\n".join(_text(x, y + 17 * place, each, QUIET) for place, each in enumerate(words))


if __name__ == "__main__":
    main()
