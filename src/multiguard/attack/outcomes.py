"""Attacks on certified images: what they reach, next to what is proved."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from multiguard.attack.config import AttackConfig
from multiguard.attack.target import gradient_error
from multiguard.attack.victims import AttackResult, Victim, attack_images
from multiguard.attack.voted import execution_notes, voted_classifier, voted_data, voted_images, voted_smoother
from multiguard.certify.noise import Noise
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
from multiguard.io.config import to_tree
from multiguard.io.rounding import plain
from multiguard.models.config import ModelConfig
from multiguard.report import draw_attack, write_attack_table
from multiguard.smooth import Smoother
from multiguard.version import __version__

_PROBED = 4  # images of which one must have a gradient
_HALVES = 6  # of the typical radius, to which the default radii lead

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
    certified = read_certificates(certificates)

    def attacked() -> Attacks:
        note = on_note or (lambda note: None)
        possible, smoother, images = _prepare(config, certificates, certified, model, note)
        return attack_results(possible, certified, smoother, images, progress)

    if out is None:
        return attacked()
    with attack_stage(out, _request(config, model, certified.certificates_hash), force=force) as stage:
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


def _prepare(
    config: AttackConfig, folder: Path, certified: Results, model: ModelConfig | None, note: Callable[[str], None]
) -> tuple[AttackConfig, Smoother, IndexedDataset]:
    """The config, without gradients if the model has none, the classifier that voted, and its images."""
    certificates = certified.certificates
    _grid(config, certificates.noise)
    probed = [certificates.ids[index] for index in _chosen(config, certificates)[:_PROBED]]
    data = voted_data(folder, certified, config.root)
    images = data.open(label_names=certificates.label_names)
    smoother = voted_smoother(certified, voted_classifier(folder, certified, model, data), config.device)
    if "pgd" in config.attacks and (error := gradient_error(smoother, voted_images(images, probed))) is not None:
        config = config.replace(attacks=("random",))
        note(f"{smoother.classifier.name} has no gradients ({error}): random search replaces pgd")
    there = sum(map(bool, certificates.labels))
    if config.images is not None and config.images > there:
        note(fewer_images(config.images, there))
    for text in execution_notes(certified, smoother):
        note(text)
    return config, smoother, images


def _victims(
    config: AttackConfig,
    certificates: Certificates,
    images: IndexedDataset,
    chosen: Sequence[int],
    radii: tuple[float, ...],
) -> Iterator[Victim]:
    """The images, decoded one by one, each checked to be the one that was voted on."""
    names = [certificates.ids[index] for index in chosen]
    for index, name, image in zip(chosen, names, voted_images(images, names), strict=True):
        if certificates.image_hashes[index] not in (None, image_hash(image)):
            raise DataError(f"image {name} is not the one that was voted on; restore it, or vote again")
        own = finite_radii(proved_sizes(certificates, index), certificates.methods) if config.own_radii else set()
        yield Victim(name, image, certificates.labels[index], tuple(sorted(own | set(radii[1:]))))


def _request(config: AttackConfig, model: ModelConfig | None, certificates_hash: str) -> dict[str, Any]:
    """Everything that decides the outcome of an attack; the hash is that of the certificates as read."""
    return {
        "certificates": certificates_hash,
        "attack": to_tree(config.replace(device=None)),
        "model": None if model is None else to_tree(model),
        "multiguard": __version__,
    }


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


def _evaluated(config: AttackConfig, certificates: Certificates, index: int, attacked: AttackResult) -> AttackedImage:
    """What the perturbations of one image reached; beta is split over all of them."""
    bands = certificates.noise.positions
    draws, beta = (bands, None) if bands else (config.draws, config.beta / len(attacked.perturbations))
    labels, rule = attacked.victim.labels, certificates.config.rule
    outcomes = []
    for found in attacked.perturbations:
        sizes = evaluated_size(found.counts, draws, labels, rule, found.goal, beta=beta)
        outcomes.append(AttackOutcome(found.attack, found.goal, found.radius, found.norm, *sizes))
    return AttackedImage(attacked.victim.id, labels, proved_sizes(certificates, index), tuple(outcomes))
