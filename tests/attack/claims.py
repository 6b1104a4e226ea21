"""Perturbations next to claims of how far labels stay: which claims they break."""

import numpy as np

from multiguard.evaluate import AttackedImage, AttackOutcome, Attacks, CertifyConfig, evaluated_size

DRAWS, ALPHA, BETA = 300, 0.001, 0.001


def radii_of(claimed):
    """The finite radii of what is claimed of an image, from small to large."""
    return sorted(float(radius) for goal in claimed.values() for radius in goal["joint"] if 0 < radius < np.inf)


def attacked_claims(results, claims, rule, noise, config, names):
    """What the perturbations leave, next to what is claimed of each image."""
    images = [_image(*each, rule, noise, config) for each in zip(results, claims, strict=True)]
    return Attacks(
        config=CertifyConfig(alpha=ALPHA, draws=DRAWS).with_rule(rule),
        noise=noise,
        label_names=names,
        labelled=True,
        methods=("joint",),
        radii=(0.0,),
        names=config.attacks,
        beta=0.0 if noise.enumerated else BETA,
        draws=noise.positions or config.draws,
        images=tuple(images),
        without_labels=0,
    )


def _image(result, proved, rule, noise, config):
    labels, draws = result.victim.labels, noise.positions or config.draws
    beta = None if noise.enumerated else BETA / len(result.perturbations)
    outcomes = []
    for each in result.perturbations:
        assert each.norm <= each.radius
        sizes = evaluated_size(each.counts, draws, labels, rule, each.goal, beta=beta)
        outcomes.append(AttackOutcome(each.attack, each.goal, each.radius, each.norm, *sizes))
    return AttackedImage(result.victim.id, labels, proved, tuple(outcomes))


def votes_of(smoother, images, draws):
    """The votes of each (id, image, labels)."""
    jobs = (smoother.job(image, draws, noise_seed=0, image_id=name) for name, image, _ in images)
    return [votes for _, votes in smoother.run(jobs)]
