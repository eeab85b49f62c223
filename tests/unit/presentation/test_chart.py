"""The chart without its script: marks, lines and texts, and the data that the script gets."""

from dataclasses import replace
from xml.etree import ElementTree

from paretune.presentation.chart import Axis, Chart, Mark, Spread

AXES = [Axis(name=name, heading=f"{name} <unit>", short=name) for name in ("x", "y", "z")]
EVIL = "</script><img src=x onerror=alert(1)>"


def mark(number: int, kind: str = "dominated", **fields: object) -> Mark:
    spreads = {"x": Spread(number, number - 0.5, number + 0.5), "y": Spread(10 - number, 9 - number, 11 - number)}
    return replace(Mark(kind=kind, spreads=spreads, tooltip=[f"mark {number}", EVIL]), **fields)  # type: ignore[arg-type]


RINGED = mark(1, "front", label="trial 1", label_over=[{"x", "y"}])


def chart(*marks: Mark) -> Chart:
    with_z = replace(mark(5), spreads={**mark(5).spreads, "z": Spread(1, 1, 1)})
    corners = {("x", "y"): [(1.0, 9.0), (2.0, 9.0), (2.0, 8.0)]}
    return Chart(axes=AXES, marks=[*marks, with_z], lines=corners, first=("x", "y"), about="some marks")


def root(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314  # our own


def classified(text: str, name: str) -> list[ElementTree.Element]:
    """The elements of an SVG that have a class."""
    return [item for item in root(text).iter() if name in item.get("class", "").split()]


def test_the_legend_names_the_kinds_that_are_drawn() -> None:
    texts = "".join(root(chart(RINGED).picture("pair", ("x", "y")).svg()).itertext())

    assert "on the front (1)" in texts
    assert "dominated (1)" in texts
    assert "recommended" in texts
    assert "predicted" not in texts


def test_a_recommended_mark_is_ringed_over_the_axes_that_decided_it() -> None:
    marks = chart(replace(RINGED, spreads={**RINGED.spreads, "z": Spread(2, 1, 3)}))

    for pair, count in ((("x", "y"), 1), (("y", "x"), 1), (("x", "z"), 0)):
        assert len(classified(marks.picture("pair", pair).svg(), "ring")) == count
        assert len(classified(marks.picture("pair", pair).svg(), "picked")) == count
    assert marks.data()["rings"] == [[], [["x", "y"]]]
    over_z = replace(marks, first=("x", "z")).svg()  # drawn for the script, which shows it over other axes
    assert (len(classified(over_z, "ring")), len(classified(over_z, "picked"))) == (1, 0)


def test_texts_are_escaped() -> None:
    text = chart(mark(1)).svg()
    titles = [item.text or "" for item in root(text).iter() if item.tag.endswith("title")]

    assert len(titles) == 2
    assert all(EVIL in title for title in titles)
    assert "<img" not in text


def test_the_same_chart_is_drawn_the_same() -> None:
    assert chart(mark(1)).svg() == chart(mark(1)).svg()
