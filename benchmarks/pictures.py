"""Draws the pictures of the pages from a built-in model: `python -m benchmarks.pictures [MODEL] [--only NAME ...]`.

  how-it-works.svg   a photo, noisy copies of it, their votes, and what these prove
  attack-fails.svg   a photo, a perturbation that an attack found, and the labels that stay
  serve.gif          the live page, from a photo to the end of an attack; needs playwright and a chromium
  README.md          what `multiguard predict coffee.jpg` prints

Every file holds the hashes of the model and of the code that drew it, and `tests/docs/test_page_pictures.py` fails when
one of them is another. They take about two minutes on two cores.
"""

import argparse
import base64
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tests.report.browsing import BROWSER

from multiguard import TopK, load
from multiguard.io.rounding import plain, round_down
from multiguard.models.config import ModelConfig
from multiguard.models.spec import DEFAULT_MODEL
from multiguard.smooth import LivePrediction
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Predictor, make_predictor

ROOT = Path(__file__).parents[1]
IMAGES, PHOTOS = ROOT / "docs" / "images", ROOT / "src" / "multiguard" / "data" / "photos"
PAGE = ROOT / "src" / "multiguard" / "serve" / "assets"
CODE = {
    "how-it-works.svg": (),
    "attack-fails.svg": (),
    "serve.gif": ("serve.html", "serve.css", "claims.js", "attack.js"),
    "README.md": (),
}
STAMP = re.compile(r"model (?P<name>\S+) (?P<weights>\w{16}), code (?P<code>\w{16})")
RULE, PILOT, SEED = TopK(k=5, k_prime=3), 100, 1
INK, QUIET, ACCENT, WASH, PAPER = "#1a1c1f", "#5a6068", "#0a6aa6", "#e6eff5", "#fbfaf7"
_FRAME, _MOST_FRAMES, _ATTACKED = (800, 680), 12, 0.25  # of the animation: pixels, copies, and the radius attacked
Pixels = NDArray[Any]


def path(picture: str) -> Path:
    """Where a picture is."""
    return ROOT / picture if picture == "README.md" else IMAGES / picture


def stamp(picture: str, model: str) -> str:
    """The model and the hashes of what a picture is made of."""
    code = hashlib.sha256(b"".join(path.read_bytes() for path in (Path(__file__), *(PAGE / n for n in CODE[picture]))))
    return f"model {model} {str(load(model).weights_hash)[:16]}, code {code.hexdigest()[:16]}"


def main() -> None:
    """Draw them."""
    draw: dict[str, Callable[[str], bytes]] = dict(zip(CODE, (how_it_works, attack_fails, serve, readme), strict=True))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, help="a built-in model")
    parser.add_argument("--only", nargs="+", choices=draw, default=tuple(draw), metavar="NAME")
    options = parser.parse_args()
    for name in options.only:
        content = draw[name](options.model)
        path(name).write_bytes(content)
        print(f"{name}: {len(content) / 1000:.0f} kB", flush=True)


def how_it_works(model: str) -> bytes:
    """A photo in four steps."""
    draws, shown, photo = 1000, 3, "cat.jpg"
    predictor, image, live = _predicted(model, photo, draws)
    names, smoother = live.label_names, predictor.smoother
    copies = [smoother.noisy(image, at, noise_seed=SEED, image_id=photo) for at in range(shown)]
    words = [[names[label] for label in row[: RULE.k_prime]] for row in live.votes[:shown].tolist()]
    found = live.prediction()
    parts = [_head(0, "1. A photo"), _photo(image, 0, 34, 190), _text(0, 250, photo, QUIET)]
    parts.append(_head(220, f"2. {draws:,} noisy copies, and the {RULE.k_prime} labels of each"))
    for place, (copy, own) in enumerate(zip(copies, words, strict=True)):
        parts += [_photo(copy, 220 + 128 * place, 34, 118), _lines(220 + 128 * place, 176, own)]
    parts += [_text(220, 250, "and so on", QUIET), _head(640, "3. Votes"), _head(850, "4. What they prove")]
    for place, (label, radius) in enumerate(zip(found.labels, found.radii, strict=True)):
        y = 52 + 36 * place
        parts += [_text(640, y, f"{names[label]}: {live.hits[label]:,}"), _bar(640, y + 6, live.hits[label] / draws)]
        parts.append(_text(850, y + 4, _stays(radius), QUIET if radius < 0 else ACCENT))
    return _svg("how-it-works.svg", model, "How it works: a photo, noisy copies, votes and radii", 272, parts)


