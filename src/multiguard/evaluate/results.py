"""The results of a run: certified scores at any radius, a plot, a table, a page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method, certified_size
from multiguard.certify.arguments import Floats
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.curves import Curve, method_curve
from multiguard.evaluate.scores import Averaging
from multiguard.io.config import from_tree
from multiguard.io.records import decode_json, encode_json
from multiguard.io.rounding import percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from multiguard.data import Dataset
    from multiguard.votes import Provenance

Score = Literal["precision", "recall", "f1"]
_SHOWN_RADII = 5  # in a repr


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """What is proved of a set of images, each claim with probability at least 1 - alpha over the noise of its image.

    Scores are lower bounds: no perturbation up to the radius takes an image's own score below its part. What a radius
    measures depends on the noise: an l2-norm, an l1-norm, a number of pixels, or the side of a patch. Every number is
    computed from `certificates`, at exactly the radius requested, and is never rounded up.

    `Smoother.certify` and `certify_votes` return this, and `read_certificates` reads it back.

    >>> from multiguard import Smoother, TopK
    >>> smoother = Smoother(lambda rows: rows.clone(), sigma=0.5, labels=["cat", "dog"], device="cpu")
    >>> data = np.array([[3.0, 0.0], [0.0, 0.1]]), [["cat"], ["dog"]]
    >>> results = smoother.certify(data, TopK(1, k_prime=1), draws=1000, noise_seed=0)
    >>> results
    Results: 2 inputs, k′ = 1, k = 1, n = 1000, α = 0.001, σ = 0.5, method coupled.
      R = 0      recall 50.0%, precision 50.0%, F1 50.0%
      R = 0.375  recall 50.0%, precision 50.0%, F1 50.0%
      R = 0.75   recall 50.0%, precision 50.0%, F1 50.0%
      R = 1.125  recall 50.0%, precision 50.0%, F1 50.0%
      R = 1.5    recall 0.0%, precision 0.0%, F1 0.0%
    >>> results.recall(0.5), results.curve([0.0, 0.5, 1.5]).scores.recall
    (0.5, array([0.5, 0.5, 0. ]))
    """

    certificates: Certificates  # the claims on each image
    curves: list[Curve]  # as they were computed, sweeps included
    provenance: Mapping[str, Any]  # of the votes: the fields of their `Provenance` but for the image ids, as JSON
    votes_hash: str  # the sha256 of the votes' manifest
    certified_with: str  # the version of multiguard
    source: Mapping[str, Any]  # which images and which model, for people and for the report; empty where unknown
    command: str | None  # the command that made the folder; None where it is not known
    certificates_hash: str  # the sha256 of certificates.parquet; of results in memory, of all that decides them
    images: Dataset | None = None  # the images, if they are at hand, for the thumbnails of `report`

    def recall(
        self, radius: ArrayLike, *, method: Method | None = None, averaging: Averaging = "mean"
    ) -> float | Floats:
        """Certified recall: the least fraction of the true labels returned, under any perturbation up to the radius.

        Args:
            radius: In the unit of the noise's attacker; a number, or a list of them.
            method: The method that proved it; by default the first of `certificates.methods`.
            averaging: "mean" over images of their own scores, or "pooled" over all labels.
        """
        return self._score("recall", radius, method, averaging)

    def precision(
        self, radius: ArrayLike, *, method: Method | None = None, averaging: Averaging = "mean"
    ) -> float | Floats:
        """Certified precision: the least fraction of the returned labels that are true; arguments as in `recall`."""
        return self._score("precision", radius, method, averaging)

    def f1(self, radius: ArrayLike, *, method: Method | None = None, averaging: Averaging = "mean") -> float | Floats:
        """Certified F1: a lower bound of the harmonic mean of the two; arguments as in `recall`."""
        return self._score("f1", radius, method, averaging)

    def curve(
        self, radius: ArrayLike | None = None, *, method: Method | None = None, averaging: Averaging = "mean"
    ) -> Curve:
        """The certified scores at exactly these radii, by default at the radii of the stored curves; as in `recall`."""
        requested = self.curves[0].scores.radius if radius is None else radius
        return method_curve(self.certificates, self._method(method), requested, averaging)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        score: Score = "recall",
        methods: Sequence[Method] | None = None,
        averaging: Averaging = "mean",
        **style: Any,
    ) -> Axes:
        """Draw a certified score against the radius, a step wherever it falls; returns the axes.

        Args:
            ax: The axes to draw on; by default of a new figure.
            score: "recall", "precision" or "f1".
            methods: One line each; by default all methods of the certificates.
            averaging: As in `recall`.
            style: What matplotlib's `Axes.step` takes, such as color or label.
        """
        from multiguard.report.figures import draw_scores

        chosen = [self._method(method) for method in methods or self.certificates.methods]
        return draw_scores(self, ax, score, chosen, averaging, style)

    def to_frame(self, radius: float | None = None, *, method: Method | None = None) -> DataFrame:
        """One row per image, as a pandas DataFrame indexed by image id; pandas must be installed.

        The columns are `labels` and `predicted` (names), `draws`, `radii` (up to which radius at least 1, 2, ... labels
        stay) and `label_radii` (that of each label alone); with a radius also `certified`, how many labels stay up to
        it, and `recall`, their fraction (NaN for an image without labels).
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise InvalidInputError("to_frame needs pandas, which is not installed: pip install pandas.") from error
        proved, radii = self.certificates, self.certificates.radii[self._method(method)]
        columns: dict[str, Any] = {
            "labels": [self._names(labels) for labels in proved.labels],
            "predicted": [self._names(labels) for labels in proved.predicted],
            "draws": list(proved.draws),
            "radii": [each.tolist() for each in radii],
            "label_radii": [each.tolist() for each in proved.label_radii],
        }
        if radius is not None:
            sizes = [int(certified_size(each, radius)) for each in radii]
            columns["certified"] = sizes
            counts = [len(labels) for labels in proved.labels]
            columns["recall"] = [size / d if d else np.nan for size, d in zip(sizes, counts, strict=True)]
        return pd.DataFrame(columns, index=pd.Index([*proved.ids], name="id"))

    def report(self, path: str | Path, *, title: str | None = None, gallery: int | None = None) -> Path:
        """Write the page, one HTML file that opens offline; returns its path. A page that is there is replaced.

        Args:
            path: The file, such as report.html.
            title: The heading of the page.
            gallery: How many images it lists, weakest first; by default all, or a sample of more than 1,000.
        """
        from multiguard.report import Study, write_page
        from multiguard.report.words import run_title

        study = Study(self, title=title or run_title(self))
        write_page(study, Path(path), images=self._open_images(), gallery=gallery)
        return Path(path)

    def _open_images(self) -> Dataset | None:
        """The images at hand, or those that the source names, if they can be opened."""
        from multiguard.data import DataConfig

        if self.images is None and "data" in self.source:
            with suppress(DataError, InvalidInputError):
                data = from_tree(DataConfig, self.source["data"], "data")
                return data.open(label_names=self.certificates.label_names)
        return self.images

    def __repr__(self) -> str:
        head, names, rows = self._summary()
        line = "  R = {:<6} " + ", ".join(f"{name} {{}}" for name in names)
        return "\n".join([f"Results: {head}", *(line.format(*row) for row in rows)])

    def _repr_html_(self) -> str:
        head, scores, rows = self._summary()
        names = "".join(f"<th>{name}</th>" for name in ("R", *(f"certified {score}" for score in scores)))
        cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        table = f"<table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>"
        return f"<p><b>Results</b>: {html.escape(head)}</p>{table}"

    def _summary(self) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
        """What was certified, in one line, the names of the scores, and at a few radii R and the scores.

        Without ground truth the only score is the fraction of the predicted labels that stay.
        """
        from multiguard.report.words import config_words, failure_words

        head = f"{len(self.certificates.ids)} inputs, {', '.join(config_words(self).values())}"
        failed = failure_words(self).replace(" images ", " inputs ")  # rows of a table are no images
        head += f", method {self._method(None)}. {failed}".rstrip()
        if not any(self.certificates.labels):
            return f"{head} No input has a label, so there is nothing to average.", (), []
        grid = self.curves[0].scores.radius
        shown = self.curve(grid[np.unique(np.linspace(0, len(grid) - 1, _SHOWN_RADII).round().astype(int))]).scores
        names: tuple[str, ...] = ("recall", "precision", "F1")
        columns = [shown.recall, shown.precision, shown.f1]
        if not self.certificates.labelled:
            names, columns = ("fraction of predicted labels",), [shown.recall]
        return (
            head,
            names,
            [(plain(row[0]), *map(percent, row[1:])) for row in zip(shown.radius, *columns, strict=True)],
        )

    def _score(self, score: Score, radius: ArrayLike, method: Method | None, averaging: Averaging) -> float | Floats:
        values: Floats = getattr(self.curve(radius, method=method, averaging=averaging).scores, score)
        return float(values[0]) if np.ndim(radius) == 0 else values

    def _method(self, method: Method | None) -> Method:
        known = self.certificates.methods
        if method is None:
            return known[0]
        if method not in known:
            raise InvalidInputError(
                f"method is {method!r}, but these certificates were proved with {', '.join(known)}."
            )
        return method

    def _names(self, labels: Sequence[int]) -> list[str]:
        return [self.certificates.label_names[label] for label in labels]


def plain_provenance(run: Provenance) -> dict[str, Any]:
    """The provenance of votes as JSON values, as a file holds it, without the image ids."""
    known = {name: value for name, value in vars(run).items() if name != "image_ids"}
    return decode_json(encode_json(known), dict[str, Any])
