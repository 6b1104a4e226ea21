"""Voting by names and paths: load the model, list the images, sample, and say in the folder what was done."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from multiguard.certify import look_plan
from multiguard.data.listed import read_lines
from multiguard.data.sample import Catalogued
from multiguard.data.source import FOLDER, Source
from multiguard.errors import InvalidInputError
from multiguard.evaluate import AnySetting
from multiguard.evaluate.failed import failed_words
from multiguard.io.files import remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.names import shorten_names
from multiguard.io.ranks import this_rank
from multiguard.models import Classifier, load_classifier
from multiguard.models.backbone import input_size
from multiguard.models.folder import CARD_FILE, read_card
from multiguard.models.options import state_hash
from multiguard.pipeline.asked import VotePart
from multiguard.pipeline.certifying import SOURCE_FILE
from multiguard.pipeline.discarding import discard_votes
from multiguard.pipeline.image_hashes import image_hashes
from multiguard.pipeline.places import require_no_other
from multiguard.pipeline.recipe import ModelPart
from multiguard.smooth import AdaptivePlan, Smoother, vote_dataset
from multiguard.smooth.dataset import checked_scheme
from multiguard.smooth.provenance import as_begun, describe_run, first_image
from multiguard.votes import ImageFailure, read_votes
from multiguard.votes.manifest import load_manifest
from multiguard.votes.provenance import Provenance
from multiguard.votes.writer import holds_other_run

# What of a `VotePart` decides the votes as it stands; the rest is settled first, or only says how fast they come.
_DECISIVE = ("rule", "score_threshold", "draws", "radii", "seed", "k_max", "precision", "clamp", "shard_images")

_NAMES_SAID = 5


@dataclass(frozen=True)
class VoteJob:
    """What to vote on, with which classifier, and how.

    Attributes:
        model: The base classifier.
        source: The images.
        out: The votes folder to write, or to go on with.
        sigma: The noise; None for the one that the model folder was made for.
        how: How the classifier is sampled.
        aim: What adaptive draws are to prove; None where their number is fixed.
        command: What reproduces the votes, for the record.
    """

    model: ModelPart
    source: Source
    out: Path
    sigma: float | None = None
    how: VotePart = field(default_factory=VotePart)
    aim: AnySetting | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.how.adaptive != (self.aim is not None):
            raise InvalidInputError("an aim says where adaptive draws may stop: give both, or a fixed number of draws")


@dataclass(frozen=True, eq=False)
class ReadyVote:
    """A job whose model is loaded and whose images are listed, so that all that decides the votes is known.

    Attributes:
        job: The job, the size of its images settled.
        sigma: The noise.
        classifier: The base classifier.
        images: What is voted on.
        made_for: The noise that the model folder was made for; None where the model does not say.
        order_note: That the scores are read in the dataset's order of labels, in words; None where the model or a file
            says the order.
    """

    job: VoteJob
    sigma: float
    classifier: Classifier
    images: Catalogued
    made_for: float | None
    order_note: str | None = None

    def inputs(self) -> dict[str, Any]:
        """All that decides the votes, by name."""
        how, labelled = asdict(self.job.how), self.job.source.labelled
        return {
            "sigma": self.sigma,
            **{f"vote.{name}": how[name] for name in _DECISIVE},
            "vote.max_draws": self.job.how.most_draws,
            "vote.pilot_draws": self.job.how.pilots(labelled),
            **{f"certify.{name}": value for name, value in _aim(self.job).items()},
            "model": self.classifier.name,
            "model.labels": list(self.classifier.label_names),
            "model.output": self.classifier.output,
            "model.weights": state_hash(self.classifier),
            "model.file": self.classifier.weights_hash,
            "model.code": self.classifier.code_hash,
            "data.labelled": labelled,
            **image_hashes("data", self.images, self.job.source.root, labelled=labelled),
        }

    def discard_old(self) -> None:
        """Throw votes away that lie where these go, after all that can be wrong with these has been looked at."""
        self._described(self._smoother())
        with folder_lock(self.job.out):
            discard_votes(self.job.out)

    def vote(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Write the votes, or what is still missing of them, and beside them where they come from.

        Args:
            progress: Called with the number of images done and of all images.
            stop: Asked before each shard; at a yes the shards under way are finished and the rest is left.
            force: Whether another run's votes that lie there are thrown away first; votes of this run never are.
        """
        job, how = self.job, self.job.how
        smoother = self._smoother()
        more: dict[str, Any] = {name: getattr(how, name) for name in ("shard_images", "readers", "on_error")}
        with folder_lock(job.out):
            if force and this_rank().may_discard and self._meets_other(smoother):
                discard_votes(job.out)
            vote_dataset(smoother, self.images, job.out, **self._drawn(), **more, progress=progress, stop=stop)
            if this_rank().is_main and load_manifest(job.out).sealed:
                _write_source(job, dataset_order=self.order_note is not None)

    def _meets_other(self, smoother: Smoother) -> bool:
        """Whether another run's votes lie where these go; all that can be wrong with these has been looked at."""
        run = as_begun(self._described(smoother), self.job.out, self.images)
        return holds_other_run(self.job.out, run, self.job.how.shard_images)

    def _described(self, smoother: Smoother) -> Provenance:
        """All that determines the votes, found to make sense."""
        scheme = checked_scheme(smoother, **self._drawn())
        return describe_run(smoother, self.images, scheme, first_image(self.images, self.job.how.on_error))

    def mean_draws(self) -> float:
        """How many draws an image took on average, of the votes as they lie in the folder."""
        votes = read_votes(self.job.out)
        return sum(votes.draws_of(position) for position in range(len(votes))) / max(1, len(votes))

    def failures(self) -> tuple[ImageFailure, ...]:
        """The images that could not be voted on, of the votes as they lie in the folder, once these are whole."""
        return load_manifest(self.job.out).failures

    def failures_said(self) -> str | None:
        """How many images could not be voted on, and one of them, in words; None where all could."""
        failures = self.failures()
        if not failures:
            return None
        words, first = failed_words(len(failures), len(self.images)), failures[0]
        return f"{words}, {'such as ' if len(failures) > 1 else ''}{first.image_id}: {first.reason}"

    def _drawn(self) -> dict[str, Any]:
        """What is drawn of every image."""
        how, labelled = self.job.how, self.job.source.labelled
        plan = AdaptivePlan(look_plan(how.most_draws), how.radii, **_aim(self.job)) if how.adaptive else None
        return {
            "draws": None if how.adaptive else how.draws,
            "adaptive": plan,
            "pilot_draws": how.pilots(labelled),
            "labelled": labelled,
            "seed": how.seed,
        }

    def _smoother(self) -> Smoother:
        how = self.job.how
        return Smoother(
            self.classifier,
            sigma=self.sigma,
            rule=how.rule,
            k_max=how.k_max,
            score_threshold=how.score_threshold,
            device=_own_device(how.device),
            batch_size=how.batch_size or "auto",
            clamp=how.clamp,
            precision=how.precision,
        )


