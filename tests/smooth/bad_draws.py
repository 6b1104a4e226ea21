"""Classifiers that fail on chosen draws: they recognise every noisy image by its bytes."""

from functools import cache

import torch
from torch import Tensor
from toy import Images, linear

from multiguard.models import load
from multiguard.smooth import Smoother

DRAWS, PILOT_DRAWS, COUNT = 12, 5, 5
PROBLEMS = {
    "raise": "failed: ValueError: 1 rows, one of them bad",
    "nan": "returned a score that is NaN or infinite",
    "inf": "returned a score that is NaN or infinite",
    "few": "failed: it returned shape (1, 4), expected floating-point scores of shape (1, 5), one per image "
    "and label; name its labels in the order of its scores (--labels)",
}
BadDraws = dict[tuple[int, int], str]  # (image, draw) -> the problem there


def smoother_of(scores, batch_size=16, name="bad", **options) -> Smoother:
    def tensors_only(images: Tensor) -> Tensor:  # called once per batch, the first included
        return scores(images.clone())

    classifier = load(tensors_only, labels=list("abcde"), output="logits", name=name).module()
    return Smoother(classifier, sigma=0.5, k_max=3, device="cpu", batch_size=batch_size, **options)


@cache
def noisy_images(stream="certify", draws=DRAWS) -> dict[bytes, tuple[int, int]]:
    """For each noisy image, by its bytes, which image and which draw it is."""
    seen: list[bytes] = []

    def watch(images: Tensor) -> Tensor:
        seen.extend(row.numpy().tobytes() for row in images)
        return torch.zeros(len(images), 5)

    watched = smoother_of(watch)
    for sample in Images(COUNT):
        list(watched.run([watched.job(sample.image, draws, noise_seed=0, image_id=sample.id, stream=stream)]))
    return {row: divmod(number, draws) for number, row in enumerate(seen)}


def failing(bad: BadDraws, pilot: BadDraws | None = None, draws: int = DRAWS):
    """The exact linear classifier, except for these draws."""
    problems = {row: bad[draw] for row, draw in noisy_images(draws=draws).items() if draw in bad}
    for row, draw in (noisy_images("pilot", PILOT_DRAWS) if pilot else {}).items():
        if draw in (pilot or {}):
            problems[row] = pilot[draw]
    exact = linear()

    def scores(images: Tensor) -> Tensor:
        found = [problems.get(row.numpy().tobytes()) for row in images]
        if "raise" in found:
            raise ValueError(f"{len(images)} rows,\n one of them bad")
        out = exact(images)
        for row, problem in zip(out, found, strict=True):
            if problem in ("nan", "inf"):
                row[2] = float(problem)
        return out[:, :-1] if "few" in found else out

    return scores
