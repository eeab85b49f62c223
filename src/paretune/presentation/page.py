"""HTML pages: templates that share one style, and plotly charts on them."""

import secrets
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from paretune.core.secrets import printable


class Look(NamedTuple):
    """How a kind of mark is drawn: its name in the legend, color, symbol in plotly, size, and width of its edge."""

    name: str
    color: str
    symbol: str
    size: float = 9
    edge: float = 0


# Source of blue and vermilion: Okabe and Ito, Color Universal Design (2008). All colors have a contrast of at least 3
# on light and dark pages. Shapes differ, too.
MARKS = {
    "dominated": Look("dominated", "#8C8C8C", "circle", 7),
    "unmet": Look("a constraint is not met", "#B5651D", "x", 8),
    "expected": Look("expected, not trained", "#8A63A8", "triangle-up-open", 9),
    "elsewhere": Look("on the front because of another objective", "#0072B2", "diamond-open", 9),
    "front": Look("on the front", "#0072B2", "diamond", 10),
}
"""The look of each kind of mark. Later kinds are drawn over earlier ones."""
PICKED = Look("recommended", "#D55E00", "circle-open", 22, 2.5)


def new_nonce() -> str:
    """Return an unguessable string. Under the policy in `policy.html`, a page runs only scripts that have it."""
    return secrets.token_hex(16)


def chart_html(figure: Any, about: str, nonce: str = "", name: str = "plot", *, with_script: bool = True) -> Markup:
    """Return the figure as HTML with the id `name`; `about` describes it to screen readers.

    With `with_script`, plotly's script precedes it. Only the first chart of a page needs the script.
    """
    config = {"responsive": True, "displayModeBar": False}  # the bar would cover the legend
    drawn = dressed(figure).to_html(full_html=False, include_plotlyjs=False, config=config, div_id=name)
    drawn = drawn.replace("<script", f'<script nonce="{nonce}"')  # plotly escapes < in texts of the figure
    if with_script:
        drawn = f'<script nonce="{nonce}">{plotly_script()}</script>{drawn}'
    return Markup('<div role="group" aria-label="{}">{}</div>').format(about, Markup(drawn))  # noqa: S704  # plotly escapes


@cache
def plotly_script() -> str:
    """Return the basic bundle of plotly.js 4.1.1 (MIT): points, lines and bars, at a quarter of the full size."""
    return (files("paretune.presentation") / "plotly-basic.min.js").read_text(encoding="utf-8")


def dressed(figure: Any) -> Any:
    """Give the figure the common look of all charts, and return it."""
    figure.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13},
        margin={"l": 56, "r": 12, "t": 8, "b": 88 if figure.layout.updatemenus else 44},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"bgcolor": "#22272d", "bordercolor": "#22272d", "font": {"color": "#ffffff"}, "align": "left"},
        hovermode="closest",
        height=430,
    )
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(automargin=True, zeroline=False, gridcolor="#d6d6d6", title={"standoff": 8, "font": {"size": 13}})
    return figure


def as_html(text: str) -> str:
    """Escape text for plotly, which reads a few HTML tags, but would show an escaped quotation mark as `&quot;`."""
    return escape(printable(text), quote=False).replace("\n", "<br>")


def _printable(value: object) -> object:
    """Return the value for a page, without secrets, and with escapes for characters that reorder or hide text."""
    if isinstance(value, Markup):
        return Markup(printable(value))  # noqa: S704  # from our own templates and pictures, with texts escaped
    return printable(value) if isinstance(value, str) else value


@cache
def template(package: str, name: str) -> jinja2.Template:
    """Return a template of a package. It may include the files of this folder, such as `policy.html`."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(folder, "") for folder in (package, "paretune.presentation")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
    ).get_template(name)
