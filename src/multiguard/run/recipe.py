"""The recipe of a run, from the images to the page: a YAML of the commands' configs, checked as a whole.

Every key is known and every value has its type, or one line says where not and what to write.
"""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import yaml

from multiguard.certify import BandAblation, Gaussian, Rule
from multiguard.data.config import FOLDER, DataConfig
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CalibrateConfig, CertifyConfig, SweepConfig
from multiguard.evaluate.config import check_methods
from multiguard.io.config import Config, NotNegative, described, field_types, from_tree, members, plain_type, to_tree
from multiguard.io.files import read_regular
from multiguard.io.names import unknown_name
from multiguard.io.records import parse_yaml
from multiguard.models.config import ModelConfig
from multiguard.report.config import ReportConfig
from multiguard.smooth.config import VoteConfig, named_noise
from multiguard.train.config import TrainConfig
from multiguard.votes.types import DEFAULT_RANKS

RECIPE_FILE = "recipe.yaml"  # in a run folder, with every value written out
_FOLDER = files("multiguard") / "recipes"
_SUFFIX = ".yaml"
_MOST = 1 << 20  # bytes of a recipe


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
    calibrate: CalibrateConfig | None = None
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
        if self.calibrate is not None and (self.vote.adaptive or not self.data.labelled):
            why = "true labels" if not self.data.labelled else "the same number of draws for all images"
            raise InvalidInputError(f"calibrate: a calibration needs {why}; leave the section out, or vote so")
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
        noise, vote, certify, sweep = self.votes_noise, self.vote, self.certify, self.sweep
        if not all(value > 0 for value in sweep.sigma):
            raise InvalidInputError(
                f"sweep.sigma is {min(sweep.sigma)}; without noise there is no certificate: take values above 0"
            )
        if sweep.sigma and noise.partition(":")[0] != Gaussian.kind:
            raise InvalidInputError(f"sweep.sigma varies Gaussian noise, and noise is {noise}; drop one")
        chosen = {"vote.draws": vote.draws, "vote.pilot_draws": vote.pilot_draws, "certify.draws": certify.draws}
        for name, given in {**chosen, "sweep.n": sweep.n, "sweep.alpha": sweep.alpha}.items():
            if self.bands and given:
                raise InvalidInputError(
                    f"{name} is {given}, but every band of {noise} votes once and nothing is random; leave {name} out"
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
                    f"{name} is a fixed number of draws, but adaptive votes decide how many each image has; leave "
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


def recipe_names() -> list[str]:
    """The names of the recipes that come with multiguard.

    >>> "digits" in recipe_names()
    True
    """
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FOLDER.iterdir() if entry.name.endswith(_SUFFIX))


def find_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of this name that comes with multiguard, or the one in the file of this path, with changes over it.

    >>> find_recipe("digits", ["certify.k=5"]).certify.k
    5
    """
    path = Path(name)
    if name in recipe_names():
        with as_file(_FOLDER / f"{name}{_SUFFIX}") as embedded:
            return read_recipe(embedded, changes)
    if path.exists():
        return read_recipe(path, changes)
    if path.suffix or path.name != name:
        raise InvalidInputError(f"{name}: no such recipe file; multiguard comes with {', '.join(recipe_names())}")
    raise InvalidInputError(f"{unknown_name('recipe', name, recipe_names())} (a file is named by its path)")


def read_recipe(path: Path, changes: Sequence[str] = ()) -> Recipe:
    r"""The recipe in a file, with changes such as "certify.k=5" over it; a mistake raises `InvalidInputError`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.yaml"
    ...     _ = path.write_text("data: {name: digits}\nsigma: 0.5\ntrain: {}\ncertify: {k: 3, k_prime: 1}")
    ...     read_recipe(path, ["sigma=0.25"]).sigma
    0.25
    """
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; a recipe is a file in YAML")
    try:
        text = read_regular(path, _MOST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: the recipe cannot be read ({error})") from error
    return parse_recipe(text, path.name, changes)


def parse_recipe(text: str, name: str, changes: Sequence[str] = ()) -> Recipe:
    r"""The recipe that a YAML text describes; a mistake raises `InvalidInputError`.

    >>> parse_recipe("data: {name: digits}\nsigma: 0.5\ntrain: {}\ncertify: {k: 3, k_prim: 1}", "mine.yaml")
    Traceback (most recent call last):
        ...
    multiguard.errors.InvalidInputError: mine.yaml: unknown key 'certify.k_prim': did you mean 'certify.k_prime'?
    """
    tree = parse_yaml(text, name)
    if not isinstance(tree, dict):
        given = {list: "a list", type(None): "nothing"}.get(type(tree), repr(tree))
        raise InvalidInputError(f"{name}: expected the keys of a recipe, such as data: and sigma:, got {given}")
    for change in changes:
        _apply_change(tree, change)
    if isinstance(tree.get("model"), str):
        tree["model"] = {"spec": tree["model"]}
    try:
        return from_tree(Recipe, tree)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def recipe_text(recipe: Recipe) -> str:
    """The recipe as YAML that parses to an equal one, every value written out.

    >>> parse_recipe(recipe_text(find_recipe("digits")), "again") == find_recipe("digits")
    True
    """
    return str(yaml.safe_dump(to_tree(recipe), sort_keys=False, allow_unicode=True))


def _apply_change(tree: dict[Any, Any], change: str) -> None:
    """Put a value as typed on the command line into the tree: text where text belongs, YAML elsewhere."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise InvalidInputError(f"--set {change}: expected KEY=VALUE, such as certify.k=5")
    *sections, last = key.strip().split(".")
    is_text = _takes_text([*sections, last]) and text != "null"
    for section in sections:
        inner = tree.get(section)
        tree[section] = inner = dict(inner) if isinstance(inner, dict) else {}
        tree = inner
    tree[last] = text if is_text else parse_yaml(text, "--set")


def _takes_text(sections: Sequence[str]) -> bool:
    """Whether the value at this place in a recipe is text, or a path."""
    kind: Any = Recipe
    for section in sections:
        if not (isinstance(kind, type) and issubclass(kind, Config)):
            return False
        kinds = [plain_type(one) for one in members(field_types(kind).get(section))]
        if not kinds:
            return False
        kind = kinds[0]
    return kind in (str, Path, ModelConfig)
