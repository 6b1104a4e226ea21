"""The prediction for one image while its draws are made: draw a few, look, draw more."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Rule, settled_by_betting
from multiguard.certify.arguments import check_alpha
from multiguard.certify.noise import BandAblation
from multiguard.errors import InvalidInputError
from multiguard.smooth.batches import Image, Job, check_draws, content_id
from multiguard.smooth.noise_source import Stream, resolve_seed
from multiguard.smooth.prediction import Prediction, best_of, claim_levels, confirm_labels
from multiguard.smooth.probe import check_state
from multiguard.votes.types import as_array

if TYPE_CHECKING:
    from multiguard.smooth.smoother import Smoother

# Batches have one size, so that votes do not depend on how many draws are made at a time: small, since most are few.
_BATCH = 64


class LivePrediction:
    """With probability at least 1 - alpha, everything that `prediction` ever returns holds, however draws were decided.

    The first draws choose the labels and take no part in certifying them; all others certify, by the method betting,
    which holds at every number of draws at once. Stop at any time, or draw more at any time: what is proved stays
    proved. The votes do not depend on how the draws are divided. The arguments are those of `Smoother.predict`.
    One thread at a time may use a live prediction.

    Attributes:
        rule: The smoothed classifier.
        label_names: The names of all labels.
        noise_seed: The seed of the noise.
        image_id: The id of the image, which keys the noise.
        pilot_draws: The number of draws that choose the labels.
        alpha: The probability of any false claim.
        labels: The labels chosen, most frequent first; None as long as pilot draws are missing.

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
        self,
        smoother: "Smoother",
        image: Image,
        rule: Rule,
        *,
        pilot_draws: int = 100,
        alpha: float = 0.001,
        noise_seed: int | None = None,
        image_id: str | None = None,
    ) -> None:
        if isinstance(noise := smoother.noise, BandAblation):
            raise InvalidInputError(
                f"every band of {noise} votes once, so there are no draws to look at between; use Smoother.predict"
            )
        image = copy.deepcopy(image)  # the caller may reuse the array between draws
        self._state = smoother.begin(image, _BATCH)
        self.label_names = smoother.classifier.label_names
        smoother.settings.check_rule(rule, len(self.label_names))
        self.rule, self.alpha = rule, check_alpha(alpha)
        self.pilot_draws = check_draws(pilot_draws, name="pilot_draws")
        self.noise_seed = resolve_seed(noise_seed)
        self.image_id = content_id(image) if image_id is None else image_id
        self.labels: tuple[int, ...] | None = None
        self._smoother, self._image = smoother, image
        self._votes: dict[Stream, NDArray[Any] | None] = {"pilot": None, "certify": None}
        self._options: dict[str, Any] = {"num_labels": len(self.label_names), "noise": smoother.settings.noise}
        self._best: Prediction | None = None

    @property
    def draws(self) -> int:
        """The draws so far that certify."""
        return self._made("certify")

    @property
    def pilot_draws_made(self) -> int:
        """The draws so far that choose the labels."""
        return self._made("pilot")

    @property
    def batch(self) -> int:
        """The noisy copies that are classified at once: draws in multiples of it cost the least each."""
        return min(_BATCH, self._smoother.rows(self._job("pilot", 1)))

    @property
    def hits(self) -> NDArray[np.int64]:
        """(c,) in how many draws each label was returned: of those that certify, or of the pilot draws before them."""
        votes = self._votes["pilot" if self.labels is None else "certify"]
        if votes is None:
            return np.zeros(len(self.label_names), np.int64)
        return self.rule.hits(votes, len(self.label_names))

    @property
    def votes(self) -> NDArray[Any]:
        """The votes of the draws that certify, as `certified_radii` takes them; there must be one at least."""
        votes = self._votes["certify"]
        if votes is None:
            raise InvalidInputError("no draw that certifies is made; draw some first")
        return votes

    def draw(self, draws: int) -> None:
        """Make so many further draws: those that choose the labels as long as some are missing, then others."""
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
            self._best = self._unproved(self.labels)
        self.check_state()
        if self.draws > self._best.draws:
            options = {**self._options, "alpha": self.alpha, "method": "betting"}
            self._best = best_of(self._best, confirm_labels(self.labels, self.votes, self.rule, **options))
        return self._best

    def check_state(self) -> None:
        """Raises `ModelError` if the model has changed its parameters or buffers since the first draw."""
        check_state(self._smoother.classifier, self._state)

    def settled(self, radii: Sequence[float], max_draws: int, forecast_margin: float = 1.0) -> bool:
        """Whether no more of the claims at these radii can be expected from so many draws in all. A forecast.

        The arguments are those of `AdaptivePlan`.
        """
        if self.draws == 0 or self.labels is None:
            return False
        claims = claim_levels(self.labels, self.alpha)
        options = {**self._options, "radii": radii, "draws": max_draws, "forecast_margin": forecast_margin}
        return all(
            settled_by_betting([self.votes], [labels], self.rule, alpha=alpha, **options)[0] for labels, alpha in claims
        )

    def _unproved(self, labels: tuple[int, ...]) -> Prediction:
        nothing, names = (-np.inf,) * len(labels), tuple(self.label_names[label] for label in labels)
        return Prediction(labels, nothing, nothing, names=names, noise_seed=self.noise_seed, image_id=self.image_id)

    def _made(self, stream: Stream) -> int:
        votes = self._votes[stream]
        return 0 if votes is None else len(votes)

    def _job(self, stream: Stream, draws: int) -> Job:
        key: dict[str, Any] = {"noise_seed": self.noise_seed, "image_id": self.image_id, "stream": stream}
        return self._smoother.job(self._image, draws, first_draw=self._made(stream), **key)

    def _add(self, stream: Stream, draws: int) -> NDArray[Any]:
        (_, drawn), *_ = self._smoother.run([self._job(stream, draws)], steady=True, most_rows=_BATCH)
        new, before = as_array(drawn, self.rule.name), self._votes[stream]
        votes = self._votes[stream] = new if before is None else np.concatenate([before, new])
        return votes
