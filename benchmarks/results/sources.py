"""The votes that the page is made of, and what each method proves of them; radii are kept, since some take minutes."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import multiguard.certify
from multiguard.certify import Gaussian, Method, Radii, Rule, TopK, certified_radii_batch
from multiguard.certify.arguments import Floats
from multiguard.evaluate import Scores, set_scores
from multiguard.io.rounding import plain
from multiguard.votes import Votes, read_votes

ALPHA = 0.001
MAIN = TopK(k=10, k_prime=3)  # the paper's config for MS-COCO
GRID: Floats = np.arange(121) / 40


@dataclass(frozen=True, eq=False)
class Source:
    """The votes on images that have labels.

    Attributes:
        name: What the page calls them.
        votes: For each image its votes, as `certified_radii` takes them.
        labels: For each image its true labels.
        num_labels: How many labels there are.
        sigma: The standard deviation of the noise.
        digest: The checksum of the votes.
        kept: Where radii are kept.
        run: The votes folder; None for arrays.
        seconds: The processor time of each (rule, method, draws, alpha) that was certified.
    """

    name: str
    votes: Sequence[NDArray[Any]]
    labels: Sequence[list[int]]
    num_labels: int
    sigma: float
    digest: str
    kept: Path
    run: Votes | None = None
    seconds: dict[tuple[Rule, Method, int, float], float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def draws(self) -> int:
        """The draws of each image; of adaptive votes the most."""
        return max(map(len, self.votes))

    @property
    def ranks(self) -> int:
        """How many labels of each draw are known, the largest k'."""
        return int(self.votes[0].shape[1])

    @property
    def label_names(self) -> Sequence[str]:
        """The names of the labels; numbers for arrays."""
        return [str(i) for i in range(self.num_labels)] if self.run is None else self.run.provenance.label_names

    def radii(self, rule: Rule, method: Method, draws: int | None = None, alpha: float = ALPHA) -> list[Radii]:
        """For each image what the method proves, from its first `draws` draws."""
        n = self.draws if draws is None else draws
        options: dict[str, Any] = {"num_labels": self.num_labels, "sigma": self.sigma, "alpha": alpha, "method": method}

        def solve() -> list[Floats]:
            found = certified_radii_batch((each[:n] for each in self.votes), self.labels, rule, **options)
            return [each.row for each in found]

        path = self.path("radii", repr(rule), method, str(n), plain(alpha))
        rows, self.seconds[rule, method, n, alpha] = kept_rows(path, solve)
        sizes = [min(len(true), rule.k) if isinstance(rule, TopK) else len(true) for true in self.labels]
        ends = zip(rows, sizes, strict=True)
        return [Radii(row[:size], None if isinstance(rule, TopK) else row[size:]) for row, size in ends]

    def scores(
        self,
        rule: Rule,
        method: Method,
        draws: int | None = None,
        alpha: float = ALPHA,
        radius: Floats | Sequence[float] = GRID,
    ) -> Scores:
        """Certified precision, recall and F1, as means over the images."""
        return self.average(self.radii(rule, method, draws, alpha), rule, radius)

    def average(self, radii: Sequence[Radii], rule: Rule, radius: Floats | Sequence[float] = GRID) -> Scores:
        """The scores of these radii of all images."""
        return set_scores(radii, rule, num_true=[len(true) for true in self.labels], radius=radius)

    def positions(self, ids: Iterable[str]) -> list[int]:
        """Where the images with these ids are."""
        assert self.run is not None
        known = {image_id: place for place, image_id in enumerate(self.run.ids)}
        return [known[image_id] for image_id in ids]

    def subset(self, positions: Sequence[int]) -> "Source":
        """The votes on some of the images."""
        votes, labels = [self.votes[i] for i in positions], [self.labels[i] for i in positions]
        run = self.run and self.run.subset({self.run.ids[i] for i in positions})
        return replace(self, votes=votes, labels=labels, digest=_digest(votes, labels), run=run, seconds={})

    def shortened(self, draws: Sequence[int]) -> "Source":
        """The first draws of each image, so many of each."""
        votes = [each[:n] for each, n in zip(self.votes, draws, strict=True)]
        return replace(self, votes=votes, digest=_digest(votes, self.labels), seconds={})

    def path(self, *words: str) -> Path:
        """Where something about these votes is kept, as long as the code that certifies stays the same."""
        known = (*words, plain(self.sigma), str(self.num_labels), self.digest, _code())
        key = hashlib.sha256("/".join(known).encode()).hexdigest()[:20]
        return self.kept / f"{key}.npz"


def open_votes(folder: Path, name: str, kept: Path) -> Source:
    """The votes of a folder; images without labels are left out."""
    run = read_votes(folder)
    positions = [i for i, true in enumerate(run.labels) if true]
    rows = [run.row(i, adaptive=run.adaptive) for i in positions]
    votes = [row.ranked if run.rule == "top-k" else row.hits for row in rows]
    labels = [list(run.labels[i]) for i in positions]
    names, noise = run.provenance.label_names, run.provenance.noise
    assert isinstance(noise, Gaussian)
    return Source(
        name,
        votes,
        labels,
        len(names),
        noise.sigma,
        _digest(votes, labels),
        kept,
        run.subset({row.image_id for row in rows}),
    )


def hits_of(source: Source, image: int, k_prime: int) -> NDArray[np.bool_]:
    """(draws, labels) which labels each draw of an image hits."""
    ranked = source.votes[image][:, :k_prime].astype(np.int64)
    hits = np.zeros((len(ranked), source.num_labels), dtype=np.bool_)
    np.put_along_axis(hits, ranked, True, axis=1)
    return hits


def _digest(votes: Sequence[NDArray[Any]], labels: Sequence[list[int]]) -> str:
    """The checksum of votes, whatever file they come from."""
    found = hashlib.sha256(repr([(each.shape, true) for each, true in zip(votes, labels, strict=True)]).encode())
    for each in votes:
        found.update(np.ascontiguousarray(each, dtype=np.uint8).tobytes())
    return found.hexdigest()


@cache
def _code() -> str:
    """The checksum of the code that certifies."""
    folder = Path(multiguard.certify.__file__).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()


def kept_rows(path: Path, solve: Callable[[], Sequence[Floats]]) -> tuple[list[Floats], float]:
    """A row of numbers for each image and the processor time they took, now or when they were first needed."""
    if not path.is_file():
        start = time.process_time()
        rows, seconds = solve(), time.process_time() - start
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{os.getpid()}.npz")  # another process may have the same idea
        np.savez(scratch, values=np.concatenate(rows), lengths=[len(row) for row in rows], seconds=seconds)
        scratch.replace(path)
    with np.load(path) as stored:
        return np.split(stored["values"], np.cumsum(stored["lengths"])[:-1]), float(stored["seconds"])
