"""From a model and a dataset to a votes folder that records both."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from multiguard.certify.noise import Noise, parse_noise
from multiguard.data.config import FOLDER, DataConfig
from multiguard.data.image import image_hash
from multiguard.data.sample import Dataset, IndexedDataset
from multiguard.errors import ImageError, ImageFailure, InvalidInputError, VotesError
from multiguard.evaluate import CertifyConfig
from multiguard.evaluate.scores import failed_words
from multiguard.io.config import to_tree
from multiguard.io.files import real_path, remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.names import shorten_names
from multiguard.io.ranks import this_rank
from multiguard.io.records import encode_json
from multiguard.models import Classifier
from multiguard.models.classifier import state_hash
from multiguard.models.config import ModelConfig
from multiguard.models.loading import chosen_noise, folder_noise, load_model, square_size, unnamed_labels
from multiguard.pipeline.commands import with_seeds
from multiguard.pipeline.folders import SOURCE_FILE, check_content, check_votes_folder, discard_votes
from multiguard.pipeline.job_model import own_device, score_threshold
from multiguard.smooth import AdaptivePlan, Smoother
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.dataset import VoteRun, make_scheme
from multiguard.votes import Manifest, read_votes
from multiguard.votes.shards import MANIFEST_NAME, shard_name

# The fields of a `VoteConfig` that decide the votes as they stand; others are resolved first, or set the speed.
_DECISIVE = ("rule", "score_threshold", "draws", "radii", "noise_seed", "k_max", "precision", "clamp", "shard_images")
_LABELS_SHOWN = 5


@dataclass(frozen=True)
class VoteJob:
    """What to vote on, with which classifier, and how."""

    model: ModelConfig
    data: DataConfig
    out: Path  # the votes folder to write, or to resume
    noise: str | None = None  # the noise as text; None for the one that the model folder was made for
    part: VoteConfig = field(default_factory=VoteConfig)  # how the classifier is sampled
    target: CertifyConfig | None = None  # what adaptive draws try to prove; None for a fixed number of draws
    command: str = ""  # the command line, for the record

    def __post_init__(self) -> None:
        if self.part.adaptive != (self.target is not None):
            raise InvalidInputError("a target tells adaptive draws when to stop: give both, or a fixed number of draws")

    def target_values(self) -> dict[str, Any]:
        """What adaptive draws try to prove, by name; empty for a fixed number of draws."""
        return {} if self.target is None else {**self.target.rule.options, "alpha": self.target.alpha}


@dataclass(frozen=True)
class VoteResult:
    """The votes as they are in the folder after a vote."""

    images: int  # how many images there are
    failures: tuple[ImageFailure, ...]  # those that could not be voted on
    files: tuple[Path, ...]  # the files of the votes
    mean_draws: float  # the mean number of draws per image

    def failure_text(self) -> str | None:
        """How many images failed, and the first of them; None if all were voted on."""
        if not self.failures:
            return None
        first, such_as = self.failures[0], "such as " if len(self.failures) > 1 else ""
        return f"{failed_words(len(self.failures), self.images)}, {such_as}{first.image_id}: {first.reason}"


@dataclass(frozen=True, eq=False)
class PreparedVote:
    """A job whose model is loaded and whose images are listed: everything that decides the votes is known."""

    job: VoteJob  # the job; the size of its images and the number of draws are resolved
    noise: Noise
    classifier: Classifier
    images: IndexedDataset
    made_for: Noise | None  # the noise that the model folder was made for; None if the model does not say
    order_note: str | None = None  # a message if scores of the user's code are read in the dataset's order of labels

    @property
    def fewer_note(self) -> str | None:
        """A message if there are fewer images than were requested."""
        requested, there = self.job.data.images, len(self.images)
        return fewer_images(requested, there) if requested is not None and requested > there else None

    @cached_property
    def classifier_hash(self) -> str:
        """The hash of the classifier's state, computed once: nothing changes the weights of a job."""
        return state_hash(self.classifier)

    def inputs(self) -> dict[str, Any]:
        """Everything that decides the votes, by name."""
        part, labelled = self.job.part, self.job.data.labelled
        return {
            "noise": str(self.noise),
            **{f"vote.{name}": getattr(part, name) for name in _DECISIVE},
            "vote.max_draws": part.most_draws,
            "vote.pilot_draws": part.pilots(labelled),
            **{f"certify.{name}": value for name, value in self.job.target_values().items()},
            "model": self.classifier.name,
            "model.labels": list(self.classifier.label_names),
            "model.output": self.classifier.output,
            "model.weights": self.classifier_hash,
            "model.file": self.classifier.weights_hash,
            "model.code": self.classifier.code_hash,
            "data.labelled": labelled,
            **image_hashes("data", self.images, self.job.data.root, labelled=labelled),
        }

    def discard_old(self) -> None:
        """Remove the old votes in the folder, once nothing can be wrong with the new ones."""
        _ = self.run  # what is wrong with it is said now
        check_content(self.job.out, "votes")
        with folder_lock(self.job.out):
            discard_votes(self.job.out)

    def vote(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
        *,
        force: bool = False,
    ) -> VoteResult | None:
        """Write the votes that are missing, and record their source; None in processes beside the main one.

        Args:
            progress: Called with the number of images done and of all images.
            stop: Called before each shard; if true, the shards under way are finished and the rest is left.
            force: Whether to remove another run's votes first; votes of this run are always kept.
        """
        discard = discard_votes if force and this_rank().may_discard else None
        with folder_lock(self.job.out):
            check_content(self.job.out, "votes")
            check_votes_folder(self.job.out, force=force)
            manifest = self.run.write(self.job.out, progress=progress, stop=stop, discard=discard)
            if manifest is not None and manifest.finished:
                self._write_source(manifest.provenance.noise_seed)
        return None if manifest is None else self._result(manifest)

    def _result(self, manifest: Manifest) -> VoteResult:
        shards = [self.job.out / shard_name(index) for index in range(manifest.shard_count)]
        return VoteResult(
            len(self.images),
            manifest.failures,
            (self.job.out / MANIFEST_NAME, self.job.out / SOURCE_FILE, *shards),
            self._mean_draws() if self.job.part.adaptive and manifest.finished else float(self.job.part.most_draws),
        )

    def _mean_draws(self) -> float:
        votes = read_votes(self.job.out)
        return sum(votes.draws_of(position) for position in range(len(votes))) / max(1, len(votes))

    @cached_property
    def run(self) -> VoteRun:
        """The voting run, its arguments checked; nothing is written yet."""
        smoother, part = self._smoother(), self.job.part
        scheme = make_scheme(smoother, **self._scheme())
        more: dict[str, Any] = {name: getattr(part, name) for name in ("shard_images", "readers", "on_error")}
        return VoteRun(smoother, self.images, scheme, classifier_hash=self.classifier_hash, **more)

    def _scheme(self) -> dict[str, Any]:
        """How many draws of which noise each image gets."""
        part, labelled, target = self.job.part, self.job.data.labelled, self.job.target
        plan = None
        if target is not None:
            plan = AdaptivePlan(target.rule, part.radii, part.most_draws, target.alpha)
        return {
            "draws": None if part.adaptive else part.draws,
            "adaptive": plan,
            "pilot_draws": part.pilots(labelled),
            "labelled": labelled,
            "noise_seed": part.noise_seed,
        }

    def _smoother(self) -> Smoother:
        part = self.job.part
        return Smoother(
            self.classifier,
            noise=self.noise,
            k_max=part.k_max,
            score_threshold=score_threshold(part.rule, part.score_threshold),
            device=own_device(part.device),
            batch_size=part.batch_size or "auto",
            clamp=part.clamp,
            precision=part.precision,
        )

    def _write_source(self, noise_seed: int) -> None:
        """Record which images and which model were voted on, for reports and attacks."""
        job = self.job
        command = with_seeds(job.command, seed=job.data.seed, noise_seed=noise_seed)
        source = {"data": to_tree(job.data.absolute()), "model": to_tree(job.model), "command": command}
        remove_partial_files(job.out, lambda name: name == SOURCE_FILE)
        write_atomically(job.out / SOURCE_FILE, lambda file: file.write(encode_json(source) + b"\n"))


