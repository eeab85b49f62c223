"""The interactive scatter chart of a study's page: an SVG element, complete without a script, and data for chart.js.

The chart draws itself because a chart library (Vega-Lite, Plotly) would add 1 to 4 MB to the page of every study, and
the page needs only a few shapes that move when an axis is chosen. All other figures are drawn by matplotlib
(`picture`). Ranges, breaks, ticks and texts are worked out and tested in Python; chart.js gets positions from 0 to 1
and turns them into pixels, so that the picture is the same with and without the script.
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
"""Outline of each kind of mark, in pixels around its position. Later kinds are drawn over earlier ones. The shapes
differ without colour."""
_PROMINENT = ("front", "predicted")
"""Kinds that no other marks may hide or flatten."""
RING = "M-11 0a11 11 0 1 0 22 0a11 11 0 1 0-22 0Z"
"""Around a mark with a label."""
MANY = 150
"""Number of marks above which only prominent and ringed marks have error bars, and the others are faded."""
WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 86, 22, 18, 56
"""Pixels of the picture, and of the margins around its plot, without the script."""


class Spread(NamedTuple):
    """A value and the ends of its error bar."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A quantity that can be drawn; `heading` has its unit and direction."""

    name: str
    heading: str
    short: str
    may_be_log: bool = True


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One point.

    Attributes:
        kind: a key of SIGNS.
        spreads: its value and error bar on each axis; a chart over another axis leaves it out.
        tooltip: lines of its tooltip, the heading first.
        address: URL of its run, or empty.
        label: text beside it; a mark with a label is ringed.
    """

    kind: str
    spreads: Mapping[str, Spread]
    tooltip: Sequence[str]
    address: str = ""
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Marks over any two of its axes.

    Attributes:
        lines: pair of axes to the corners of a line over them, as values.
        first: the axes that are shown first: across, up.
        about: description of the picture for screen readers.
    """

    axes: Sequence[Axis]
    marks: Sequence[Mark]
    lines: Mapping[tuple[str, str], Sequence[tuple[float, float]]] = field(default_factory=dict)
    first: tuple[str, str]
    about: str

    @cached_property
    def ordered(self) -> list[Mark]:
        """The marks in the order of drawing: the front over dominated marks, ringed marks last."""
        kinds = list(SIGNS)
        return sorted(self.marks, key=lambda mark: (bool(mark.label), kinds.index(mark.kind)))

    @property
    def is_full(self) -> bool:
        """Whether most marks are faded because there are more than MANY."""
        return len(self.marks) > MANY

    def scale(self, name: str) -> Scale:
        """The scale of an axis; it does not depend on the other axis."""
        return self._scales[name]

    @cached_property
    def _scales(self) -> dict[str, Scale]:
        scales = {}
        for axis in self.axes:
            marks = [mark for mark in self.marks if axis.name in mark.spreads]
            prominent = [mark.spreads[axis.name] for mark in marks if mark.kind in _PROMINENT or mark.label]
            scales[axis.name] = scale_of(
                [mark.spreads[axis.name].value for mark in marks],
                [spread.value for spread in prominent],
                bar_ends=[end for spread in prominent for end in (spread.low, spread.high)],
                may_be_log=axis.may_be_log,
            )
        return scales

    def data(self) -> dict[str, Any]:
        """The data for chart.js, as JSON values: positions from 0 to 1, None for a missing value."""
        return {
            "first": list(self.first),
            "margins": {"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
            "axes": {axis.name: self._axis_data(axis) for axis in self.axes},
            "lines": {
                "\n".join(pair): [
                    [self._at(name, value) for name, value in zip(pair, corner, strict=True)] for corner in corners
                ]
                for pair, corners in self.lines.items()
            },
            "addresses": [mark.address for mark in self.ordered],
        }

    def _axis_data(self, axis: Axis) -> dict[str, Any]:
        scale = self.scale(axis.name)
        return {
            "heading": axis.heading,
            "short": axis.short,
            "note": scale.break_note(axis.short),
            "ticks": [[round(position, 4), text] for position, text in scale.ticks()],
            "breaks": scale.breaks,
            "positions": [self._positions(mark, axis.name) for mark in self.ordered],
        }

    def break_note(self, pair: tuple[str, str]) -> str:
        """A sentence for each of two axes that is broken."""
        names = {axis.name: axis.short for axis in self.axes}
        return " ".join(filter(None, (self.scale(name).break_note(names[name]) for name in pair)))

    def svg(self, pair: tuple[str, str] | None = None) -> str:
        """The picture over two axes, by default those that are shown first."""
        x, y = pair or self.first
        headings = {axis.name: axis.heading for axis in self.axes}
        label = html.escape(f"{headings[y]} over {headings[x]}: {self.about}", quote=True)
        line = "".join(
            f"{'L' if number else 'M'}{_x(self._at(x, across)):.1f} {_y(self._at(y, up)):.1f}"
            for number, (across, up) in enumerate(self._corners(x, y))
        )
        parts = [
            f'<svg class="chart{" full" if self.is_full else ""}" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" '
            f'aria-label="{label}" data-about="{html.escape(self.about, quote=True)}">',
            f'<g class="frame" aria-hidden="true">{self._frame(x, y, headings)}</g>',
            f'<path class="line" d="{line}" aria-hidden="true"/>',
            '<g class="marks">',
            *(self._mark(mark, x, y) for mark in self.ordered),
            "</g></svg>",
        ]
        return "\n".join(parts)

    def _corners(self, x: str, y: str) -> list[tuple[float, float]]:
        swapped = [(across, up) for up, across in self.lines.get((y, x), ())]
        return list(self.lines.get((x, y), ())) or swapped

    def _frame(self, x: str, y: str, headings: Mapping[str, str]) -> str:
        """Ticks, breaks and headings of both axes."""
        end, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
        across, up = self.scale(x), self.scale(y)
        parts = [f'<path class="axis" d="M{LEFT} {TOP}V{foot}H{end}"/>']
        for position, text in across.ticks():
            at = f"{_x(position):.1f}"
            parts.append(f'<path class="grid" d="M{at} {TOP}V{foot}"/>')
            parts.append(f'<text class="tick x" x="{at}" y="{foot + 18}">{html.escape(text)}</text>')
        for position, text in up.ticks():
            at = f"{_y(position):.1f}"
            parts.append(f'<path class="grid" d="M{LEFT} {at}H{end}"/>')
            parts.append(f'<text class="tick y" x="{LEFT - 8}" y="{at}" dy=".35em">{html.escape(text)}</text>')
        breaks = [(_x(position), float(foot)) for position in across.breaks]
        breaks += [(float(LEFT), _y(position)) for position in up.breaks]
        parts += [f'<path class="break" d="M{at:.1f} {down:.1f}m-7 5l6-10m2 10l6-10"/>' for at, down in breaks]
        middle = (LEFT + end) / 2
        parts.append(f'<text class="heading" x="{middle}" y="{HEIGHT - 12}">{html.escape(headings[x])}</text>')
        rotated = f'transform="translate(14 {(TOP + foot) / 2}) rotate(-90)"'
        parts.append(f'<text class="heading" {rotated}>{html.escape(headings[y])}</text>')
        return "".join(parts)

    def _mark(self, mark: Mark, x: str, y: str) -> str:
        across, up = self._positions(mark, x), self._positions(mark, y)
        tooltip = html.escape("\n".join(mark.tooltip))
        kind = f"{mark.kind} picked" if mark.label else mark.kind
        if across is None or up is None:
            return f'<g class="mark {kind}" display="none"><title>{tooltip}</title>{_sign(mark, is_right=False)}</g>'
        at = _x(across[0]), _y(up[0])
        bar = f"M{_x(across[1]) - at[0]:.1f} 0H{_x(across[2]) - at[0]:.1f}"
        bar += f"M0 {_y(up[1]) - at[1]:.1f}V{_y(up[2]) - at[1]:.1f}"
        moved = f'transform="translate({at[0]:.1f} {at[1]:.1f})"'
        sign = _sign(mark, is_right=across[0] > 0.8)
        shows_bar = not self.is_full or mark.kind in _PROMINENT or mark.label
        bars = f'<path class="whisker" d="{bar}"/>' if shows_bar else ""
        return f'<g class="mark {kind}" {moved}><title>{tooltip}</title>{bars}{sign}</g>'

    def _positions(self, mark: Mark, name: str) -> list[float] | None:
        spread = mark.spreads.get(name)
        return None if spread is None else [self._at(name, value) for value in spread]

    def _at(self, name: str, value: float) -> float:
        return round(self.scale(name).at(value), 4)


def legend_sign(kind: str) -> str:
    """The sign of a kind of mark as an SVG element for a legend; `picked` is the ring."""
    outline, box = (RING, "-13 -13 26 26") if kind == "picked" else (SIGNS[kind], "-10 -10 20 20")
    return (
        f'<svg class="sign" viewBox="{box}" width="18" height="18" aria-hidden="true">'
        f'<g class="mark {kind}"><path class="{"ring" if kind == "picked" else "outline"}" d="{outline}"/></g></svg>'
    )


def _sign(mark: Mark, *, is_right: bool) -> str:
    """Outline, ring and label; the label is to the left if the mark lies at the right."""
    outline = f'<path class="outline" d="{SIGNS[mark.kind]}"/>'
    if not mark.label:
        return outline
    side = 'x="-14" text-anchor="end"' if is_right else 'x="14"'
    return f'{outline}<path class="ring" d="{RING}"/><text class="label" {side} y="-9">{html.escape(mark.label)}</text>'


def _x(position: float) -> float:
    return LEFT + position * (WIDTH - LEFT - RIGHT)


def _y(position: float) -> float:
    return HEIGHT - BOTTOM - position * (HEIGHT - TOP - BOTTOM)
