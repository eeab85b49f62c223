"""Pictures: tooltips, ids of their own, PNG."""

import io
from typing import Any
from xml.etree import ElementTree

from paretune.presentation.picture import Picture, style, tip


def picture(name: str = "one") -> Picture:
    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for workspace, text in enumerate(["run a < b & c", "run a < b & c", "cost 5 USD"]):
            (point,) = axes.plot(workspace, workspace, "o")
            tip(point, text)
        axes.set(xlabel="$5 and $6")

    return Picture(name=name, title='a "title"', caption="", draw=draw)


def test_a_tooltip_is_a_title_element_with_its_text() -> None:
    root = ElementTree.fromstring(picture().svg())  # noqa: S314  # our own

    assert [item.text for item in root.iter() if item.tag.endswith("title")] == [
        *("run a < b & c", "run a < b & c", "cost 5 USD"),
    ]


def test_two_pictures_share_a_page_without_sharing_ids() -> None:
    value = [item.get("id") for name in ("one", "two") for item in ElementTree.fromstring(picture(name).svg()).iter()]  # noqa: S314
    ids = [name for name in value if name]

    assert len(ids) == len(set(ids))


def test_the_same_picture_is_a_png() -> None:
    stream = io.BytesIO()
    picture().figure().savefig(stream, format="png")

    assert stream.getvalue().startswith(b"\x89PNG")


def test_series_differ_without_colour() -> None:
    looks = [style(number) for number in range(8)]

    for name in ("color", "marker", "linestyle"):
        assert len({str(look[name]) for look in looks}) == 8
