"""Attacking by names and paths: from a certificates folder back to its images and its model, and on to an attack."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.attack import Attacked, AttackPlan, Victim, attack_images, gradient_fault
from multiguard.data.sample import Catalogued
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import AttackedImage, Attacks, Certificates, Reached, judged_size, radius_grid
from multiguard.evaluate.attacked import all_radii, proved_sizes
from multiguard.evaluate.curve import checked_radius
from multiguard.io.files import file_checksum
from multiguard.io.lock import folder_lock
from multiguard.pipeline.places import require_inside, require_no_other
from multiguard.pipeline.recipe import ModelPart
from multiguard.pipeline.retraced import voted_images, voted_model, voted_smoother
from multiguard.report import draw_attack, write_attack_table
from multiguard.results import AttackFolder, CertificatesFolder, read_attacks, read_certificates, write_attacks
from multiguard.results.attack_folder import ATTACK_NAME
from multiguard.results.certificates_folder import CERTIFICATES_NAME
from multiguard.results.fileset import place
from multiguard.smooth import Smoother
from multiguard.smooth.provenance import execution
from multiguard.votes import image_hash

_PROBED = 4  # images of which one must have a gradient
# How the classifier is run decides the last digits of its scores; which noise is drawn does not.
_EXECUTION = (
    *("device", "precision", "channels_last", "compiled", "tf32_matmul", "tf32_convolution"),
    *("torch", "timm", "transformers", "onnxruntime"),
)


@dataclass(frozen=True)
class AttackJob:
    """Which certificates to attack, and how hard.

    Attributes:
        certificates: The certificates folder.
        out: The attack folder to write.
        plan: How the attacks search.
        radii: The norms allowed; none for sigma / 2, sigma, ... up to 3 sigma.
        own_radii: Whether to attack each image at its own certified radii, too: the sharpest test there is of them.
        images: A random part of so many images; None for all that have labels.
        beta: The probability, an image, that a certificate is called broken which is not.
        model: The model, where it is no longer what and where the votes say; None to ask them.
        root: Where the images lie, if not where they were voted on.
        device: Where the model runs; None for a GPU, if any.
        command: What reproduces the attack, for the record.
        force: Whether an attack that is there is replaced.
    """

    certificates: Path
    out: Path
    plan: AttackPlan = field(default_factory=AttackPlan)
    radii: tuple[float, ...] = ()
    own_radii: bool = False
    images: int | None = None
    beta: float = 0.001
    model: ModelPart | None = None
    root: Path | None = None
    device: str | None = None
    command: str = ""
    force: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1:
            raise InvalidInputError(f"beta must lie strictly between 0 and 1, not {self.beta}")
        if self.images is not None and self.images < 1:
            raise InvalidInputError(f"images must be at least 1, not {self.images}")


@dataclass(frozen=True, eq=False)
class ReadyAttack:
    """A job whose model and images are found to be those that the certificates are about.

    Attributes:
        job: The job, its plan without gradients where the model has none.
        proved: The certificates.
        smoother: The smoothed classifier, as it was voted with.
        images: The images that were voted on.
        notes: What the user should know before it begins.
    """

    job: AttackJob
    proved: CertificatesFolder
    smoother: Smoother
    images: Catalogued
    notes: tuple[str, ...]

    def attack(self, progress: Callable[[int, int], None] | None = None) -> AttackFolder:
        """Attack, and write the folder, its table and its figure; the folder as it was written is returned."""
        job = self.job
        described = file_checksum(place(job.certificates, CERTIFICATES_NAME))
        more: dict[str, Any] = {"command": job.command or None, "force": job.force}
        with folder_lock(job.out):
            attacks = self._attacks(progress)
            write_attacks(job.out, attacks, certificates_hash=described, provenance=self.proved.provenance, **more)
            written = read_attacks(job.out)
            write_attack_table(written.attacks, job.out)
            draw_attack(written.attacks, job.out)
        return written

    def _attacks(self, progress: Callable[[int, int], None] | None) -> Attacks:
        job, certificates = self.job, self.proved.certificates
        radii, chosen = _grid(job, certificates.sigma), _chosen(certificates, job)
        told = None if progress is None else lambda done: progress(done, len(chosen))
        victims = self._victims(chosen, radii)
        found = attack_images(self.smoother, victims, certificates.setting, job.plan, progress=told)
        images, flat = [], 0
        for index, attacked in zip(chosen, found, strict=True):
            images.append(_image(job, certificates, index, attacked))
            flat += attacked.flat
        return replace(_attacks(job, self.proved, radii, tuple(images)), flat=flat)

    def _victims(self, chosen: Sequence[int], radii: tuple[float, ...]) -> Iterator[Victim]:
        """The images, decoded one after the other, each found to be the one that was voted on."""
        certificates = self.proved.certificates
        named = [certificates.ids[index] for index in chosen]
        for index, name, image in zip(chosen, named, _images(self.images, named), strict=True):
            if certificates.image_hashes[index] not in (None, image_hash(image)):
                raise DataError(f"image {name} is not the one that was voted on; bring it back, or vote again")
            own = all_radii(proved_sizes(certificates, index), certificates.methods) if self.job.own_radii else set()
            yield Victim(name, image, certificates.labels[index], tuple(sorted(own | set(radii[1:]))))


def prepare_attack(job: AttackJob) -> ReadyAttack:
    """The job with its model loaded and found to be the certified one, and its images listed; none is decoded yet."""
    require_no_other(job.out, "an attack")
    if job.out.parent == job.certificates.parent:
        require_inside(job.certificates.parent, job.out)
    if not job.force and (job.out / ATTACK_NAME).exists():
        raise InvalidInputError(f"{job.out} holds an attack already; --force replaces it, or name another folder")
    proved = read_certificates(job.certificates)
    _grid(job, proved.certificates.sigma)
    some = [proved.certificates.ids[index] for index in _chosen(proved.certificates, job)[:_PROBED]]
    source = voted_images(job.certificates, proved, job.root)
    images = source.open()
    classifier = voted_model(job.certificates, proved, source, tuple(images.label_names), job.model)
    smoother = voted_smoother(proved, classifier, job.device)
    job, notes = _without_gradients(job, smoother, _images(images, some))
    return ReadyAttack(job, proved, smoother, images, (*notes, *_run_otherwise(proved, smoother)))


def _run_otherwise(proved: CertificatesFolder, smoother: Smoother) -> tuple[str, ...]:
    """A word where the classifier is not run as it was voted with; none where nothing differs."""
    now, then = ({**run, **run["versions"]} for run in (execution(smoother), proved.provenance))
    known = [name for name in _EXECUTION if name in now and name in then]
    other = [f"{name} {then[name]}, here {now[name]}" for name in known if now[name] != then[name]]
    if not other:
        return ()
    told = "certificates are about the classifier as it ran there, to the last digit"
    return (f"the votes were drawn otherwise ({'; '.join(other)}): {told}",)


def _grid(job: AttackJob, sigma: float) -> tuple[float, ...]:
    """0 and the radii asked for, from small to large."""
    asked = checked_radius(job.radii or radius_grid(sigma, step=sigma / 2))
    if not np.any(asked > 0):
        raise InvalidInputError(
            "radius 0 leaves an attack nothing to change; give a norm above it, such as --radius 0.5"
        )
    return (0.0, *sorted({float(radius) for radius in asked} - {0.0}))


def _images(images: Catalogued, names: Sequence[str]) -> Iterator[NDArray[np.generic]]:
    """The images of these ids, decoded one after the other; one that is no longer there raises `DataError`."""
    places = {name: index for index, name in enumerate(images.ids)}
    for name in names:
        if name not in places:
            raise DataError(f"image {name} was voted on and is no longer in {images.name}; --root FOLDER")
        yield images[places[name]].image


def _chosen(certificates: Certificates, job: AttackJob) -> list[int]:
    """The positions of the images to attack: all that have labels, or a random part of them."""
    labelled = [index for index, labels in enumerate(certificates.labels) if labels]
    if not labelled:
        raise InvalidInputError(f"{job.certificates}: no image has a label, so that there is nothing to attack")
    if job.images is None:
        return labelled
    if job.images > len(labelled):
        raise InvalidInputError(f"{job.images} images were asked for; {len(labelled)} have labels")
    order = np.random.default_rng(job.plan.seed).permutation(len(labelled))
    return sorted(labelled[place] for place in order[: job.images])


def _without_gradients(
    job: AttackJob, smoother: Smoother, images: Iterable[NDArray[np.generic]]
) -> tuple[AttackJob, tuple[str, ...]]:
    """The job, with random search in place of gradients where the model has none, and a word about it."""
    fault = gradient_fault(smoother, images) if "pgd" in job.plan.attacks else None
    if fault is None:
        return job, ()
    note = f"{smoother.classifier.name} has no gradients ({fault}): pgd cannot be used, random search is"
    return replace(job, plan=replace(job.plan, attacks=("random",))), (note,)


def _attacks(
    job: AttackJob, proved: CertificatesFolder, radii: tuple[float, ...], images: tuple[AttackedImage, ...]
) -> Attacks:
    certificates = proved.certificates
    return Attacks(
        setting=certificates.setting,
        sigma=certificates.sigma,
        label_names=certificates.label_names,
        labelled=certificates.labelled,
        methods=certificates.methods,
        radii=radii,
        names=job.plan.attacks,
        beta=job.beta,
        draws=job.plan.judge_draws,
        images=images,
        without_labels=sum(not labels for labels in certificates.labels),
        failed=len(certificates.failures),
        adaptive=proved.provenance["looks"] is not None,
        plan={**asdict(job.plan), "own_radii": job.own_radii, "images": job.images},
    )


def _image(job: AttackJob, certificates: Certificates, index: int, attacked: Attacked) -> AttackedImage:
    """An image's changes, judged at a level that all of them together share."""
    level = job.beta / len(attacked.changes)
    labels, setting = attacked.victim.labels, certificates.setting
    reached = [
        Reached(
            change.attack,
            change.goal,
            change.radius,
            change.norm,
            *judged_size(change.counts, job.plan.judge_draws, labels, setting, change.goal, beta=level),
        )
        for change in attacked.changes
    ]
    return AttackedImage(attacked.victim.id, labels, proved_sizes(certificates, index), tuple(reached))
