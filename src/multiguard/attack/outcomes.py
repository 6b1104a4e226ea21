"""Attacks on certified images: the images and the classifier that voted, what attacks reach, and what is proved."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.attack.config import AttackConfig
from multiguard.certify.noise import Noise
from multiguard.data.config import DataConfig
from multiguard.data.image import image_hash
from multiguard.data.sample import IndexedDataset, fewer_images
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import (
    AttackedImage,
    AttackOutcome,
    Attacks,
    Certificates,
    Results,
    evaluated_size,
    radius_grid,
    read_attacks,
    read_certificates,
)
from multiguard.evaluate.attacks import attack_stage, finite_radii, proved_sizes, stage_attacks
from multiguard.evaluate.scores import check_radius
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import check_content
from multiguard.io.rounding import plain
from multiguard.models import Classifier
from multiguard.models.config import ModelConfig, recorded_model
from multiguard.models.denoiser import denoised_checksum
from multiguard.models.loading import load_model, runs_code, weights_checksum
from multiguard.report import draw_attack, write_attack_table
from multiguard.smooth import Smoother
from multiguard.smooth.dataset import execution
from multiguard.version import __version__

if TYPE_CHECKING:
    from multiguard.attack.direct import AttackResult, Victim

_PROBED = 4  # images of which one must have a gradient
_HALVES = 6  # of the typical radius, to which the default radii lead
# These decide the last digits of the scores; the noise does not depend on them.
_EXECUTION = (
    *("device", "precision", "channels_last", "compiled", "tf32_matmul", "tf32_convolution"),
    *("torch", "timm", "transformers", "onnxruntime"),
)

OnProgress = Callable[[str, int, int], None]


def attack(
    config: AttackConfig,
    certificates: Path,
    *,
    model: ModelConfig | None = None,
    out: Path | None = None,
    command: str | None = None,
    force: bool = False,
    progress: OnProgress | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Attacks:
    """Attack certified images with the classifier that voted; another classifier or image is refused.

    What is found is evaluated by draws that neither searched nor certified: a certificate is called broken wrongly with
    probability beta at most, per image.

    Args:
        config: Which images, at which radii, and how hard.
        certificates: The folder of the certificates.
        model: The model, if it is no longer what and where the votes say.
        out: The attack folder; the same attack finds its work done. `force` replaces another one.
        command: The command line, for the record.
        force: Whether to replace an attack that is there.
        progress: Called with ("attacking", images done, images in all).
        on_note: Called with what a user should know, before the search.
    """
    if out is not None:
        check_content(out, "an attack")
    certified = read_certificates(certificates)

    def attacked() -> Attacks:
        note = on_note or (lambda note: None)
        possible, smoother, images = _prepare(config, certificates, certified, model, note)
        return attack_results(possible, certified, smoother, images, progress)

    if out is None:
        return attacked()
    request: dict[str, Any] = {
        "certificates": certified.certificates_hash,
        "attack": to_tree(config.replace(device=None)),
        "model": None if model is None else to_tree(model),
        "multiguard": __version__,
    }
    with attack_stage(out, request, force=force) as stage:
        if stage is not None:
            attacks = attacked()
            stage_attacks(stage, replace(attacks, certificates_hash=certified.certificates_hash, command=command))
            write_attack_table(attacks, stage)
            draw_attack(attacks, stage)
    return read_attacks(out)


def attack_results(
    config: AttackConfig,
    certified: Results,
    smoother: Smoother,
    images: IndexedDataset,
    progress: OnProgress | None = None,
) -> Attacks:
    """Attack the images of certificates in memory: `smoother` must be the one that voted, `images` those voted on."""
    from multiguard.attack.direct import attack_images

    certificates = certified.certificates
    radii, chosen = _grid(config, certificates.noise), _chosen(config, certificates)
    counted = None if progress is None else lambda done: progress("attacking", done, len(chosen))
    victims = _victims(config, certificates, images, chosen, radii)
    found = list(attack_images(smoother, victims, certificates.config.rule, config, progress=counted))
    bands = certificates.noise.positions
    pairs = zip(chosen, found, strict=True)
    return Attacks(
        config=certificates.config,
        noise=certificates.noise,
        label_names=certificates.label_names,
        labelled=certificates.labelled,
        methods=certificates.methods,
        radii=radii,
        names=config.attacks,
        beta=0.0 if bands else config.beta,
        draws=bands or config.draws,
        images=tuple(_evaluated(config, certificates, index, attacked) for index, attacked in pairs),
        without_labels=sum(not labels for labels in certificates.labels),
        failed=len(certificates.failures),
        adaptive=certified.provenance["stops"] is not None,
        plan=to_tree(config.replace(radii=(), root=None, device=None)),
        flat=sum(attacked.flat for attacked in found),
    )


def voted_classifier(folder: Path, certified: Results, model: ModelConfig | None, data: DataConfig) -> Classifier:
    """The classifier that was voted with; another one is refused, since the certificates say nothing about it."""
    part = model.resolved() if model else recorded_model(folder, certified.source.get("model"))
    run, names = certified.provenance, certified.certificates.label_names
    other = InvalidInputError(
        f"{part.spec} is not the classifier that {folder} is about; --model names the one that voted"
    )
    if not runs_code(part.spec):
        digest = weights_checksum(part.spec, part.weights)
        digest = digest if part.denoiser is None else denoised_checksum(digest, part.denoiser)
        if digest != run["weights_hash"]:
            raise other  # before any of its files is taken for a model
    classifier = load_model(part, size=data.size)
    if classifier.num_labels is None:
        classifier.name_labels(names)
    found = (classifier.state_hash(), classifier.code_hash, classifier.weights_hash, classifier.output)
    voted = tuple(run[name] for name in ("classifier_hash", "code_hash", "weights_hash", "output"))
    if found != voted or classifier.label_names != names:
        raise other
    return classifier


def voted_smoother(certified: Results, classifier: Classifier, device: str | None) -> Smoother:
    """The smoothed classifier as it was voted with, with only the ranks that the certificates use."""
    proved, run = certified.certificates, certified.provenance
    how = {name: run[name] for name in ("score_threshold", "clamp", "precision")}
    return Smoother(classifier, noise=proved.noise, k_max=proved.config.rule.k_prime, device=device, **how)


def execution_notes(certified: Results, smoother: Smoother) -> tuple[str, ...]:
    """A note if the classifier does not run as it did when it voted."""
    now, then = ({**run, **run["versions"]} for run in (execution(smoother), certified.provenance))
    known = [name for name in _EXECUTION if name in now and name in then]
    differences = [f"{name} {then[name]}, here {now[name]}" for name in known if now[name] != then[name]]
    meaning = "certificates are about the classifier as it ran there, to the last digit"
    return (f"the votes were drawn differently ({'; '.join(differences)}): {meaning}",) if differences else ()


def _prepare(
    config: AttackConfig, folder: Path, certified: Results, model: ModelConfig | None, note: Callable[[str], None]
) -> tuple[AttackConfig, Smoother, IndexedDataset]:
    """The config, without gradients if the model has none, the classifier that voted, and its images."""
    from multiguard.attack.target import gradient_error

    certificates = certified.certificates
    _grid(config, certificates.noise)
    probed = [certificates.ids[index] for index in _chosen(config, certificates)[:_PROBED]]
    if "data" not in certified.source:
        raise InvalidInputError(f"{folder} does not name its images; vote with multiguard vote")
    data = from_tree(DataConfig, certified.source["data"], "data")
    data = data if config.root is None else data.replace(root=config.root)
    images = data.open(label_names=certificates.label_names)
    smoother = voted_smoother(certified, voted_classifier(folder, certified, model, data), config.device)
    if "pgd" in config.attacks and (error := gradient_error(smoother, _voted_images(images, probed))) is not None:
        config = config.replace(attacks=("random",))
        note(f"{smoother.classifier.name} has no gradients ({error}): random search replaces pgd")
    there = sum(map(bool, certificates.labels))
    if config.images is not None and config.images > there:
        note(fewer_images(config.images, there))
    for text in execution_notes(certified, smoother):
        note(text)
    return config, smoother, images


def _voted_images(images: IndexedDataset, names: Sequence[str]) -> Iterator[NDArray[np.generic]]:
    """The images of these ids, decoded one by one; one that is gone raises `DataError`."""
    positions = {name: index for index, name in enumerate(images.ids)}
    for name in names:
        if name not in positions:
            raise DataError(f"image {name} was voted on and is no longer in {images.name}; --root FOLDER")
        yield images[positions[name]].image


def _victims(
    config: AttackConfig,
    certificates: Certificates,
    images: IndexedDataset,
    chosen: Sequence[int],
    radii: tuple[float, ...],
) -> "Iterator[Victim]":
    """The images, decoded one by one, each checked to be the one that was voted on."""
    from multiguard.attack.direct import Victim

    names = [certificates.ids[index] for index in chosen]
    for index, name, image in zip(chosen, names, _voted_images(images, names), strict=True):
        if certificates.image_hashes[index] not in (None, image_hash(image)):
            raise DataError(f"image {name} is not the one that was voted on; restore it, or vote again")
        own = finite_radii(proved_sizes(certificates, index), certificates.methods) if config.own_radii else set()
        yield Victim(name, image, certificates.labels[index], tuple(sorted(own | set(radii[1:]))))


def _grid(config: AttackConfig, noise: Noise) -> tuple[float, ...]:
    """0 and the radii to attack at, from small to large."""
    typical = noise.typical_radius
    step = max(1, round(typical / 2)) if noise.whole else typical / 2
    radii = check_radius(config.radii or radius_grid(noise, to=_HALVES * step, step=step), noise)
    if not np.any(radii > 0):
        raise InvalidInputError(
            f"radius 0 leaves an attack nothing to change; give a larger one, such as --radius {plain(typical)}"
        )
    return (0.0, *sorted({float(radius) for radius in radii} - {0.0}))


def _chosen(config: AttackConfig, certificates: Certificates) -> list[int]:
    """The positions of the images to attack: all that have labels, or a random sample of them."""
    labelled = [index for index, labels in enumerate(certificates.labels) if labels]
    if not labelled:
        raise InvalidInputError("no certified image has a label, so there is nothing to attack")
    if config.images is None:
        return labelled
    order = np.random.default_rng(config.seed).permutation(len(labelled))
    return sorted(labelled[position] for position in order[: config.images])


def _evaluated(config: AttackConfig, certificates: Certificates, index: int, attacked: "AttackResult") -> AttackedImage:
    """What the perturbations of one image reached; beta is split over all of them."""
    bands = certificates.noise.positions
    draws, beta = (bands, None) if bands else (config.draws, config.beta / len(attacked.perturbations))
    labels, rule = attacked.victim.labels, certificates.config.rule
    outcomes = []
    for found in attacked.perturbations:
        sizes = evaluated_size(found.counts, draws, labels, rule, found.goal, beta=beta)
        outcomes.append(AttackOutcome(found.attack, found.goal, found.radius, found.norm, *sizes))
    return AttackedImage(attacked.victim.id, labels, proved_sizes(certificates, index), tuple(outcomes))
