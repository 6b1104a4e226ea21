"""The page: one HTML document in the report's design that fetches nothing but this server's own answers."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import multiguard.data
from multiguard.certify.noise import Noise, check_sampled
from multiguard.data.image import decode_image, read_image_bytes
from multiguard.data.image_folder import find_images
from multiguard.data.sample import Sample
from multiguard.errors import ImageError, InvalidInputError
from multiguard.io.files import read_regular
from multiguard.io.rounding import confidence, plain, round_down
from multiguard.report.page import ASSETS as REPORT_ASSETS
from multiguard.report.page import as_script_json, page_environment, policy_hash
from multiguard.report.thumbnails import make_thumbnail
from multiguard.serve.config import ServeConfig
from multiguard.smooth.predictor import Predictor
from multiguard.version import __version__

Example = tuple[str, bytes, str]  # an image that the page offers: its name, its file, and a thumbnail as a data URI
_MOST = 8  # examples
_PHOTOS = Path(multiguard.data.__file__).parent / "photos"
_PHOTO_SIZE = 64  # pixels per side
_ASSETS = Path(__file__).parent / "assets"
_STYLES = (REPORT_ASSETS / "report.css", _ASSETS / "serve.css")
_SCRIPTS = (
    REPORT_ASSETS / "elements.js",
    *(_ASSETS / f"{name}.js" for name in ("claims", "attack", "stream", "source")),
)
_NOT_OURS = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_PLACES, _TICK = 31, 5  # of the slider, and how many places are from tick to tick
_REACH = 3  # of the slider, in typical radii of the noise
_LONGEST, _DECIMALS = 6, 4  # of a radius as text: longer ones are rounded down


def model_facts(predictor: Predictor, config: ServeConfig) -> dict[str, Any]:
    """What the server predicts with, as JSON."""
    facts = {"draws": config.draws, **predictor.facts}
    for name in ("max_draws", "noise_seed"):  # a request has its own
        facts.pop(name, None)
    limits = {"bytes": config.bytes, "pixels": config.pixels, "seconds": config.seconds, "requests": config.queue}
    labels, device = list(predictor.smoother.classifier.label_names), predictor.smoother.settings.device
    return facts | {"labels": labels, "device": device, "limits": limits, "version": __version__}


def make_page(predictor: Predictor, config: ServeConfig, examples: Sequence[Example]) -> tuple[str, str]:
    """The page, and the policy for browsers: this script and this style alone, and nothing from other sites."""
    from markupsafe import Markup

    facts, noise = model_facts(predictor, config), predictor.smoother.settings.noise
    grid = slider_radii(noise)
    wanted = facts.get("radius") or noise.typical_radius / 2
    start = int(np.argmin(np.abs(np.array(grid) - wanted)))
    style = "\n".join(_asset(name) for name in _STYLES)
    script = f'(() => {{\n"use strict";\n{"".join(map(_asset, _SCRIPTS))}}})();\n'
    data = facts | {
        "grid": grid,
        "threats": [noise.threat_words(_shown(radius)) for radius in grid],
        "whole": noise.whole,
        "start": start,
        "methods": ["betting"],
        "confidence": confidence(facts["alpha"]),
        "examples": len(examples),
    }
    values = {"facts": facts, "examples": examples, "noise": noise, "start": start, "confidence": data["confidence"]}
    values |= {"top_k": predictor.rule.ranked, "last": len(grid) - 1, "ticks": list(enumerate(grid))[::_TICK]}
    values |= {"style": Markup(style), "script": Markup(script), "data": Markup(as_script_json(data))}
    allowed = f"script-src {policy_hash(script)}; style-src {policy_hash(style)}; img-src 'self' data: blob:"
    policy = f"default-src 'none'; {allowed}; connect-src 'self'; media-src blob:; {_NOT_OURS}"
    return page_environment(_ASSETS).get_template("serve.html").render(values), policy


def find_examples(folder: Path | None, size: int) -> tuple[Example, ...]:
    """The first images of a folder, by name; without one the package's photos, unless the model takes small images."""
    if folder is None:
        return tuple(_read(_PHOTOS)) if size >= _PHOTO_SIZE else ()
    if not (found := tuple(_read(folder))):
        raise InvalidInputError(f"examples is {folder}, which is no folder of readable images")
    return found


def _read(folder: Path) -> Iterator[Example]:
    for path in [folder / name for name in find_images(folder)][:_MOST]:
        with suppress(ImageError):  # the others may do
            content = read_image_bytes(path)
            thumbnail, *_ = make_thumbnail(Sample(path.name, decode_image(content, source=path), ()))
            yield path.stem.replace("_", " ").replace("-", " "), content, thumbnail


def slider_radii(noise: Noise) -> list[float]:
    """The radii of the slider: some of those at which the method betting makes claims, from 0 on.

    >>> from multiguard.certify import PixelAblation
    >>> slider_radii(PixelAblation(45, 1024))[:4]
    [0.0, 1.0, 2.0, 3.0]
    """
    if noise.enumerated:
        raise InvalidInputError(
            f"the live page shows draws as they come, and the noise {noise} has none: every band votes once; take "
            "multiguard predict, or another noise"
        )
    sampled = check_sampled(noise)
    radii = np.unique(sampled.radii(sampled.betting_r))
    near = radii[radii <= _REACH * noise.typical_radius]
    return [float(radius) for radius in near[:: max(1, len(near) // (_PLACES - 1))]]


def _shown(radius: float) -> float:
    """The radius as it is shown: exact where that is short, otherwise rounded down, which claims less."""
    return radius if len(plain(radius)) <= _LONGEST else float(round_down(radius, _DECIMALS))


def _asset(path: Path) -> str:
    return read_regular(path).decode()
