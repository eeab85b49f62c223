"""The chart without its script: marks, lines and texts, and the data that the script gets."""

from dataclasses import replace
from xml.etree import ElementTree

from paretune.presentation.chart import MANY, SIGNS, Axis, Chart, Mark, Spread

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


def test_the_front_is_drawn_over_the_others_and_what_is_recommended_last() -> None:
    kinds = [item.kind for item in chart(mark(1, "front", label="trial 1"), mark(2, "front"), mark(3, "unmet")).ordered]

    assert kinds == ["dominated", "unmet", "front", "front"]
    assert chart(mark(1, "dominated", label="trial 1"), mark(2, "front")).ordered[-1].label == "trial 1"


def test_kinds_differ_in_shape() -> None:
    assert len({sign["marker"] for sign in SIGNS.values()}) == len(SIGNS)


def test_a_mark_without_a_value_on_an_axis_is_not_shown_over_it() -> None:
    marks = replace(chart(mark(1)), first=("z", "y"))

    assert ["absent" in item.get("class", "") for item in classified(marks.svg(), "mark")] == [True, False]
    assert len(classified(marks.picture("pair", ("z", "y")).svg(), "mark")) == 1
    assert marks.data()["axes"]["z"]["positions"][0] is None


def test_the_page_holds_a_frame_of_each_axis_for_both_sides_and_widths_and_shows_two_and_the_legend() -> None:
    text = chart(mark(1)).svg()
    frames = [item.get("class") for item in classified(text, "frame")]

    assert len(frames) == len(set(frames)) == (3 * 2 + 1) * 2
    assert [item.get("class") for item in classified(text, "chosen")] == [
        "frame wide x a0 chosen",
        "frame wide y a1 chosen",
        "frame wide legend chosen",
    ]
    assert len(classified(chart(mark(1)).picture("pair", ("x", "y")).svg(), "frame")) == 3


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


def test_predictions_are_left_to_the_script_and_far_ones_stretch_no_axis() -> None:
    near, far = (replace(mark(number, "predicted"), tooltip=["a guess"]) for number in (3, 900))
    marks, without = chart(mark(1, "front"), near, far), chart(mark(1, "front"))

    assert marks.scale("x") == without.scale("x")
    assert classified(marks.picture("pair", ("x", "y")).svg(), "predicted") == []
    classes = [item.get("class", "") for item in classified(marks.svg(), "predicted")]
    assert sorted("absent" in names for names in classes) == [False, True]  # the far one has no place on the axes


def test_texts_are_escaped() -> None:
    text = chart(mark(1)).svg()
    titles = [item.text or "" for item in root(text).iter() if item.tag.endswith("title")]

    assert len(titles) == 2
    assert all(EVIL in title for title in titles)
    assert "<img" not in text


def test_a_line_is_the_same_with_its_axes_exchanged() -> None:
    marks = chart(mark(1), mark(2))
    over, under = (marks.picture("pair", pair).svg() for pair in (("x", "y"), ("y", "x")))
    (straight,), (exchanged,) = (classified(text, "line") for text in (over, under))

    assert straight[0].get("d", "").count("L") == exchanged[0].get("d", "").count("L") == 2
    assert classified(marks.picture("pair", ("x", "z")).svg(), "line") == []


def test_bars_reach_to_both_ends_and_many_marks_off_the_front_have_none() -> None:
    few, many = chart(mark(1, "front")), chart(mark(1, "front"), *(mark(2) for _ in range(MANY)))

    assert few.svg().count('class="whisker"') == 2
    assert many.svg().count('class="whisker"') == 1
    assert "fill-opacity: 0.35" in many.svg()
    assert "fill-opacity: 0.35" not in few.svg()


def test_the_same_chart_is_drawn_the_same() -> None:
    assert chart(mark(1)).svg() == chart(mark(1)).svg()


def test_places_are_shares_of_the_axes() -> None:
    result = chart(mark(1), mark(9)).data()

    assert all(0 <= workspace <= 1 for places in result["axes"]["x"]["positions"] for workspace in places)
    assert len(result["addresses"]) == 3
