"""The images and the model that certificates are about: opened again, compared by name, and some votes drawn again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.attack.outcomes import execution_notes, voted_classifier
from multiguard.data.config import DataConfig
from multiguard.data.image import image_hash
from multiguard.data.sample import IndexedDataset, Sample
from multiguard.errors import ImageError, InvalidInputError
from multiguard.evaluate import Results
from multiguard.io.config import from_tree, to_tree
from multiguard.io.names import shorten_names
from multiguard.io.rounding import round_down
from multiguard.models.config import ModelConfig
from multiguard.report.words import model_name
from multiguard.smooth import Smoother
from multiguard.smooth.noise_source import Stream
from multiguard.verify.config import Check, Progress, VerifyConfig
from multiguard.votes import DrawVotes, VoteRow, Votes
from multiguard.votes.types import packed_array

_ROUNDING = 0.01  # the fraction of draws that another device or precision may decide otherwise
_ALTERED = 0.01  # the fraction of altered draws that the text speaks of
Redrawn = tuple[str, Stream, int, NDArray[Any]]  # an image id, the stream, its first draw, and the stored votes


class Redraw:
    """The images as the auditor has them, and a sample of those that were voted on."""

    def __init__(self, config: VerifyConfig, folder: Path, certified: Results, votes: Votes) -> None:
        self._config, self._folder, self._certified, self._votes = config, folder, certified, votes
        if "data" not in certified.source:
            raise InvalidInputError(f"{folder} does not name its images; vote with multiguard vote")
        self.data = from_tree(DataConfig, certified.source["data"], "data")
        given = {"name": config.data, "root": config.root, "split": config.split, "table": config.table}
        self._opened = self.data.replace(**{name: value for name, value in given.items() if value is not None})
        self._images: IndexedDataset = self._opened.open(label_names=certified.certificates.label_names)
        self._positions = {name: position for position, name in enumerate(self._images.ids)}
        self._generator = np.random.default_rng(config.seed)
        chosen = sorted(self._generator.permutation(len(votes))[: config.images].tolist())
        self._rows = [votes.row(position, adaptive=True) for position in chosen]
        self._samples: dict[str, Sample] = {}  # of these images, once they are read

    def same_data(self) -> Iterator[Check]:
        """Whether these are the images, all of them and in order, with the labels and the name in the votes."""
        run, images, votes = self._votes.provenance, self._images, self._votes
        named = images.name, self._opened.name, tuple(images.label_names)
        if named != (run.dataset, self.data.name, run.label_names):
            recorded = f"{self.data.name} ({run.dataset})"
            yield Check(False, f"the votes name {recorded} and its labels, but what was opened is {images.name}")
        if [*run.image_ids] != [*images.ids]:
            voted = {*run.image_ids}
            left_out, more = [name for name in images.ids if name not in voted], [*voted - self._positions.keys()]
            both = [(left_out, "left out"), (more, "that it does not have")]
            what = [f"{len(names)} {word}, such as {names[0]}" for names, word in both if names]
            text = "; ".join(what) or "another order"
            yield Check(False, f"the votes are not of the images of {images.name}, in order: {text}")
            return
        known, pairs = images.labels, zip(votes.ids, votes.labels if run.labelled else (), strict=False)
        wrong = [name for name, labels in pairs if {*known[self._positions[name]]} != {*labels}]
        if wrong:
            yield Check(False, f"other labels than in the votes: {shorten_names(wrong, 6)}")
        read = {row.image_id: sample for row in self._rows if (sample := self._read(row.image_id)) is not None}
        hashes = {name: image_hash(sample.image) for name, sample in read.items()}
        changed = [
            row.image_id
            for row in self._rows
            if row.image_id not in read or row.image_hash not in (None, hashes[row.image_id])
        ]
        self._samples = read
        if changed:
            yield Check(False, f"not the images that were voted on: {shorten_names(changed, 6)}")
        if not (wrong or changed) and named[0] == run.dataset:
            labels = "with their labels, " if run.labelled else ""
            yield Check(True, f"{images.name}: the ids match its images, {labels}all of them and in order")
            yield Check(True, f"{len(self._rows)} random images: pixels are those that were voted on")
        if readable := [one.image_id for one in votes.failures if self._read(one.image_id) is not None]:
            text = f"recorded as failed, but can be read: {shorten_names(readable, 6)}"
            yield Check(False, f"{text}; vote again without --on-error record, or say why")

    def same_votes(self, model: ModelConfig, progress: Progress | None) -> Iterator[Check]:
        """Whether the model has the name in the votes, and casts sampled votes again, those without noise too."""
        run, certified = self._votes.provenance, self._certified
        classifier = voted_classifier(self._folder, certified, model, self.data)
        source, provenance = certified.source, certified.provenance
        opened = {**source, "model": to_tree(model.resolved())}, {**provenance, "model": classifier.name}
        names = model_name(certified), model_name(replace(certified, source=opened[0], provenance=opened[1]))
        if names[0] != names[1] or classifier.name != run.model:
            yield Check(False, f"the votes name the model {names[0]} ({run.model}), but it is {names[1]}")
        smoother = Smoother(
            classifier,
            noise=run.noise,
            k_max=run.k_max,
            score_threshold=run.score_threshold,
            clamp=run.clamp,
            precision=run.precision,  # type: ignore[arg-type]  # one of the names, as votes are checked to have
            device=self._config.device,
        )
        drawn = [each for row in self._rows for each in self._stretches(row)]
        different: dict[bool, int] = {True: 0, False: 0}  # of draws with noise, and without
        for done, (image_id, stream, first, stored) in enumerate(drawn, start=1):
            key: dict[str, Any] = {"noise_seed": run.noise_seed, "image_id": image_id, "stream": stream}
            job = smoother.job(self._samples[image_id].image, len(stored), first_draw=first, **key)
            ((_, again),) = smoother.run([job], steady=True)
            different[stream != "bare"] += int(np.any(packed_array(again) != stored, axis=1).sum())
            if progress is not None:
                progress("drawing again", done, len(drawn))
        notes = execution_notes(certified, smoother)
        total = sum(len(stored) for _, stream, _, stored in drawn if stream != "bare")
        yield _verdict(different[True], total, notes)
        if bare := sum(stream == "bare" for _, stream, *_ in drawn):
            yield _bare_verdict(different[False], bare, notes)
        if (others := len(self._votes) - len(self._rows)) > 0:
            yield Check(None, f"the votes of the other {others} images, and the other draws of these")

    def _stretches(self, row: VoteRow) -> Iterator[Redrawn]:
        """A random stretch of the draws that certify an image, one of its pilot draws, and the one without noise."""
        streams: dict[Stream, DrawVotes | None] = {"certify": row.votes, "pilot": row.pilot, "bare": row.bare}
        for stream, stored in streams.items():
            if stored is not None and len(stored):
                count = min(self._config.draws, len(stored))
                first = int(self._generator.integers(len(stored) - count + 1))
                yield row.image_id, stream, first, packed_array(stored)[first : first + count]

    def _read(self, image_id: str) -> Sample | None:
        """The image; None where it cannot be read."""
        try:
            return self._images[self._positions[image_id]]
        except ImageError:
            return None


def _verdict(different: int, total: int, notes: tuple[str, ...]) -> Check:
    if not different:
        chance = round_down(1 - (1 - _ALTERED) ** total, 3)
        found = f"if 1 in {1 / _ALTERED:g} of all votes were altered, one would be found with probability {chance}"
        return Check(True, f"{total} draws, drawn again: all equal; {found}")
    text = f"{different} of {total} draws, drawn again, have other labels"
    if not notes:
        return Check(False, f"{text}, though device, precision and versions are the same")
    if different > _ROUNDING * total:
        return Check(False, f"{text}: too many for rounding alone; {'; '.join(notes)}")
    rounding = "rounding explains that few, though equality cannot be shown here"
    return Check(True, f"{text}: {rounding}; {'; '.join(notes)}")


def _bare_verdict(different: int, total: int, notes: tuple[str, ...]) -> Check:
    """What the network returns without noise is compared with what it is said to have returned."""
    if not different:
        return Check(True, f"{total} images without noise, classified again: all equal")
    text = f"{different} of {total} images without noise have other labels than the votes say"
    return Check(bool(notes) and different == 1, "; ".join([text, *notes]))
