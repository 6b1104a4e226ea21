"""From certificates back to their images and their model, and on to an attack folder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.attack import AttackPlan, AttackResult, Victim, attack_images, gradient_error
from multiguard.attack.config import AttackConfig
from multiguard.certify.noise import BandAblation, Noise
from multiguard.certify.rules import TopK
from multiguard.data.config import DataConfig
from multiguard.data.image import image_hash
from multiguard.data.sample import IndexedDataset, fewer_images
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import (
    AttackedImage,
    AttackOutcome,
    Attacks,
    Certificates,
    evaluated_size,
    radius_grid,
    typical_radius,
)
from multiguard.evaluate.attack_outcomes import finite_radii, proved_sizes
from multiguard.evaluate.scores import check_radius
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import file_checksum
from multiguard.io.rounding import plain
from multiguard.models import Classifier
from multiguard.models.classifier import state_hash
from multiguard.models.config import ModelConfig, recorded_model
from multiguard.models.denoiser import denoised_checksum
from multiguard.models.loading import load_model, runs_code, weights_checksum
from multiguard.pipeline.folders import check_content, check_inside
from multiguard.report import draw_attack, write_attack_table
from multiguard.results import AttackFolder, Results, read_attacks, read_certificates
from multiguard.results.attack_files import attack_stage, stage_attacks
from multiguard.results.certificate_files import CERTIFICATES_NAME
from multiguard.smooth import Smoother
from multiguard.smooth.fingerprint import execution
from multiguard.version import __version__

_PROBED = 4  # images of which one must have a gradient
_HALVES = 6  # of the typical radius, to which the default radii lead
# These decide the last digits of the scores; the noise does not depend on them.
_EXECUTION = (
    *("device", "precision", "channels_last", "compiled", "tf32_matmul", "tf32_convolution"),
    *("torch", "timm", "transformers", "onnxruntime"),
)


@dataclass(frozen=True)
class AttackJob:
    """Which certificates to attack, and how hard."""

    certificates: Path  # a folder, as out
    out: Path
    part: AttackConfig = field(default_factory=AttackConfig)  # which images, at which radii, and how hard
    model: ModelConfig | None = None  # the model, if it is no longer what and where the votes say; None to use theirs
    command: str = ""  # the command line, for the record
    force: bool = False  # whether to replace an attack that is there

    @property
    def plan(self) -> AttackPlan:
        """How the attacks search."""
        same = {
            name: getattr(self.part, name) for name in ("attacks", "steps", "copies", "starts", "tries", "box", "seed")
        }
        return AttackPlan(evaluation_draws=self.part.draws, **same)


@dataclass(frozen=True, eq=False)
class PreparedAttack:
    """A job whose model and images are checked to be those of the certificates."""

    job: AttackJob  # the job; it attacks without gradients if the model has none
    certified: Results
    smoother: Smoother  # the smoothed classifier, as it was voted with
    images: IndexedDataset  # the images that were voted on
    notes: tuple[str, ...]  # what the user should know first

    def attack(self, progress: Callable[[int, int], None] | None = None) -> AttackFolder:
        """Attack, and write the folder with its table and its figure; the same attack finds its work done."""
        job, digest = self.job, self.certified.certificates_hash
        inputs = attack_inputs(job, digest)
        with attack_stage(job.out, inputs, force=job.force) as stage:
            if stage is not None:
                attacks = self._attacks(progress)
                more: dict[str, Any] = {"command": job.command or None, "provenance": self.certified.provenance}
                stage_attacks(stage, attacks, certificates_hash=digest, **more)
                write_attack_table(attacks, stage)
                draw_attack(attacks, stage)
        return read_attacks(job.out)

    def _attacks(self, progress: Callable[[int, int], None] | None) -> Attacks:
        job, certificates = self.job, self.certified.certificates
        radii, chosen = _grid(job.part, certificates.noise), _chosen(job, certificates)
        bands = _bands(certificates)
        counted = None if progress is None else lambda done: progress(done, len(chosen))
        victims = self._victims(chosen, radii)
        outcomes = attack_images(self.smoother, victims, certificates.config.rule, job.plan, progress=counted)
        images, flat = [], 0
        for index, attacked in zip(chosen, outcomes, strict=True):
            images.append(_evaluated(job, certificates, index, attacked))
            flat += attacked.flat
        return Attacks(
            config=certificates.config,
            noise=certificates.noise,
            label_names=certificates.label_names,
            labelled=certificates.labelled,
            methods=certificates.methods,
            radii=radii,
            names=job.plan.attacks,
            beta=0.0 if bands else job.part.beta,
            draws=bands or job.plan.evaluation_draws,
            images=tuple(images),
            without_labels=sum(not labels for labels in certificates.labels),
            failed=len(certificates.failures),
            adaptive=self.certified.provenance["stops"] is not None,
            plan={**asdict(job.plan), "own_radii": job.part.own_radii, "images": job.part.images},
            flat=flat,
        )

    def _victims(self, chosen: Sequence[int], radii: tuple[float, ...]) -> Iterator[Victim]:
        """The images, decoded one by one, each checked to be the one that was voted on."""
        certificates = self.certified.certificates
        names = [certificates.ids[index] for index in chosen]
        for index, name, image in zip(chosen, names, _decode(self.images, names), strict=True):
            if certificates.image_hashes[index] not in (None, image_hash(image)):
                raise DataError(f"image {name} is not the one that was voted on; restore it, or vote again")
            proved = proved_sizes(certificates, index)
            own = finite_radii(proved, certificates.methods) if self.job.part.own_radii else set()
            yield Victim(name, image, certificates.labels[index], tuple(sorted(own | set(radii[1:]))))


def attack_inputs(job: AttackJob, certificates_hash: str) -> dict[str, Any]:
    """Everything that decides the outcome of an attack, by name; the hash is that of the certificates as read."""
    part = {name: _plain(value) for name, value in to_tree(job.part).items() if name != "device"}
    model = None if job.model is None else {name: _plain(value) for name, value in to_tree(job.model).items()}
    return {
        "certificates": certificates_hash,
        "attack": part,
        "model": model,
        "multiguard": __version__,
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def finished_attack(job: AttackJob) -> AttackFolder | None:
    """The attack that the same job has already made; None if there is none."""
    _check_folder(job)
    inputs = attack_inputs(job, file_checksum(job.certificates / CERTIFICATES_NAME))
    with attack_stage(job.out, inputs, force=job.force) as stage:
        finished = stage is None
    return read_attacks(job.out) if finished else None


def _check_folder(job: AttackJob) -> None:
    check_content(job.out, "an attack")
    if job.out.parent == job.certificates.parent:
        check_inside(job.certificates.parent, job.out)


def prepare_attack(job: AttackJob) -> PreparedAttack:
    """Load the model, check that it is the certified one, and list the images; only a few are decoded."""
    _check_folder(job)
    gradients = "pgd" in job.plan.attacks
    certified = read_certificates(job.certificates)
    _grid(job.part, certified.certificates.noise)
    probed = [certified.certificates.ids[index] for index in _chosen(job, certified.certificates)[:_PROBED]]
    source = voted_source(job.certificates, certified, job.part.root)
    images = source.open(label_names=certified.certificates.label_names)
    classifier = voted_classifier(job.certificates, certified, job.model, source)
    smoother = _voted_smoother(certified, classifier, job.part.device)
    notes = (*_fewer(job, certified), *execution_notes(certified, smoother))
    fault = gradient_error(smoother, _decode(images, probed)) if gradients else None
    if fault is not None:
        job = replace(job, part=job.part.replace(attacks=("random",)))
        notes = (f"{smoother.classifier.name} has no gradients ({fault}): random search replaces pgd", *notes)
    return PreparedAttack(job, certified, smoother, images, notes)


def execution_notes(certified: Results, smoother: Smoother) -> tuple[str, ...]:
    """A note if the classifier does not run as it did when it voted."""
    now, then = ({**run, **run["versions"]} for run in (execution(smoother), certified.provenance))
    known = [name for name in _EXECUTION if name in now and name in then]
    differences = [f"{name} {then[name]}, here {now[name]}" for name in known if now[name] != then[name]]
    if not differences:
        return ()
    meaning = "certificates are about the classifier as it ran there, to the last digit"
    return (f"the votes were drawn differently ({'; '.join(differences)}): {meaning}",)


def _fewer(job: AttackJob, certified: Results) -> list[str]:
    count = job.part.images
    there = sum(map(bool, certified.certificates.labels))
    return [fewer_images(count, there)] if count is not None and count > there else []


def _grid(part: AttackConfig, noise: Noise) -> tuple[float, ...]:
    """0 and the radii to attack at, from small to large."""
    typical = typical_radius(noise)
    step = max(1, round(typical / 2)) if noise.whole else typical / 2
    radii = check_radius(part.radii or radius_grid(noise, to=_HALVES * step, step=step), noise)
    if not np.any(radii > 0):
        raise InvalidInputError(
            f"radius 0 leaves an attack nothing to change; give a larger one, such as --radius {plain(typical)}"
        )
    return (0.0, *sorted({float(radius) for radius in radii} - {0.0}))


def _decode(images: IndexedDataset, names: Sequence[str]) -> Iterator[NDArray[np.generic]]:
    """The images of these ids, decoded one by one; one that is gone raises `DataError`."""
    positions = {name: index for index, name in enumerate(images.ids)}
    for name in names:
        if name not in positions:
            raise DataError(f"image {name} was voted on and is no longer in {images.name}; --root FOLDER")
        yield images[positions[name]].image


def _chosen(job: AttackJob, certificates: Certificates) -> list[int]:
    """The positions of the images to attack: all that have labels, or a random sample of them."""
    labelled = [index for index, labels in enumerate(certificates.labels) if labels]
    if not labelled:
        raise InvalidInputError(f"{job.certificates}: no image has a label, so there is nothing to attack")
    count = job.part.images
    if count is None:
        return labelled
    order = np.random.default_rng(job.plan.seed).permutation(len(labelled))
    return sorted(labelled[position] for position in order[:count])


def _evaluated(job: AttackJob, certificates: Certificates, index: int, attacked: AttackResult) -> AttackedImage:
    """What the perturbations of one image reached; beta is split over all of them."""
    bands = _bands(certificates)
    level, draws = job.part.beta / len(attacked.perturbations), job.plan.evaluation_draws
    labels, rule = attacked.victim.labels, certificates.config.rule
    outcomes = [
        AttackOutcome(
            found.attack,
            found.goal,
            found.radius,
            found.norm,
            *evaluated_size(found.counts, bands or draws, labels, rule, found.goal, beta=None if bands else level),
        )
        for found in attacked.perturbations
    ]
    return AttackedImage(attacked.victim.id, labels, proved_sizes(certificates, index), tuple(outcomes))


def _bands(certificates: Certificates) -> int | None:
    """How many bands vote, and evaluate an attack; None where draws do."""
    return certificates.noise.columns if isinstance(certificates.noise, BandAblation) else None


def voted_source(certificates: Path, certified: Results, root: Path | None) -> DataConfig:
    """The images that were voted on."""
    if "data" not in certified.source:
        raise InvalidInputError(f"{certificates} does not name its images; vote with multiguard vote")
    data = from_tree(DataConfig, certified.source["data"], "data")
    return data if root is None else data.replace(root=root)


def voted_classifier(certificates: Path, certified: Results, model: ModelConfig | None, data: DataConfig) -> Classifier:
    """The classifier that was voted with; another one is refused, since the certificates say nothing about it."""
    part = model.resolved() if model else recorded_model(certificates, certified.source.get("model"))
    run = certified.provenance
    other = InvalidInputError(
        f"{part.spec} is not the classifier that {certificates} is about; --model names the one that voted"
    )
    if not runs_code(part.spec) and _files_checksum(part) != run["weights_hash"]:
        raise other  # before any of its files is taken for a model
    classifier = load_model(part, size=data.size, noise=str(certified.certificates.noise))
    if classifier.num_labels is None:
        classifier.name_labels(certified.certificates.label_names)
    same = (
        state_hash(classifier) == run["classifier_hash"]
        and classifier.code_hash == run["code_hash"]
        and classifier.weights_hash == run["weights_hash"]
        and classifier.output == run["output"]
        and classifier.label_names == certified.certificates.label_names
    )
    if not same:
        raise other
    return classifier


def _files_checksum(part: ModelConfig) -> str | None:
    """The hash of the files of the model, that of its denoiser among them."""
    digest = weights_checksum(part.spec, part.weights)
    return digest if part.denoiser is None else denoised_checksum(digest, part.denoiser)


def _voted_smoother(certified: Results, classifier: Classifier, device: str | None) -> Smoother:
    """The smoothed classifier as it was voted with, with only the ranks that the certificates use."""
    run, rule = certified.provenance, certified.certificates.config.rule
    return Smoother(
        classifier,
        noise=certified.certificates.noise,
        k_max=rule.k_prime if isinstance(rule, TopK) else None,
        score_threshold=run["score_threshold"],
        device=device,
        clamp=run["clamp"],
        precision=run["precision"],
    )
