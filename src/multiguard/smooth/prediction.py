"""What the smoothed classifier predicts for one image, and how much of it the draws have confirmed."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Noise, Rule, certified_radii, label_radii, settled_by_betting
from multiguard.certify.arguments import check_alpha
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.rounding import radius_text
from multiguard.smooth.engine import Image, content_id
from multiguard.smooth.noise_source import Stream, resolve_seed
from multiguard.smooth.stream import Job, check_draws
from multiguard.votes.types import as_array

if TYPE_CHECKING:
    from multiguard.smooth.smoother import Smoother

_MOST_SHOWN = 8  # labels in a repr
# Batches have one size, so that votes do not depend on how many draws are made at a time: small, since most are few.
_BATCH = 64


@dataclass(frozen=True, repr=False)
class Prediction:
    """With probability at least 1 - alpha over the noise, all radii hold at once, of labels and of the set.

    Attributes:
        labels: The indices of the labels that the pilot draws chose, most frequent first.
        radii: For each label a radius within which it stays predicted, -inf if the fresh draws do not confirm it. The
            noise says what a radius counts: with Gaussian noise the l2-norm of the perturbation.
        set_radii: At least e of these labels stay predicted under any perturbation up to set_radii[e-1];
            non-increasing, never below the e-th largest of `radii`, -inf if not confirmed.
        other_radii: At most m labels outside `labels` are predicted under any perturbation up to other_radii[m];
            non-decreasing, one for each m below the number of other labels. None for the top-k rule.
        names: The names of `labels`; empty if they are not known.
        noise_seed: The seed of the noise; None if the votes came from elsewhere.
        image_id: The id of the image, which keys the noise; None if the votes came from elsewhere.
        draws: The number of draws that certify.
        promise: What is promised of the labels together; empty without a calibration.

    >>> Prediction(labels=(4, 2), radii=(0.3, float("-inf")), set_radii=(0.3, float("-inf"))).confirmed
    (True, False)
    """

    labels: tuple[int, ...]
    radii: tuple[float, ...]
    set_radii: tuple[float, ...]
    other_radii: tuple[float, ...] | None = None
    names: tuple[str, ...] = ()
    noise_seed: int | None = None
    image_id: str | None = None
    draws: int = 0
    promise: str = ""

    @property
    def confirmed(self) -> tuple[bool, ...]:
        """For each label whether the fresh draws confirm it: its radius is at least 0."""
        return tuple(radius >= 0 for radius in self.radii)

    @property
    def claims(self) -> dict[str, Any]:
        """What is said of the image, as JSON: a radius is null where unconfirmed, "inf" where unlimited."""
        names = self.names or tuple(map(str, self.labels))
        labels = [
            {"index": index, "label": name, "radius": radius_json(radius), "confirmed": radius >= 0}
            for index, name, radius in zip(self.labels, names, self.radii, strict=True)
        ]
        found: dict[str, Any] = {"draws": self.draws, "labels": labels}
        found["set_radii"] = [radius_json(radius) for radius in self.set_radii]
        if self.other_radii is not None:
            found["other_radii"] = [radius_json(radius) for radius in self.other_radii]
        return found | ({"promise": self.promise} if self.promise else {})

    def __repr__(self) -> str:
        count, names = len(self.labels), self.names or self.labels
        lines = [f"  {name}: {_stays(radius)}" for name, radius in zip(names, self.radii, strict=True)]
        if count > _MOST_SHOWN:
            lines[_MOST_SHOWN:] = [f"  ... and {count - _MOST_SHOWN} more"]
        if count > 1 and not self.promise:
            sizes = list(enumerate(self.set_radii, 1))
            lines += [f"  at least {e} of {count}: {_stays(radius)}" for e, radius in sizes[:_MOST_SHOWN]]
        head = f"Prediction of {count} label{'' if count == 1 else 's'}"
        lines += [self.promise] if self.promise else []
        return "\n".join([f"{head}, noise seed {self.noise_seed}{':' if lines else ''}", *lines])


def radius_json(radius: float) -> float | str | None:
    """A radius as JSON: null where nothing is confirmed, "inf" where nothing can fail."""
    return None if radius == -math.inf else "inf" if radius == math.inf else radius


def _stays(radius: float) -> str:
    return f"stays up to {radius_text(radius)}" if math.isfinite(radius) else radius_text(radius)


def confirm_labels(
    labels: tuple[int, ...],
    votes: NDArray[Any],
    rule: Rule,
    *,
    num_labels: int,
    noise: Noise,
    alpha: float,
    method: Method | None = None,
) -> Prediction:
    """The prediction with its radii: half of alpha for the labels, an equal part each, and half for the set.

    Each label is certified on its own against all others, the set jointly. All these claims hold at once, so where e
    labels stay up to their own radii, at least e of the set do: its radii are raised to that. One label alone makes the
    same claim as its set, so the set has all of alpha. `labels` must be chosen from other draws than `votes`; alpha is
    the probability of any false claim in the prediction. The method must be "betting" if `votes` decided their number;
    by default that of `certified_radii` proves the set and that of `label_radii` its labels.
    With "enumerated" nothing is random, and `labels` may be chosen from `votes`.
    """
    options: dict[str, Any] = {"num_labels": num_labels, "noise": noise, "method": method}
    (_, level), *alone = claim_levels(labels, alpha)
    together = certified_radii(votes, labels, rule, alpha=level, **options)
    single = together.true
    if alone:
        single = label_radii(votes, labels, rule, alpha=alone[0][1], **options)
    raised = np.maximum(together.true, np.sort(single)[::-1])
    others = None if together.false is None else tuple(together.false.tolist())
    return Prediction(labels, tuple(single.tolist()), tuple(raised.tolist()), others, draws=len(votes))


def claim_levels(labels: tuple[int, ...], alpha: float) -> list[tuple[tuple[int, ...], float]]:
    """The claims of a prediction: the set, then its labels alone where there are several, each with its alpha."""
    if len(labels) <= 1:
        return [(labels, alpha)]
    return [(labels, alpha / 2), *(((label,), alpha / 2 / len(labels)) for label in labels)]


def best_of(before: Prediction, after: Prediction) -> Prediction:
    """The larger of two radii of each claim; for predictions that hold at once, as betting's at any draws do."""
    radii = tuple(map(max, before.radii, after.radii))
    others = after.other_radii
    if before.other_radii is not None and others is not None:
        others = tuple(map(max, before.other_radii, others))
    together = tuple(map(max, before.set_radii, after.set_radii))
    return replace(before, radii=radii, set_radii=together, other_radii=others, draws=after.draws)


