"""Fills the generated parts of docs/results.md and README.md, and draws their figures.

python -m benchmarks.results --coco runs/coco-subset --digits runs/digits-figures --small-cases

What is not named stays as it is. Of a run folder its votes, recipe.yaml, run.json and model/model.json are read; it is
certified here where it has not been.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from benchmarks.results import blocks
from benchmarks.results.corrections import statistics_block, wrong_claims_block
from benchmarks.results.facts import classifiers, costs, facts, named, seed_lines
from benchmarks.results.limits import limit_block
from benchmarks.results.parts import adaptive_block, difference, headline, second_terms, study_blocks
from benchmarks.results.runs import Run, open_run
from multiguard.certify import TopK

_OTHER = TopK(k=3, k_prime=1)  # of the paper for its smaller dataset


def main() -> None:
    """Reads the arguments, makes the blocks and writes the pages."""
    options = _arguments()
    made: dict[str, str] = {}
    if options.coco is not None:
        made |= coco_blocks(open_run(options.coco), options.out, options.commit)
    if options.digits is not None:
        made |= digits_blocks(open_run(options.digits), options.out, options.digits_commit or options.commit)
    if options.classifier:
        found = _grouped(options.classifier)
        made |= classifiers(found)
        if "headline" in made:
            made["headline"] += seed_lines(found)
    if options.small_cases:
        made |= wrong_claims_block() | limit_block(options.cases)
    for page in (options.out / "results.md", options.readme):
        write(page, made)


def coco_blocks(run: Run, docs: Path, commit: str | None) -> dict[str, str]:
    """All that the run on MS-COCO shows."""
    other = run.study_with(_OTHER)
    return {
        **facts(run, "coco", commit),
        **study_blocks(run.study, "coco", docs),
        **study_blocks(other, "coco-1-3", docs),
        **second_terms(run.study, "coco"),
        **statistics_block(run, [run.rule, _OTHER], docs),
        **difference([run.study, other], docs),
        **adaptive_block(run, docs),
        **costs(run, "coco"),
        **headline(run.study),
    }


def digits_blocks(run: Run, docs: Path, commit: str | None) -> dict[str, str]:
    """All that the run on the embedded digits shows."""
    return {**facts(run, "digits", commit), **study_blocks(run.study, "digits", docs), **costs(run, "digits")}


def write(page: Path, made: Mapping[str, str]) -> None:
    """Fill the blocks that the page has of these, and say which."""
    text = page.read_text(encoding="utf-8")
    own = {name: block for name, block in made.items() if name in blocks.names(text)}
    page.write_text(blocks.filled(text, own), encoding="utf-8")
    print(f"{page}: {', '.join(own) or 'nothing'}")


def _grouped(given: list[str]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for name, folder in map(named, given):
        found.setdefault(name, []).append(open_run(Path(folder)))
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coco", type=Path, metavar="RUN", help="the run folder of recipe coco-subset")
    parser.add_argument("--digits", type=Path, metavar="RUN", help="the run folder of recipe digits-figures")
    parser.add_argument(
        "--classifier", action="append", default=[], metavar="NAME=RUN", help="again for more; a name's runs are seeds"
    )
    parser.add_argument("--small-cases", action="store_true", help="the exact limit, and wrong claims in closed form")
    parser.add_argument("--cases", type=int, default=10, help="random cases of each kind for the exact limit")
    parser.add_argument("--commit", help="of the code that made the run on MS-COCO")
    parser.add_argument("--digits-commit", help="of the code that made the run on digits, where it is another")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder of results.md")
    parser.add_argument("--readme", type=Path, default=Path("README.md"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
