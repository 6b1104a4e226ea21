"""From certificates of several runs to one table and one page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.io.outputs import Outputs
from multiguard.pipeline.folders import check_content
from multiguard.pipeline.report_job import certificates_hash, find_certificates
from multiguard.report.config import CompareConfig
from multiguard.report.leaderboard import CSV_NAME, JSON_NAME, Leaderboard, compare_runs, write_records
from multiguard.report.leaderboard_page import write_comparison
from multiguard.results import Results
from multiguard.version import __version__

PAGE_NAME = "comparison.html"


@dataclass(frozen=True)
class CompareJob:
    """Which runs to compare, and where the comparison goes.

    >>> CompareJob(("before=runs/one", "runs/two")).folders
    {'before': PosixPath('runs/one'), 'two': PosixPath('runs/two')}
    """

    runs: Sequence[str]  # run folders or certificates folders, or NAME=FOLDER
    part: CompareConfig = field(default_factory=CompareConfig)
    out: Path | None = None  # the folder for the page and the table; None to write nothing
    force: bool = False  # whether to replace a comparison that is there

    @property
    def folders(self) -> dict[str, Path]:
        """Each folder by its name: the one given, or that of the folder, or its path where two would be alike."""
        pairs = [_named(text) for text in self.runs]
        counts = Counter(name or _short(folder) for name, folder in pairs)
        found: dict[str, Path] = {}
        for name, folder in pairs:
            chosen = name or (_short(folder) if counts[_short(folder)] == 1 else folder.as_posix())
            if chosen in found:
                raise InvalidInputError(f"two runs are named {chosen}; give each a name of its own, NAME=FOLDER")
            found[chosen] = folder
        return found


def compare(job: CompareJob) -> Leaderboard:
    """Compare the runs, and write the page and the table if the job has a folder for them.

    Another comparison is replaced only with `force`; the same job again finds its work done.
    """
    found = {name: find_certificates(folder) for name, folder in job.folders.items()}
    runs = {name: each.read(each.main) for name, each in found.items()}
    part = job.part
    methods = None if not part.methods else _methods(part.methods, runs)
    options: dict[str, Any] = {name: getattr(part, name) for name in ("baseline", "level", "title")}
    board = compare_runs(runs, methods=methods, radius=part.radii or None, **options)
    if job.out is not None:
        _write(job, job.out, runs, board)
    return board


def _write(job: CompareJob, out: Path, runs: dict[str, Results], board: Leaderboard) -> None:
    check_content(out, "a comparison")
    request = {
        "compare": {name: getattr(job.part, name) for name in ("methods", "baseline", "radii", "level", "title")},
        "certificates": {name: certificates_hash(run) for name, run in runs.items()},
        "multiguard": __version__,
    }
    names = (CSV_NAME, JSON_NAME)
    with Outputs(out / PAGE_NAME, "a comparison", request, names=names, force=job.force) as outputs:
        if outputs.finished and not job.force:
            return
        stage = outputs.stage(out)
        write_comparison(board, stage / PAGE_NAME)
        write_records(board, stage)
        outputs.publish()


def _methods(wanted: Sequence[Method], runs: dict[str, Results]) -> list[Method]:
    known = [method for run in runs.values() for method in run.certificates.methods]
    return list(dict.fromkeys(known if "all" in wanted else wanted))


def _named(text: str) -> tuple[str, Path]:
    name, sign, folder = text.partition("=")
    if sign and (not name or not folder):
        raise InvalidInputError(f"{text}: expected a folder, or NAME=FOLDER")
    return (name, Path(folder)) if sign and not Path(text).exists() else ("", Path(text))


def _short(folder: Path) -> str:
    """The name of the folder, or of the one that it is in where it is just called certificates."""
    named = folder.resolve()
    return named.parent.name if named.name == "certificates" else named.name
