"""How a line is told from its neighbours: by dash and marker first, by colour besides."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stroke:
    """One way to draw a line.

    Attributes:
        light: Its colour on white.
        dark: Its colour on a dark ground.
        dash: Lengths of ink and gap in points; empty for a solid line.
        marker: Its marker, by a word that both ways of drawing know.
    """

    light: str
    dark: str
    dash: tuple[int, ...]
    marker: str


MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "x": "X",
    "triangle-down": "v",
    "star": "*",
    "pentagon": "p",
}
_DASHES: tuple[tuple[int, ...], ...] = (
    (),
    (7, 3),
    (2, 2),
    (7, 2, 2, 2),
    (12, 3),
    (4, 2, 1, 2, 1, 2),
    (1, 3),
    (12, 3, 3, 3),
)
# Kept apart under the common kinds of colour blindness, and at 3 to 1 or more against their ground.
_APART = (
    ("#0a6aa6", "#62b5ea"),
    ("#c2500a", "#f0935a"),
    ("#00795a", "#45c39c"),
    ("#96457f", "#dd9bc9"),
    ("#86690a", "#dcb950"),
    ("#4a4a4a", "#c4c4c4"),
    ("#4c5bb5", "#9aa7f0"),
    ("#a03048", "#f08a9c"),
)
# From small to large values, of even steps in lightness.
_RAMP = (
    ("#a08a00", "#fde725"),
    ("#6f9420", "#b5de2b"),
    ("#2f9a55", "#6ece58"),
    ("#1b8a83", "#35b7a0"),
    ("#2a728a", "#4aa3c0"),
    ("#365a8a", "#6f94d0"),
    ("#443a80", "#9484dc"),
    ("#440a54", "#b57fd0"),
)


def strokes_apart(count: int) -> list[Stroke]:
    """So many strokes for things without an order; beyond eight, colours and dashes meet in new pairs."""
    return [_stroke(_APART[i % len(_APART)], i + i // len(_APART), i) for i in range(count)]


def strokes_in_order(count: int, base: int) -> list[Stroke]:
    """So many strokes for values from small to large; the one at `base` is solid, the others are dashed."""
    last = len(_RAMP) - 1
    places = [round(i * last / max(count - 1, 1)) for i in range(count)]
    return [_stroke(_RAMP[place], 0 if i == base else i + (i < base), i) for i, place in enumerate(places)]


def _stroke(colours: tuple[str, str], dash: int, marker: int) -> Stroke:
    markers = list(MARKERS)
    return Stroke(*colours, _DASHES[dash % len(_DASHES)], markers[marker % len(markers)])
