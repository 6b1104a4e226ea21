"""Fills the generated parts of docs/results.md, reproduction.md, measurements.md and README.md, with figures and files.

python -m benchmarks.results EVIDENCE --comparison EVIDENCE --small-cases --digits runs/digits-figures

EVIDENCE is a folder of votes folders; `python -m benchmarks.evidence` draws all but the last:
  coco-0.25/votes, coco-0.5/votes, coco-1/votes   one network for each noise; the first 1,000 draws are used, all of
                                                  coco-0.5 where more draws are compared with fewer
  coco-*/votes-train                              of the same networks on training images, to choose k' on
  coco-0.5/votes-threshold*, -threshold*-train    the same with --rule threshold, one for each score threshold
  coco-0.5/votes-adaptive                         adaptive draws of all images
  coco-0.5/attack*                                what `multiguard attack` wrote, at R = 0.5 and R = 1, k' = k = 3
  smaller-0.5/votes                               the network of coco-1 without its pooling, on images of 224 pixels
  clean/votes                                     a network that was trained without noise, under noise 0.5
  sampler.txt                                     what `python -m benchmarks.sampler_gpu` printed
  full-data/votes                                 a network like older, from the full training set
  older/votes                                     a network from 3,000 images
Each may also be an .npz file with the arrays `votes` and `labels` (sigma 0.5). A part whose votes are missing keeps its
text and its commit; the main parts, which show the same votes, are made together or not at all, and need every noise.
The reproduction matrix is made of the files in docs/results whenever the command runs, also without arguments.
Radii are kept in EVIDENCE/kept, so the command may be run again as votes come in. The comparison needs older/votes and
coco-0.5/votes alone, and uses the first 2,000 draws of the latter: they show paper with twice the draws.
"""

import argparse
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from benchmarks.results import blocks, figure_rows
from benchmarks.results.comparison import comparison_block
from benchmarks.results.digits_run import digits_blocks
from benchmarks.results.distance import distance_block, limit_block
from benchmarks.results.main_table import (
    METHODS,
    SMALL,
    STRICT,
    labels_block,
    many_draws_block,
    methods_block,
    sizes_block,
    threshold_block,
    tuned_block,
)
from benchmarks.results.markdown_tables import markdown, scores_table
from benchmarks.results.reproduction import reproduction_blocks
from benchmarks.results.sources import MAIN, Pair, Source, open_arrays, open_votes
from benchmarks.results.statistics import statistics_block, wrong_claims_block
from benchmarks.results.tradeoff import draws_block, tradeoff_block
from benchmarks.results.votes_facts import certify_cost_block, speed_block, votes_block
from benchmarks.results.waterfall import Networks, waterfall_block

_MAIN = "coco-0.5/votes"
_NOISES = ("coco-0.25/votes", _MAIN, "coco-1/votes")
_OTHERS = ("older/votes", "full-data/votes", "smaller-0.5/votes")
_ARRAYS_SIGMA, _DRAWS, _RESAMPLED = 0.5, 1000, 20_000
_FEW = "from 3,000 images"  # the network of older/votes in the comparison
_ORIGIN = ("made", "votes")  # blocks that say where the others come from
Make = Callable[[], dict[str, str]]


def main() -> None:
    """Reads the arguments, makes the blocks and writes the pages."""
    options = _arguments()
    made, commit, evidence = dict[str, str](), _commit(), options.evidence and Evidence(options.evidence)
    if evidence is not None:
        made |= coco_blocks(evidence, options.out)
    if options.comparison is not None:
        made |= _timed("comparison", lambda: comparison_block(Evidence(options.comparison).compared(), options.out))
    if options.digits is not None:
        made |= digits_blocks(options.digits, options.out, options.digits_commit)
    if options.small_cases:
        made |= wrong_claims_block(options.out) | limit_block(options.cases, options.out)
    pages = [options.out / name for name in ("results.md", "reproduction.md", "measurements.md")]
    for page in (*pages, options.readme):
        write(page, made, commit)
    if evidence is not None:
        every = "\n".join(page.read_text(encoding="utf-8") for page in pages)
        own = origin_blocks(every, list(evidence.found.values()), commit, options.out)
        pages[0].write_text(blocks.filled(pages[0].read_text(encoding="utf-8"), own), encoding="utf-8")
    text = blocks.filled(pages[1].read_text(encoding="utf-8"), reproduction_blocks(options.out))
    pages[1].write_text(text, encoding="utf-8")


