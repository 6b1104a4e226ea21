"""The manifest of a votes folder: where the votes come from, and which shards are whole."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from multiguard.errors import VotesError
from multiguard.files import write_atomically

MANIFEST_NAME = "manifest.json"
_FORMAT = "multiguard-votes"
_VERSION = 1


@dataclass(frozen=True)
class Provenance:
    """All that determines the votes; two runs that agree in it may share a folder.

    Attributes:
        model: What the base classifier is.
        weights_hash: sha256 of its weights as they were loaded; None for a plain callable.
        classifier_hash: sha256 of all its tensors as they were when the run began, its normalisation among them.
        trained_sigma: Deviation of the noise that its training pictures carried, 0.0 for none; None if unknown.
        output: "logits" or "probabilities", as declared.
        label_names: The c label names, in index order.
        dataset: Which dataset and split, and how its images were sampled.
        image_ids: The ids of the images, in the order of the shards.
        first_picture_hash: sha256 of the first picture as decoded: shape, dtype and values.
        sigma: The noise.
        draws: n.
        seed: The seed of the noise.
        k_max: K', the ranked labels kept of each draw.
        noise: The source of noise.
        precision: The dtype that the classifier ran in.
        channels_last: Whether pictures lay channels last.
        compiled: Whether the classifier was compiled.
        noise_compiled: Whether the noise was compiled.
        tf32_matmul: Whether products of float32 matrices might be rounded to TF32.
        tf32_convolution: Whether float32 convolutions might be.
        clamp: Whether the noisy picture was clamped to [0, 1].
        device: The name of the device.
        versions: multiguard, torch, numpy, python, and timm, transformers and onnxruntime where imported.
    """

    model: str
    weights_hash: str | None
    classifier_hash: str
    trained_sigma: float | None
    output: str
    label_names: tuple[str, ...]
    dataset: str
    image_ids: tuple[str, ...]
    first_picture_hash: str
    sigma: float
    draws: int
    seed: int
    k_max: int
    noise: str
    precision: str
    channels_last: bool
    compiled: bool
    noise_compiled: bool
    tf32_matmul: bool
    tf32_convolution: bool
    clamp: bool
    device: str
    versions: Mapping[str, str]

    def differences(self, other: "Provenance") -> list[str]:
        """The names of the fields in which two runs differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


@dataclass(frozen=True)
class Shard:
    """A whole shard: its file name, the sha256 of the file and its number of rows."""

    file: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What a votes folder holds.

    Attributes:
        provenance: Where the votes come from.
        shard_images: How many images a shard holds; the last one may hold fewer.
        shards: The whole shards, by the position of the shard in the run.
    """

    provenance: Provenance
    shard_images: int
    shards: Mapping[int, Shard]

    @property
    def shard_count(self) -> int:
        """How many shards the finished run has."""
        return -(-len(self.provenance.image_ids) // self.shard_images)

    @property
    def complete(self) -> bool:
        """Whether every shard is there."""
        return set(self.shards) == set(range(self.shard_count))

    def positions(self, shard: int) -> range:
        """The positions in `image_ids` of the images of a shard."""
        start = shard * self.shard_images
        return range(start, min(start + self.shard_images, len(self.provenance.image_ids)))


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Put the manifest in place in one step: a reader sees the old one or the new one."""
    text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(manifest)}, indent=1)
    write_atomically(folder / MANIFEST_NAME, lambda file: file.write(text.encode()))


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a votes folder, or a `VotesError` that says what is wrong with it."""
    path = folder / MANIFEST_NAME
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise VotesError(f"{folder} is not a votes folder: it has no {MANIFEST_NAME}.") from error
    except (OSError, ValueError) as error:
        raise VotesError(f"{path} cannot be read: {error}.") from error
    try:
        _check_format(stored, path)
        return _from_json(stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VotesError(f"{path} is damaged: {type(error).__name__}: {error}.") from error


def _check_format(stored: Mapping[str, Any], path: Path) -> None:
    found = (stored["format"], stored["version"])
    if found != (_FORMAT, _VERSION):
        raise VotesError(
            f"{path} has format {found[0]!r}, version {found[1]!r}; "
            f"this multiguard reads {_FORMAT!r}, version {_VERSION}. Read it with the version that wrote it."
        )


def _from_json(stored: Mapping[str, Any]) -> Manifest:
    provenance = dict(stored["provenance"])
    provenance["label_names"] = tuple(provenance["label_names"])
    provenance["image_ids"] = tuple(provenance["image_ids"])
    shards = {int(index): Shard(**shard) for index, shard in stored["shards"].items()}
    return Manifest(Provenance(**provenance), int(stored["shard_images"]), shards)
