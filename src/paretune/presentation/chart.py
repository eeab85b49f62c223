"""The scatter chart of a study, drawn by matplotlib: on its page, where chart.js moves the marks, and as a PNG.

A page holds the marks once and a frame (ticks, grid and heading) of every quantity for both directions and two widths.
The picture is complete without the script, which shows other frames and moves the marks when a reader chooses other
axes or has a small window. Ranges, breaks, ticks and texts are worked out and tested in Python.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from paretune.presentation.picture import DOMINATED, FRONT, PICKED, PREDICTED, UNMET, Picture, classify
from paretune.presentation.scale import Scale, legible_texts, scale_of

_FILLED = {"linestyle": "", "markeredgecolor": "white", "markeredgewidth": 0.9}
SIGNS: dict[str, dict[str, Any]] = {
    "dominated": {**_FILLED, "marker": "o", "markersize": 8, "color": DOMINATED},
    "unmet": {"linestyle": "", "marker": "x", "markersize": 8, "color": UNMET, "markeredgewidth": 2},
    "front": {**_FILLED, "marker": "D", "markersize": 9, "color": FRONT},
    "predicted": {"linestyle": "", "marker": "^", "markersize": 10, "color": PREDICTED, "markerfacecolor": "white"},
}
"""Each kind of mark, as matplotlib draws it. Later kinds are drawn over earlier ones. The shapes differ without
colour."""
_LEGEND = {
    "front": "on the front",
    "dominated": "dominated",
    "unmet": "a constraint is not met",
}
_RING: dict[str, Any] = {
    "linestyle": "",
    "marker": "o",
    "markersize": 21,
    "markerfacecolor": "none",
    "markeredgecolor": PICKED,
    "markeredgewidth": 2.4,
}
"""Around a mark with a label."""
_LABEL_TO_THE_LEFT = 0.6  # share of the width from which on a label is to the left of its mark; also in chart.js
_PROMINENT = ("front", "predicted")  # kinds that no other marks may hide or flatten
_ROOM = 0.3  # the most that a prediction may stretch an axis, as a share of the measured range
MANY = 150  # number of marks above which only prominent and ringed marks have error bars, and the others are faded
_EDGE = "#767676"
_CHARACTER = 7.2  # width of a character of a tick, which has the size 12
_LINE = 14  # height of a line of that size
_GAP = 5  # between the plot, the ticks and the heading of an axis


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
    """One point."""

    kind: str  # a key of SIGNS
    spreads: Mapping[str, Spread]  # its value and error bar on each axis; a chart over another axis leaves it out
    tooltip: Sequence[str]  # lines of its tooltip, the heading first
    address: str = ""  # URL of its run, or empty
    label: str = ""  # text beside it; a mark with a label is ringed over the axes of `label_over`
    label_over: Sequence[Set[str]] = ()  # sets of axes; it is ringed in a picture whose axes contain one of them

    def is_ringed(self, pair: tuple[str, str]) -> bool:
        """Whether it has its ring and label over these two axes."""
        return any(axes <= {*pair} for axes in self.label_over)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Size of the picture and the margins around its plot, in units of the SVG, a pixel in a window of that width."""

    name: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    legend_columns: int

    @property
    def length(self) -> float:
        """Width of the plot."""
        return self.width - self.left - self.right

    def transform(self, figure: Any, right: float = 0, up: float = 0) -> Any:
        """The transform of the unit square to the plot, moved by `right` and `up`; the figure may be larger."""
        from matplotlib.transforms import Affine2D

        high = self.height - self.top - self.bottom
        bottom = 72 * figure.get_figheight() - self.top - high
        points = Affine2D().scale(self.length, high).translate(self.left + right, bottom + up)
        return points.scale(1 / 72) + figure.dpi_scale_trans


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Marks over any two of its axes. Predicted marks are hidden until a reader asks for them, far ones always."""

    axes: Sequence[Axis]
    marks: Sequence[Mark]
    lines: Mapping[tuple[str, str], Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Pair of axes to the corners of a line over them, as values."""
    first: tuple[str, str]  # the axes that are shown first: across, up
    about: str  # description of the picture for screen readers

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
            marks = [mark for mark in self.marks if axis.name in mark.spreads and mark.kind != "predicted"]
            prominent = [mark.spreads[axis.name] for mark in marks if mark.kind in _PROMINENT or mark.label]
            values = [mark.spreads[axis.name].value for mark in marks]
            room = _ROOM * (max(values) - min(values))
            ends = min(values) - room, max(values) + room
            guesses = [
                m.spreads[axis.name].value for m in self.marks if m.kind == "predicted" and axis.name in m.spreads
            ]
            scales[axis.name] = scale_of(
                [*values, *(value for value in guesses if ends[0] <= value <= ends[1])],
                [spread.value for spread in prominent],
                bar_ends=[end for spread in prominent for end in (spread.low, spread.high)],
                may_be_log=axis.may_be_log,
            )
        return scales

    @cached_property
    def layouts(self) -> list[Layout]:
        """The layouts for a wide and for a narrow window; the longest tick decides the margins beside the plot."""
        longest = max(len(text) for scale in self._scales.values() for _, text in scale.ticks())
        left, right = 34 + _CHARACTER * longest, max(14, 4 + _CHARACTER * longest / 2)  # a tick may end at the edge
        wide = Layout(
            name="wide", width=760, height=490, left=left, right=max(22, right), top=14, bottom=76, legend_columns=5
        )
        narrow = Layout(
            name="narrow", width=390, height=380, left=left, right=right, top=24, bottom=108, legend_columns=2
        )
        return [wide, narrow]

    def data(self) -> dict[str, Any]:
        """The data for chart.js, as JSON values: positions from 0 to 1, None for a missing value."""
        return {
            "first": list(self.first),
            "layouts": [asdict(layout) for layout in self.layouts],
            "axes": {
                axis.name: {
                    "frame": f"a{number}",
                    "heading": axis.heading,
                    "note": self.scale(axis.name).break_note(axis.short),
                    "positions": [self._positions(mark, axis.name) for mark in self.ordered],
                }
                for number, axis in enumerate(self.axes)
            },
            "lines": {
                "\n".join(pair): [
                    [self._at(name, value) for name, value in zip(pair, corner, strict=True)] for corner in corners
                ]
                for pair, corners in self.lines.items()
            },
            "addresses": [mark.address for mark in self.ordered],
            "rings": [[sorted(axes) for axes in mark.label_over] for mark in self.ordered],
        }

    def break_note(self, pair: tuple[str, str]) -> str:
        """A sentence for each of two axes that is broken."""
        return " ".join(filter(None, (self.scale(name).break_note(self._axis(name).short) for name in pair)))

    def _axis(self, name: str) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)

    def svg(self) -> str:
        """The picture over the first two axes, with the frames of all axes for chart.js."""
        about = html.escape(self.about, quote=True)
        attributes = f'<svg class="chart" data-about="{about}" role="group"'
        picture = self.picture("chart", self.first, has_choice=True)
        return picture.svg().replace('<svg role="img"', attributes, 1)

    def picture(
        self,
        name: str,
        pair: tuple[str, str],
        *,
        heading: str = "",
        is_narrow: bool = False,
        has_choice: bool = False,
    ) -> Picture:
        """The picture over two axes.

        `has_choice` adds what chart.js needs: the frames of all axes in both layouts, and marks without a value on an
        axis, which are hidden.
        """
        layouts = self.layouts if has_choice else [self.layouts[is_narrow]]

        def draw(figure: Any) -> None:
            figure.set_layout_engine("none")
            figure.text(0.5, 0.985, heading, ha="center", va="top", fontsize=12)
            for layout in layouts:
                for side, chosen in zip("xy", pair, strict=True):
                    for axis in self.axes if has_choice else [self._axis(chosen)]:
                        is_first = axis.name == chosen and layout is layouts[0]
                        self._draw_frame(figure, layout, axis, side, is_chosen=is_first)
                has_ring = any(mark.label if has_choice else mark.is_ringed(pair) for mark in self.marks)
                self._draw_legend(figure, layout, is_chosen=layout is layouts[0], has_ring=has_ring)
            self._draw_marks(figure, layouts[0], pair, has_absent=has_choice)

        return Picture(
            name=name,
            title=f"{self._axis(pair[1]).heading} over {self._axis(pair[0]).heading}: {self.about}",
            caption="",
            draw=draw,
            size=(layouts[0].width / 72, layouts[0].height / 72),
        )

    def _draw_frame(self, figure: Any, layout: Layout, axis: Axis, side: str, *, is_chosen: bool) -> None:
        """Ticks, grid, breaks and heading of one axis; `side` is x or y. An axis of matplotlib takes longer."""
        from matplotlib.lines import Line2D
        from matplotlib.text import Text

        scale = self.scale(axis.name)
        ticks = scale.ticks()
        places: dict[str, Any]
        away: tuple[float, float]
        further: tuple[float, float]
        if side == "x":
            texts = legible_texts(ticks, layout.length, _CHARACTER)
            away, further = (0, -_GAP), (0, -2 * _GAP - _LINE)
            places = {"ha": "center", "va": "top"}
            heading = Text(0.5, 0, axis.heading, **places)
        else:
            texts = [text for _, text in ticks]
            away, further = (-_GAP, 0), (-2 * _GAP - _CHARACTER * max(map(len, texts)), 0)
            places = {"ha": "right", "va": "center_baseline"}
            heading = Text(0, 0.5, axis.heading, ha="center", va="bottom", rotation=90, rotation_mode="anchor")
        heading.set(fontsize=12, transform=layout.transform(figure, *further))
        classify(heading, "heading")
        at = layout.transform(figure)
        grid = [(position, end) for position, _ in ticks for end in (0, 1, float("nan"))]
        breaks = [(position + step, 0.0) for position in scale.breaks for step in (-0.006, 0.006)]
        slash: dict[str, Any] = {"marker": [(-0.6, -1), (0.6, 1)], "linestyle": "", "markersize": 11}
        parts = [
            Line2D(*_sides(grid, side), color=_EDGE, alpha=0.3, linewidth=0.8, transform=at),
            Line2D(*_sides([(0, 0), (1, 0)], side), color=_EDGE, linewidth=1, transform=at),
            Line2D(*_sides(breaks, side), color=_EDGE, transform=at, **slash),
            heading,
        ]
        beside = layout.transform(figure, *away)
        for (position, _), text in zip(ticks, texts, strict=True):
            (across,), (up,) = _sides([(position, 0.0)], side)
            parts.append(Text(across, up, text, fontsize=12, transform=beside, **places))
            classify(parts[-1], f"tick {side}")
        number = list(self.axes).index(axis)
        _add_group(figure, parts, f"frame {layout.name} {side} a{number}{' chosen' if is_chosen else ''}")

    def _draw_legend(self, figure: Any, layout: Layout, *, is_chosen: bool, has_ring: bool) -> None:
        from matplotlib.legend import Legend
        from matplotlib.lines import Line2D

        counts = Counter(mark.kind for mark in self.marks)
        signs = [
            Line2D([], [], label=f"{text} ({counts[kind]:,})", **SIGNS[kind])
            for kind, text in _LEGEND.items()
            if counts[kind]
        ]
        if has_ring:
            signs.insert(0, Line2D([], [], label="recommended", **{**_RING, "markersize": 12}))
        bottom = 72 * figure.get_figheight() - layout.height
        legend = Legend(
            figure,
            signs,
            [str(sign.get_label()) for sign in signs],
            loc="lower center",
            bbox_to_anchor=(layout.width / 144, bottom / 72),
            bbox_transform=figure.dpi_scale_trans,
            ncols=layout.legend_columns,
            frameon=False,
            fontsize=11,
            handletextpad=0.2,
            columnspacing=1.2,
            borderaxespad=0,
        )
        classify(legend, f"frame {layout.name} legend{' chosen' if is_chosen else ''}")
        figure.add_artist(legend)

    def _draw_marks(self, figure: Any, layout: Layout, pair: tuple[str, str], *, has_absent: bool) -> None:
        """The line and all marks; what is hidden at first is drawn with its class for chart.js, or left out."""
        from matplotlib.lines import Line2D

        corners = [(self._at(pair[0], across), self._at(pair[1], up)) for across, up in self._corners(pair)]
        line = Line2D(*_sides(corners, "x"), color=FRONT, alpha=0.55, linewidth=2, transform=layout.transform(figure))
        classify(line, "line")
        figure.add_artist(line)
        for mark in self.ordered:
            across, up = (self._positions(mark, name) for name in pair)
            is_absent = across is None or up is None
            if (is_absent or mark.kind == "predicted") and not has_absent:
                continue
            is_ringed = mark.is_ringed(pair)
            has_ring = is_ringed or (has_absent and bool(mark.label))
            parts = self._parts(figure, layout, mark, across or [0.0] * 3, up or [0.0] * 3, has_ring=has_ring)
            classes = ["mark", mark.kind, *(["picked"] if is_ringed else []), *(["absent"] if is_absent else [])]
            _add_group(figure, parts, " ".join(classes), "\n".join(mark.tooltip))

    def _parts(
        self,
        figure: Any,
        layout: Layout,
        mark: Mark,
        across: Sequence[float],
        up: Sequence[float],
        *,
        has_ring: bool,
    ) -> list[Any]:
        """Error bars, sign, ring and label of a mark."""
        from matplotlib.lines import Line2D
        from matplotlib.text import Text

        at = layout.transform(figure)
        x, y = across[0], up[0]
        is_prominent = mark.kind in _PROMINENT or bool(mark.label)
        parts: dict[str, Any] = {}
        if is_prominent or not self.is_full:
            looks: dict[str, Any] = {
                "linestyle": (0, (3, 2)) if mark.kind == "predicted" else "-",
                "alpha": 0.8 if is_prominent else 0.4,
            }
            bars = [*across[1:], float("nan"), x, x], [y, y, float("nan"), *up[1:]]
            parts["whisker"] = Line2D(*bars, color=SIGNS[mark.kind]["color"], linewidth=1.2, transform=at, **looks)
        opacity = None if is_prominent or not self.is_full else 0.35
        parts["outline"] = Line2D([x], [y], alpha=opacity, transform=at, **SIGNS[mark.kind])
        if has_ring:
            right, side = (-14, "right") if x > _LABEL_TO_THE_LEFT else (14, "left")
            beside = layout.transform(figure, right, 7)
            parts["ring"] = Line2D([x], [y], transform=at, **_RING)
            parts["label"] = Text(x, y, mark.label, fontsize=12, fontweight="bold", ha=side, transform=beside)
        for name, part in parts.items():
            classify(part, name)
        return list(parts.values())

    def _corners(self, pair: tuple[str, str]) -> list[tuple[float, float]]:
        x, y = pair
        swapped = [(across, up) for up, across in self.lines.get((y, x), ())]
        return list(self.lines.get(pair, ())) or swapped

    def _positions(self, mark: Mark, name: str) -> list[float] | None:
        """Positions of value and bar ends; None without a value, or for a prediction outside the measured range."""
        spread = mark.spreads.get(name)
        scale = self.scale(name)
        if spread is None or (mark.kind == "predicted" and not scale.low <= spread.value <= scale.high):
            return None
        return [self._at(name, value) for value in spread]

    def _at(self, name: str, value: float) -> float:
        return round(self.scale(name).at(value), 4)


def _sides(points: Sequence[tuple[float, float]], side: str) -> tuple[list[float], list[float]]:
    """The points as coordinates across and up; exchanged for the side y."""
    across, up = [point[0] for point in points], [point[1] for point in points]
    return (across, up) if side == "x" else (up, across)


def _add_group(figure: Any, parts: Sequence[Any], classes: str, tooltip: str = "") -> None:
    """Add artists to a figure that are one element of its SVG."""
    for part in parts:
        part.set_figure(figure)
    group = _group_class()(parts)
    classify(group, classes, tooltip)
    figure.add_artist(group)


@cache
def _group_class() -> Any:
    """A class of matplotlib artists; matplotlib inspects each class, which takes longer than to draw one."""
    from matplotlib.artist import Artist

    class Group(Artist):
        def __init__(self, parts: Sequence[Any]) -> None:
            super().__init__()
            self.parts = parts

        def draw(self, renderer: Any) -> None:
            renderer.open_group("group", gid=self.get_gid())
            for part in self.parts:
                part.draw(renderer)
            renderer.close_group("group")

    return Group
