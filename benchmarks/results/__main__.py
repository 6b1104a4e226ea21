"""Fills the generated parts of docs/results.md, reproduction.md, measurements.md and README.md, with figures and files.

python -m benchmarks.results EVIDENCE --small-cases --digits runs/digits-figures

EVIDENCE is a folder of votes folders, which `python -m benchmarks.evidence` draws:
  sigma-0.5/votes            of the network `coco`; the first 1,000 draws are used, all where more draws are compared
  sigma-*/votes              of the same network at other noises
  sigma-0.5/votes-adaptive   adaptive draws of all images
  sigma-0.5/attack*          what `multiguard attack` wrote, at R = 0.5 and R = 1, k' = k = 3
  noise/votes, clean/votes   networks that were trained alike, with noise and without, under noise 0.5
  sampler.txt                what `python -m benchmarks.sampler_gpu` printed
A part whose votes are missing keeps its text and its commit. The reproduction matrix is made of the files in
docs/results whenever the command runs, also without arguments. Radii are kept in EVIDENCE/kept, so the command may be
run again as votes come in.
"""

import argparse
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from benchmarks.results import blocks, figure_rows
from benchmarks.results.ceiling import ceiling_block
from benchmarks.results.digits_run import digits_blocks
from benchmarks.results.distance import distance_block, limit_block
from benchmarks.results.main_table import METHODS, SMALL, STRICT, draws_block, methods_block, noises_block
from benchmarks.results.markdown_tables import RADIUS_HEADS, cells, markdown
from benchmarks.results.reproduction import reproduction_blocks
from benchmarks.results.sources import MAIN, Source, open_votes
from benchmarks.results.statistics import statistics_block, wrong_claims_block
from benchmarks.results.votes_facts import certify_cost_block, speed_block, votes_block

_MAIN, _DRAWS = "sigma-0.5/votes", 1000
Make = Callable[[], dict[str, str]]


def main() -> None:
    """Reads the arguments, makes the blocks and writes the pages."""
    options = _arguments()
    made, commit, evidence = dict[str, str](), _commit(), options.evidence and Evidence(options.evidence)
    if evidence is not None:
        made |= coco_blocks(evidence, options.out)
    if options.digits is not None:
        made |= digits_blocks(options.digits, options.out, options.digits_commit)
    if options.small_cases:
        made |= wrong_claims_block(options.out) | limit_block(options.cases, options.out)
    pages = [options.out / name for name in ("results.md", "reproduction.md", "measurements.md")]
    for page in (*pages, options.readme):
        write(page, made, commit)
    if evidence is not None:
        every = "\n".join(page.read_text(encoding="utf-8") for page in pages)
        own = votes_block(list(evidence.found.values()), commit, blocks.commits(every), options.out)
        pages[0].write_text(blocks.filled(pages[0].read_text(encoding="utf-8"), own), encoding="utf-8")
    text = blocks.filled(pages[1].read_text(encoding="utf-8"), reproduction_blocks(options.out))
    pages[1].write_text(text, encoding="utf-8")


class Evidence:
    """The votes of a folder, those that are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, Source] = {}

    def get(self, name: str) -> Source | None:
        """The votes of this name; None where there are none."""
        return self.open(name) if (self.folder / name).is_dir() else None

    def open(self, name: str) -> Source:
        """The votes of this name; `found` knows all that were opened."""
        if name not in self.found:
            self.found[name] = open_votes(self.folder / name, name, self.folder / "kept")
        return self.found[name]

    @cached_property
    def noises(self) -> list[Source]:
        """The first 1,000 draws at each noise; none without the main one."""
        names = [f"{path.parent.name}/votes" for path in self.folder.glob("sigma-*/votes")]
        found = [_shortened(self.open(name), _DRAWS) for name in names] if _MAIN in names else []
        return sorted(found, key=lambda one: one.sigma)


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
    noisy, clean = evidence.get("noise/votes"), evidence.get("clean/votes")
    if noisy is not None and clean is not None:
        yield "training", lambda: figure_rows.training_row(noisy, clean, docs)
    if not evidence.noises:
        return
    sources, more = evidence.noises, evidence.open(_MAIN)
    source = next(one for one in sources if one.name == _MAIN)
    yield "noises", lambda: noises_block(sources)
    yield "methods", lambda: methods_block(sources, (MAIN, STRICT, SMALL), docs)
    yield "headline", lambda: {"headline": _headline(source)}
    for row in (figure_rows.k_prime_row, figure_rows.k_row, figure_rows.alpha_row):
        yield row.__name__, lambda row=row: row(source, docs)
    yield "sigma", lambda: figure_rows.sigma_row(sources, docs)
    yield "jia", lambda: figure_rows.jia_row(source, (MAIN, SMALL), ("paper", "joint", METHODS[0]), docs)
    yield "n", lambda: figure_rows.n_row(more, docs)
    yield "statistics", lambda: statistics_block(source, (MAIN, SMALL), docs)
    yield "ceiling", lambda: ceiling_block(source, (MAIN, STRICT))
    yield "certify-cost", lambda: certify_cost_block(source, (*METHODS, "betting"))
    if more.draws > source.draws:
        attacks = sorted(evidence.folder.glob("sigma-0.5/attack*"))
        yield "draws", lambda: draws_block(source, more, evidence.get("sigma-0.5/votes-adaptive"))
        yield "distance", lambda: distance_block(source, more, clean, attacks, (MAIN, STRICT), docs)


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
    rows = [[words, *cells(source.scores(MAIN, method), "recall")[:7]] for method, words in names.items()]
    return markdown(["method", *RADIUS_HEADS[:7]], rows)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def write(page: Path, made: Mapping[str, str], commit: str) -> None:
    """Fill the blocks that the page has of these, and say which, and which stay as they are."""
    text = page.read_text(encoding="utf-8")
    known = blocks.names(text)
    own = {name: block for name, block in made.items() if name in known}
    page.write_text(blocks.filled(text, own, commit), encoding="utf-8")
    left = [name for name in known if name not in own and name != "votes"]
    print(f"{page}: made {', '.join(own) or 'nothing'}; left as it was: {', '.join(left) or 'nothing'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", help="the folder of votes folders")
    parser.add_argument("--digits", type=Path, metavar="RUN", help="the run folder of recipe digits-figures")
    parser.add_argument("--digits-commit", help="of the code that made the run on digits")
    parser.add_argument("--small-cases", action="store_true", help="the exact limit, and wrong claims in closed form")
    parser.add_argument("--cases", type=int, default=10, help="random cases of each kind for the exact limit")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder of results.md")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
