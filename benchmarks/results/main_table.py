"""The main table: every noise, every method, at the paper's configs and at those that `tune` chooses."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.results.choice import Candidate, Choice, k_primes
from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADIUS_HEADS, WORDS, cells, markdown
from benchmarks.results.sources import GRID, MAIN, Source
from multiguard.certify import Method, TopK
from multiguard.evaluate import candidate_rules
from multiguard.io.rounding import percent_value, plain
from multiguard.votes import Provenance

METHODS: tuple[Method, ...] = ("coupled", "betting", "joint", "paper", "independent", "jia")
SMALL, STRICT = TopK(k=3, k_prime=1), TopK(k=3, k_prime=3)
_TUNED: tuple[Method, ...] = ("coupled", "joint", "paper", "independent", "jia")
_TUNED_FOR = (0.5, 1.0)
_THRESHOLD_METHODS: tuple[Method, ...] = ("joint", "independent")


def methods_block(sources: Sequence[Source], rule: TopK, docs: Path) -> dict[str, str]:
    """Certified precision, recall and F1 of each noise and method at one config, and the recall as a figure."""
    found = {(one.sigma, method): one.scores(rule, method) for one in sources for method in METHODS}
    panels = [
        Panel(
            f"σ = {plain(one.sigma)}",
            "certified recall, %",
            GRID,
            [(m, 100 * found[one.sigma, m].recall) for m in METHODS],
        )
        for one in sources
    ]
    words = f"k′ = {rule.k_prime}, k = {rule.k}; {len(sources[0])} images, n = {sources[0].draws:,}, α = 0.001."
    name = f"methods-{rule.k_prime}-{rule.k}"
    path = curves_figure(docs / IMAGES, name, "Certified recall of each method", words, panels)
    rows = [
        [plain(sigma), method, WORDS[measure], *cells(scores, measure)]
        for (sigma, method), scores in found.items()
        for measure in WORDS
    ]
    image = f"![Certified recall of each method against the radius, one panel for each noise]({IMAGES}/{path.name})"
    return {name: f"{image}\n\n{markdown(['sigma', 'method', 'score', *RADIUS_HEADS], rows, words=3)}"}


def seeds_block(seeds: Sequence[Source]) -> dict[str, str]:
    """Certified recall of networks that differ in the seed of their training alone, and the largest difference."""
    lines = [(f"`{one.name}`", one.scores(MAIN, "coupled")) for one in seeds]
    apart = max(float(abs(one.recall - other.recall)[:41].max()) for _, one in lines for _, other in lines)
    table = markdown(["votes", *RADIUS_HEADS], [[name, *cells(scores, "recall")] for name, scores in lines])
    return {"seeds": f"{table}\n\nUp to R = 1 they are at most {100 * apart:.1f} points apart."}


def sizes_block(sources: Sequence[tuple[int, Source]]) -> dict[str, str]:
    """Certified recall of networks of two input sizes, and at the same perturbation of the photo."""
    heads, rows = ["pixels", "sigma", *RADIUS_HEADS], []
    for pixels, one in sources:
        rows.append([f"{pixels} x {pixels}", plain(one.sigma), *cells(one.scores(MAIN, "joint"), "recall")])
    return {"sizes": markdown(heads, rows)}


def tuned_block(pairs: Sequence[tuple[Source, Source | None]]) -> dict[str, str]:
    """Certified scores at k = 10 with the k', and the noise, that `tune` chooses on other images for one radius.

    The method coupled takes minutes for each k', so it certifies only what training images chose.
    """
    rows = []
    for source, other in pairs:
        rows += _tuned_rows(Choice(k_primes(source, other), "recall", _TUNED_FOR))
    if len(pairs) > 1:
        rows += _tuned_rows(Choice([one for source, _ in pairs for one in k_primes(source)], "recall", _TUNED_FOR))
    return {"tuned": markdown(["tuned for", "chosen on", "sigma", "k'", "method", *RADIUS_HEADS], rows, words=5)}


def _tuned_rows(choice: Choice) -> list[list[str]]:
    rows = []
    for place, radius in enumerate(choice.radii):
        if choice.curve("joint", "recall", place, [radius])[0] == 0:
            continue  # nothing is certified there, so that nothing was chosen
        chosen = [choice.values(name)[place] for name in ("sigma", "k_prime")]
        start = [f"R = {plain(radius)}", choice.words(), *chosen]
        recall = {method: choice.curve(method, "recall", place) for method in _TUNED[not choice.apart :]}
        rows += [[*start, method, *map(percent_value, values.tolist())] for method, values in recall.items()]
    return rows


def threshold_block(pairs: Sequence[tuple[Source, Source | None]]) -> dict[str, str]:
    """The threshold rule at the t, and the score threshold, of the largest certified F1 at each radius elsewhere."""
    choice = Choice(
        [Candidate(source, rule, other) for source, other in pairs for rule in candidate_rules(_run(source))], "f1"
    )
    rows = [["t", "", *choice.values("t")]]
    if len(pairs) > 1:
        scores = [
            ", ".join(dict.fromkeys(_score(one.source) for one in one)) for one in zip(*choice.chosen, strict=True)
        ]
        rows.append(["score threshold", "", *scores])
    for method in _THRESHOLD_METHODS:
        rows += [[method, WORDS[m], *map(percent_value, choice.scores(method, m).tolist())] for m in WORDS]
    who = f"Chosen on {choice.words()}"
    return {"threshold": f"{who}:\n\n{markdown(['method', 'score', *RADIUS_HEADS], rows, words=2)}"}


def _score(source: Source) -> str:
    return plain(_run(source).score_threshold or 0.0)


def _run(source: Source) -> Provenance:
    assert source.run is not None
    return source.run.provenance
