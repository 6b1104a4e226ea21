"""From configs of a model, its images and its draws to votes."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiguard.certify.noise import Noise, parse_noise
from multiguard.data.config import FOLDER, DataConfig
from multiguard.data.image import image_hash
from multiguard.data.sample import Dataset, IndexedDataset, fewer_images, image_hashes
from multiguard.errors import ImageError, InvalidInputError, VotesError
from multiguard.evaluate import CertifyConfig
from multiguard.evaluate.scores import failed_words
from multiguard.io.config import to_tree
from multiguard.io.files import check_content, remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.names import shorten_names
from multiguard.io.progress import time_words
from multiguard.io.records import encode_json
from multiguard.models.classifier import Classifier
from multiguard.models.config import ModelConfig
from multiguard.models.loading import chosen_noise, folder_card, load_model, square_size, unnamed_labels
from multiguard.smooth.config import ClusterConfig, VoteConfig, score_threshold
from multiguard.smooth.dataset import VoteRun, no_progress, no_stop
from multiguard.smooth.probe import expectations
from multiguard.smooth.schedule import AdaptivePlan
from multiguard.smooth.smoother import Smoother
from multiguard.votes import Votes, read_votes
from multiguard.votes.folder import SOURCE_FILE, check_votes_folder, discard_votes, read_source, with_seeds
from multiguard.votes.shards import MANIFEST_NAME

if TYPE_CHECKING:
    from multiguard.smooth.cluster import Team

Progress = Callable[[int, int], None]
_LABELS_SHOWN = 5


def vote(
    config: VoteConfig,
    data: DataConfig,
    model: ModelConfig,
    *,
    noise: str | None = None,
    target: CertifyConfig | None = None,
    out: Path | None = None,
    cluster: ClusterConfig | None = None,
    command: str = "",
    note: Callable[[str], object] = lambda text: None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    force: bool = False,
) -> Votes:
    """The votes of a model on noisy copies of images, each a function of (noise seed, image id, draw) alone.

    With `out` the votes are written, and the same call resumes them, with or without a cluster.

    Args:
        config: How the classifier is sampled.
        data: The images.
        model: The classifier.
        noise: The noise as text, such as "gaussian:0.5"; None for the one that the model folder was made for.
        target: What adaptive draws try to prove; None for a fixed number of draws.
        out: The votes folder; None keeps the votes in memory.
        cluster: The machines that vote, which all have `out`, the model and the images on a shared disk; needs Ray.
        command: The command line, for the record.
        note: Called with each thing to know before the draws, such as what looks wrong with the model.
        progress: Called with the number of images done and of all images.
        stop: With `out`, called before each shard; if true, those under way are finished and the rest is left.
        force: Whether to remove another run's votes first; votes of this run are always kept.

    >>> from multiguard.smooth.vote import vote
    >>> vote(VoteConfig(draws=20), DataConfig("digits", images=2), ModelConfig("coco"), noise="gaussian:1")
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: the dataset 'digits test ... must have the same labels in the same order, ...
    """
    progress, stop = progress or no_progress, stop or no_stop
    if out is not None:
        check_content(out, "votes")
    if cluster is None or cluster.cluster is None:
        run = NamedRun(config, data, model, noise=noise, target=target)
        for text in (*run.notes, *run.warnings()):
            note(text)
        return run.votes(progress) if out is None else run.save(out, command, progress, stop, force=force)
    if out is None:
        raise InvalidInputError("a cluster votes into a folder on a shared disk, and none is given (--out)")
    from multiguard.smooth.cluster import open_team

    arguments: dict[str, Any] = {"config": config, "data": data, "model": model, "noise": noise, "target": target}
    run = NamedRun(**arguments | {"config": config.replace(device="cpu")})  # the driver never draws
    with open_team(cluster, arguments) as team:
        run.provenance, warnings = team.look()
        for text in (*run.notes, *warnings):
            note(text)
        return run.save(out, command, progress, stop, force=force, team=team)


class NamedRun(VoteRun):
    """A run whose model and images come from configs; `notes` are what the user should know before a vote."""

    def __init__(
        self,
        config: VoteConfig,
        data: DataConfig,
        model: ModelConfig,
        *,
        noise: str | None = None,
        target: CertifyConfig | None = None,
    ) -> None:
        if config.adaptive != (target is not None):
            raise InvalidInputError("a target tells adaptive draws when to stop: give both, or a fixed number of draws")
        self.model, self.notes, self._target = model.resolved(), list[str](), target
        text = chosen_noise(self.model, noise)
        classifier = load_model(self.model, size=data.size)
        if classifier.num_labels is None:
            self._name_labels(classifier, data)
        side = square_size(classifier, self.model.spec, data.size or self.model.size)
        found = parse_noise(text, None if side is None else (side, side))
        self.data, self.config = data.replace(size=side), config.for_noise(found)
        self.images: IndexedDataset = self.data.open(label_names=classifier.label_names)
        if (card := folder_card(self.model)) is not None and not card.is_for(found):
            self.notes.append(f"note: {model.spec} was made for {card.noise}; this votes with {found}")
        if data.images is not None and data.images > len(self.images):
            self.notes.append(f"note: {fewer_images(data.images, len(self.images))}")
        super().__init__(
            _smoother(classifier, found, config),
            self.images,
            draws=None if target else self.config.most_draws,
            adaptive=AdaptivePlan(target.rule, config.radii, config.most_draws, target.alpha) if target else None,
            pilot_draws=self.config.pilots(data.labelled),
            labelled=data.labelled,
            noise_seed=config.noise_seed,
            shard_images=config.shard_images,
            readers=config.readers,
            on_error=config.on_error,
        )

    def _name_labels(self, classifier: Classifier, data: DataConfig) -> None:
        """Read the scores of the user's code in the dataset's order of labels, which a folder does not have."""
        if data.name == FOLDER:
            raise unnamed_labels(self.model.spec)
        classifier.name_labels(names := data.open().label_names)
        shown = shorten_names(names, _LABELS_SHOWN)
        self.notes.append(
            f"scores are read in the dataset's order of labels: {shown}; give the file of labels (--labels, "
            "model.labels) if the model's differs"
        )

    def warnings(self) -> list[str]:
        """What looks wrong with the model and the draws; a model that no certificate can be about raises."""
        return [f"warning: {text}" for text in expectations(self)[0]]

    def facts(self) -> list[str]:
        """What to expect: the largest provable radius, recall, the time; and then what looks wrong."""
        warnings, facts = expectations(self)
        draws, most = self.config.most_draws + self.provenance.pilot_draws, " at most" if self.config.adaptive else ""
        device = self.smoother.settings.device.partition(":")[0]
        facts.append(
            f"{len(self.images)} images x {draws} draws take about {time_words(self.seconds())}{most} on {device}"
        )
        found = f"{len(warnings)} warnings" if warnings else "nothing looks wrong"
        return [*facts, *(f"warning: {text}" for text in warnings), found]

    def save(
        self,
        out: Path,
        command: str = "",
        progress: Progress = no_progress,
        stop: Callable[[], bool] = no_stop,
        *,
        force: bool = False,
        team: "Team | None" = None,
    ) -> Votes:
        """Write the missing votes, and record which images and which model they are of; as in `vote`."""
        discard = discard_votes if force else None
        files = image_hashes("data", self.images, self.data.root)["data.files"]
        with folder_lock(out):
            check_votes_folder(out, force=force)
            self._check_files(out, files, discard)
            manifest = self.write(out, progress=progress, stop=stop, discard=discard, team=team)
            if manifest.finished:
                self._write_source(out, files, command, manifest.provenance.noise_seed)
            return read_votes(out, partial=True)

    def _check_files(self, out: Path, files: str, discard: Callable[[Path], None] | None) -> None:
        """Refuse, or discard, finished votes on image files that have other pixels by now."""
        if read_source(out).get("files", files) == files or not (out / MANIFEST_NAME).exists():
            return  # shards without a manifest count for nothing
        votes = read_votes(out, partial=True)
        known = {*votes.ids, *(failure.image_id for failure in votes.failures)}
        if known != {*self.images.ids} or votes_match_images(votes, self.images):
            return  # the writer refuses votes on images of other names
        if discard is None:
            raise VotesError(
                f"{out} holds votes on other images: files of {self.images.name} have changed since. Vote with --force "
                "(force=True) to discard those votes, or name another folder"
            )
        discard(out)

    def _write_source(self, out: Path, files: str, command: str, noise_seed: int) -> None:
        """Record which images and which model were voted on; a record of the same files stays, with its command."""
        if read_source(out).get("files") == files:
            return
        command = with_seeds(command, seed=self.data.seed, noise_seed=noise_seed)
        source = {"data": to_tree(self.data.absolute()), "model": to_tree(self.model)}
        remove_partial_files(out, lambda name: name == SOURCE_FILE)
        content = encode_json({**source, "command": command, "files": files}) + b"\n"
        write_atomically(out / SOURCE_FILE, lambda file: file.write(content))


def _smoother(classifier: Classifier, noise: Noise, config: VoteConfig) -> Smoother:
    return Smoother(
        classifier,
        noise=noise,
        k_max=config.k_max,
        score_threshold=score_threshold(config.rule, config.score_threshold),
        device=config.device,
        batch_size=config.batch_size or "auto",
        clamp=config.clamp,
        precision=config.precision,
    )


def mean_draws(votes: Votes) -> float:
    """The mean number of draws per image."""
    return sum(votes.draws_of(position) for position in range(len(votes))) / max(1, len(votes))


def failure_text(votes: Votes) -> str | None:
    """How many images failed, and the first of them; None if all were voted on."""
    if not votes.failures:
        return None
    first, such_as = votes.failures[0], "such as " if len(votes.failures) > 1 else ""
    total = len(votes) + len(votes.failures)
    return f"{failed_words(len(votes.failures), total)}, {such_as}{first.image_id}: {first.reason}"


def votes_match_images(votes: Votes, images: Dataset) -> bool:
    """Whether every vote is of the image that now has its id; failed images have no votes."""
    try:
        positions = {image_id: position for position, image_id in enumerate(images.ids)}
        return all(
            image_hash(images[positions[image_id]].image) == voted
            for image_id, voted in zip(votes.ids, votes.image_hashes, strict=True)
        )
    except (ImageError, KeyError):
        return False
