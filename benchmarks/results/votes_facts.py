"""What the votes are, what certifying them costs, and what the benchmarks on a device printed."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.markdown_tables import markdown
from benchmarks.results.sources import ALPHA, MAIN, Source
from multiguard.io.rounding import plain


def votes_block(sources: Sequence[Source], commit: str, old: Sequence[list[str]]) -> dict[str, str]:
    """Images, network, noise, device and versions of each votes folder, and the commit of the parts made from it.

    Args:
        sources: The votes of the parts that were made now.
        commit: The commit of these parts.
        old: Rows of the old table; one of the same votes and commit is replaced.
    """
    heads = ["votes", "images", "network", "sigma", "noise seed", "draws", "drawn on", "versions", "commit"]
    again = {f"`{one.name}`" for one in sources}
    kept = [row for row in old if row[-1] != commit or row[0] not in again]
    rows = [[*_facts(one), commit] for one in sources] + kept
    return {"votes": markdown(heads, rows, words=len(heads))}


def _facts(one: Source) -> list[str]:
    mean = float(np.mean([len(votes) for votes in one.votes]))
    draws = f"{one.draws:,}" if mean == one.draws else f"{mean:,.0f} on average, at most {one.draws:,}"
    if one.run is None:
        return [f"`{one.name}`", str(len(one)), f"votes {one.digest[:12]}", plain(one.sigma), "", draws, "", ""]
    run = one.run.provenance
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items() if name != "python")
    return [
        f"`{one.name}`",
        f"{len(one)} of `{run.dataset}`",
        f"{run.model}, weights {str(run.weights_hash)[:12]}",
        plain(one.sigma),
        str(run.noise_seed),
        f"{draws} ({'top ' + str(run.k_max) if run.k_max else 'sets'})",
        f"{run.device}, {run.precision}",
        versions,
    ]


def certify_cost_block(source: Source) -> dict[str, str]:
    """The processor time of each method for one image, from what was certified at k' = 3, k = 10 for the page."""
    timed = (MAIN, source.draws, ALPHA)
    times = {method: spent for (rule, method, n, alpha), spent in source.seconds.items() if (rule, n, alpha) == timed}
    rows = [[method, f"{spent:.1f}", f"{1000 * spent / len(source):.1f}"] for method, spent in sorted(times.items())]
    words = f"`{source.name}`, {len(source)} images, n = {source.draws:,}, k' = {MAIN.k_prime}, k = {MAIN.k}"
    return {"certify-cost": f"{words}:\n\n{markdown(['method', 'seconds', 'ms per image'], rows)}"}


def vote_cost_block(path: Path, sources: Sequence[Source]) -> dict[str, str]:
    """What voting took, start and compilation included: `path` has the columns votes, seconds and device."""
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        steps = {row["votes"]: (float(row["seconds"]), row["device"]) for row in csv.DictReader(file)}
    for one in sources:
        if one.name in steps:
            (spent, device), draws = steps[one.name], sum(map(len, one.votes))
            each = [draws / len(one), spent, spent / len(one), draws / spent]
            numbers = [f"{x:,.{d}f}" for x, d in zip(each, (0, 0, 3, 0), strict=True)]
            rows.append([f"`{one.name}`", device, str(len(one)), *numbers])
    heads = ["votes", "GPU", "images", "draws per image", "seconds", "seconds per image", "draws per second"]
    return {"vote-cost": markdown(heads, sorted(rows, key=lambda row: row[1]), words=2)}


def speed_block(path: Path) -> dict[str, str]:
    """What `python -m benchmarks.sampler_gpu` printed last, as a table."""
    parts = path.read_text(encoding="utf-8").strip().split("\n\n")[-1].splitlines()
    rows = [re.split(r"\s{2,}", line.strip())[:2] for line in parts[1:]]
    return {"speed": f"{parts[0]}:\n\n{markdown(['', 'measured'], rows)}"}
