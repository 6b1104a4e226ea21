"""The recipe of a run, from the images to the page; parts that contradict each other are refused at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from multiguard.certify.rules import Threshold
from multiguard.data.source import FOLDER
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig
from multiguard.evaluate.config import checked_methods
from multiguard.evaluate.sweeps import PARAMETERS
from multiguard.pipeline.parts import CertifyPart, DataPart, ModelPart, ReportPart, SweepPart, TrainPart, VotePart
from multiguard.votes import DEFAULT_RANKS


@dataclass(frozen=True)
class RunRecipe:
    """Everything that decides a run, from the images to the page; parts that contradict each other are refused.

    >>> recipe = RunRecipe(DataPart("digits"), 0.5, CertifyPart(k=3, k_prime=1), train=TrainPart())
    >>> recipe.config
    CertifyConfig(rule=TopK(k=3, k_prime=1), alpha=0.001, n=None)
    """

    data: DataPart
    sigma: float
    certify: CertifyPart
    train: TrainPart | None = None
    model: ModelPart | None = None
    vote: VotePart = field(default_factory=VotePart)
    sweep: SweepPart = field(default_factory=SweepPart)
    report: ReportPart = field(default_factory=ReportPart)

    def __post_init__(self) -> None:
        if (self.train is None) == (self.model is None):
            given = "neither" if self.train is None else "both"
            raise InvalidInputError(f"{given} of train and model given; a recipe trains a model or names one")
        if self.model is not None and self.sweep.training_noise:
            raise InvalidInputError("sweep.training_noise needs training, and model names a trained one; drop one")
        for name, value in (("sigma", self.sigma), *(("sweep.sigma", one) for one in self.sweep.sigma)):
            if not value > 0:
                raise InvalidInputError(f"{name} is {value}; without noise there is no certificate: take one above 0")
        self._check_certify()
        self._check_unlabelled()

    @property
    def config(self) -> CertifyConfig:
        """What one certificate is about, under the rule of the votes."""
        return self.certify.config(self.vote.rule)

    def require_labels(self, count: int) -> None:
        """Raises `InvalidInputError` where more labels are requested than there are; known before hours of work."""
        reason = f"there are {count} labels"
        _check_most("k", (self.certify.k,), self.sweep.k, count, reason)
        _check_most("k_prime", (self.certify.k_prime,), self.sweep.k_prime, count, reason)

    def _check_certify(self) -> None:
        """Refuse what the votes will not be able to answer, before they are drawn."""
        vote, certify, sweep = self.vote, self.certify, self.sweep
        try:
            checked_methods(certify.methods, self.config.rule)
        except InvalidInputError as error:
            raise InvalidInputError(f"certify: {error}") from error
        self._check_sweep()
        for name, value in (("certify.draws", certify.draws), ("sweep.n", sweep.n)):
            if vote.adaptive and value:
                raise InvalidInputError(
                    f"{name} takes the first so many draws, but adaptive votes decide themselves how many draws each "
                    f"image has; leave {name} out"
                )
        ranks = DEFAULT_RANKS if vote.k_max is None else vote.k_max
        _check_most("draws", (certify.draws,), (), vote.most_draws, f"the votes hold {vote.most_draws} (vote.draws)")
        _check_most("n", (), sweep.n, vote.most_draws, f"the votes hold {vote.most_draws} (vote.draws)")
        _check_most("k_prime", (certify.k_prime,), sweep.k_prime, ranks, f"the votes hold {ranks} (vote.k_max)")

    def _check_sweep(self) -> None:
        known = PARAMETERS[self.vote.rule]
        for name in self.sweep.vary:
            if name not in known:
                raise InvalidInputError(
                    f"sweep.{name}: the {self.vote.rule} rule has no {name}; what varies is {', '.join(known)}"
                )
        for value in self.sweep.threshold:
            Threshold(value)

    def _check_unlabelled(self) -> None:
        """Without labels there is nothing to train on, and pilot draws must choose what is certified."""
        if self.data.labelled:
            return
        if self.data.name == FOLDER and self.train is not None:
            raise InvalidInputError("data.labelled is false, and a folder without labels trains no model; name a model")
        if self.vote.pilot_draws == 0:
            raise InvalidInputError("vote.pilot_draws is 0, and without labels pilot draws choose what is certified")


def _check_most(name: str, certify: Sequence[int | None], sweep: Sequence[int], most: int, reason: str) -> None:
    """Refuse a number of the certify or the sweep section that is larger than there will be."""
    for section, values in (("certify", certify), ("sweep", sweep)):
        for value in values:
            if value is not None and value > most:
                raise InvalidInputError(f"{section}.{name} is {value}, and {reason}; take {most} at most")