def attack_fails(model: str) -> bytes:
    """An attack within a certified radius, and how often the labels that were proved at it are still returned."""
    from multiguard.attack import AttackConfig, Hide, pgd
    from multiguard.serve.runs import magnified

    draws, photo = 600, "coffee.jpg"
    predictor, image, live = _predicted(model, photo, draws)
    names, found = live.label_names, live.prediction()
    radius = next(each for each in (1.0, 0.75, 0.5, 0.25, 0.1) if max(found.radii) >= each)
    proved = [label for label, own in zip(found.labels, found.radii, strict=True) if own >= radius]
    effort = AttackConfig(steps=12, starts=1, copies=4, draws=100, box=True, seed=SEED)
    goal, ids = Hide([names[label] for label in proved]), image[None]
    reached = pgd(predictor.smoother, ids, goal, RULE, radius=radius, config=effort)
    bare = TopK(RULE.k_prime, RULE.k_prime)
    alone = pgd(predictor.smoother.classifier, ids, goal, bare, radius=radius, config=effort, device="cpu")
    shown, factor = magnified(reached.delta[0])
    size = f"R = {plain(radius)}"
    parts = [_head(0, "A photo"), _head(220, f"A perturbation of {size}"), _head(440, "Both together")]
    parts += [_photo(each, 220 * place, 34, 190) for place, each in enumerate((image, shown, reached.inputs[0]))]
    words = (f"{photo}", f"{plain(factor)} times enlarged", "what the classifier gets")
    parts += [_text(220 * place, 250, each, QUIET) for place, each in enumerate(words)]
    parts += [_head(660, "Votes before and after"), _head(880, "What was proved")]
    rows = [each for each in zip(found.labels, found.radii, strict=True) if each[1] >= 0][:4]
    for place, (label, own) in enumerate(rows):
        y, before, after = 54 + 44 * place, live.hits[label] / draws, float(reached.scores_after[0, label])
        parts.append(_text(660, y, f"{names[label]}: {100 * before:.0f} %, then {100 * after:.0f} %"))
        parts += [_bar(660, y + 6, before, 7), _bar(660, y + 15, after, 7)]
        parts.append(_text(880, y + 10, _stays(own), ACCENT))
    kept, lost = _labels(proved, reached.labels_after[0], names), _labels(proved, ~alone.labels_after[0], names)
    parts += [
        _text(
            0, 284, f"Proved to stay at {size}: {', '.join(names[i] for i in proved)}. The attack tried to hide them."
        ),
        _text(0, 304, f"Still returned by the smoothed classifier: {', '.join(kept) or 'none'}."),
        _text(
            0,
            324,
            f"Hidden by an attack of this size from the classifier alone, without noise: {', '.join(lost) or 'none'}.",
        ),
    ]
    return _svg("attack-fails.svg", model, "An attack inside the certified radius fails", 340, parts)


def _labels(labels: Sequence[int], marked: Pixels, names: Sequence[str]) -> list[str]:
    return [names[label] for label in labels if marked[label]]


def _predicted(model: str, photo: str, draws: int) -> tuple[Predictor, Pixels, LivePrediction]:
    """The smoothed classifier, the photo as it gets it, and what that many draws prove."""
    from multiguard.data import open_images

    config = PredictConfig(k=RULE.k, k_prime=RULE.k_prime, noise_seed=SEED, device="cpu")
    predictor = make_predictor(ModelConfig(model), config, compile=False)
    names = predictor.smoother.classifier.label_names
    image = open_images([PHOTOS / photo], names, size=predictor.size)[0].image
    options: dict[str, Any] = {"noise_seed": SEED, "image_id": photo}
    live = LivePrediction(predictor.smoother, image, RULE, pilot_draws=PILOT, **options)
    live.draw(PILOT + draws)
    return predictor, image, live


def _svg(name: str, model: str, title: str, height: int, parts: Sequence[str]) -> bytes:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -6 1050 {height}" font-family="system-ui, sans-serif" '
        f'font-size="13" role="img">\n<title>{title}</title>\n<desc>{stamp(name, model)}</desc>\n'
        f'<rect x="-10" y="-6" width="1050" height="{height}" fill="{PAPER}"/>\n{body}\n</svg>\n'
    ).encode()


def _photo(image: Pixels, x: int, y: int, size: int) -> str:
    pixels = image if image.dtype == np.uint8 else np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    file = BytesIO()
    small = Image.fromarray(np.moveaxis(pixels, 0, 2)).resize((size, size), Image.Resampling.NEAREST)
    small.save(file, "JPEG", quality=70)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<image x="{x}" y="{y}" width="{size}" height="{size}" href="data:image/jpeg;base64,{data}"/>'


def _bar(x: int, y: int, part: float, height: int = 10) -> str:
    full = f'<rect x="{x}" y="{y}" width="180" height="{height}" fill="{ACCENT}" fill-opacity="0.12"/>'
    return f'{full}<rect x="{x}" y="{y}" width="{180 * part:.1f}" height="{height}" fill="{ACCENT}"/>'


