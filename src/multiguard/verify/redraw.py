"""A random sample of votes, drawn again with the model and compared with those that are stored."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.attack.voted import execution_notes, voted_classifier, voted_data
from multiguard.data.image import image_hash
from multiguard.errors import DataError
from multiguard.evaluate import Results
from multiguard.io.rounding import round_down
from multiguard.models.config import ModelConfig
from multiguard.smooth import Smoother
from multiguard.smooth.noise_source import Stream
from multiguard.verify.checks import Check
from multiguard.verify.config import VerifyConfig
from multiguard.votes import DrawVotes, VoteRow, Votes
from multiguard.votes.types import packed_array

_ROUNDING = 0.01  # the fraction of draws that another device or precision may decide otherwise
_ALTERED = 0.01  # the fraction of altered draws that the text speaks of


def redraw(
    config: VerifyConfig,
    certificates: Path,
    certified: Results,
    votes: Votes,
    model: ModelConfig,
    progress: Callable[[str, int, int], None] | None,
) -> Iterator[Check]:
    """Yield whether sampled images are those that were voted on, and whether their votes are drawn again alike."""
    run = votes.provenance
    source = voted_data(certificates, certified, config.root)
    classifier = voted_classifier(certificates, certified, model, source)
    smoother = Smoother(
        classifier,
        noise=run.noise,
        k_max=run.k_max,
        score_threshold=run.score_threshold,
        clamp=run.clamp,
        precision=run.precision,  # type: ignore[arg-type]  # one of the names, as votes are checked to have
        device=config.device,
    )
    generator = np.random.default_rng(config.seed)
    chosen = sorted(generator.permutation(len(votes))[: config.images].tolist())
    rows = [votes.row(position, adaptive=True) for position in chosen]
    images = source.open(label_names=certified.certificates.label_names)
    positions, voted_on = {name: position for position, name in enumerate(images.ids)}, {}
    for row in rows:
        if row.image_id not in positions:
            raise DataError(f"image {row.image_id} was voted on and is no longer in {images.name}; --root FOLDER")
        sample = images[positions[row.image_id]]
        if row.image_hash not in (None, image_hash(sample.image)):
            yield Check(False, f"image {row.image_id} is not the one that was voted on")
            return
        if run.labelled and sample.labels != row.labels:
            yield Check(False, f"image {row.image_id} has other labels than in the votes")
            return
        voted_on[row.image_id] = sample.image
    yield Check(True, f"{len(rows)} random images: pixels{' and labels' if run.labelled else ''} are those voted on")
    stretches = [stretch for row in rows for stretch in _stretches(row, config.draws, generator)]
    different = total = 0
    for done, (image_id, stream, first, stored) in enumerate(stretches, start=1):
        job = smoother.job(
            voted_on[image_id],
            len(stored),
            noise_seed=run.noise_seed,
            image_id=image_id,
            first_draw=first,
            stream=stream,
        )
        ((_, drawn),) = smoother.run([job], steady=True)
        different += int(np.any(packed_array(drawn) != stored, axis=1).sum())
        total += len(stored)
        if progress is not None:
            progress("drawing again", done, len(stretches))
    yield _verdict(different, total, execution_notes(certified, smoother))


def _stretches(
    row: VoteRow, draws: int, generator: np.random.Generator
) -> Iterator[tuple[str, Stream, int, NDArray[Any]]]:
    """A random stretch of the draws that certify an image, and one of its pilot draws: the first draw and the votes."""
    streams: dict[Stream, DrawVotes | None] = {"certify": row.votes, "pilot": row.pilot}
    for stream, stored in streams.items():
        if stored is not None and len(stored):
            count = min(draws, len(stored))
            first = int(generator.integers(len(stored) - count + 1))
            yield row.image_id, stream, first, packed_array(stored)[first : first + count]


def _verdict(different: int, total: int, notes: tuple[str, ...]) -> Check:
    if not different:
        chance = round_down(1 - (1 - _ALTERED) ** total, 3)
        found = f"if 1 in {1 / _ALTERED:g} of all votes were altered, one would be found with probability {chance}"
        return Check(True, f"{total} draws, drawn again: all equal; {found}")
    text = f"{different} of {total} draws, drawn again, have other labels"
    if not notes:
        return Check(False, f"{text}, though device, precision and versions are those of the votes")
    if different > _ROUNDING * total:
        return Check(False, f"{text}: too many for rounding alone; {'; '.join(notes)}")
    rounding = "so few that rounding explains them, though equality cannot be shown here"
    return Check(True, f"{text}: {rounding}; {'; '.join(notes)}")
