"""What is asked of the classifier and of its votes: the rule, the draws, the certificates, and which of them agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from multiguard.certify import Method, Threshold, look_plan, make_rule
from multiguard.certify.arguments import check_alpha, check_radii
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, Parameter
from multiguard.evaluate.certifier import check_methods
from multiguard.votes import Rule
from multiguard.votes.ranked import DEFAULT_RANKS

DEFAULT_SCORE_THRESHOLD = 0.5
ADAPTIVE: Literal["adaptive"] = "adaptive"
DEFAULT_ALPHA = 0.001
_DEFAULT_MAX_DRAWS = 10_000
_DEFAULT_PILOT_DRAWS = 100


@dataclass(frozen=True)
class VotePart:
    """How the classifier is sampled; None follows the device, or is the usual value.

    Attributes:
        draws: n, the noisy copies of each image; or "adaptive", as many as its certificate needs.
        max_draws: The most that adaptive draws take of an image; None for 10000.
        radii: The radii at which adaptive draws must be able to prove more, or stop.
        pilot_draws: Further copies that choose the labels to certify; None for 100 where images have no labels, and
            none where they have.
        rule: What the classifier returns of a noisy copy: "top-k", its ranked labels, or "threshold", those that pass.
        score_threshold: For the threshold rule, the probability at which a label passes; None for 0.5.
        seed: The seed of the noise.
        k_max: For the top-k rule, how many ranked labels of each draw are kept.
        batch_size: Noisy images at a time.
        device: Where to run.
        precision: float32, bfloat16 or float16.
        clamp: Whether the noisy image is clamped to [0, 1] first.
        shard_images: Images in a file of votes: what an interruption can cost at most.
        readers: Threads that decode images.
        on_error: Where an image cannot be voted on: "stop", or "record" it and go on with the others.
    """

    draws: int | Literal["adaptive"] = 1000
    max_draws: int | None = None
    radii: tuple[float, ...] = ()
    pilot_draws: int | None = None
    rule: Rule = "top-k"
    score_threshold: float | None = None
    seed: int = 0
    k_max: int | None = None
    batch_size: int | None = None
    device: str | None = None
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    clamp: bool = False
    shard_images: int = 64
    readers: int = 2
    on_error: Literal["stop", "record"] = "stop"

    def __post_init__(self) -> None:
        check_least(self, 1, "draws", "max_draws", "k_max", "batch_size", "shard_images", "readers")
        check_least(self, 0, "pilot_draws")
        self._check_rule()
        self._check_draws()

    @property
    def adaptive(self) -> bool:
        """Whether an image takes as many draws as its certificate needs."""
        return self.draws == ADAPTIVE

    @property
    def most_draws(self) -> int:
        """The most draws that an image takes."""
        if self.draws == "adaptive":
            return _DEFAULT_MAX_DRAWS if self.max_draws is None else self.max_draws
        return self.draws

    @property
    def passing_score(self) -> float | None:
        """For the threshold rule, the probability at which a label passes."""
        if self.rule == "top-k" or self.score_threshold is not None:
            return self.score_threshold
        return DEFAULT_SCORE_THRESHOLD

    def pilots(self, labelled: bool) -> int:
        """How many draws of each image choose labels."""
        usual = 0 if labelled else _DEFAULT_PILOT_DRAWS
        return usual if self.pilot_draws is None else self.pilot_draws

    def _check_rule(self) -> None:
        if self.rule == "top-k" and self.score_threshold is not None:
            raise InvalidInputError(
                "score_threshold belongs to the threshold rule; the top-k rule ranks labels instead"
            )
        if self.rule == "threshold" and self.k_max is not None:
            raise InvalidInputError("k_max belongs to the top-k rule; the threshold rule keeps every label that passes")
        if self.score_threshold is not None and not 0 < self.score_threshold < 1:
            raise InvalidInputError(
                f"score_threshold is {self.score_threshold}; expected a probability strictly between 0 and 1"
            )

    def _check_draws(self) -> None:
        if not self.adaptive and (self.radii or self.max_draws is not None):
            raise InvalidInputError(f"radii and max_draws belong to adaptive draws, and draws is {self.draws}")
        if self.adaptive and not self.radii:
            raise InvalidInputError(
                "adaptive draws stop where nothing more can be proved at the radii asked for, and none is; name one or "
                "more, such as --radius 0.5 (vote.radii: [0.5] in a recipe)"
            )
        if self.adaptive:
            check_radii(self.radii)
            look_plan(self.most_draws)


@dataclass(frozen=True)
class CertifyPart:
    """What is asked of the votes; their rule says which of k and k', or the threshold, are needed.

    Attributes:
        k: For the top-k rule, how many labels the smoothed classifier returns.
        k_prime: For the top-k rule, how many labels the base classifier returns for a draw.
        threshold: For the threshold rule, the probability at which the smoothed classifier returns a label.
        alpha: The probability of a wrong certificate of an image.
        draws: The first so many draws; None for all.
        methods: The certificates to compare.
        radius_to: The largest radius of the curves; None for 3 sigma.
        radius_step: The step between two radii; None for sigma / 20.
        bands: The confidence level of bands over images; None for no bands.
    """

    k: int | None = None
    k_prime: int | None = None
    threshold: float | None = None
    alpha: float = DEFAULT_ALPHA
    draws: int | None = None
    methods: tuple[Method, ...] = ("joint",)
    radius_to: float | None = None
    radius_step: float | None = None
    bands: float | None = None

    def __post_init__(self) -> None:
        check_least(self, 1, "k", "k_prime", "draws")
        check_alpha(self.alpha)
        for name in ("radius_to", "radius_step"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInputError(f"{name} is {value}; expected a number above 0")
        if self.bands is not None and not 0 < self.bands < 1:
            raise InvalidInputError(f"bands is {self.bands}; expected a level between 0 and 1, such as 0.95")

    def config(self, rule: Rule) -> CertifyConfig:
        """What one certificate is about, under this rule."""
        return make_config(
            rule, k=self.k, k_prime=self.k_prime, threshold=self.threshold, alpha=self.alpha, draws=self.draws
        )


@dataclass(frozen=True)
class SweepPart:
    """One parameter at a time around the setting: the first five from the same votes, the others from runs apart.

    Attributes:
        k: Values of k.
        k_prime: Values of k'.
        threshold: Values of the threshold.
        n: Values of n, the first so many draws.
        alpha: Values of alpha.
        sigma: Values of sigma: each is trained and voted on by itself.
        training_noise: Noise in training, voted on at the recipe's sigma; 0 for training without noise.
    """

    k: tuple[int, ...] = ()
    k_prime: tuple[int, ...] = ()
    threshold: tuple[float, ...] = ()
    n: tuple[int, ...] = ()
    alpha: tuple[float, ...] = ()
    sigma: tuple[float, ...] = ()
    training_noise: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_least(self, 1, "k", "k_prime", "n")
        check_least(self, 0, "training_noise")
        for value in self.alpha:
            check_alpha(value)

    @property
    def vary(self) -> dict[Parameter, tuple[float, ...]]:
        """What varies over one set of votes."""
        named: dict[Parameter, tuple[float, ...]] = {
            "k": self.k,
            "k_prime": self.k_prime,
            "threshold": self.threshold,
            "n": self.n,
            "alpha": self.alpha,
        }
        return {name: values for name, values in named.items() if values}


def check_least(part: object, least: int, *names: str) -> None:
    """Pass only if each number that these fields hold, alone or in a list, is so large or larger."""
    for name in names:
        value = getattr(part, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float) and one < least:
                raise InvalidInputError(f"{name} is {one}; expected {least} or more")


def make_config(
    rule: Rule,
    *,
    k: int | None,
    k_prime: int | None,
    threshold: float | None,
    alpha: float = DEFAULT_ALPHA,
    draws: int | None = None,
) -> CertifyConfig:
    """The config of this rule; what the rule needs is there, and nothing that belongs to the other one.

    Args:
        rule: The rule of the votes.
        k: For the top-k rule, how many labels the smoothed classifier returns.
        k_prime: For the top-k rule, how many labels the base classifier returns for a draw.
        threshold: For the threshold rule, the probability at which the smoothed classifier returns a label.
        alpha: The probability of a wrong certificate of an image.
        draws: The first so many draws; None for all.
    """
    return CertifyConfig(make_rule(rule, k=k, k_prime=k_prime, threshold=threshold), alpha, draws)


def check_asked(vote: VotePart, certify: CertifyPart, sweep: SweepPart) -> None:
    """Pass only if votes made in this way can answer all that is asked of them."""
    try:
        config = certify.config(vote.rule)
        check_methods(certify.methods, config.rule)
    except InvalidInputError as error:
        raise InvalidInputError(f"certify: {error}") from error
    _check_sweep(config, sweep.vary)
    fixed = {"certify.draws": certify.draws, "sweep.n": sweep.n}
    for name in [name for name, value in fixed.items() if vote.adaptive and value]:
        raise InvalidInputError(
            f"{name} takes the first so many draws, but of adaptive draws the votes themselves decide how many a "
            f"image has; leave {name} out"
        )
    ranked = {"certify.k_prime": (certify.k_prime,), "sweep.k_prime": sweep.k_prime}
    draws, ranks = vote.most_draws, DEFAULT_RANKS if vote.k_max is None else vote.k_max
    check_most({"certify.draws": (certify.draws,), "sweep.n": sweep.n}, draws, f"the votes hold {draws} (vote.draws)")
    check_most(ranked, ranks, f"the votes hold {ranks} (vote.k_max)")


def check_most(asked: Mapping[str, Sequence[int | None]], most: int, why: str) -> None:
    """Pass only if none of these asks for more than there will be.

    Args:
        asked: The numbers under each name; None asks for nothing.
        most: The most that can be asked for.
        why: What there will be, in words.
    """
    for name, values in asked.items():
        for value in values:
            if value is not None and value > most:
                raise InvalidInputError(f"{name} asks for {value}, and {why}; ask for {most} at most")


def _check_sweep(config: CertifyConfig, vary: Mapping[Parameter, Sequence[float]]) -> None:
    rule, known = config.rule.name, config.parameters
    for name in vary:
        if name not in known:
            raise InvalidInputError(f"sweep.{name}: the {rule} rule has no {name}; what varies is {', '.join(known)}")
    for value in vary.get("threshold", ()):
        Threshold(value)
