"""What the cache keeps of the prices that were read, and what survives when writing it goes wrong."""

import os
from datetime import date
from pathlib import Path

import pytest

from paretune.commands.prices.cache import Change, changes, store, with_new
from paretune.core.errors import BadInput
from paretune.pricing.prices import Price, PriceList


def row(usd: float, day: str, name: str = "ml.m5.large") -> Price:
    return Price(usd_per_hour=usd, region="eu-west-1", as_of=day, source="AWS, x", instance_type=name)


def kept(*readings: Price) -> list[tuple[float, str]]:
    rows: list[Price] = []
    for reading in readings:
        rows = with_new(rows, [reading])
    return [(reference.usd_per_hour, reference.as_of) for reference in rows]


def test_a_price_keeps_the_day_on_which_it_was_first_seen_and_the_last_one() -> None:
    days = ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]

    assert kept(*(row(1, day) for day in days)) == [(1, "2026-01-01"), (1, "2026-04-01")]


def test_a_price_that_has_changed_is_added_to_the_former_ones() -> None:
    assert kept(row(1, "2026-01-01"), row(1, "2026-02-01"), row(2, "2026-03-01"), row(1, "2026-04-01")) == [
        *((1, "2026-01-01"), (1, "2026-02-01"), (2, "2026-03-01"), (1, "2026-04-01"))
    ]


def test_a_second_reading_on_the_same_day_replaces_the_first() -> None:
    assert kept(row(1, "2026-01-01"), row(3, "2026-02-01"), row(2, "2026-02-01")) == [
        (1, "2026-01-01"),
        (2, "2026-02-01"),
    ]


def test_a_type_that_is_no_longer_listed_keeps_its_rows() -> None:
    rows = with_new([row(1, "2026-01-01", "ml.p3.2xlarge")], [row(2, "2026-02-01")])

    assert [reference.instance_type for reference in rows] == ["ml.m5.large", "ml.p3.2xlarge"]


def test_changes_are_those_of_types_that_had_another_price() -> None:
    before = {"a": row(4, "2026-01-01", "a"), "b": row(1, "2026-01-01", "b")}
    read = [row(1, "2026-02-01", "b"), row(9, "2026-02-01", "new"), row(3, "2026-02-01", "a")]

    assert changes(before, read) == [Change(instance_type="a", old_usd_per_hour=4, new_usd_per_hour=3)]
    assert changes(before, read)[0].share == -0.25


def test_what_is_stored_is_found_by_the_list(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    store(environment, "eu-west-1", [row(0.1 + 0.2, "2026-01-01")])
    path = store(environment, "eu-west-1", [row(0.5, "2026-02-01")])
    prices = PriceList.read(environment)

    assert path == tmp_path / "paretune" / "prices" / "eu-west-1.csv"
    assert prices.price("ml.m5.large", "eu-west-1") == row(0.5, "2026-02-01")
    assert prices.price("ml.m5.large", "eu-west-1", date(2026, 1, 31)) == row(0.1 + 0.2, "2026-01-01")
    assert os.listdir(path.parent) == [path.name]


def test_a_writer_that_is_killed_leaves_the_old_cache_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    path = store(environment, "eu-west-1", [row(1, "2026-01-01")])
    before = path.read_bytes()

    class Killed(BaseException):
        pass

    def kill(_: int) -> None:
        raise Killed

    monkeypatch.setattr(os, "fsync", kill)  # all is written, nothing has its name yet
    with pytest.raises(Killed):
        store(environment, "eu-west-1", [row(2, "2026-02-01")])

    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_half_a_file_that_a_killed_writer_left_is_not_read(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    path = store(environment, "eu-west-1", [row(1, "2026-01-01")])
    (path.parent / "eu-west-1.csv.k1ll3d.new").write_text("instance_type,reg")

    assert PriceList.read(environment).price("ml.m5.large", "eu-west-1") == row(1, "2026-01-01")


def test_without_a_home_there_is_no_cache_to_write() -> None:
    with pytest.raises(BadInput, match="HOME or XDG_CACHE_HOME must be set"):
        store({}, "eu-west-1", [])


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "paretune").write_text("a file where a folder should be")

    with pytest.raises(BadInput, match=r"eu-west-1\.csv cannot be written"):
        store({"XDG_CACHE_HOME": str(tmp_path)}, "eu-west-1", [row(1, "2026-01-01")])


def test_a_damaged_cache_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "paretune" / "prices" / "eu-west-1.csv"
    path.parent.mkdir(parents=True)
    path.write_text("something of the user's")

    with pytest.raises(BadInput, match="column instance_type"):
        store({"XDG_CACHE_HOME": str(tmp_path)}, "eu-west-1", [row(1, "2026-01-01")])

    assert path.read_text() == "something of the user's"
