"""Figures drawn by matplotlib: as SVG elements for HTML pages, and as figures for PNG files."""

import html
import io
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Okabe and Ito, Color Universal Design (2008): distinct for every kind of colour vision, on white.
FRONT, DOMINATED, PICKED, UNMET, PREDICTED = "#0072B2", "#8C8C8C", "#D55E00", "#B5651D", "#007A59"
"""Of points on a front, dominated, recommended, without a rank, not run. Their contrast is 3 on both papers."""
ON_DARK, ON_LIGHT = "#fefefe", "#010101"  # white and black for text on cells that keep their colour when dark
_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#B5651D", "#8C8C8C")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 2)), (0, (3, 1, 1, 1)))
HATCHES = ("", "///", "---", "xxx", "\\\\\\", "+++", "|||", "/-")
"""Patterns of bars, which distinguish series without colour. All are lines: a pattern of dots takes 150 KB of SVG."""
_AS = "as-"  # begins the id that `classify` gives: classes, "|" and the tooltip in hexadecimal digits follow


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure that can be drawn more than once."""

    name: str  # name of its file without the suffix, and prefix of its ids in a page
    title: str
    caption: str  # what a reader needs to know to read it
    draw: Callable[[Any], None]  # draws on an empty matplotlib figure
    size: tuple[float, float] = (8.6, 4.8)  # width and height in inches

    def svg(self) -> str:
        """The figure as an SVG element; texts given to `tip` appear under the pointer."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        stream = io.StringIO()
        with _settings(self.name):
            metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
            FigureCanvasSVG(self._drawn(dpi=110)).print_svg(stream, metadata=metadata)
        text = stream.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
        text = re.sub(r">\s+<", "><", text)
        text = _with_classes(_with_page_colours(text))
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", text)  # several pictures share a page
        return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(self.title, quote=True)}"', 1)

    def figure(self) -> Any:
        """The figure as a matplotlib figure, for a PNG."""
        with _settings(self.name):
            return self._drawn(dpi=144)

    def _drawn(self, dpi: int) -> Any:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=self.size, layout="constrained", dpi=dpi)
        FigureCanvasAgg(figure)
        self.draw(figure)
        return figure


def style(number: int) -> dict[str, Any]:
    """Colour, marker and line of a series; they differ for eight series, then repeat."""
    index = number % len(_SERIES)
    return {"color": _SERIES[index], "marker": _MARKERS[index], "linestyle": _LINES[index]}


def classify(artist: Any, classes: str, tooltip: str = "") -> None:
    """Give a matplotlib artist classes, separated by spaces, and a tooltip in the SVG."""
    artist.set_gid(f"{_AS}{classes}|{tooltip.encode().hex()}")


def tip(artist: Any, text: str) -> None:
    """Give a matplotlib artist a tooltip in the SVG."""
    classify(artist, "", text)


def _with_page_colours(text: str) -> str:
    """The SVG with the page's ink and paper instead of black and white, so that it follows a dark page."""
    text = re.sub(r"(fill|stroke): ?(#000000|black)\b", r"\1: var(--ink, #000)", text)
    text = re.sub(r"(fill|stroke): ?(#ffffff|white)\b", r"\1: var(--paper, #fff)", text)
    # Texts in black have no colour of their own.
    return re.sub(r'<text style="(?!fill)', '<text style="fill: var(--ink, #000); ', text)


def _with_classes(text: str) -> str:
    """The SVG with the classes that `classify` put into ids, and a title element and an id for each tooltip."""
    numbers = itertools.count(1)

    def classified(match: re.Match[str]) -> str:
        classes = f' class="{match[1]}"' if match[1] else ""
        tooltip = html.escape(bytes.fromhex(match[2]).decode())
        title = f' id="tip{next(numbers)}"{classes}><title>{tooltip}</title>' if tooltip else f"{classes}>"
        return f"<g{title}"

    return re.sub(rf'<g id="{_AS}([^|"]*)\|([0-9a-f]*)">', classified, text)


@contextmanager
def _settings(name: str) -> Iterator[None]:
    import matplotlib

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",  # keeps text as text
        "svg.hashsalt": name,
        "text.parse_math": False,  # "$" is a character, not mathematics
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana"],  # repeated by every text of an SVG; both have the same width
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(settings):
        yield
