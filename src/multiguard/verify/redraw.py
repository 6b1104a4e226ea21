"""A random sample of votes, drawn again with the model and compared with those that are stored."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multiguard.attack.voted import execution_notes, voted_classifier, voted_data
from multiguard.data.image import image_hash
from multiguard.data.sample import IndexedDataset
from multiguard.errors import DataError
from multiguard.evaluate import Results
from multiguard.io.rounding import round_down
from multiguard.models.config import ModelConfig
from multiguard.smooth import Smoother
from multiguard.verify.checks import Check
from multiguard.verify.config import VerifyConfig
from multiguard.votes import DrawVotes, LabelSets, VoteRow, Votes

_ROUNDING = 0.01  # the fraction of draws that another device or precision may decide otherwise
_ALTERED = 0.01  # the fraction of altered draws that the text speaks of


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Consecutive draws of one image, as they are stored."""

    row: VoteRow
    stream: str
    first: int
    stored: DrawVotes


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
    images = _images(source.open(label_names=certified.certificates.label_names), rows, labelled=run.labelled)
    if isinstance(images, Check):
        yield images
        return
    yield Check(True, f"{len(rows)} random images: pixels{' and labels' if run.labelled else ''} are those voted on")
    stretches = [stretch for row in rows for stretch in _stretches(row, config.draws, generator)]
    different = total = 0
    for done, stretch in enumerate(stretches, start=1):
        job = smoother.job(
            images[stretch.row.image_id],
            len(stretch.stored),
            noise_seed=run.noise_seed,
            image_id=stretch.row.image_id,
            first_draw=stretch.first,
            stream=stretch.stream,  # type: ignore[arg-type]
        )
        ((_, drawn),) = smoother.run([job], steady=True)
        different += int(np.any(_array(drawn) != _array(stretch.stored), axis=1).sum())
        total += len(stretch.stored)
        if progress is not None:
            progress("drawing again", done, len(stretches))
    yield _verdict(different, total, execution_notes(certified, smoother))


def _images(images: IndexedDataset, rows: list[VoteRow], *, labelled: bool) -> dict[str, NDArray[np.generic]] | Check:
    """The images of these rows, decoded; a check that failed if one is not the one that was voted on."""
    positions = {name: position for position, name in enumerate(images.ids)}
    found: dict[str, NDArray[np.generic]] = {}
    for row in rows:
        if row.image_id not in positions:
            raise DataError(f"image {row.image_id} was voted on and is no longer in {images.name}; --root FOLDER")
        sample = images[positions[row.image_id]]
        if row.image_hash not in (None, image_hash(sample.image)):
            return Check(False, f"image {row.image_id} is not the one that was voted on")
        if labelled and sample.labels != row.labels:
            return Check(False, f"image {row.image_id} has other labels than in the votes")
        found[row.image_id] = sample.image
    return found


def _stretches(row: VoteRow, draws: int, generator: np.random.Generator) -> Iterator[_Stretch]:
    """A random stretch of the draws that certify an image, and one of its pilot draws."""
    for stream, stored in (("certify", row.votes), ("pilot", row.pilot)):
        if stored is not None and len(stored):
            count = min(draws, len(stored))
            first = int(generator.integers(len(stored) - count + 1))
            part = slice(first, first + count)
            cut = LabelSets(stored.packed[part], stored.num_labels) if isinstance(stored, LabelSets) else stored[part]
            yield _Stretch(row, stream, first, cut)


def _array(votes: DrawVotes) -> NDArray[np.unsignedinteger]:
    return votes.packed if isinstance(votes, LabelSets) else votes


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