class LiveVotes:
    """The draws of one image as they come; the votes do not depend on how the draws are divided.

    One thread at a time may use it. Arguments as in `Smoother.predict`.
    """

    pilot_draws = pilot_draws_made = 0
    most_draws: float = math.inf  # that certify

    def __init__(
        self,
        smoother: "Smoother",
        image: Image,
        rule: Rule | None = None,
        *,
        alpha: float = 0.001,
        noise_seed: int | None = None,
        image_id: str | None = None,
    ) -> None:
        image = copy.deepcopy(smoother.opened(image))  # the caller may reuse the array
        self._state = smoother.begin(image, _BATCH)
        self.label_names = smoother.classifier.label_names
        self.rule, self.alpha = smoother.rule_for(rule), check_alpha(alpha)
        self.noise_seed = resolve_seed(noise_seed)
        self.image_id = content_id(image) if image_id is None else image_id
        self.labels: tuple[int, ...] | None = None  # those returned, once they are known
        self._smoother, self._image = smoother, image
        self._votes: dict[Stream, NDArray[Any] | None] = {"pilot": None, "certify": None}

    @property
    def draws(self) -> int:
        """The draws so far that certify."""
        return self._made("certify")

    @property
    def batch(self) -> int:
        """The noisy copies that are classified at once: draws in multiples of it cost the least each."""
        return min(_BATCH, self._smoother.rows(self._job("certify", 1)))

    @property
    def hits(self) -> NDArray[np.int64]:
        """(c,) in how many of the draws that certify each label was returned."""
        return self._hits("certify")

    @property
    def votes(self) -> NDArray[Any]:
        """The votes of the draws that certify, as `certified_radii` takes them; there must be one at least."""
        votes = self._votes["certify"]
        if votes is None:
            raise InvalidInputError("no draw that certifies is made; draw some first")
        return votes

    def draw(self, draws: int) -> None:
        """Make further draws."""
        raise NotImplementedError

    def prediction(self) -> Prediction:
        """What these draws prove; `labels` must be known."""
        raise NotImplementedError

    def check_state(self) -> None:
        """Raises `ModelError` if the model has changed its parameters or buffers since the first draw."""
        self._smoother.end(self._state)

    def _hits(self, stream: Stream) -> NDArray[np.int64]:
        votes, labels = self._votes[stream], len(self.label_names)
        return np.zeros(labels, np.int64) if votes is None else self.rule.hits(votes, labels)

    def _made(self, stream: Stream) -> int:
        votes = self._votes[stream]
        return 0 if votes is None else len(votes)

    def _job(self, stream: Stream, draws: int) -> Job:
        key: dict[str, Any] = {"noise_seed": self.noise_seed, "image_id": self.image_id, "stream": stream}
        return self._smoother.job(self._image, draws, first_draw=self._made(stream), **key)

    def _add(self, stream: Stream, draws: int) -> NDArray[Any]:
        try:
            (_, drawn), *_ = self._smoother.run([self._job(stream, draws)], steady=True, most_rows=_BATCH)
        except ModelError as error:  # a hash tells people nothing
            raise ModelError(str(error).replace(f"image {self.image_id!r}", "the input")) from error
        new, before = as_array(drawn, self.rule), self._votes[stream]
        votes = self._votes[stream] = new if before is None else np.concatenate([before, new])
        return votes


