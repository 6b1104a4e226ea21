"""The page: one HTML document in the report's design that fetches nothing but this server's own answers."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from multiguard.certify import Gaussian, TopK
from multiguard.io.rounding import confidence, plain
from multiguard.pipeline.predict_job import Predictor
from multiguard.report.single_file import as_script_json
from multiguard.serve.examples import Example
from multiguard.serve.limits import ServePart
from multiguard.version import __version__

_STYLES = (("report", "report.css"), ("serve", "serve.css"))
_SCRIPTS = (
    ("report", "elements.js"),
    *(("serve", name) for name in ("claims.js", "attack.js", "stream.js", "source.js")),
)
_LAST, _STEP, _START = 150, 5, 5  # of the slider, in places of the list of radii: 3 sigma, sigma / 10; sigma / 2


def model_facts(predictor: Predictor, part: ServePart) -> dict[str, Any]:
    """What the server predicts with, as JSON."""
    settings, how, rule = predictor.smoother.settings, predictor.part, predictor.rule
    return {
        "model": predictor.model,
        "labels": list(predictor.smoother.classifier.label_names),
        "size": predictor.size,
        "rule": rule.name,
        **rule.options,
        **({} if settings.score_threshold is None else {"score_threshold": settings.score_threshold}),
        "sigma": settings.sigma,
        "alpha": how.alpha,
        "pilot_draws": how.pilot_draws,
        "draws": part.draws,
        "device": str(settings.device),
        "limits": {"bytes": part.bytes, "pixels": part.pixels, "seconds": part.seconds, "requests": part.queue},
        "version": __version__,
    }


def make_page(predictor: Predictor, part: ServePart, examples: Sequence[Example]) -> tuple[str, str]:
    """The page, and the policy under which a browser may show it: only these scripts and styles, and no other site."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    facts = model_facts(predictor, part)
    noise = Gaussian(facts["sigma"])
    style = "\n".join(_text(*name) for name in _STYLES)
    script = f'(() => {{\n"use strict";\n{"".join(_text(*name) for name in _SCRIPTS)}}})();\n'
    data = facts | {
        "grid": noise.radii(noise.betting_r[: _LAST + 1 : _STEP]).tolist(),
        "start": _START,
        "methods": ["betting"],
        "confidence": confidence(facts["alpha"]),
        "examples": len(examples),
    }
    loader = PackageLoader("multiguard.serve", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["plain"] = plain
    text = environment.get_template("serve.html").render(
        facts=facts,
        top_k=isinstance(predictor.rule, TopK),
        confidence=data["confidence"],
        examples=examples,
        last=len(data["grid"]) - 1,
        start=_START,
        ticks=list(_ticks(data["grid"])),
        style=Markup(style),
        script=Markup(script),
        data=Markup(as_script_json(data)),
    )
    return text, _policy(script, style)


def _text(room: str, name: str) -> str:
    return (files(f"multiguard.{room}") / "assets" / name).read_text(encoding="utf-8")


def _ticks(grid: Sequence[float]) -> Iterator[tuple[int, float]]:
    """The places of the slider that have a number: multiples of sigma / 2."""
    for index in range(0, len(grid), _START):
        yield index, grid[index]


def _policy(script: str, style: str) -> str:
    """Nothing runs or is applied but this script and this style, and nothing is fetched from elsewhere."""
    allowed = {"script-src": script, "style-src": style}
    hashes = "; ".join(f"{name} 'sha256-{_digest(text)}'" for name, text in allowed.items())
    rest = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; {hashes}; img-src 'self' data: blob:; connect-src 'self'; media-src blob:; {rest}"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