def _stays(radius: float) -> str:
    return "unconfirmed" if radius < 0 else f"stays up to R = {float(round_down(radius, 2)):.2f}"


def _head(x: int, words: str) -> str:
    return f'<text x="{x}" y="16" fill="{INK}" font-size="14" font-weight="600">{escape(words)}</text>'


def _text(x: int, y: int, words: str, fill: str = INK) -> str:
    return f'<text x="{x}" y="{y}" fill="{fill}">{escape(words)}</text>'


def _lines(x: int, y: int, words: Sequence[str]) -> str:
    return "\n".join(_text(x, y + 17 * place, each, QUIET) for place, each in enumerate(words))


def serve(model: str) -> bytes:
    """The live page as an animation: a photo is chosen, its draws come in, and an attack follows."""
    from playwright.sync_api import sync_playwright

    if BROWSER is None:
        raise SystemExit("serve.gif: no chromium, chromium-browser or google-chrome is installed")
    with _served(model) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": _FRAME[0] * 5 // 4, "height": _FRAME[1] * 5 // 4})
        page.goto(address)
        frames = list(_filmed(page))
        browser.close()
    return _gif(frames, stamp("serve.gif", model))


def readme(model: str) -> bytes:
    """The page with what the command prints for the coffee, with the same noise each time."""
    words = [
        "predict",
        "coffee.jpg",
        "--noise-seed",
        str(SEED),
        *([] if model == DEFAULT_MODEL else ["--model", model]),
    ]
    command = [sys.executable, "-m", "multiguard", *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()
    block = f"<!-- predict: {stamp('README.md', model)} -->\n```console\n$ multiguard {' '.join(words)}\n{said}\n```\n"
    text = path("README.md").read_text(encoding="utf-8")
    return re.sub(r"<!-- predict.*?(?=<!-- end: predict)", lambda _: block, text, flags=re.DOTALL).encode()


@contextmanager
def _served(model: str) -> Iterator[str]:
    """`multiguard serve` on a free port; its address."""
    command = [sys.executable, "-m", "multiguard", "serve", "--port", "0", "--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)), None)
            if found is None:
                raise SystemExit("serve.gif: multiguard serve ended without an address")
            yield found[0]
        finally:
            process.terminate()


def _filmed(page: Any) -> Iterator[tuple[bytes, int]]:
    """Screenshots, each with the milliseconds that it stays."""

    def below_controls(selector: str) -> bytes:
        top = f"document.querySelector('{selector}').getBoundingClientRect().top"
        page.evaluate(f"scrollBy(0, {top} - document.querySelector('.instrument').offsetHeight - 16)")
        return bytes(page.screenshot())

    yield page.screenshot(), 1500
    page.click("[title=coffee]")
    page.wait_for_selector("#copy[src]")
    drawn = []
    while page.locator("#attack-it").is_disabled():
        drawn.append((below_controls("#live"), 250))
        page.wait_for_timeout(250)
    yield from drawn[:: -(-len(drawn) // _MOST_FRAMES)]
    yield below_controls("#live"), 1500
    page.focus("#radius")
    while float(page.locator("#radius-shown").inner_text()) > _ATTACKED:
        page.keyboard.press("ArrowLeft")
        yield below_controls("#live"), 250
    yield below_controls("#live"), 2500
    page.click("#attack-it")
    page.wait_for_selector("[data-part=smoothed]", timeout=170_000)
    yield below_controls("#attack"), 5000


def _gif(frames: Sequence[tuple[bytes, int]], comment: str) -> bytes:
    """Frames with one palette; what does not change between two of them is transparent in the second."""
    opened = [Image.open(BytesIO(shot)).convert("RGB") for shot, _ in frames]
    images = [image.resize(_FRAME, Image.Resampling.LANCZOS) for image in opened]
    sheet = Image.new("RGB", (_FRAME[0], 3 * _FRAME[1]))
    for place, image in enumerate((images[0], images[len(images) // 2], images[-1])):
        sheet.paste(image, (0, _FRAME[1] * place))
    palette = sheet.quantize(255)
    drawn: list[Image.Image] = []
    for before, image in zip([None, *images[:-1]], images, strict=True):
        indices = np.array(image.quantize(palette=palette, dither=Image.Dither.NONE))
        if before is not None:
            indices[np.all(np.asarray(before) == np.asarray(image), axis=2)] = 255
        frame = Image.fromarray(indices, "P")
        frame.putpalette(palette.getpalette() or [])
        drawn.append(frame)
    file, times = BytesIO(), [milliseconds for _, milliseconds in frames]
    options: dict[str, Any] = {"transparency": 255, "disposal": 1, "loop": 0, "comment": comment.encode()}
    drawn[0].save(file, "GIF", save_all=True, append_images=drawn[1:], duration=times, optimize=False, **options)
    return file.getvalue()


if __name__ == "__main__":
    main()