class LivePrediction(LiveVotes):
    """With probability at least 1 - alpha, everything that `prediction` ever returns holds, however draws were decided.

    The first draws choose the labels and take no part in certifying them; all others certify, by the method betting,
    which holds at every number of draws at once. Stop at any time, or draw more at any time: what is proved stays
    proved.

    The attribute `labels` has the labels chosen, most frequent first; None as long as pilot draws are missing.

    >>> from multiguard import Smoother, TopK
    >>> smoother = Smoother(lambda x: x.clone(), sigma=0.5, labels=["cat", "dog", "emu"], device="cpu")
    >>> live = LivePrediction(smoother, np.array([2.0, 1.0, 0.0]), TopK(k=1, k_prime=1), pilot_draws=50, noise_seed=0)
    >>> for _ in range(4):
    ...     live.draw(100)
    ...     print(live.draws, live.prediction().radii)
    50 (0.08,)
    150 (0.45,)
    250 (0.5,)
    350 (0.52,)
    """

    def __init__(
        self, smoother: "Smoother", image: Image, rule: Rule | None = None, *, pilot_draws: int = 100, **options: Any
    ) -> None:
        if (noise := smoother.noise).enumerated:
            raise InvalidInputError(
                f"every band of {noise} votes once, so there are no draws to look at between; use Smoother.predict"
            )
        super().__init__(smoother, image, rule, **options)
        self.pilot_draws = check_draws(pilot_draws, name="pilot_draws")
        self._options: dict[str, Any] = {"num_labels": len(self.label_names), "noise": smoother.settings.noise}
        self._best: Prediction | None = None

    @property
    def pilot_draws_made(self) -> int:  # type: ignore[override]
        """The draws so far that choose the labels."""
        return self._made("pilot")

    @property
    def hits(self) -> NDArray[np.int64]:
        """(c,) in how many draws each label was returned: of those that certify, or of the pilot draws before them."""
        return self._hits("pilot" if self.labels is None else "certify")

    def draw(self, draws: int) -> None:
        """Make further draws: pilot draws as long as some are missing, then others."""
        pilot = min(check_draws(draws), self.pilot_draws - self.pilot_draws_made)
        if pilot > 0:
            votes = self._add("pilot", pilot)
            if len(votes) == self.pilot_draws:
                self.labels = self.rule.returned(votes, len(self.label_names))
        if draws > pilot:
            self._add("certify", draws - pilot)

    def prediction(self) -> Prediction:
        """What is proved so far, now or at any earlier call; the labels must be chosen."""
        if self.labels is None:
            made = f"{self.pilot_draws_made} of the {self.pilot_draws} draws that choose the labels are made"
            raise InvalidInputError(f"{made}; draw the others first")
        if self._best is None:
            nothing, names = (-np.inf,) * len(self.labels), tuple(self.label_names[label] for label in self.labels)
            seeds: dict[str, Any] = {"noise_seed": self.noise_seed, "image_id": self.image_id}
            self._best = Prediction(self.labels, nothing, nothing, names=names, **seeds)
        self.check_state()
        if self.draws > self._best.draws:
            options = {**self._options, "alpha": self.alpha, "method": "betting"}
            self._best = best_of(self._best, confirm_labels(self.labels, self.votes, self.rule, **options))
        return self._best

    def settled(self, radii: Sequence[float], max_draws: int, forecast_margin: float = 1.0) -> bool:
        """Whether no more of the claims at these radii can be expected from `max_draws` draws. A forecast.

        Arguments as in `AdaptivePlan`.
        """
        if self.draws == 0 or self.labels is None:
            return False
        claims = claim_levels(self.labels, self.alpha)
        options = {**self._options, "radii": radii, "draws": max_draws, "forecast_margin": forecast_margin}
        return all(
            settled_by_betting([self.votes], [labels], self.rule, alpha=alpha, **options)[0] for labels, alpha in claims
        )