def prepare_vote(job: VoteJob) -> PreparedVote:
    """Load the model and list the images; none is decoded yet.

    The labels of a folder with a CSV take the model's order.
    """
    model, data = job.model.resolved(), job.data
    text = chosen_noise(model, job.noise)
    classifier, note = load_model(model, size=data.size, noise=text), None
    if classifier.num_labels is None:
        if data.name == FOLDER:  # its labels have the order of the alphabet, which no model has by itself
            raise unnamed_labels(model.spec)
        classifier.name_labels(names := data.open().label_names)
        note = f"scores are read in the dataset's order of labels: {shorten_names(names, _LABELS_SHOWN)}"
    data = data.replace(size=square_size(classifier, model.spec, data.size or model.size))
    noise = parse_noise(text, None if data.size is None else (data.size, data.size))
    job = replace(job, model=model, data=data, noise=str(noise), part=job.part.for_noise(noise))
    images = data.open(label_names=classifier.label_names)
    return PreparedVote(job, noise, classifier, images, folder_noise(model), note)


def fewer_images(requested: int, there: int) -> str:
    """A note that there are fewer images than were requested."""
    return f"{requested} images requested, and there are {there}: all of them are taken"


def image_hashes(prefix: str, images: IndexedDataset, root: Path | None, *, labelled: bool = True) -> dict[str, str]:
    """Hashes that change with any image's name, labels, file or decoded size, but not with the folder's location.

    Args:
        prefix: What the names of the hashes begin with.
        images: The images; none is decoded.
        root: The folder that holds them.
        labelled: Whether their labels count.
    """
    home = "" if root is None else str(real_path(root))
    return {
        f"{prefix}.name": images.name,
        f"{prefix}.labels": _hash(images.label_names),
        f"{prefix}.ids": _hash(images.ids),
        f"{prefix}.truth": _hash(str(labels) for labels in images.labels if labelled),
        f"{prefix}.files": _hash(origin.removeprefix(home) for origin in images.origins),
    }


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def votes_match_images(folder: Path, images: Dataset) -> bool:
    """Whether every vote in the folder is of the image that now has its id; failed images have no votes."""
    try:
        votes = read_votes(folder, partial=True)
        positions = {image_id: position for position, image_id in enumerate(images.ids)}
        return all(
            image_hash(images[positions[image_id]].image) == voted
            for image_id, voted in zip(votes.ids, votes.image_hashes, strict=True)
        )
    except (VotesError, ImageError, KeyError):
        return False
