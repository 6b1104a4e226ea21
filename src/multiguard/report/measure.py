"""The numbers of a curve, and what people call them; which there are depends on the rule and on the labels."""

from dataclasses import dataclass
from typing import Literal

from multiguard.certify.arrays import Floats
from multiguard.evaluate import Curve
from multiguard.report.rounding import percent_value, round_up
from multiguard.report.study import Study
from multiguard.votes import Rule

Score = Literal["precision", "recall", "f1", "false_ceiling"]


@dataclass(frozen=True)
class Measure:
    """One number of a curve: a share, which is a floor, or a count of labels, which is a ceiling.

    Attributes:
        key: Its name in `Scores`.
        word: What tables and column heads call it.
        title: What stands above its panel in a figure.
        caption: What stands above its chart on the page.
    """

    key: Score
    word: str
    title: str
    caption: str

    @property
    def is_share(self) -> bool:
        """Whether it is a share, shown in percent; else a count of labels."""
        return self.key != "false_ceiling"

    @property
    def unit(self) -> str:
        """What stands at its axis."""
        return "%" if self.is_share else "labels an image"

    def values(self, curve: Curve) -> Floats:
        """It at each radius."""
        found: Floats = getattr(curve.scores, self.key)
        return found

    def band(self, curve: Curve) -> tuple[Floats, Floats] | None:
        """Low and high at each radius; None where there are no bands, as for all counts."""
        found: tuple[Floats, Floats] | None = getattr(curve.bands, self.key, None)
        return found

    def drawn(self, values: Floats) -> Floats:
        """The values on the axis."""
        return 100 * values if self.is_share else values

    def text(self, value: float) -> str:
        """A value as people read it: a share rounded down, a ceiling rounded up."""
        return percent_value(value) if self.is_share else round_up(value, 2)


def study_measures(study: Study) -> tuple[Measure, ...]:
    """What the study's curves are shown in: without true labels there is neither precision nor F1."""
    ceiling = (_ceiling(study.labelled),) if study.rule == "threshold" else ()
    return (*_shares(study.rule, labelled=study.labelled), *ceiling)


def rules_measures(study: Study) -> tuple[Measure, ...]:
    """What two rules are compared in."""
    return (*_shares("threshold", labelled=study.labelled), _ceiling(study.labelled))


def _shares(rule: Rule, *, labelled: bool) -> tuple[Measure, ...]:
    if not labelled:
        return (Measure("recall", "stay", "Predicted labels certified to stay at R", "Predicted labels that stay, %"),)
    top_k = "top-k " if rule == "top-k" else ""
    words: tuple[tuple[Score, str], ...] = (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
    return tuple(Measure(key, word, f"Certified {top_k}{word}@R", f"Certified {word}, %") for key, word in words)


def _ceiling(labelled: bool) -> Measure:
    kind = "wrong" if labelled else "other"
    title, caption = f"{kind.capitalize()} labels@R, at most", f"{kind.capitalize()} labels let in, at most"
    return Measure("false_ceiling", f"{kind} labels, at most", title, caption)
