"""certificates.json: what was asked, of which votes, and whether it agrees with itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from multiguard.certify import Method, RuleName, make_rule
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate.certifier import check_methods
from multiguard.evaluate.config import CertifyConfig
from multiguard.io.records import convert

if TYPE_CHECKING:
    from multiguard.votes import ImageFailure


@dataclass(frozen=True)
class StoredConfig:
    """A config as it lies in a file: the options of its rule, alpha and n."""

    alpha: float = 0.001
    draws: int | None = None
    k: int | None = None
    k_prime: int | None = None
    threshold: float | None = None

    def config(self, rule: RuleName) -> CertifyConfig:
        """The config, of this rule."""
        options = {"k": self.k, "k_prime": self.k_prime, "threshold": self.threshold}
        return CertifyConfig(make_rule(rule, **options), self.alpha, self.draws)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Stored:
    """The description as it lies in the file."""

    format: str
    version: int
    sha256: str
    rule: Literal["top-k", "threshold"]
    setting: Mapping[str, Any]
    labelled: bool
    sigma: float
    methods: tuple[str, ...]
    label_names: tuple[str, ...]
    failures: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any]
    votes_sha256: str
    source: Mapping[str, Any]
    command: str | None
    files: Mapping[str, str]
    certified_with: str | None = None


@dataclass(frozen=True)
class Description:
    """What the description says of all images.

    Attributes:
        config: What is certified; n is a number.
        labelled: Whether L is the ground truth.
        sigma: The noise.
        methods: The methods that the radii were proved with.
        label_names: The c label names, in index order.
        failures: The images that could not be voted on.
        provenance: Where the votes come from: the fields of their `Provenance` but for the image ids.
        votes_sha256: The sha256 of the votes' manifest.
        certified_with: The version of multiguard that certified; None where it was not written down.
        source: Which images and which model, for people and for the report.
        command: What made the folder, where it was told.
        files: The sha256 of each file beside it.
    """

    config: CertifyConfig
    labelled: bool
    sigma: float
    methods: tuple[Method, ...]
    label_names: tuple[str, ...]
    failures: tuple[ImageFailure, ...]
    provenance: Mapping[str, Any]
    votes_sha256: str
    certified_with: str | None
    source: Mapping[str, Any]
    command: str | None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def rule(self) -> Literal["top-k", "threshold"]:
        """The rule that is certified."""
        return self.config.rule.name


def parse_description(stored: Mapping[str, Any], path: Path) -> Description:
    """What a description says, every value of its kind and none against another; else `DataError` naming the file."""
    try:
        return _described(convert(stored, _Stored))
    except (InvalidInputError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error}; certify the votes anew") from error


def _described(stored: _Stored) -> Description:
    from multiguard.votes import ImageFailure, Provenance

    config = convert(stored.setting, StoredConfig).config(stored.rule)
    run = convert({**stored.provenance, "image_ids": []}, Provenance)
    if (run.sigma, run.label_names, run.rule) != (stored.sigma, stored.label_names, stored.rule):
        raise ValueError("sigma, label_names and rule are not those of its provenance")
    if not stored.sigma > 0 or not stored.label_names or len(set(stored.label_names)) < len(stored.label_names):
        raise ValueError("sigma must be above 0, and the labels named and different")
    _check_config(config, run)
    return Description(
        config=config,
        labelled=stored.labelled,
        sigma=float(stored.sigma),
        methods=check_methods(stored.methods, config.rule),  # type: ignore[arg-type]
        label_names=stored.label_names,
        failures=tuple(convert(failure, ImageFailure) for failure in stored.failures),
        provenance=stored.provenance,
        votes_sha256=stored.votes_sha256,
        certified_with=stored.certified_with,
        source=stored.source,
        command=stored.command,
        files=stored.files,
    )


def _check_config(config: CertifyConfig, run: Any) -> None:
    """Raises unless votes of this run can be certified so, with all draws of an adaptive run."""
    if (replace(config, n=None) if run.looks is not None else config).resolve(run) != config:
        raise ValueError(f"{config} does not fit these votes")
    spent_for = (run.stopping or {}).get("radii")
    if spent_for is not None:
        convert({"radii": spent_for}, _SpentFor)


@dataclass(frozen=True)
class _SpentFor:
    """The radii that adaptive draws were spent for."""

    radii: tuple[float, ...]
