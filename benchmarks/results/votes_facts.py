"""What the votes are, what certifying them costs, and what the benchmarks on a device printed."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.markdown_tables import csv_link, csv_rows, markdown
from benchmarks.results.sources import ALPHA, MAIN, Source
from multiguard.certify import Method
from multiguard.io.rounding import plain

_TIMED = 50  # images


def votes_block(sources: Sequence[Source], commit: str, parts: Iterable[str], docs: Path) -> dict[str, str]:
    """A file with images, network, noise, device and versions of each votes folder, and the commit of the parts of it.

    Args:
        sources: The votes of the parts that were made now.
        commit: The commit of these parts.
        parts: The commits that the page names; rows of others are dropped.
        docs: The folder of the page.
    """
    heads = ["votes", "images", "network", "sigma", "noise seed", "draws", "drawn on", "versions", "commit"]
    again = {one.name for one in sources}
    old = [row for row in csv_rows(docs, "votes") if row[-1] in parts]
    kept = [row for row in old if row[-1] != commit or row[0] not in again]
    link = csv_link(docs, "votes", heads, [*([*_facts(one), commit] for one in sources), *kept])
    return {
        "votes": f"{link} has network, weights, noise, seed, draws, device, versions and commit of each votes folder."
    }


def _facts(one: Source) -> list[str]:
    mean = float(np.mean([len(votes) for votes in one.votes]))
    draws = f"{one.draws:,}" if mean == one.draws else f"{mean:,.0f} on average, at most {one.draws:,}"
    if one.run is None:
        return [one.name, str(len(one)), f"votes {one.digest[:12]}", plain(one.sigma), "", draws, "", ""]
    run = one.run.provenance
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items() if name != "python")
    return [
        one.name,
        f"{len(one)} of {run.dataset}",
        f"{run.model}, weights {str(run.weights_hash)[:12]}",
        plain(one.sigma),
        str(run.noise_seed),
        f"{draws} ({'top ' + str(run.k_max) if run.k_max else 'sets'})",
        f"{run.device}, {run.precision}",
        versions,
    ]


def certify_cost_block(source: Source, methods: Sequence[Method]) -> dict[str, str]:
    """The processor time of each method for one image at k' = 3, k = 10; of few images, which one process reads."""
    few = source.subset(range(min(_TIMED, len(source))))
    for method in methods:
        few.radii(MAIN, method)
    times = {method: few.seconds[MAIN, method, source.draws, ALPHA] for method in methods}
    rows = [[method, f"{1000 * spent / len(few):.1f}"] for method, spent in sorted(times.items())]
    words = f"`{source.name}`, {len(few)} images, n = {source.draws:,}, k' = {MAIN.k_prime}, k = {MAIN.k}"
    return {"certify-cost": f"{words}:\n\n{markdown(['method', 'ms per image'], rows)}"}


def speed_block(path: Path) -> dict[str, str]:
    """What `python -m benchmarks.sampler_gpu` printed last, as a table."""
    parts = path.read_text(encoding="utf-8").strip().split("\n\n")[-1].splitlines()
    rows = [re.split(r"\s{2,}", line.strip())[:2] for line in parts[1:]]
    return {"speed": f"{parts[0]}:\n\n{markdown(['', 'measured'], rows)}"}
