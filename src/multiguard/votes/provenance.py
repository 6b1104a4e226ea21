"""The provenance of votes: all that determines them, without contradictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, get_args

from multiguard.certify.noise import NoiseField, as_noise
from multiguard.certify.rules import RuleName
from multiguard.errors import InvalidInputError
from multiguard.io.names import short_repr
from multiguard.io.records import Rows


@dataclass(frozen=True)
class Provenance:
    """All that determines the votes: two runs that agree in it may share a folder, and no others.

    Example:
        >>> run.noise, run.rule, run.k_max, run.draws  # `run` is the Provenance of some votes
        (Gaussian(sigma=0.5), 'top-k', 3, 7)
        >>> from dataclasses import replace
        >>> from multiguard.certify import Gaussian
        >>> run.differences(replace(run, noise=Gaussian(1.0), noise_seed=2))
        ['noise', 'noise_seed']
    """

    model: str  # the base classifier
    weights_hash: str | None  # sha256 of its weights as loaded; None for a plain callable
    classifier_hash: str  # sha256 of all its tensors when the run began, including its normalisation
    code_hash: str | None  # sha256 of the user's source files that build it; None if no code was named
    trained_noise: str | None  # the noise in its training, "none" for none; None if unknown
    output: str | None  # "logits" or "probabilities", as declared; None if undeclared, which a ranking does not need
    label_names: tuple[str, ...]  # the c label names, in index order
    dataset: str  # the dataset, its split, and how its images were sampled
    image_ids: Sequence[str]  # the ids of the images, in the order of the shards
    labelled: bool  # whether the images carry their labels, the ground truth
    truth_hash: str | None  # sha256 of all labels; None without labels, or if they are known only with the images
    first_image_hash: str  # the `image_hash` of the first image
    noise: NoiseField  # the noise, and so the attacker that certificates are about; its text in files
    rule: RuleName  # "top-k": each draw has its K' labels of largest score, ranked; "threshold": those that pass, a set
    k_max: int | None  # K', the ranked labels stored per draw; None for the threshold rule
    score_threshold: float | None  # the probability at which a score passes; None for the top-k rule
    draws: int  # n; in an adaptive run the maximum per image; of a band ablation its number of positions
    earlier_draws: tuple[int, ...]  # the n before each extension of a run, at which its votes may have been looked at
    pilot_draws: int  # draws per image that choose labels and never certify them; 0 for none
    stops: tuple[int, ...] | None  # the numbers of draws at which an adaptive run may stop; None for a fixed n
    stopping: Mapping[str, Any] | None  # what adaptive draws try to prove; None for a fixed n
    noise_seed: int  # the seed of the noise
    noise_source: str  # what made the noise
    precision: str  # the dtype in which the classifier ran
    channels_last: bool  # whether images were stored channels last
    compiled: bool  # whether the classifier was compiled
    noise_compiled: bool  # whether the noise was compiled
    tf32_matmul: bool  # whether products of float32 matrices may have been rounded to TF32
    tf32_convolution: bool  # whether float32 convolutions may have been
    clamp: bool  # whether noisy images were clamped to [0, 1]
    device: str  # the name of the device
    versions: Mapping[str, str]  # multiguard, torch, numpy, python; timm, transformers, onnxruntime if imported

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", as_noise(self.noise))
        try:
            object.__setattr__(self, "image_ids", Rows.of(self.image_ids, str))
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"image_ids: a name is not UTF-8, and cannot be stored ({error}); rename it"
            ) from error
        for name in ("score_threshold", "stopping"):
            object.__setattr__(self, name, _as_read_back(name, getattr(self, name)))
        _check_rule(self)
        _check_stops(self)
        if not (self.draws >= 1 and self.label_names and (self.k_max is None or self.k_max >= 1)):
            given = f"{self.draws} draws, {len(self.label_names)} labels and k_max {self.k_max}"
            raise InvalidInputError(f"draws, labels and k_max must be at least 1; not {given}.")
        if self.pilot_draws < 0:
            raise InvalidInputError(f"pilot_draws must be 0 or more, not {self.pilot_draws}.")
        if self.noise.enumerated:
            _check_bands(self)
        elif not (self.labelled or self.pilot_draws):
            raise InvalidInputError("a run without labels needs pilot draws to choose them from; give pilot_draws.")

    def extension_of(self, stored: "Provenance") -> "Provenance | None":
        """The run that takes the votes of `stored` to the draws of this one; None if they differ in anything else.

        The promise of the method betting stays. A run of a fixed n may become an adaptive one, but not the reverse.

        Example:
            >>> from dataclasses import replace
            >>> more = replace(run, draws=9).extension_of(run)  # `run` is the Provenance of some votes with 7 draws
            >>> more.draws, more.earlier_draws
            (9, (7,))
        """
        may_differ = {"draws", "earlier_draws", "stops"} | ({"stopping"} if stored.stopping is None else set())
        more = self.draws > stored.draws
        if {*self.differences(stored)} - may_differ or self.draws < stored.draws:
            return None
        if self.stops is None:
            return replace(self, earlier_draws=(*stored.earlier_draws, *((stored.draws,) if more else ())))
        if stored.stops is None and not more:
            return None
        return replace(self, earlier_draws=(), stops=tuple(sorted({*self.stops, *(stored.stops or (stored.draws,))})))

    def differences(self, other: "Provenance") -> list[str]:
        """The names of the fields in which two runs differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


