"""The scatter chart of a study, drawn by matplotlib: on its page, where chart.js moves the marks, and as a PNG.

A page holds the marks once and a frame (ticks, grid and heading) of every quantity for both directions and two widths.
The picture is complete without the script, which shows other frames and moves the marks when a reader chooses other
axes or has a small window. Ranges, breaks, ticks and texts are worked out and tested in Python.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from functools import cached_property
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
_PROMINENT = ("front", "predicted")  # kinds that no other marks may hide or flatten
_ROOM = 0.3  # the most that a prediction may stretch an axis, as a share of the measured range
MANY = 150  # number of marks above which only prominent and ringed marks have error bars, and the others are faded
_EDGE = "#767676"
_CHARACTER = 7.2  # width of a character of a tick, which has the size 12


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

    def rectangle(self, figure: Any) -> tuple[float, float, float, float]:
        """The plot as matplotlib states it: left, bottom, width and height as shares of a figure that may be larger."""
        width, height = (72 * inches for inches in figure.get_size_inches())
        wide, high = self.width - self.left - self.right, self.height - self.top - self.bottom
        return self.left / width, 1 - (self.top + high) / height, wide / width, high / height


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
        """Ticks, grid, breaks and heading of one axis; `side` is x or y."""
        frame = figure.add_axes(layout.rectangle(figure), xlim=(0, 1), ylim=(0, 1), frameon=False)
        number = list(self.axes).index(axis)
        classify(frame, f"frame {layout.name} {side} a{number}{' chosen' if is_chosen else ''}")
        (frame.yaxis if side == "x" else frame.xaxis).set_visible(False)
        line = frame.xaxis if side == "x" else frame.yaxis
        scale = self.scale(axis.name)
        ticks = scale.ticks()
        positions, texts = map(list, zip(*ticks, strict=True))
        if side == "x":
            texts = legible_texts(ticks, layout.width - layout.left - layout.right, _CHARACTER)
        line.set_ticks(positions, texts, fontsize=12)
        line.set_tick_params(length=0, pad=5)
        line.grid(color=_EDGE, alpha=0.3)
        for tick in line.get_major_ticks():
            classify(tick.label1, f"tick {side}")
        line.set_label_text(axis.heading, fontsize=12)
        classify(line.label, "heading")
        at = [(position + step, 0.0) for position in scale.breaks for step in (-0.006, 0.006)]
        looks: dict[str, Any] = {"clip_on": False, "color": _EDGE}
        frame.plot(*_sides([(0, 0), (1, 0)], side), **looks, linewidth=1)
        frame.plot(*_sides(at, side), **looks, marker=[(-0.6, -1), (0.6, 1)], linestyle="", markersize=11)

    def _draw_legend(self, figure: Any, layout: Layout, *, is_chosen: bool, has_ring: bool) -> None:
        from matplotlib.lines import Line2D

        counts = Counter(mark.kind for mark in self.marks)
        signs = [
            Line2D([], [], label=f"{text} ({counts[kind]:,})", **SIGNS[kind])
            for kind, text in _LEGEND.items()
            if counts[kind]
        ]
        if has_ring:
            signs.insert(0, Line2D([], [], label="recommended", **{**_RING, "markersize": 12}))
        width, height = (72 * inches for inches in figure.get_size_inches())
        frame = figure.add_axes((0, 1 - layout.height / height, layout.width / width, 0.1))
        frame.set_axis_off()
        classify(frame, f"frame {layout.name} legend{' chosen' if is_chosen else ''}")
        frame.legend(
            handles=signs,
            loc="lower center",
            ncols=layout.legend_columns,
            frameon=False,
            fontsize=11,
            handletextpad=0.2,
            columnspacing=1.2,
            borderaxespad=0,
        )

    def _draw_marks(self, figure: Any, layout: Layout, pair: tuple[str, str], *, has_absent: bool) -> None:
        """The line and all marks; what is hidden at first is drawn with its class for chart.js, or left out."""
        from matplotlib.artist import Artist

        class Group(Artist):
            """Artists that are one element of the SVG."""

            def __init__(self, parts: Sequence[Any]) -> None:
                super().__init__()
                self.parts = parts

            def draw(self, renderer: Any) -> None:
                renderer.open_group("mark", gid=self.get_gid())
                for part in self.parts:
                    part.draw(renderer)
                renderer.close_group("mark")

        axes = figure.add_axes(layout.rectangle(figure), xlim=(0, 1), ylim=(0, 1))
        axes.set_axis_off()
        corners = [(self._at(pair[0], across), self._at(pair[1], up)) for across, up in self._corners(pair)]
        (line,) = axes.plot(*_sides(corners, "x"), color=FRONT, alpha=0.55, linewidth=2)
        classify(line, "line")
        for mark in self.ordered:
            across, up = (self._positions(mark, name) for name in pair)
            is_absent = across is None or up is None
            if (is_absent or mark.kind == "predicted") and not has_absent:
                continue
            is_ringed = mark.is_ringed(pair)
            has_ring = is_ringed or (has_absent and bool(mark.label))
            group = Group(self._parts(axes, mark, across or [0.0] * 3, up or [0.0] * 3, has_ring=has_ring))
            classes = ["mark", mark.kind, *(["picked"] if is_ringed else []), *(["absent"] if is_absent else [])]
            classify(group, " ".join(classes), "\n".join(mark.tooltip))
            axes.add_artist(group)

    def _parts(
        self, axes: Any, mark: Mark, across: Sequence[float], up: Sequence[float], *, has_ring: bool
    ) -> list[Any]:
        """Error bars, sign, ring and label of a mark."""
        from matplotlib.lines import Line2D
        from matplotlib.text import Annotation

        x, y = across[0], up[0]
        is_prominent = mark.kind in _PROMINENT or bool(mark.label)
        parts: dict[str, Any] = {}
        if is_prominent or not self.is_full:
            looks: dict[str, Any] = {
                "linestyle": (0, (3, 2)) if mark.kind == "predicted" else "-",
                "alpha": 0.8 if is_prominent else 0.4,
            }
            bars = [*across[1:], float("nan"), x, x], [y, y, float("nan"), *up[1:]]
            parts["whisker"] = Line2D(*bars, color=SIGNS[mark.kind]["color"], linewidth=1.2, **looks)
        parts["outline"] = Line2D(
            [x], [y], alpha=None if is_prominent or not self.is_full else 0.35, **SIGNS[mark.kind]
        )
        if has_ring:
            side: dict[str, Any] = {"xytext": (-14, 7), "ha": "right"} if x > 0.8 else {"xytext": (14, 7), "ha": "left"}
            parts["ring"] = Line2D([x], [y], **_RING)
            parts["label"] = Annotation(
                mark.label, (x, y), textcoords="offset points", fontsize=12, fontweight="bold", **side
            )
        for name, part in parts.items():
            part.axes = axes
            part.set_figure(axes.figure)
            part.set_transform(axes.transData) if isinstance(part, Line2D) else None
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
