"""Figures, each as an SVG element that stands in HTML, and as a matplotlib figure for a PNG."""

import html
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Okabe and Ito, Color Universal Design (2008): told apart with every kind of colour vision. On white.
FRONT, DOMINATED, PICKED = "#0072B2", "#8C8C8C", "#D55E00"  # as in style.css, which has those of the chart of a study
ON_DARK, ON_LIGHT = "#fefefe", "#010101"
"""White and black of texts on cells that have the same colour in a dark page."""
_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#B5651D", "#8C8C8C")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 2)), (0, (3, 1, 1, 1)))
HATCHES = ("", "///", "---", "xxx", "\\\\\\", "+++", "|||", "/-")
"""Patterns of bars, which tell series apart without colour; of lines only, for one of dots is 150 KB of SVG."""
_TIP = "tip-"  # begins the id of an element with a tooltip; its text follows in hexadecimal digits


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure that can be drawn as often as it is needed.

    Attributes:
        name: of its file, without the ending, and of its ids in a page.
        title: heading above it.
        caption: what is to be known to read it.
        draw: draws on an empty matplotlib figure.
        size: width and height, inches.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (8.6, 4.8)

    def svg(self) -> str:
        """As an SVG element; what was given to `tip` shows its text under the pointer."""
        return svg(self.draw, self.name, self.size, self.title)

    def figure(self) -> Any:
        """As a matplotlib figure, for a PNG."""
        with _settings(self.name):
            return _drawn(self.draw, self.size, dpi=144)


def style(number: int) -> dict[str, Any]:
    """Colour, marker and line of a series; two of them differ in all three, beyond eight series again the first."""
    place = number % len(_SERIES)
    return {"color": _SERIES[place], "marker": _MARKERS[place], "linestyle": _LINES[place]}


def tip(artist: Any, text: str) -> None:
    """Give what matplotlib has drawn a tooltip in the SVG."""
    artist.set_gid(f"{_TIP}{text.encode().hex()}")


def plain_ticks(line: Any) -> None:
    """Have a logarithmic axis written in plain numbers; matplotlib's own would be TeX."""
    line.set_major_formatter(lambda tick, _: f"{tick:,g}")
    line.set_minor_formatter("")


def few_log_ticks(line: Any, values: Sequence[float]) -> None:
    """Have a logarithmic axis written in plain numbers at 1, 2 and 5 times the powers of ten between the values."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    line.set_ticks([tick for tick in ticks if low / 1.6 <= tick <= high * 1.6])
    plain_ticks(line)
    line.set_ticks([], minor=True)


def svg(draw: Callable[[Any], None], name: str, size: tuple[float, float], about: str) -> str:
    """What `draw` draws on a figure, as an SVG element whose ids carry `name`: several of them share a page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with _settings(name):
        figure = _drawn(draw, size, dpi=110)
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(
            stream, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = _in_colours_of_the_page(text)
    text = _with_tooltips(text)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(about, quote=True)}"', 1)


def _in_colours_of_the_page(text: str) -> str:
    """Black and white become the page's own ink and paper, which change places in a dark one."""
    text = re.sub(r"(fill|stroke): ?(#000000|black)\b", r"\1: var(--ink, #000)", text)
    text = re.sub(r"(fill|stroke): ?(#ffffff|white)\b", r"\1: var(--paper, #fff)", text)
    # Texts in black have no colour of their own.
    return re.sub(r'<text style="(?!fill)', '<text style="fill: var(--ink, #000); ', text)


def _with_tooltips(text: str) -> str:
    """The tooltips that stand in ids, as elements."""
    numbers = itertools.count(1)

    def titled(found: re.Match[str]) -> str:
        said = html.escape(bytes.fromhex(found[1]).decode())
        return f'<g id="tip{next(numbers)}"><title>{said}</title>'

    return re.sub(rf'<g id="{_TIP}([0-9a-f]*)">', titled, text)


def _drawn(draw: Callable[[Any], None], size: tuple[float, float], dpi: int) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", dpi=dpi)
    FigureCanvasAgg(figure)
    draw(figure)
    return figure


@contextmanager
def _settings(name: str) -> Iterator[None]:
    import matplotlib

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": name,
        "text.parse_math": False,  # "$" is a letter here
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana"],  # every text of an SVG repeats the list; both are as wide
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(settings):
        yield
