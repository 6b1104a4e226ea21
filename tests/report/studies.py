"""Studies built as the pipeline builds them: votes on disk, certified, written and read back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.evaluate.votes_cases import stored_rows
from tests.votes.vote_runs import provenance

from multiguard.certify import BandAblation, Gaussian, Noise
from multiguard.data import Sample
from multiguard.errors import ImageFailure
from multiguard.evaluate import CertifyConfig, Results, SweepConfig, certify_votes, read_certificates
from multiguard.report import Study
from multiguard.report.study import Family
from multiguard.votes import DrawVotes, LabelSets, Provenance, VoteRow
from multiguard.votes.types import vote_dtype

LABELS = 20
K_MAX = 5
HOSTILE_LABELS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script>",
    "{{ 7 * 7 }} & %{x} <b>bold</b>",
    '=HYPERLINK("http://evil")',
    "a|b_c*d`e\\f$g$ #100% ~{x}^2",
    *(f"label {i}" for i in range(6, LABELS)),
)
HOSTILE_IDS = ("<img src=x onerror=alert(3)>", "../../etc/passwd", "</script><script>alert(4)</script>", "a\nb")
SWEPT = {"k_prime": [1, 2, 3], "k": [3, 5, 8], "n": [50, 100], "alpha": [0.1, 0.001]}
THRESHOLD_SWEPT = {"threshold": [0.1, 0.3, 0.6], "n": [50, 100], "alpha": [0.1, 0.001]}
UNLABELLED_SWEPT = {"threshold": [0.3, 0.6], "alpha": [0.1, 0.001]}
THRESHOLD = {"rule": "threshold", "k_max": None, "score_threshold": 0.5}
UNLABELLED = {"labelled": False, "pilot_draws": 60}
ADAPTIVE = {"stops": (40, 70, 100), "stopping": {"radii": (0.25, 1.0), "alpha": 0.001, "k": None}}


def make_run(
    folder: Path,
    *,
    images: int = 12,
    sigma: float = 0.5,
    noise: Noise | None = None,
    spread: float = 3.0,
    trained: float | None = 0.5,
    methods: Sequence[str] = ("joint",),
    swept: bool | Mapping[str, Sequence[float]] = False,
    bands: float | None = None,
    step: float | None = None,
    config: CertifyConfig | None = None,
    draws: int = 100,
    failed: Mapping[int, str] | None = None,
    hashes: Mapping[int, str] | None = None,
    bare: bool = True,
    **changes,
) -> Results:
    """A certificates folder of random votes; every fifth image has no label, and true labels do not depend on sigma.

    The images at the indices `failed` fail for these reasons; those at the indices `hashes` have these hashes.
    Of `noise` other than Gaussian, the radii are those of its default grid.
    `changes` make it another kind of run: THRESHOLD, UNLABELLED, ADAPTIVE, or several of them.
    """
    rng = np.random.default_rng(0)
    own = Gaussian(sigma) if noise is None else noise
    taught = None if trained is None else f"gaussian:{trained}" if trained else "none"
    draws = own.columns if isinstance(own, BandAblation) else draws
    fields = {"images": images, "draws": draws, "k_max": K_MAX, "noise": own, "trained_noise": taught} | changes
    run = provenance(**{"labels": LABELS, **fields})
    true = [rng.permutation(LABELS)[: i % 5].tolist() for i in range(images)]
    rows: list[VoteRow | ImageFailure] = [_row(rng, run, index, labels, spread) for index, labels in enumerate(true)]
    rows = [row if bare else replace(row, bare=None) for row in rows]
    for index, sha256 in (hashes or {}).items():
        rows[index] = replace(rows[index], image_hash=sha256)
    for index, reason in (failed or {}).items():
        rows[index] = ImageFailure(run.image_ids[index], reason)
    votes = stored_rows(folder / "votes", run, rows)
    config = config or (CertifyConfig(threshold=0.3) if votes.rule == "threshold" else CertifyConfig(k=5, k_prime=2))
    step = step or (None if own.whole else sigma / 10)
    methods = methods if run.stops is None else ("betting",)
    methods = ("enumerated",) if isinstance(own, BandAblation) else methods
    config = config.replace(methods=tuple(methods), radius_step=step, bands=bands or 0)
    every = THRESHOLD_SWEPT if votes.rule == "threshold" else SWEPT
    vary = dict(every if swept is True else swept or {})
    if run.stops is not None:
        vary.pop("n", None)
    sweep = SweepConfig(**{name: tuple(values) for name, values in vary.items()})
    more = {"labels": "truth" if run.labelled else "pilot", "command": "multiguard certify", "force": True}
    certify_votes(config, votes, sweep=sweep, out=folder / "certificates", **more)
    return read_certificates(folder / "certificates")


def _row(rng: np.random.Generator, run: Provenance, index: int, true: Sequence[int], spread: float) -> VoteRow:
    """An image whose true labels are the likelier the larger the spread; adaptive runs stop at each stop in turn."""
    bare = rng.standard_normal(LABELS)
    scores = bare + rng.standard_normal((run.draws + run.pilot_draws, LABELS))
    raised = spread * rng.random(len(true))
    scores[:, list(true)] += raised
    bare[list(true)] += raised
    taken = run.stops[index % len(run.stops)] if run.stops else run.draws
    pilot = _votes(run, scores[run.draws :]) if run.pilot_draws else None
    labels = tuple(true) if run.labelled else ()
    return VoteRow(run.image_ids[index], labels, _votes(run, scores[:taken]), pilot, bare=_votes(run, bare[None]))


def _votes(run: Provenance, scores: np.ndarray) -> DrawVotes:
    if run.rule == "threshold":
        return LabelSets.from_hits(scores > 1)
    return np.argsort(-scores, axis=1)[:, : run.k_max].astype(vote_dtype(LABELS))


def full_study(folder: Path, **changes) -> Study:
    """Every kind of family: four methods, four sweeps, another sigma and another training."""
    main = make_run(folder / "main", methods=("joint", "paper", "jia", "independent"), swept=True, **changes)
    others = {
        "low noise": make_run(folder / "low", sigma=0.25, trained=0.25, **changes),
        "clean training": make_run(folder / "clean", trained=0.0, spread=1.0, **changes),
    }
    return Study(main, others, "A small study", ["multiguard vote", "multiguard certify"])


def threshold_study(folder: Path, **changes) -> Study:
    """The threshold rule with both methods and every sweep."""
    main = make_run(folder / "main", methods=("joint", "independent"), swept=True, **THRESHOLD, **changes)
    return Study(main, title="A study of sets", commands=["multiguard certify"])


def unlabelled_study(folder: Path, *, swept: bool = True, **changes) -> Study:
    """Predicted labels of the threshold rule in an adaptive run."""
    kind = {**UNLABELLED, **ADAPTIVE, **changes}
    vary = UNLABELLED_SWEPT if swept else {}
    main = make_run(folder / "main", methods=("joint", "independent"), swept=vary, **THRESHOLD, **kind)
    return Study(main, title="A study without truth")


def by_key(study: Study) -> dict[str, Family]:
    """The families of a study by what varies in them."""
    return {family.key: family for family in study.families}


def line_names(study: Study, key: str) -> list[str]:
    """The names of the lines of a family."""
    return [line.name for line in by_key(study)[key].lines]


def figure_text(figure) -> str:
    """All words of a figure outside its panels."""
    return "\n".join(text.get_text() for text in figure.texts)


def changed(run: Results, **columns) -> Results:
    """The run with other values in these columns of its certificates; of a column by method, a mapping."""
    table = run.certificates.table
    for name, values in columns.items():
        by_method = isinstance(values, Mapping)
        rows = (
            [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)] if by_method else values
        )
        column = pa.array([*rows], table.schema.field(name).type)
        table = table.set_column(table.column_names.index(name), name, column)
    return replace(run, certificates=replace(run.certificates, table=table))


class NoiseImages:
    """Images of random pixels under the given ids."""

    def __init__(self, ids: Sequence[str], side: int = 128) -> None:
        self.name = "noise"
        self.label_names: Sequence[str] = [f"label {i}" for i in range(LABELS)]
        self.ids: Sequence[str] = ids
        self.side = side

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int, /) -> Sample:
        rng = np.random.default_rng(index)
        return Sample(self.ids[index], rng.integers(0, 256, (3, self.side, self.side), dtype=np.uint8), ())
