"""Fills the generated parts of docs/results.md, deployment.md, theory.md and README.md, and draws their figures.

python -m benchmarks.results EVIDENCE --comparison EVIDENCE --small-cases --digits runs/digits-figures

EVIDENCE is a folder of votes folders; `python -m benchmarks.evidence` draws all but the last:
  coco-0.25/votes, coco-0.5/votes, coco-1/votes   one network for each noise; the first 1,000 draws are used
  coco-*/votes-train                              of the same networks on training images, to choose k' on
  coco-0.5/votes-threshold*, -threshold*-train    the same with --rule threshold, one for each score threshold
  coco-0.5/votes-more                             more draws of some of the images
  coco-0.5/votes-adaptive                         adaptive draws of all images
  coco-0.5/attack*                                what `multiguard attack` wrote, at R = 0.5 and R = 1, k' = k = 3
  smaller-0.5/votes                               the network of coco-1 without its pooling, on images of 224 pixels
  clean/votes                                     a network that was trained without noise, under noise 0.5
  sampler.txt                                     what `python -m benchmarks.sampler_gpu` printed
  seconds.csv                                     what each `multiguard vote` took, with the device alone or shared
  full-data/votes                                 a network like older, from the full training set
  older/votes                                     a network from 3,000 images
Each may also be an .npz file with the arrays `votes` and `labels` (sigma 0.5). What is missing is left as it is on the
page, or said to be missing. Radii are kept in EVIDENCE/kept, so the command may be run again as votes come in. The
comparison needs older/votes and coco-0.5/votes alone, and uses all their draws; 2,000 show paper with twice the draws.
"""

import argparse
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from multiprocessing import Process
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.results import blocks, figure_rows
from benchmarks.results.comparison import comparison_block
from benchmarks.results.digits_run import digits_blocks
from benchmarks.results.distance import distance_block, limit_block
from benchmarks.results.label_figure import labels_block
from benchmarks.results.main_table import (
    METHODS,
    SMALL,
    STRICT,
    methods_block,
    sizes_block,
    threshold_block,
    tuned_block,
)
from benchmarks.results.markdown_tables import scores_table
from benchmarks.results.sources import MAIN, SPENT, Pair, Source, open_arrays, open_votes
from benchmarks.results.statistics import statistics_block, wrong_claims_block
from benchmarks.results.tradeoff import draws_block, tradeoff_block
from benchmarks.results.votes_facts import certify_cost_block, speed_block, vote_cost_block, votes_block
from benchmarks.results.waterfall import Networks, waterfall_block

_SIGMAS, _MAIN = ("0.25", "0.5", "1"), "coco-0.5/votes"
_ARRAYS_SIGMA, _DRAWS, _RESAMPLED = 0.5, 1000, 20_000
# Parts whose votes may be missing, and what the page then says.
_OPTIONAL, _MISSING = (
    ("threshold", "sizes", "row-training", "waterfall", "vote-cost", "speed"),
    "*Not measured on these networks.*",
)


def main() -> None:
    """Reads the arguments, makes the blocks and writes the pages."""
    options = _arguments()
    made: dict[str, str] = {}
    if options.evidence is not None:
        evidence = Evidence(options.evidence)
        if options.two:
            Process(target=_from_the_end, args=(options.evidence,), daemon=True).start()
        made |= coco_blocks(evidence, options.out)
        made["made"] = _made()
    if options.comparison is not None:
        made |= _timed("comparison", lambda: comparison_block(Evidence(options.comparison).compared()))
    if options.digits is not None:
        made |= digits_blocks(options.digits, options.out, options.digits_commit)
    if options.small_cases:
        made |= wrong_claims_block() | limit_block(options.cases)
    for page in (*(options.out / name for name in ("results.md", "deployment.md", "theory.md")), options.readme):
        write(page, made)


