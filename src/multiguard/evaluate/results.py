"""Results: certified scores at any radius, a plot, a table, a page; and certificates.parquet, with curves.csv.

The Parquet file alone holds everything: the table of the certificates, and in its metadata the config, the curves and
where all of it comes from. The CSV file is a copy for people; nothing reads it back.
"""

from __future__ import annotations

import csv
import html
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Method, certified_size
from multiguard.certify.arguments import Floats
from multiguard.certify.noise import Noise
from multiguard.certify.rules import check_method
from multiguard.errors import DataError, ImageFailure, InvalidInputError
from multiguard.evaluate.certificates import Certificates, certificates_schema, check_claims
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.curves import Curve, method_curve
from multiguard.evaluate.scores import IMAGES_AT_A_TIME, Averaging, check_radius
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import MOST_TABLE, file_checksum, open_parquet, read_hashed
from multiguard.io.records import convert, decode_checked, decode_json, encode_checked, encode_json
from multiguard.io.rounding import percent, plain
from multiguard.io.writer import staged

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from multiguard.data import Dataset
    from multiguard.votes import Provenance

T = TypeVar("T")
Score = Literal["precision", "recall", "f1"]
CERTIFICATES_NAME, CURVES_NAME, METADATA_KEY = "certificates.parquet", "curves.csv", b"multiguard"
_SHOWN_RADII = 5  # in a repr
_MOST_METADATA = 50_000_000  # bytes; Parquet readers refuse longer strings
_COLUMNS = (
    *("method", "k", "k_prime", "alpha", "n", "R", "averaging", "precision", "recall", "f1"),
    *("images", "without_labels", "failed", "noise", "attacker", "rule", "threshold", "mean_draws"),
    *("true_floor", "false_ceiling"),
)
_SCORES = ("precision", "recall", "f1")
_BAND_COLUMNS = (
    *(f"{score}_{end}" for score in _SCORES for end in ("low", "high")),
    *(f"{score}_{of}" for of in ("test_set", "population") for score in _SCORES),
)


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
        return _like(radius, self.curve(radius, method=method, averaging=averaging).scores.recall)

    def precision(
        self, radius: ArrayLike, *, method: Method | None = None, averaging: Averaging = "mean"
    ) -> float | Floats:
        """Certified precision: the least fraction of the returned labels that are true; arguments as in `recall`."""
        return _like(radius, self.curve(radius, method=method, averaging=averaging).scores.precision)

    def f1(self, radius: ArrayLike, *, method: Method | None = None, averaging: Averaging = "mean") -> float | Floats:
        """Certified F1: a lower bound of the harmonic mean of the two; arguments as in `recall`."""
        return _like(radius, self.curve(radius, method=method, averaging=averaging).scores.f1)

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
        names = proved.label_names
        columns: dict[str, Any] = {
            "labels": [[names[label] for label in labels] for labels in proved.labels],
            "predicted": [[names[label] for label in labels] for labels in proved.predicted],
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

    def _method(self, method: Method | None) -> Method:
        known = self.certificates.methods
        if method is None:
            return known[0]
        if method not in known:
            raise InvalidInputError(
                f"method is {method!r}, but these certificates were proved with {', '.join(known)}."
            )
        return method


def _like(radius: ArrayLike, values: Floats) -> float | Floats:
    """The values, (radii,), or the one value of a radius that is a number."""
    return float(values[0]) if np.ndim(radius) == 0 else values


def plain_provenance(run: Provenance) -> dict[str, Any]:
    """The provenance of votes as JSON values, as a file holds it, without the image ids."""
    known = {name: value for name, value in vars(run).items() if name != "image_ids"}
    return decode_json(encode_json(known), dict[str, Any])


class TableFile:
    """Parquet files of one name, what a folder with one is called, and how to replace a damaged one."""

    def __init__(self, name: str, kind: str, version: int, folder: str, remedy: str) -> None:
        self.name, self.folder, self.remedy = name, folder, remedy
        self._format: dict[str, Any] = {"format": kind, "version": version}

    def write(self, folder: Path, table: pa.Table, metadata: Mapping[str, Any], row_group_size: int = 1 << 20) -> None:
        """Write the rows and the metadata."""
        import pyarrow.parquet as pq

        try:
            text = encode_checked(metadata, **self._format)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"the metadata (source, command) must be plain JSON values: {error}") from error
        if len(text) > _MOST_METADATA:
            raise InvalidInputError(
                f"the curves take {len(text):,} bytes, and {self.name} holds {_MOST_METADATA:,} at most; use fewer "
                "radii (a larger radius_step) or a smaller sweep"
            )
        options: Any = {"compression": "zstd", "write_page_checksum": True, "row_group_size": row_group_size}
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: text}), folder / self.name, **options)

    def read(self, folder: Path, parse: Callable[[dict[str, Any], pa.Table, str], T]) -> T:
        """What `parse` makes of the metadata, the rows and the sha256 of the file; `DataError` if it is damaged."""
        path = folder / self.name
        try:
            content, digest = read_hashed(path, MOST_TABLE)
        except FileNotFoundError as error:
            raise DataError(f"{folder} is not {self.folder}: it has no {self.name}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        try:
            file = open_parquet(content)
            text = (file.schema_arrow.metadata or {}).get(METADATA_KEY, b"")
            metadata = decode_checked(text, **self._format)
            return parse(metadata, file.read(use_threads=False).replace_schema_metadata(None), digest)
        except Exception as error:  # a forged file can make its reader fail in any way
            raise DataError(f"{path} cannot be used: {' '.join(str(error).split())}; {self.remedy}") from error


_FILE = TableFile(CERTIFICATES_NAME, "multiguard-certificates", 11, "a certificates folder", "certify the votes again")


@dataclass(frozen=True)
class _Metadata:
    """The metadata in the file."""

    config: dict[str, Any]
    labelled: bool
    failures: tuple[ImageFailure, ...]
    provenance: dict[str, Any]
    votes_sha256: str
    certified_with: str
    source: dict[str, Any]
    command: str | None
    curves: tuple[dict[str, Any], ...]


def write_certificates(results: Results, folder: str | Path, *, force: bool = False) -> Results:
    """Write a certificates folder, complete or not at all; returns the results with the sha256 of the file.

    With `force` or without, files that multiguard did not write are never replaced.
    """
    return kept_results(Path(folder), None, lambda: results, force=force)


def kept_results(out: Path, request: Mapping[str, Any] | None, make: Callable[[], Results], *, force: bool) -> Results:
    """The results in the folder, if they answer this request; otherwise those that `make` makes, written there."""
    with staged(out / CERTIFICATES_NAME, request, kind="certificates", names=[CURVES_NAME], force=force) as stage:
        if stage is not None:
            return _stage(stage, make())
    return read_certificates(out)


def read_certificates(folder: str | Path) -> Results:
    """A certificates folder as it was written; a damaged one raises `DataError` naming the file.

    Only certificates.parquet is read. Whether its claims are those that the votes prove `multiguard verify` checks.

    >>> read_certificates(out)  # for what it returns see `write_certificates`
    Traceback (most recent call last):
    multiguard.errors.DataError: ... is not a certificates folder: it has no certificates.parquet
    """
    return _FILE.read(Path(folder), _parse)


def _stage(stage: Path, results: Results) -> Results:
    """Write the files to the staged folder; the results with the sha256 of the one that counts."""
    proved = results.certificates
    name, times = Counter(proved.label_names).most_common(1)[0]
    if times > 1:
        raise InvalidInputError(f"{times} labels are named {name!r}; results by name need different names")
    record = _Metadata(
        to_tree(proved.config),
        proved.labelled,
        proved.failures,
        dict(results.provenance),
        results.votes_hash,
        results.certified_with,
        dict(results.source),
        results.command,
        tuple(msgspec.to_builtins(curve, enc_hook=_plain) for curve in results.curves),
    )
    _FILE.write(stage, proved.table, vars(record), IMAGES_AT_A_TIME)
    (stage / CURVES_NAME).write_text(curves_text(results.curves), encoding="utf-8", newline="")
    return replace(results, certificates_hash=file_checksum(stage / CERTIFICATES_NAME))


def _plain(value: Any) -> Any:
    """An array as a list, and noise as its text."""
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _parse(stored: dict[str, Any], table: pa.Table, digest: str) -> Results:
    from multiguard.votes import Provenance

    metadata = convert(stored, _Metadata)
    run = convert({**metadata.provenance, "image_ids": []}, Provenance)
    config = from_tree(CertifyConfig, metadata.config)
    _check_run(config, run)
    schema = certificates_schema(config.methods, config.rule)
    rows = table.select(schema.names).cast(schema)
    certificates = Certificates(config, run.noise, run.label_names, metadata.labelled, rows, metadata.failures)
    check_claims(certificates)
    return Results(
        certificates,
        [_read_curve(one, run.noise) for one in metadata.curves],
        metadata.provenance,
        metadata.votes_sha256,
        metadata.certified_with,
        metadata.source,
        metadata.command,
        digest,
    )


def _as_array(_: Any, value: Any) -> Any:
    return np.array(value, np.float64) if isinstance(value, list) else value


def _read_curve(stored: dict[str, Any], noise: Noise) -> Curve:
    config = from_tree(CertifyConfig, stored["config"])
    curve = msgspec.convert({**stored, "config": config, "noise": noise}, Curve, dec_hook=_as_array)
    radius, columns = check_radius(curve.scores.radius, noise), _curve_columns(curve).values()
    if not all(each.shape == radius.shape and np.all((each >= 0) & np.isfinite(each)) for each in columns):
        raise ValueError("a curve has more numbers than radii, or one that is negative or not finite")
    check_method(curve.method, config.rule, noise)
    return curve


def _check_run(config: CertifyConfig, run: Provenance) -> None:
    """Raises unless votes of this run can be certified with this config, an adaptive run with all of its draws."""
    given = config.replace(draws=None) if run.stops is not None else config
    if config != given.resolve(run):
        raise ValueError("these votes cannot be certified with its config")
    if not run.label_names or len(set(run.label_names)) < len(run.label_names):
        raise ValueError("every label needs its own name")
    stopping_radii = (run.stopping or {}).get("radii")
    if stopping_radii is not None:
        check_radius(convert(stopping_radii, tuple[float, ...]), run.noise)


def curves_text(curves: Sequence[Curve]) -> str:
    """The content of curves.csv: no two curves may have the same method, config, noise and averaging.

    Every number is written so that it reads back as the number it is.
    """
    keys = Counter((curve.method, curve.config, curve.noise, curve.averaging) for curve in curves)
    repeated = next((key for key, count in keys.items() if count > 1), None)
    if repeated is not None:
        raise InvalidInputError(f"two curves have the same method, config, noise and averaging: {repeated}; give one")
    banded = any(curve.bands is not None for curve in curves)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, (*_COLUMNS, "level", *_BAND_COLUMNS) if banded else _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for curve in curves for row in _curve_rows(curve))
    return text.getvalue()


def _curve_columns(curve: Curve) -> dict[str, Floats]:
    """The numbers of a curve at each radius, by the name of their column."""
    scores, bands = curve.scores, curve.bands
    names = (*_SCORES, "true_floor", "false_ceiling")
    columns = {"R": scores.radius, **{name: getattr(scores, name) for name in names}}
    if bands is not None:
        values = *bands.precision, *bands.recall, *bands.f1, *bands.test_set, *bands.population
        columns |= dict(zip(_BAND_COLUMNS, values, strict=True))
    return columns


def _curve_rows(curve: Curve) -> Iterator[dict[str, object]]:
    same = {
        "method": curve.method,
        "rule": curve.config.rule.name,
        **curve.config.parameters,
        "averaging": curve.averaging,
        "noise": curve.noise,
        "attacker": curve.noise.attacker,
        "images": curve.scores.images,
        "without_labels": curve.scores.without_labels,
        "failed": curve.failed,
        "mean_draws": curve.mean_draws,
        **({} if curve.bands is None else {"level": curve.bands.level}),
    }
    columns = _curve_columns(curve)
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield {**same, **dict(zip(columns, values, strict=True))}
