"""Studies made as the pipeline makes them: votes on disk, certified, written and read back."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.evaluate.votes_cases import stored_votes

from multiguard.data import Sample
from multiguard.evaluate import (
    CertificatesFolder,
    Setting,
    certify_votes,
    curves,
    radius_grid,
    read_certificates,
    sweep,
    write_certificates,
)
from multiguard.report import Study

LABELS = 20
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


def make_run(
    folder: Path,
    *,
    images: int = 12,
    sigma: float = 0.5,
    spread: float = 3.0,
    trained: float | None = 0.5,
    methods: Sequence[str] = ("joint",),
    swept: bool = False,
    bands: float | None = None,
    step: float | None = None,
    setting: Setting | None = None,
    draws: int = 100,
    **changes,
) -> CertificatesFolder:
    """A certificates folder of random votes; every fifth picture has no label, the true ones do not depend on sigma."""
    rng = np.random.default_rng(0)
    true = [rng.permutation(LABELS)[: i % 5].tolist() for i in range(images)]
    ranked = [_ranked(rng, picture, draws, spread) for picture in true]
    votes = stored_votes(folder / "votes", ranked, true, sigma=sigma, labels=LABELS, trained_sigma=trained, **changes)
    asked = setting or Setting(k=5, k_prime=2)
    grid = radius_grid(sigma, step=step or sigma / 10)
    certificates = certify_votes(votes, asked, methods=methods)
    made = curves(certificates, grid, bands=bands, resamples=50)
    if swept:
        made += sweep(votes, asked, SWEPT, grid, methods=methods)
    write_certificates(
        folder / "certificates", certificates, made, radius=grid, votes=votes, command="multiguard certify"
    )
    return read_certificates(folder / "certificates")


def _ranked(rng: np.random.Generator, true: Sequence[int], draws: int, spread: float) -> np.ndarray:
    """(draws, 5) ranked votes in which true labels are likely, the more so the larger the spread."""
    scores = rng.standard_normal(LABELS) + rng.standard_normal((draws, LABELS))
    scores[:, list(true)] += spread * rng.random(len(true))
    return np.argsort(-scores, axis=1)[:, :5]


def full_study(folder: Path, **changes) -> Study:
    """Every kind of family: four methods, four sweeps, another sigma, another training, and a run that is neither."""
    main = make_run(folder / "main", methods=("joint", "paper", "jia", "independent"), swept=True, **changes)
    beside = {
        "low noise": make_run(folder / "low", sigma=0.25, trained=0.25, **changes),
        "clean training": make_run(folder / "clean", trained=0.0, spread=1.0, **changes),
        "more labels": make_run(folder / "more", setting=Setting(k=8, k_prime=2), **changes),
    }
    return Study(main, beside, "A small study", ["multiguard vote", "multiguard certify"])


class NoisePictures:
    """Pictures of random pixels under the given ids."""

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