class Evidence:
    """The votes of a folder, those that are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, Source] = {}

    def get(self, name: str) -> Source | None:
        """The votes of this name; None where there are none."""
        path = self.folder / name
        arrays = path.with_name(f"{path.name}.npz")
        if name not in self.found and arrays.is_file():
            self.found[name] = open_arrays(arrays, name, _ARRAYS_SIGMA, self.folder / "kept")
        elif name not in self.found and path.is_dir():
            self.found[name] = open_votes(path, name, self.folder / "kept")
        return self.found.get(name)

    @cached_property
    def noises(self) -> list[Pair]:
        """The first 1,000 draws of the network of each noise, with its votes on training images."""
        names = [f"coco-{sigma}/votes" for sigma in _SIGMAS]
        return [
            (one.shortened([_DRAWS] * len(one)), self.get(f"{name}-train"))
            for name in names
            if (one := self.get(name)) is not None
        ]

    @property
    def main(self) -> Pair:
        """The votes that everything else is compared with."""
        for pair in self.noises:
            if pair[0].name == _MAIN:
                return pair
        raise SystemExit(f"{self.folder} has no {_MAIN}; copy them from where they were drawn")

    def thresholds(self) -> list[Pair]:
        """The votes of the threshold rule, each with those on training images."""
        names = [f"coco-0.5/{path.name}" for path in sorted(self.folder.glob("coco-0.5/votes-threshold*"))]
        return [
            (one, self.get(f"{name}-train")) for name in names if not name.endswith("-train") if (one := self.get(name))
        ]

    def compared(self) -> dict[str, Source]:
        """The votes of the comparison that decides on the default method, with all their draws.

        A is the half of the images of the older network on which no bet was chosen, as voted on and with more
        draws, resampled from these votes.
        """
        found: dict[str, Source] = {}
        if (older := self.get("older/votes")) is not None:
            found["A"] = older.subset(range(1, len(older), 2))
            found["A resampled"] = found["A"].resampled(_RESAMPLED)
        if (newest := self.get("coco-0.5/votes")) is not None:
            found["C"] = newest
        return found


def coco_blocks(evidence: Evidence, docs: Path) -> dict[str, str]:
    """All that the votes on MS-COCO show."""
    made: dict[str, str] = {}
    for name, make in _parts(evidence, docs):
        made |= _timed(name, make)
    found, (source, _) = list(evidence.found.values()), evidence.main
    if (evidence.folder / "sampler.txt").is_file():
        made |= speed_block(evidence.folder / "sampler.txt")
    if (evidence.folder / "seconds.csv").is_file():
        made |= vote_cost_block(evidence.folder / "seconds.csv", found)
    made |= certify_cost_block(source) | votes_block(found)
    made["headline"] = _headline(source)
    return made | {name: _MISSING for name in _OPTIONAL if name not in made}


def _parts(evidence: Evidence, docs: Path) -> Iterator[tuple[str, Callable[[], dict[str, str]]]]:
    """Each part of the page by its name, if it has its votes."""
    pairs, (source, _), get = evidence.noises, evidence.main, evidence.get
    sources = [one for one, _ in pairs]
    more, clean, attacks = get("coco-0.5/votes-more"), get("clean/votes"), evidence.folder.glob("coco-0.5/attack*")
    older, full_data, smaller = get("older/votes"), get("full-data/votes"), get("smaller-0.5/votes")
    for rule in (MAIN, SMALL, STRICT):
        yield "methods", lambda rule=rule: methods_block(sources, rule, docs)
    yield "tuned", lambda: tuned_block(pairs)
    if thresholds := evidence.thresholds():
        yield "threshold", lambda: threshold_block(thresholds)
    yield "draws", lambda: draws_block(source, more, get("coco-0.5/votes-adaptive"))
    yield "tradeoff", lambda: tradeoff_block(more or source, docs)
    if smaller is not None:
        yield "sizes", lambda: sizes_block(smaller, sources)
    for row in (figure_rows.k_prime_row, figure_rows.k_row, figure_rows.alpha_row):
        yield row.__name__, lambda row=row: row(source, docs)
    yield "n", lambda: figure_rows.n_row(more or source, docs)
    yield "sigma", lambda: figure_rows.sigma_row(sources, docs)
    yield "terms", lambda: figure_rows.second_terms_row(source)
    yield "jia", lambda: figure_rows.jia_row(source, (MAIN, SMALL), ("paper", "joint", METHODS[0]))
    if clean is not None and clean.draws == source.draws:
        yield "training", lambda: figure_rows.training_row(source, clean, docs)
    yield "statistics", lambda: statistics_block(source, (MAIN, SMALL), docs)
    if older is not None and full_data is not None and smaller is not None:
        yield "waterfall", lambda: waterfall_block(Networks(older, full_data, smaller, evidence.main, pairs), docs)
    yield "distance", lambda: distance_block(source, more, clean, sorted(attacks), (MAIN, STRICT))
    yield "labels", lambda: labels_block(source, docs)


def _from_the_end(folder: Path) -> None:
    """Make all parts, the last one first, for the radii that are kept alone."""
    with TemporaryDirectory() as scratch:
        for _, make in reversed(list(_parts(Evidence(folder), Path(scratch)))):
            make()


def _timed(name: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    start = time.perf_counter()
    made = make()
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return made


def _headline(source: Source) -> str:
    """The table of README: certified recall of every method on the same votes."""
    names = {
        "coupled": "**coupled** (ours, the default)",
        "joint": "joint (ours, in closed form)",
        "paper": "paper (MultiGuard's Theorem 1, corrected)",
        "independent": "independent (without its joint terms)",
        "jia": "jia (each label on its own)",
    }
    return scores_table("method", [(words, source.scores(MAIN, method)) for method, words in names.items()])


def _made() -> str:
    """The command, the commit and the time that the generated parts took."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    took = f"certifying took {sum(SPENT.values()):,.0f} s of processor time on one core of a CPU"
    return f"Made by `python -m benchmarks.results evidence` at commit {found.stdout.strip()}; {took}."


def write(page: Path, made: Mapping[str, str]) -> None:
    """Fill the blocks that the page has of these, and say which."""
    text = page.read_text(encoding="utf-8")
    own = {name: block for name, block in made.items() if name in blocks.names(text)}
    page.write_text(blocks.filled(text, own), encoding="utf-8")
    print(f"{page}: {', '.join(own) or 'nothing'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", help="the folder of votes folders")
    parser.add_argument("--two", action="store_true", help="a second process, which starts at the end")
    parser.add_argument(
        "--comparison", type=Path, metavar="EVIDENCE", help="the comparison that decides on the default method"
    )
    parser.add_argument("--digits", type=Path, metavar="RUN", help="the run folder of recipe digits-figures")
    parser.add_argument("--digits-commit", help="of the code that made the run on digits")
    parser.add_argument("--small-cases", action="store_true", help="the exact limit, and wrong claims in closed form")
    parser.add_argument("--cases", type=int, default=10, help="random cases of each kind for the exact limit")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder of results.md")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
