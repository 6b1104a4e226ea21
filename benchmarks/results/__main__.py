"""Fills the generated parts of docs/results.md and README.md, and draws their figures.

python -m benchmarks.results EVIDENCE --digits runs/digits-figures --small-cases

EVIDENCE is a folder of votes folders, as `multiguard vote` writes them:
  coco-0.5/votes, coco-0.25/votes, coco-1/votes   one network for each noise, 1,000 draws
  coco-0.5/votes-train                            of the same network on training images, to choose k' on
  coco-0.5/votes-threshold, -threshold-train      the same with --rule threshold
  coco-0.5/votes-more, or earlier/votes-more      more draws, on some or all images
  coco-0.5/votes-adaptive                         adaptive draws
  coco-0.5/attack                                 what `multiguard attack` wrote
  clean/votes                                     a network that was trained without noise
  older/votes, earlier/votes                      a network from 3,000 images, and an earlier one from all of them
  sampler.txt                                     what `python -m benchmarks.sampler_gpu` printed
  seconds.csv                                     votes,seconds: what each `multiguard vote` took
Each may also be an .npz file with the arrays `votes` and `labels` (sigma 0.5). What is missing is left as it is on the
page. Radii are kept in EVIDENCE/kept.
"""

import argparse
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.results import blocks, figure_rows
from benchmarks.results.corrections import statistics_block, wrong_claims_block
from benchmarks.results.distance import distance_block
from benchmarks.results.facts import costs, facts
from benchmarks.results.label_figure import labels_block
from benchmarks.results.limits import limit_block
from benchmarks.results.main_table import (
    METHODS,
    SMALL,
    STRICT,
    draws_block,
    methods_block,
    threshold_block,
    tuned_block,
)
from benchmarks.results.markdown_tables import scores_table
from benchmarks.results.parts import study_blocks
from benchmarks.results.runs import Run, open_run
from benchmarks.results.sources import MAIN, Source, open_arrays, open_votes
from benchmarks.results.votes_facts import certify_cost_block, speed_block, vote_cost_block, votes_block
from benchmarks.results.waterfall import waterfall_block
from multiguard.certify import Method

_SIGMAS = ("0.25", "0.5", "1")
_ARRAYS_SIGMA, _LEAST_DRAWS = 0.5, 100
# Parts whose votes may be missing, and what the page then says.
_OPTIONAL, _MISSING = (
    ("threshold", "row-training", "waterfall", "vote-cost", "speed"),
    "*Not measured on these networks.*",
)


def main() -> None:
    """Reads the arguments, makes the blocks and writes the pages."""
    options = _arguments()
    made: dict[str, str] = {}
    if options.evidence is not None:
        made |= coco_blocks(Evidence(options.evidence), options.out, quick=options.quick)
    if options.digits is not None:
        made |= digits_blocks(open_run(options.digits), options.out, options.digits_commit)
    if options.small_cases:
        made |= wrong_claims_block() | limit_block(options.cases)
    for page in (options.out / "results.md", options.readme):
        write(page, made)


