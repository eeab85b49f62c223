"""The chart without its script: marks, lines and texts, and the data that the script gets."""

from dataclasses import replace
from xml.etree import ElementTree

from paretune.presentation.chart import MANY, SIGNS, Axis, Chart, Mark, Spread

AXES = [Axis(name=name, heading=f"{name} <unit>", short=name) for name in ("x", "y", "z")]
EVIL = "</script><img src=x onerror=alert(1)>"


def mark(number: int, kind: str = "dominated", **fields: object) -> Mark:
    spreads = {"x": Spread(number, number - 0.5, number + 0.5), "y": Spread(10 - number, 9 - number, 11 - number)}
    return replace(Mark(kind=kind, spreads=spreads, tooltip=[f"mark {number}", EVIL]), **fields)  # type: ignore[arg-type]


def chart(*marks: Mark) -> Chart:
    with_z = replace(mark(5), spreads={**mark(5).spreads, "z": Spread(1, 1, 1)})
    corners = {("x", "y"): [(1.0, 9.0), (2.0, 9.0), (2.0, 8.0)]}
    return Chart(axes=AXES, marks=[*marks, with_z], lines=corners, first=("x", "y"), about="some marks")


def drawn(found: Chart, pair: tuple[str, str] | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(found.svg(pair))  # noqa: S314  # our own


def test_the_front_is_drawn_over_the_others_and_what_is_recommended_last() -> None:
    kinds = [one.kind for one in chart(mark(1, "front", label="trial 1"), mark(2, "front"), mark(3, "unmet")).ordered]

    assert kinds == ["dominated", "unmet", "front", "front"]
    assert chart(mark(1, "dominated", label="trial 1"), mark(2, "front")).ordered[-1].label == "trial 1"


def test_kinds_differ_in_shape() -> None:
    assert len(set(SIGNS.values())) == len(SIGNS)


def test_a_mark_without_a_value_on_an_axis_is_not_shown_over_it() -> None:
    shown = [item for item in drawn(chart(mark(1)), ("z", "y")).iter("g") if "mark" in item.get("class", "").split()]

    assert [item.get("display") for item in shown] == ["none", None]
    assert chart(mark(1)).data()["axes"]["z"]["positions"][0] is None


def test_texts_are_escaped() -> None:
    titles = [item.text or "" for item in drawn(chart(mark(1))).iter("title")]

    assert all(EVIL in title for title in titles)
    assert "<img" not in chart(mark(1)).svg()


def test_a_line_is_the_same_with_its_axes_exchanged() -> None:
    found = chart(mark(1), mark(2))
    over, under = (drawn(found, pair).find("path[@class='line']") for pair in (("x", "y"), ("y", "x")))

    assert over is not None
    assert under is not None
    assert over.get("d", "").count("L") == under.get("d", "").count("L") == 2
    assert drawn(found, ("x", "z")).find("path[@class='line']").get("d") == ""  # type: ignore[union-attr]


def test_bars_reach_to_both_ends_and_many_marks_off_the_front_have_none() -> None:
    few, many = chart(mark(1, "front")), chart(mark(1, "front"), *(mark(2) for _ in range(MANY)))

    assert few.svg().count('class="whisker"') == 2
    assert many.svg().count('class="whisker"') == 1
    assert 'class="chart full"' in many.svg()


def test_places_are_shares_of_the_axes() -> None:
    found = chart(mark(1), mark(9)).data()

    assert all(0 <= place <= 1 for places in found["axes"]["x"]["positions"] for place in places)
    assert len(found["addresses"]) == 3