class Evidence:
    """The votes of a folder, those that are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, Source] = {}

    def has(self, *names: str) -> bool:
        """Whether all these votes are there."""
        return all((self.folder / name).is_dir() or self._arrays(name).is_file() for name in names)

    def get(self, name: str) -> Source | None:
        """The votes of this name; None where there are none."""
        return self.open(name) if self.has(name) else None

    def open(self, name: str) -> Source:
        """The votes of this name, which must be there; `found` knows all that were opened."""
        kept = self.folder / "kept"
        if name not in self.found and self._arrays(name).is_file():
            self.found[name] = open_arrays(self._arrays(name), name, _ARRAYS_SIGMA, kept)
        elif name not in self.found:
            self.found[name] = open_votes(self.folder / name, name, kept)
        return self.found[name]

    def _arrays(self, name: str) -> Path:
        return self.folder / f"{name}.npz"

    def first_draws(self, name: str) -> Source:
        """The first 1,000 draws of each image."""
        return _shortened(self.open(name), _DRAWS)

    @cached_property
    def noises(self) -> list[Pair]:
        """The first 1,000 draws of the network of each noise, with its votes on training images; all or none."""
        names = _NOISES if self.has(*_NOISES) else ()
        return [(self.first_draws(name), self.get(f"{name}-train")) for name in names]

    def thresholds(self) -> list[Pair]:
        """The votes of the threshold rule, each with those on training images."""
        names = [f"coco-0.5/{path.name}" for path in sorted(self.folder.glob("coco-0.5/votes-threshold*"))]
        return [
            (one, self.get(f"{name}-train")) for name in names if not name.endswith("-train") if (one := self.get(name))
        ]

    def compared(self) -> dict[str, Source]:
        """The votes of the comparison that decides on the default method.

        Of the network from 3,000 images the half of the images on which no bet was chosen, as voted on and with more
        draws, resampled from these votes; of coco-0.5 twice the draws of the page.
        """
        found: dict[str, Source] = {}
        if (older := self.get("older/votes")) is not None:
            found[_FEW] = older.subset(range(1, len(older), 2))
            found[f"{_FEW}, resampled"] = found[_FEW].resampled(_RESAMPLED)
        if (newest := self.get(_MAIN)) is not None:
            found["coco-0.5"] = _shortened(newest, 2 * _DRAWS)
        return found


def _shortened(source: Source, draws: int) -> Source:
    return source.shortened([draws] * len(source))


def coco_blocks(evidence: Evidence, docs: Path) -> dict[str, str]:
    """The parts on MS-COCO whose votes, or measured times, are there."""
    made: dict[str, str] = {}
    for name, make in _parts(evidence, docs):
        made |= _timed(name, make)
    if (evidence.folder / "sampler.txt").is_file():
        made |= speed_block(evidence.folder / "sampler.txt")
    if not made:
        raise SystemExit(f"{evidence.folder} has no votes that a part is made of; copy them from where they were drawn")
    return made


def _parts(evidence: Evidence, docs: Path) -> Iterator[tuple[str, Make]]:
    """Each part by its name, if all its votes are there."""
    if evidence.noises:
        yield from _main_parts(evidence, docs)
    if thresholds := evidence.thresholds():
        yield "threshold", lambda: threshold_block(thresholds, docs)
    if evidence.has(_MAIN):
        yield from _draws_parts(evidence, docs)


def _main_parts(evidence: Evidence, docs: Path) -> Iterator[tuple[str, Make]]:
    """The parts about the first draws of the network of every noise."""
    pairs = evidence.noises
    sources = [one for one, _ in pairs]
    now = pairs[_NOISES.index(_MAIN)]
    source, _ = now
    yield "methods", lambda: methods_block(sources, (MAIN, SMALL, STRICT), docs)
    yield "headline", lambda: {"headline": _headline(source)}
    yield "tuned", lambda: tuned_block(pairs, docs)
    for row in (figure_rows.k_prime_row, figure_rows.k_row, figure_rows.alpha_row):
        yield row.__name__, lambda row=row: row(source, docs)
    yield "sigma", lambda: figure_rows.sigma_row(sources, docs)
    yield "jia", lambda: figure_rows.jia_row(source, (MAIN, SMALL), ("paper", "joint", METHODS[0]), docs)
    if (clean := evidence.get("clean/votes")) is not None and clean.draws == source.draws:
        yield "training", lambda: figure_rows.training_row(source, clean, docs)
    yield "statistics", lambda: statistics_block(source, (MAIN, SMALL), docs)
    if evidence.has("smaller-0.5/votes"):
        yield "sizes", lambda: sizes_block(evidence.open("smaller-0.5/votes"), sources)
    if evidence.has(*_OTHERS):
        yield "waterfall", lambda: waterfall_block(Networks(*map(evidence.open, _OTHERS), now, pairs), docs)
    yield "labels", lambda: labels_block(source)
    yield "certify-cost", lambda: certify_cost_block(source)


def _draws_parts(evidence: Evidence, docs: Path) -> Iterator[tuple[str, Make]]:
    """The parts about all draws of the main network."""
    source, more, get = evidence.first_draws(_MAIN), evidence.open(_MAIN), evidence.get
    attacks = sorted(evidence.folder.glob("coco-0.5/attack*"))
    yield "draws", lambda: draws_block(source, more, get("coco-0.5/votes-adaptive"))
    if more.draws > source.draws:
        yield "many-draws", lambda: many_draws_block(more, (MAIN, SMALL, STRICT), docs)
    yield "tradeoff", lambda: tradeoff_block(more, docs)
    yield "n", lambda: figure_rows.n_row(more, docs)
    yield "distance", lambda: distance_block(source, more, get("clean/votes"), attacks, (MAIN, STRICT))


def _timed(name: str, make: Make) -> dict[str, str]:
    start = time.perf_counter()
    made = make()
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return made


def _headline(source: Source) -> str:
    """The table of README: certified recall of the methods on the same votes."""
    names = {
        "coupled": "**coupled** (ours, the default)",
        "joint": "joint (ours, in closed form)",
        "paper": "paper (MultiGuard's Theorem 1, corrected)",
        "jia": "jia (each label on its own)",
    }
    return scores_table("method", [(words, source.scores(MAIN, method)) for method, words in names.items()])


def origin_blocks(page: str, sources: Sequence[Source], commit: str, docs: Path) -> dict[str, str]:
    """The commits of all parts of the page, and the votes that they were made of.

    Args:
        page: The pages with all other blocks.
        sources: The votes of the parts that were made now.
        commit: Their commit.
        docs: The folder of the page.
    """
    parts = blocks.commits(page)
    table = markdown(["commit", "parts"], [[one, "; ".join(own)] for one, own in parts.items()], words=2)
    return {"made": table} | votes_block(sources, commit, parts, docs)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def write(page: Path, made: Mapping[str, str], commit: str) -> None:
    """Fill the blocks that the page has of these, and say which, and which stay as they are."""
    text = page.read_text(encoding="utf-8")
    known = blocks.names(text)
    own = {name: block for name, block in made.items() if name in known}
    page.write_text(blocks.filled(text, own, commit), encoding="utf-8")
    left = [name for name in known if name not in own and name not in _ORIGIN]
    print(f"{page}: made {', '.join(own) or 'nothing'}; left as it was: {', '.join(left) or 'nothing'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", help="the folder of votes folders")
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