class Evidence:
    """The votes of a folder, those that are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, Source] = {}

    def get(self, name: str) -> Source | None:
        """The votes of this name; None where there are none."""
        path = self.folder / name
        if name not in self.found and path.with_suffix(".npz").is_file():
            arrays = path.with_suffix(".npz")
            self.found[name] = open_arrays(arrays, name, _ARRAYS_SIGMA, self.folder / "kept")
        elif name not in self.found and path.is_dir():
            self.found[name] = open_votes(path, name, self.folder / "kept")
        return self.found.get(name)

    def main(self) -> Source:
        """The votes that everything else is compared with."""
        found = self.get("coco-0.5/votes")
        if found is None:
            raise SystemExit(f"{self.folder} has no coco-0.5/votes; copy them from where they were drawn")
        return found


def coco_blocks(evidence: Evidence, docs: Path, *, quick: bool = False) -> dict[str, str]:
    """All that the votes on MS-COCO show; `quick` leaves out the method coupled, which takes minutes."""
    methods = METHODS[1:] if quick else METHODS
    source, get = evidence.main(), evidence.get
    sources = [one for name in _SIGMAS if (one := get(f"coco-{name}/votes")) is not None]
    more, adaptive = get("coco-0.5/votes-more") or get("earlier/votes-more"), get("coco-0.5/votes-adaptive")
    older, clean, threshold = get("older/votes"), get("clean/votes"), get("coco-0.5/votes-threshold")
    attack = evidence.folder / "coco-0.5" / "attack"
    made: dict[str, str] = {}
    made |= _timed("main", lambda: methods_block(sources, MAIN, methods, docs))
    for rule in (SMALL, STRICT):
        made |= _timed("main", lambda rule=rule: methods_block(sources, rule, methods, docs))
    made |= _timed("draws", lambda: draws_block(source, more, adaptive))
    pairs = [(one, get(one.name.replace("/votes", "/votes-train"))) for one in sources]
    made |= _timed("tuned", lambda: tuned_block(pairs))
    if threshold is not None:
        other = get("coco-0.5/votes-threshold-train")
        made |= _timed("threshold", lambda: threshold_block(threshold, other))
    for row in (figure_rows.k_prime_row, figure_rows.k_row, figure_rows.alpha_row):
        made |= _timed(row.__name__, lambda row=row: row(source, docs))
    made |= _timed(
        "n", lambda: figure_rows.n_row(more if more is not None and more.draws > source.draws else source, docs)
    )
    made |= _timed("sigma", lambda: figure_rows.sigma_row(sources, docs))
    made |= _timed("terms", lambda: figure_rows.second_terms_row(source))
    ahead = list(dict.fromkeys(("paper", "joint", methods[0])))
    made |= _timed("jia", lambda: figure_rows.jia_row(source, (MAIN, SMALL), ahead))
    if clean is not None and clean.draws >= _LEAST_DRAWS:
        made |= _timed("training", lambda: figure_rows.training_row(source, clean, docs))
    made |= _timed("statistics", lambda: statistics_block(source, (MAIN, SMALL), docs))
    if older is not None:
        made |= _timed(
            "waterfall", lambda: waterfall_block(older, get("earlier/votes"), source, sources, docs, methods[0])
        )
    made |= _timed("distance", lambda: distance_block(source, more, clean, attack if attack.is_dir() else None))
    made |= _timed("labels", lambda: labels_block(source, docs))
    if (evidence.folder / "sampler.txt").is_file():
        made |= speed_block(evidence.folder / "sampler.txt")
    if (evidence.folder / "seconds.csv").is_file():
        made |= vote_cost_block(evidence.folder / "seconds.csv", list(evidence.found.values()))
    made |= certify_cost_block([source, *([more] if more else [])], (MAIN,))
    made |= votes_block(list(evidence.found.values()))
    made |= {name: _MISSING for name in _OPTIONAL if name not in made}
    made["headline"] = _headline(source, methods)
    made["made"] = _made(list(evidence.found.values()), quick=quick)
    return made


def _timed(name: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    start = time.perf_counter()
    made = make()
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return made


def _headline(source: Source, methods: Sequence[Method]) -> str:
    """The table of README: certified recall of every method on the same votes."""
    names = {
        "coupled": "**coupled** (ours, the default)",
        "joint": "joint (ours, in closed form)",
        "paper": "paper (MultiGuard's Theorem 1, corrected)",
        "independent": "independent (without its joint terms)",
        "jia": "jia (each label on its own)",
    }
    return scores_table("method", [(names[method], source.scores(MAIN, method)) for method in methods])


def _made(sources: Sequence[Source], *, quick: bool) -> str:
    """The command, the commit and the time that the generated parts took."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    spent = sum(sum(one.seconds.values()) for one in sources)
    command = f"python -m benchmarks.results evidence{' --quick' * quick}"
    took = f"certifying took {spent:,.0f} s of processor time on one core of a CPU"
    return f"Made by `{command}` at commit {found.stdout.strip()}; {took}."


def digits_blocks(run: Run, docs: Path, commit: str | None) -> dict[str, str]:
    """All that the run on the embedded digits shows."""
    return {**facts(run, "digits", commit), **study_blocks(run.study, "digits", docs), **costs(run, "digits")}


def write(page: Path, made: Mapping[str, str]) -> None:
    """Fill the blocks that the page has of these, and say which."""
    text = page.read_text(encoding="utf-8")
    own = {name: block for name, block in made.items() if name in blocks.names(text)}
    page.write_text(blocks.filled(text, own), encoding="utf-8")
    print(f"{page}: {', '.join(own) or 'nothing'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", help="the folder of votes folders")
    parser.add_argument("--quick", action="store_true", help="leave out the method coupled")
    parser.add_argument("--digits", type=Path, metavar="RUN", help="the run folder of recipe digits-figures")
    parser.add_argument("--digits-commit", help="of the code that made the run on digits")
    parser.add_argument("--small-cases", action="store_true", help="the exact limit, and wrong claims in closed form")
    parser.add_argument("--cases", type=int, default=10, help="random cases of each kind for the exact limit")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder of results.md")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
