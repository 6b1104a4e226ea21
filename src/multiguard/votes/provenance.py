"""Where votes come from: all that determines them, checked to agree with itself."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

from multiguard.errors import InvalidInputError
from multiguard.io.records import checksum

Rule = Literal["top-k", "threshold"]


@dataclass(frozen=True)
class Provenance:
    """All that determines the votes; two runs that agree in it may share a folder.

    Attributes:
        model: What the base classifier is.
        weights_hash: sha256 of its weights as they were loaded; None for a plain callable.
        classifier_hash: sha256 of all its tensors as they were when the run began, its normalisation among them.
        code_hash: sha256 of the user's source files that make it; None where no code of the user's was named.
        trained_sigma: Deviation of the noise that its training images carried, 0.0 for none; None if unknown.
        output: "logits" or "probabilities", as declared.
        label_names: The c label names, in index order.
        dataset: Which dataset and split, and how its images were sampled.
        image_ids: The ids of the images, in the order of the shards.
        labelled: Whether the images carry their labels, the ground truth.
        truth_hash: sha256 of the labels of all images; None in a run without labels, or of a dataset that does not know
            them before its images are read.
        first_image_hash: sha256 of the first image as decoded: shape, dtype and values.
        sigma: The noise.
        rule: What the base classifier returns: "top-k", its K' labels of largest score, ranked; or "threshold", the set
            of labels whose score passes.
        k_max: K', the ranked labels kept of each draw; None for the threshold rule.
        score_threshold: The probability at which a score passes; None for the top-k rule.
        draws: n; in an adaptive run the most that an image takes.
        pilot_draws: Draws of each image that choose labels and never certify them; 0 for none.
        looks: In an adaptive run the numbers of draws at which an image may have stopped; None where n is fixed.
        look_fractions: What each look may spend of alpha; None where n is fixed.
        stopping: What the rule that ended an image's draws was asked; None where n is fixed.
        seed: The seed of the noise.
        noise: The source of noise.
        precision: The dtype that the classifier ran in.
        channels_last: Whether images lay channels last.
        compiled: Whether the classifier was compiled.
        noise_compiled: Whether the noise was compiled.
        tf32_matmul: Whether products of float32 matrices might be rounded to TF32.
        tf32_convolution: Whether float32 convolutions might be.
        clamp: Whether the noisy image was clamped to [0, 1].
        device: The name of the device.
        versions: multiguard, torch, numpy, python, and timm, transformers and onnxruntime where imported.
    """

    model: str
    weights_hash: str | None
    classifier_hash: str
    code_hash: str | None
    trained_sigma: float | None
    output: str
    label_names: tuple[str, ...]
    dataset: str
    image_ids: tuple[str, ...]
    labelled: bool
    truth_hash: str | None
    first_image_hash: str
    sigma: float
    rule: Rule
    k_max: int | None
    score_threshold: float | None
    draws: int
    pilot_draws: int
    looks: tuple[int, ...] | None
    look_fractions: tuple[float, ...] | None
    stopping: Mapping[str, Any] | None
    seed: int
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

    def __post_init__(self) -> None:
        for name in ("sigma", "trained_sigma", "score_threshold", "look_fractions", "stopping"):
            object.__setattr__(self, name, _as_read_back(name, getattr(self, name)))
        _check_rule(self)
        _check_looks(self)
        if self.pilot_draws < 0:
            raise InvalidInputError(f"pilot_draws must be 0 or more, not {self.pilot_draws}.")
        if not (self.labelled or self.pilot_draws):
            raise InvalidInputError("without labels there must be pilot draws to choose them from; give pilot_draws.")

    @cached_property
    def digest(self) -> str:
        """The sha256 of all this."""
        return checksum(asdict(self))

    def differences(self, other: "Provenance") -> list[str]:
        """The names of the fields in which two runs differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]

    def allows(self, draws: int) -> bool:
        """Whether an image of this run may have so many draws."""
        return draws in self.looks if self.looks else draws == self.draws


def _as_read_back(name: str, value: Any) -> Any:
    """The value as JSON gives it back: a float where an integer was given; tuples, which JSON makes lists."""
    if isinstance(value, Mapping):
        return {key: _as_read_back("", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_as_read_back(name, inner) for inner in value)
    return float(value) if name and isinstance(value, int) and not isinstance(value, bool) else value


def _check_rule(run: Provenance) -> None:
    if run.rule not in get_args(Rule):
        raise InvalidInputError(f"rule must be one of {', '.join(get_args(Rule))}, not {run.rule!r}.")
    top_k = run.rule == "top-k"
    if (run.k_max is not None) != top_k or (run.score_threshold is None) != top_k:
        raise InvalidInputError(
            f"the top-k rule has k_max and the threshold rule score_threshold; not {run.rule!r} with "
            f"k_max = {run.k_max} and score_threshold = {run.score_threshold}."
        )
    if run.score_threshold is not None and not 0 < run.score_threshold < 1:
        raise InvalidInputError(f"score_threshold must lie strictly between 0 and 1, not {run.score_threshold}.")


def _check_looks(run: Provenance) -> None:
    looks, shares = run.looks, run.look_fractions
    if looks is None or shares is None or run.stopping is None:
        if (looks, shares, run.stopping) != (None, None, None):
            raise InvalidInputError("looks, look_fractions and stopping belong together: give all three or none.")
        return
    if not looks or looks[0] < 1 or looks[-1] != run.draws or any(a >= b for a, b in pairwise(looks)):
        raise InvalidInputError(f"looks must grow from at least 1 to draws = {run.draws}, not {looks}.")
    if len(shares) != len(looks) or not all(share > 0 for share in shares) or math.fsum(shares) > 1:
        raise InvalidInputError(f"look_fractions must be one above 0 for each look, 1 together at most, not {shares}.")