def engine_words(device: str, precision: str, compiled: bool) -> str:
    """What runs a classifier, from what votes record of it.

    >>> engine_words("cpu x86_64, onnxruntime", "float32", False), engine_words("NVIDIA H200", "bfloat16", True)
    ('onnxruntime float32', 'compiled torch bfloat16 on NVIDIA H200')
    """
    machine, _, library = device.partition(", ")
    if library:
        return f"{library.replace('arrays', 'NumPy')} {precision}"
    on = "cpu" if machine.startswith("cpu ") else machine
    return f"{'compiled ' if compiled else ''}torch {precision} on {on}"


def _as_read_back(name: str, value: Any) -> Any:
    """The value as it is read back: floats where integers were given, and tuples, which JSON turns into lists."""
    if isinstance(value, Mapping):
        return {key: _as_read_back("", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_as_read_back(name, inner) for inner in value)
    return float(value) if name and isinstance(value, int) and not isinstance(value, bool) else value


def _check_rule(run: Provenance) -> None:
    if run.rule not in get_args(RuleName):
        raise InvalidInputError(f"rule must be one of {', '.join(get_args(RuleName))}, not {run.rule!r}.")
    top_k = run.rule == "top-k"
    if (run.k_max is not None) != top_k or (run.score_threshold is None) != top_k:
        given = f"{run.rule!r} with k_max = {run.k_max} and score_threshold = {run.score_threshold}"
        raise InvalidInputError(f"the top-k rule has k_max, the threshold rule score_threshold; not {given}.")
    if run.score_threshold is not None and not 0 < run.score_threshold < 1:
        raise InvalidInputError(f"score_threshold must lie strictly between 0 and 1, not {run.score_threshold}.")


def _check_bands(run: Provenance) -> None:
    """Every band votes once, so nothing is random: there are no draws to choose, and none to choose labels from."""
    if run.draws != run.noise.positions or run.stops is not None or run.pilot_draws:
        given = f"{run.draws} draws{', adaptive' if run.stops else ''} and {run.pilot_draws} pilot draws"
        raise InvalidInputError(
            f"{run.noise} has {run.noise.positions} bands, one draw each, and no others; not {given}."
        )


def _check_stops(run: Provenance) -> None:
    if (run.stops is None) != (run.stopping is None):
        raise InvalidInputError("stops and stopping belong together: give both or none.")
    earlier = (*run.earlier_draws, run.draws) if run.earlier_draws else None
    for name, numbers in (("stops", run.stops), ("earlier_draws", earlier)):
        if numbers is None:
            continue
        if not numbers or numbers[0] < 1 or numbers[-1] != run.draws or any(a >= b for a, b in pairwise(numbers)):
            raise InvalidInputError(f"{name} must increase from at least 1 to draws = {run.draws}, not {numbers}.")
