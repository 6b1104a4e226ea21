"""The recipe of a run, from the images to the page; parts that contradict each other are refused at once."""

from typing import Annotated

from multiguard.certify import BandAblation, Gaussian, Rule
from multiguard.data.config import FOLDER, DataConfig
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, SweepConfig
from multiguard.evaluate.config import check_methods
from multiguard.io.config import Config, NotNegative, described
from multiguard.models.config import ModelConfig
from multiguard.report.config import ReportConfig
from multiguard.smooth.config import VoteConfig, named_noise
from multiguard.train.config import TrainConfig
from multiguard.votes.types import DEFAULT_RANKS


class RunSweep(SweepConfig, frozen=True):
    """The values of each parameter to vary, one parameter at a time.

    Those of `SweepConfig` use the same votes; each sigma and each training noise is a training and a vote of its own.

    >>> RunSweep(k=(1, 3), sigma=(0.25,)).vary
    {'k': (1, 3)}
    """

    sigma: Annotated[tuple[float, ...], described("Values of sigma; each is trained and voted on.")] = ()
    training_noise: Annotated[
        tuple[NotNegative, ...], described("Sigma in training, 0 for none, voted on with the recipe's noise.")
    ] = ()

    @property
    def of_votes(self) -> SweepConfig:
        """The values that vary over one set of votes."""
        return SweepConfig(self.k, self.k_prime, self.threshold, self.n, self.alpha)


class Recipe(Config, frozen=True):
    """Everything that decides a run, from the images to the page; parts that contradict each other are refused.

    `sigma` is Gaussian noise by its standard deviation; `noise` is any noise by its text. Exactly one of them is given.

    >>> recipe = Recipe(DataConfig("digits"), CertifyConfig(k=3, k_prime=1), sigma=0.5, train=TrainConfig())
    >>> recipe.rule, recipe.votes_noise
    (TopK(k=3, k_prime=1), 'gaussian:0.5')
    """

    data: DataConfig
    certify: CertifyConfig
    sigma: float | None = None
    noise: str | None = None
    train: TrainConfig | None = None
    model: ModelConfig | None = None
    vote: VoteConfig = VoteConfig()
    sweep: RunSweep = RunSweep()
    report: ReportConfig = ReportConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.train is None) == (self.model is None):
            given = "neither" if self.train is None else "both"
            raise InvalidInputError(f"{given} of train and model given; a recipe trains a model or names one")
        if self.model is not None and self.sweep.training_noise:
            raise InvalidInputError("sweep.training_noise needs training, and model names a trained one; drop one")
        self._check_noise()
        self._check_certify()
        self._check_unlabelled()
        if self.report.methods or self.report.baseline is not None:
            raise InvalidInputError(
                "report.methods and report.baseline are about a comparison; `multiguard report A B` makes one"
            )

    @property
    def votes_noise(self) -> str:
        """The text of the noise of the votes."""
        if (text := named_noise(self.sigma, self.noise)) is None:
            raise InvalidInputError("neither sigma nor noise is given; give one, such as sigma: 0.5 or noise: band:4")
        return text

    @property
    def bands(self) -> bool:
        """Whether the noise is a band ablation: every band votes once, and nothing is random."""
        return self.votes_noise.startswith(BandAblation.kind)

    @property
    def rule(self) -> Rule:
        """What is certified, under the rule of the votes."""
        return self.certify.rule_of(self.vote.rule)

    def require_labels(self, count: int) -> None:
        """Raises `InvalidInputError` where more labels are requested than there are; known before hours of work."""
        for name in ("k", "k_prime"):
            self._check_most(name, name, count, f"there are {count} labels")

    def _check_noise(self) -> None:
        """Refuse noise that proves nothing, and what the noise leaves no choice about."""
        kind = self.votes_noise.partition(":")[0]
        for value in self.sweep.sigma:
            if not value > 0:
                raise InvalidInputError(
                    f"sweep.sigma is {value}; without noise there is no certificate: take one above 0"
                )
            if kind != Gaussian.kind:
                raise InvalidInputError(f"sweep.sigma varies Gaussian noise, and noise is {self.votes_noise}; drop one")
        vote, certify, sweep = self.vote, self.certify, self.sweep
        fixed: dict[str, object] = {"vote.draws": vote.draws, "vote.pilot_draws": vote.pilot_draws}
        fixed |= {"certify.draws": certify.draws, "sweep.n": sweep.n, "sweep.alpha": sweep.alpha}
        for name, given in fixed.items():
            if self.bands and given:
                raise InvalidInputError(
                    f"{name} is {given}, but every band of {self.votes_noise} votes once and nothing is random; leave "
                    f"{name} out"
                )

    def _check_certify(self) -> None:
        """Refuse what the votes will not be able to answer, before they are drawn."""
        vote, certify, sweep = self.vote, self.certify, self.sweep
        try:
            if certify.methods:
                check_methods(certify.methods, self.rule, self.votes_noise)
        except InvalidInputError as error:
            raise InvalidInputError(f"certify: {error}") from error
        if vote.adaptive and any(method != "betting" for method in certify.methods):
            raise InvalidInputError(
                "certify.methods: only betting may certify adaptive votes, since they decide themselves how many draws "
                "each image has; leave certify.methods out"
            )
        self._check_sweep()
        for name, value in (("certify.draws", certify.draws), ("sweep.n", sweep.n)):
            if vote.adaptive and value:
                raise InvalidInputError(
                    f"{name} takes the first so many draws, but adaptive votes decide how many each image has; leave "
                    f"{name} out"
                )
        ranks = DEFAULT_RANKS if vote.k_max is None else vote.k_max
        self._check_most("draws", "n", vote.most_draws, f"the votes hold {vote.most_draws} (vote.draws)")
        self._check_most("k_prime", "k_prime", ranks, f"the votes hold {ranks} (vote.k_max)")

    def _check_most(self, certified: str, swept: str, most: int, reason: str) -> None:
        """Refuse a number to certify with, or a list to sweep over, that is larger than there will be."""
        numbers = [(f"certify.{certified}", getattr(self.certify, certified))]
        numbers += [(f"sweep.{swept}", value) for value in getattr(self.sweep, swept)]
        for name, value in numbers:
            if value is not None and value > most:
                raise InvalidInputError(f"{name} is {value}, and {reason}; take {most} at most")

    def _check_sweep(self) -> None:
        for name, values in self.sweep.vary.items():
            if name not in self.certify.parameters:
                known = ", ".join(self.certify.parameters)
                raise InvalidInputError(
                    f"sweep.{name}: the {self.vote.rule} rule has no {name}; what varies is {known}"
                )
            for value in values:
                _ = self.certify.vary(name, value).rule

    def _check_unlabelled(self) -> None:
        """Without labels there is nothing to train on, and pilot draws must choose what is certified."""
        if self.data.labelled:
            return
        if self.data.name == FOLDER and self.train is not None:
            raise InvalidInputError("data.labelled is false, and a folder without labels trains no model; name a model")
        if self.vote.pilot_draws == 0 and not self.bands:
            raise InvalidInputError("vote.pilot_draws is 0, and without labels pilot draws choose what is certified")