def _own_device(device: str | None) -> str | None:
    """What was asked for; of several processes on a machine each takes a GPU of its own where none was named."""
    rank, gpus = this_rank(), torch.cuda.device_count()
    return f"cuda:{rank.local % gpus}" if rank.count > 1 and gpus and device in (None, "cuda") else device


def prepare_vote(job: VoteJob) -> ReadyVote:
    """The job with its model loaded and its images listed; none is decoded yet.

    Where the images are a folder with a CSV, its labels take the model's order.
    """
    require_no_other(job.out, "votes")
    names, note = None if job.model.labels is None else tuple(read_lines(job.model.labels)), None
    if names is None and not _says_labels(job.model.spec):
        names = tuple(job.source.open().label_names)
        note = f"scores are read in the dataset's order of labels: {shorten_names(names, _NAMES_SAID)}"
    classifier = load_model(job.model, job.source.size, names)
    sigma = settled_sigma(job.model.spec, job.sigma)
    size = square_size(classifier, job.model.spec, job.source.size)
    source = replace(_labelled(job.source, classifier.label_names), size=size)
    return ReadyVote(replace(job, source=source), sigma, classifier, source.open(), made_for(job.model.spec), note)


def load_model(model: ModelPart, size: int | None = None, labels: tuple[str, ...] | None = None) -> Classifier:
    """The classifier of a recipe or a command; a model folder says everything itself.

    Args:
        model: Which one, and what is said about it.
        size: Height and width of its images; None for its own.
        labels: The label names, where the model does not bring them.
    """
    side = None if size is None or _is_folder(model.spec) else (size, size)
    return load_classifier(
        model.spec,
        labels=labels,
        weights=model.weights,
        output=model.output,
        mean=model.mean,
        std=model.std,
        image_size=side,
    )


def square_size(classifier: Classifier, spec: str, size: int | None) -> int | None:
    """The height and width to squash images to for this classifier; None where any will do.

    Args:
        classifier: Who looks at the images.
        spec: How it was named.
        size: What was asked for; another than the classifier's own is refused.
    """
    own = classifier.image_size
    if own is None:
        return size if size is not None or not spec.startswith("timm:") else input_size(spec)
    if own[0] != own[1]:
        raise InvalidInputError(f"{spec} takes images of {own[0]}x{own[1]}; only squares can be made of images here")
    if size not in (None, own[0]):
        raise InvalidInputError(f"{spec} takes images of {own[0]}x{own[0]}; leave out the size {size}")
    return own[0]


def _is_folder(spec: str) -> bool:
    return Path(spec).is_dir()


def _says_labels(spec: str) -> bool:
    return _is_folder(spec) or spec.startswith("hf:")


def made_for(spec: str) -> float | None:
    """The noise that a model folder was made for; None where the model does not say."""
    return read_card(Path(spec)).sigma if (Path(spec) / CARD_FILE).is_file() else None


def settled_sigma(spec: str, sigma: float | None) -> float:
    """The noise asked for, or else the one that the model was made for."""
    found = made_for(spec) if sigma is None else sigma
    if found is None:
        raise InvalidInputError(f"no sigma given, and {spec} does not say which; give --sigma, such as 0.5")
    return found


def _labelled(source: Source, names: tuple[str, ...]) -> Source:
    """The source with the labels in the classifier's order, where the user's own table leaves the order open."""
    if source.data != FOLDER:
        return source
    return replace(source, options={**source.options, "label_names": names})


def _aim(job: VoteJob) -> dict[str, Any]:
    """What adaptive draws are to prove, by name; nothing where their number is fixed."""
    return {} if job.aim is None else {name: value for name, value in asdict(job.aim).items() if name != "draws"}


def _write_source(job: VoteJob, *, dataset_order: bool) -> None:
    model = {name: _plain(value) for name, value in asdict(job.model).items() if value is not None}
    if dataset_order:
        model["labels"] = "dataset"
    said = {"data": job.source.as_dict(), "model": model, "command": job.command}
    text = json.dumps(said, indent=1, ensure_ascii=False)
    remove_partial_files(job.out, lambda name: name == SOURCE_FILE)
    write_atomically(job.out / SOURCE_FILE, lambda file: file.write(f"{text}\n".encode()))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
