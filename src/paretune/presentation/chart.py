"""A scatter chart that can be asked: an SVG element that says everything without a script, and data for chart.js.

The drawing is our own. A chart library that stands in every study's file is 1 to 4 MB of it (Vega-Lite, Plotly), and
of all it can do the page needs a few shapes that move when an axis is chosen. What can be wrong about a picture, its
ranges, breaks, ticks and texts, is found here and tested in Python: chart.js gets places from 0 to 1 and makes
pixels of them, so that the picture without the script and the one with it come from the same numbers.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from paretune.presentation.scale import Scale, scale_of

SIGNS = {
    "dominated": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "unmet": "M-4-4L4 4M-4 4L4-4",
    "front": "M0-6.5L6.5 0L0 6.5L-6.5 0Z",
    "predicted": "M0-6L5.8 4.5H-5.8Z",
}
"""Kind of a mark to its outline, pixels around its place; what is drawn first lies below. Told apart by shape alone."""
_TOLD = ("front", "predicted")
"""Kinds that must be seen, whatever the others are."""
RING = "M-11 0a11 11 0 1 0 22 0a11 11 0 1 0-22 0Z"
"""Around a mark with a label."""
MANY = 150
"""Marks beyond which only those of the front, ringed and predicted ones have bars, and the others are faded."""
WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 86, 22, 18, 56
"""Pixels of the picture, and around its plot, without the script."""


class Spread(NamedTuple):
    """A value and the ends of its bar."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A quantity that can be drawn: its heading with unit and direction, a short name, and whether it may be log."""

    name: str
    heading: str
    short: str
    may_be_log: bool = True


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One point.

    Attributes:
        kind: one of SIGNS.
        spreads: axis to value and bar; without one the mark is left out of a chart over that axis.
        said: lines of its tooltip, the heading first.
        address: of its run; empty for none.
        label: text beside it; a mark with one is ringed.
    """

    kind: str
    spreads: Mapping[str, Spread]
    said: Sequence[str]
    address: str = ""
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Marks over any two of its axes.

    Attributes:
        lines: two axes to the corners of a line over them, as values.
        first: the axes that are shown first, across and up.
        about: what the picture shows, for those who do not see it.
    """

    axes: Sequence[Axis]
    marks: Sequence[Mark]
    lines: Mapping[tuple[str, str], Sequence[tuple[float, float]]] = field(default_factory=dict)
    first: tuple[str, str]
    about: str

    @cached_property
    def drawn(self) -> list[Mark]:
        """The marks in the order in which they are drawn: the front over the dominated, ringed ones last."""
        kinds = list(SIGNS)
        return sorted(self.marks, key=lambda mark: (bool(mark.label), kinds.index(mark.kind)))

    @property
    def is_full(self) -> bool:
        """Whether there are so many marks that most of them are faded."""
        return len(self.marks) > MANY

    def scale(self, name: str) -> Scale:
        """The scale of an axis, the same whatever the other one is."""
        return self._scales[name]

    @cached_property
    def _scales(self) -> dict[str, Scale]:
        found = {}
        for axis in self.axes:
            having = [mark for mark in self.marks if axis.name in mark.spreads]
            values = [mark.spreads[axis.name].value for mark in having]
            told = [mark.spreads[axis.name] for mark in having if mark.kind in _TOLD or mark.label]
            front = [spread.value for spread in told]
            ends = [end for spread in told for end in (spread.low, spread.high)]
            found[axis.name] = scale_of(values, front, reaching=ends, may_be_log=axis.may_be_log)
        return found

    def data(self) -> dict[str, Any]:
        """What chart.js needs, for JSON: places from 0 to 1, and None where there is none."""
        return {
            "first": list(self.first),
            "room": {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
            "axes": {axis.name: self._axis_data(axis) for axis in self.axes},
            "lines": {
                "\n".join(pair): [
                    [self._at(name, value) for name, value in zip(pair, corner, strict=True)] for corner in corners
                ]
                for pair, corners in self.lines.items()
            },
            "addresses": [mark.address for mark in self.drawn],
        }

    def _axis_data(self, axis: Axis) -> dict[str, Any]:
        scale = self.scale(axis.name)
        return {
            "heading": axis.heading,
            "short": axis.short,
            "said": scale.said(axis.short),
            "ticks": [[round(place, 4), text] for place, text in scale.ticks()],
            "breaks": scale.breaks,
            "places": [self._places(mark, axis.name) for mark in self.drawn],
        }

    def said(self, pair: tuple[str, str]) -> str:
        """Which of two axes are broken, in words."""
        named = {axis.name: axis.short for axis in self.axes}
        return " ".join(filter(None, (self.scale(name).said(named[name]) for name in pair)))

    def svg(self, pair: tuple[str, str] | None = None) -> str:
        """The picture over two axes, those shown first where none are named."""
        x, y = pair or self.first
        headings = {axis.name: axis.heading for axis in self.axes}
        label = html.escape(f"{headings[y]} over {headings[x]}: {self.about}", quote=True)
        line = "".join(
            f"{'L' if number else 'M'}{_x(self._at(x, one)):.1f} {_y(self._at(y, other)):.1f}"
            for number, (one, other) in enumerate(self._corners(x, y))
        )
        parts = [
            f'<svg class="chart{" full" if self.is_full else ""}" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" '
            f'aria-label="{label}" data-about="{html.escape(self.about, quote=True)}">',
            f'<g class="frame" aria-hidden="true">{self._frame(x, y, headings)}</g>',
            f'<path class="line" d="{line}" aria-hidden="true"/>',
            '<g class="marks">',
            *(self._mark(mark, x, y) for mark in self.drawn),
            "</g></svg>",
        ]
        return "\n".join(parts)

    def _corners(self, x: str, y: str) -> list[tuple[float, float]]:
        turned = [(other, one) for one, other in self.lines.get((y, x), ())]
        return list(self.lines.get((x, y), ())) or turned

    def _frame(self, x: str, y: str, headings: Mapping[str, str]) -> str:
        """Ticks, breaks and headings of both axes."""
        end, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
        across, up = self.scale(x), self.scale(y)
        parts = [f'<path class="axis" d="M{LEFT} {TOP}V{foot}H{end}"/>']
        for place, text in across.ticks():
            at = f"{_x(place):.1f}"
            parts.append(f'<path class="grid" d="M{at} {TOP}V{foot}"/>')
            parts.append(f'<text class="tick x" x="{at}" y="{foot + 18}">{html.escape(text)}</text>')
        for place, text in up.ticks():
            at = f"{_y(place):.1f}"
            parts.append(f'<path class="grid" d="M{LEFT} {at}H{end}"/>')
            parts.append(f'<text class="tick y" x="{LEFT - 8}" y="{at}" dy=".35em">{html.escape(text)}</text>')
        breaks = [(_x(place), float(foot)) for place in across.breaks]
        breaks += [(float(LEFT), _y(place)) for place in up.breaks]
        parts += [f'<path class="break" d="M{at:.1f} {down:.1f}m-7 5l6-10m2 10l6-10"/>' for at, down in breaks]
        middle = (LEFT + end) / 2
        parts.append(f'<text class="heading" x="{middle}" y="{HEIGHT - 12}">{html.escape(headings[x])}</text>')
        turned = f'transform="translate(14 {(TOP + foot) / 2}) rotate(-90)"'
        parts.append(f'<text class="heading" {turned}>{html.escape(headings[y])}</text>')
        return "".join(parts)

    def _mark(self, mark: Mark, x: str, y: str) -> str:
        across, up = self._places(mark, x), self._places(mark, y)
        said = html.escape("\n".join(mark.said))
        kind = f"{mark.kind} picked" if mark.label else mark.kind
        if across is None or up is None:
            return f'<g class="mark {kind}" display="none"><title>{said}</title>{_sign(mark, is_right=False)}</g>'
        at = _x(across[0]), _y(up[0])
        bar = f"M{_x(across[1]) - at[0]:.1f} 0H{_x(across[2]) - at[0]:.1f}"
        bar += f"M0 {_y(up[1]) - at[1]:.1f}V{_y(up[2]) - at[1]:.1f}"
        place = f'transform="translate({at[0]:.1f} {at[1]:.1f})"'
        drawn = _sign(mark, is_right=across[0] > 0.8)
        shows_bar = not self.is_full or mark.kind in _TOLD or mark.label
        bars = f'<path class="whisker" d="{bar}"/>' if shows_bar else ""
        return f'<g class="mark {kind}" {place}><title>{said}</title>{bars}{drawn}</g>'

    def _places(self, mark: Mark, name: str) -> list[float] | None:
        spread = mark.spreads.get(name)
        return None if spread is None else [self._at(name, value) for value in spread]

    def _at(self, name: str, value: float) -> float:
        return round(self.scale(name).at(value), 4)


def legend_sign(kind: str) -> str:
    """A mark of its kind as a picture of its own, for a legend; `picked` is the ring."""
    outline, box = (RING, "-13 -13 26 26") if kind == "picked" else (SIGNS[kind], "-10 -10 20 20")
    return (
        f'<svg class="sign" viewBox="{box}" width="18" height="18" aria-hidden="true">'
        f'<g class="mark {kind}"><path class="{"ring" if kind == "picked" else "outline"}" d="{outline}"/></g></svg>'
    )


def _sign(mark: Mark, *, is_right: bool) -> str:
    """Outline, ring and label, the latter to the left of what lies at the right."""
    drawn = f'<path class="outline" d="{SIGNS[mark.kind]}"/>'
    if not mark.label:
        return drawn
    side = 'x="-14" text-anchor="end"' if is_right else 'x="14"'
    return f'{drawn}<path class="ring" d="{RING}"/><text class="label" {side} y="-9">{html.escape(mark.label)}</text>'


def _x(place: float) -> float:
    return LEFT + place * (WIDTH - LEFT - RIGHT)


def _y(place: float) -> float:
    return HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)
