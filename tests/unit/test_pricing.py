"""Which price counts, where it comes from, and what is said about it; dollars, and whether a job may be paid for."""

import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from paretune import pricing
from paretune.core.errors import BadInput, BudgetRefused
from paretune.launchers.offers import usual_price
from paretune.pricing import ML_M5_LARGE, Price, PriceList, cost_usd, dates_of, keep, price_remarks
from paretune.specification import catalog
from paretune.specification.catalog import instances
from paretune.specification.job import JobSpec
from tests.support.admission import admitted

HEADER = "instance_type,region,price_usd_per_hour,as_of,source\n"
TODAY = date(2026, 11, 20)


def row(usd: float, as_of: str = "2026-11-01", region: str = "eu-west-1", **others: str) -> Price:
    reference = {"source": "test", "instance_type": "ml.m5.large", **others}
    return Price(usd_per_hour=usd, region=region, as_of=as_of, **reference)


def dollars(prices: PriceList, on: date | None = None, region: str = "eu-west-1") -> float | None:
    result = prices.price("ml.m5.large", region, on)
    return result.usd_per_hour if result is not None else None


def own(path: Path, text: str) -> PriceList:
    path.write_text(text)
    return PriceList.read({"PARETUNE_PRICES": str(path)})


def faults_of(path: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(BadInput) as caught:
        own(path, text)
    return caught.value.faults


def test_a_job_s_price_is_that_of_its_region_or_a_local_one() -> None:
    prices = PriceList(listed=(row(1, region="eu-west-1"), row(2, region="us-east-1")))
    there = {"AWS_REGION": "eu-west-1"}
    remote = JobSpec(launcher="sagemaker", instance_type="ml.m5.large")

    assert usual_price(remote, prices, there) == row(1, region="eu-west-1")
    assert usual_price(remote, prices, {}) == row(2, region="us-east-1")
    assert usual_price(remote.replace(instance_type="ml.g5.xlarge"), prices, {}) is None


def test_every_packaged_price_says_source_and_day_and_how_far_it_can_be_trusted() -> None:
    prices, prefixes = PriceList.read({}).listed, {"uncertain": "uncertain: ", "single_source": "one source: "}

    assert {price.confidence for price in prices} & set(prefixes)
    for price in prices:
        assert price.usd_per_hour > 0
        assert price.region != "unspecified"
        assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", price.as_of)
        assert price.source.startswith(prefixes.get(price.confidence, ""))


def test_the_last_known_price_of_the_clusters_of_aws_s_benchmark_is_shipped_and_doubted() -> None:
    price = PriceList.read({}).price("ml.p3.16xlarge", "us-east-1")

    assert price is not None
    assert (price.usd_per_hour, price.as_of) == (28.152, "2021")
    assert price.doubts(date(2026, 11, 30)) == ["uncertain", "of 2021"]
    assert "the last known price whose region is not stated" in price.source


@pytest.mark.parametrize(
    ("on", "usd"),
    [
        (date(2024, 12, 31), 9),  # only the undated row is not newer
        (date(2025, 1, 1), 1),
        (date(2025, 12, 31), 1),
        (date(2026, 6, 1), 2),  # 2026-06 begins on this day
        (date(2026, 9, 14), 2),
        (date(2026, 9, 15), 3),
    ],
)
def test_on_a_day_the_newest_row_counts_that_is_not_newer(on: date, usd: float) -> None:
    rows = (row(9, ""), row(1, "2025"), row(2, "2026-06"), row(3, "2026-09-15"))

    assert dollars(PriceList(listed=rows), on) == usd


def test_the_user_s_own_row_wins_over_newer_ones_and_on_every_day() -> None:
    prices = PriceList(listed=(row(1, "2026-11-19"),), users=(row(5, "2025-06-01"), row(6, "2026-06-01")))

    assert dollars(prices) == 6
    assert dollars(prices, date(2025, 7, 1)) == 5
    assert dollars(prices, date(2020, 1, 1)) == 6


def test_the_user_s_csv_is_read_with_spaces_byte_order_mark_and_columns_of_its_own(tmp_path: Path) -> None:
    text = (
        "\ufeffinstance_type, region, price_usd_per_hour, as_of, source, note\n"
        "ml.m5.large, eu-west-1, 0.10, 2026-10, contract, x\n"
        "ml.g5.xlarge, eu-west-1, 1.5, , , \n"
    )
    prices = own(tmp_path / "own.csv", text)
    price = prices.price("ml.m5.large", "eu-west-1")

    assert price == row(0.1, "2026-10", source="contract", confidence="user")
    assert dollars(prices, region="us-east-1") == 0.115  # prices that it does not name stay
    undated = prices.price("ml.g5.xlarge", "eu-west-1")
    assert undated is not None
    assert undated.source == "PARETUNE_PRICES"


@pytest.fixture
def own_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Yield a function that writes ml.g9.xlarge to the user's instances.csv, with more columns and their cells."""

    def forget() -> None:
        for cached in (catalog.rows, catalog.instances, pricing._packaged):
            cached.cache_clear()

    def describe(columns: str, cells: str) -> Path:
        path = tmp_path / "instances.csv"
        hardware = "instance_type,accelerator,accelerator_count,accelerator_memory_gb,network_gbps,vcpus,memory_gb"
        path.write_text(f"{hardware},{columns}\nml.g9.xlarge,NVIDIA A10G,1,24,25,4,16,{cells}\n")
        monkeypatch.setattr(catalog, "OWN_TYPES", str(path))
        forget()
        return path

    yield describe
    forget()


def test_a_price_in_the_user_s_own_instance_types_needs_only_a_region(own_types: Callable[[str, str], Path]) -> None:
    own_types("region,price_usd_per_hour", "us-east-1,3.0")
    price = PriceList.read({}).price("ml.g9.xlarge", "us-east-1")

    assert price is not None
    assert (price.usd_per_hour, price.as_of, price.source) == (3.0, "", "unknown source")
    own_types("price_usd_per_hour", "3.0")
    assert PriceList.read({}).price("ml.g9.xlarge", "us-east-1") is None


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("$3.00,2026-11,confirmed", "price_usd_per_hour must be .*got .*3.00"),
        ("nan,2026-11,confirmed", "price_usd_per_hour must be .*got .*nan"),
        ("inf,2026-11,confirmed", "price_usd_per_hour must be .*got .*inf"),
        ("-1,2026-11,confirmed", "price_usd_per_hour must be .*got .*-1"),
        ("3.0,Nov 2026,confirmed", "as_of must be a date .*got 'Nov 2026'"),
        ("3.0,2026-11,certain", "confidence must be .*got .*certain"),
    ],
)
def test_a_wrong_price_in_the_user_s_own_instance_types_is_refused(
    own_types: Callable[[str, str], Path], cells: str, message: str
) -> None:
    path = own_types("region,price_usd_per_hour,as_of,confidence", f"us-east-1,{cells}")

    with pytest.raises(BadInput, match=f"{re.escape(str(path))}: ml.g9.xlarge: {message}"):
        PriceList.read({})


KEPT = Path("paretune/prices.csv")


def test_kept_prices_add_regions_and_newer_rows_to_the_packaged_ones(tmp_path: Path) -> None:
    there = {"XDG_CACHE_HOME": str(tmp_path)}
    path = keep(there, [row(0.2, "2030-01-01", "us-east-1"), row(3, "2030-01-01", instance_type="ml.zz9.large")])
    prices = PriceList.read(there)

    assert path == tmp_path / KEPT
    assert dollars(prices, region="us-east-1") == 0.2
    assert dollars(prices, date(2029, 1, 1), region="us-east-1") == 0.115
    assert prices.price("ml.zz9.large", "eu-west-1") is not None  # newer than the catalog
    assert list(path.parent.iterdir()) == [path]


def test_prices_of_two_regions_saved_at_the_same_moment_are_both_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"XDG_CACHE_HOME": str(tmp_path)}
    keep(there, [row(3, instance_type="ml.m5.xlarge")])
    second = Thread(target=keep, args=(there, [row(2, region="us-west-2")]))
    read_file = pricing.read_file

    def read_slowly(*arguments: Any, **options: Any) -> list[Price]:
        rows = read_file(*arguments, **options)
        if second.ident is None:
            second.start()
            second.join(0.2)  # the second one would read and replace the file within this time
        return rows

    monkeypatch.setattr(pricing, "read_file", read_slowly)
    keep(there, [row(1)])
    second.join()

    prices = PriceList.read(there)
    assert (dollars(prices), dollars(prices, region="us-west-2")) == (1, 2)


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "paretune").mkdir()
    (tmp_path / KEPT).write_text("something of the user's")
    with pytest.raises(BadInput, match="column instance_type"):
        keep({"XDG_CACHE_HOME": str(tmp_path)}, [row(1)])
    assert (tmp_path / KEPT).read_text() == "something of the user's"
    (tmp_path / KEPT).write_bytes(b"\xff\xff")
    with pytest.raises(BadInput, match=r"prices\.csv is not UTF-8 .*delete it"):
        PriceList.read({"XDG_CACHE_HOME": str(tmp_path)})


def test_a_cache_folder_that_cannot_be_entered_holds_no_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for function in ("stat", "mkdir"):  # root, who may run the tests, can enter every folder
        monkeypatch.setattr(Path, function, refuse)
    there = {"HOME": str(tmp_path)}

    assert dollars(PriceList.read(there), region="us-east-1") == 0.115
    with pytest.raises(BadInput, match=r"prices\.csv cannot be written \(Permission denied\)"):
        keep(there, [row(1)])


def test_all_faults_of_the_user_s_csv_come_at_once_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    faults = faults_of(
        path,
        HEADER + "ml.m5.larg,us-east-1,1,2026-01-01,x\nml.m5.large,us-est-1,-1,yesterday,x\n"
        "ml.m5.large,us-east-1,,,x\nml.m5.large,us-east-1,nan,2026-13,x\n",
    )

    assert [fault.removeprefix(f"{path}:").partition(":")[0] for fault in faults] == [*"2333455"]
    text = "\n".join(faults)
    for message in (
        f"instance_type must be one of the {len(instances())} known types, got 'ml.m5.larg': did you mean ml.m5.large",
        "got 'us-est-1': did you mean us-",
        "got '-1'",
        "price_usd_per_hour is empty",
        "as_of must be a date such as 2026-11-20, 2026-11 or 2026, or empty, got 'yesterday'",
        "got '2026-13'",
    ):
        assert message in text


@pytest.mark.parametrize(
    ("as_of", "doubt"),
    [("2026-05-24", ""), ("2026-05-23", "of 2026-05-23"), ("2026", "of 2026"), ("", "without a date")],  # 180 days
)
def test_a_row_older_than_180_days_is_said(as_of: str, doubt: str) -> None:
    refresh = "`paretune prices --refresh true --region eu-west-1` reads today's"
    sentence = f"price of ml.m5.large in eu-west-1 is {doubt} (test): {refresh}"

    assert price_remarks(row(1, as_of), "ml.m5.large", "eu-west-1", TODAY) == ([sentence] if doubt else [])


@pytest.mark.parametrize(
    ("confidence", "remedy"),
    [
        ("confirmed", "bring the launcher's table of instance types up to date"),
        ("user", "bring the file of PARETUNE_PRICES up to date"),
    ],
)
def test_an_old_price_of_a_launcher_without_regions_names_no_region(confidence: str, remedy: str) -> None:
    price = row(6, "2025-01", "", source="our accounting", confidence=confidence)

    (sentence,) = price_remarks(price, "a100-node", "", TODAY)

    assert sentence == f"price of a100-node is of 2025-01 (our accounting): {remedy}"


def test_a_price_that_decides_something_is_stated_with_its_date() -> None:
    prices = [
        PriceList(listed=()).price("ml.m5.large", "us-east-1"),
        *(row(2.0, as_of) for as_of in ("2026-10", "2026-08-02", "")),
    ]

    assert row(2.0, "2026-08-02").stated == "2 USD per hour, price of 2026-08-02"
    assert row(2.0, "").stated == "2 USD per hour"
    assert ML_M5_LARGE.stated == "0.115 USD per hour"  # a notional price, which nobody pays
    assert dates_of(prices) == "of 2026-08-02 to 2026-10"
    assert dates_of(prices[:2]) == "of 2026-10"
    assert dates_of([None]) == ""


PRICE = Price(usd_per_hour=3.06, region="us-east-1", as_of="2026-11", source="a price list")


def spec(**changes: object) -> JobSpec:
    return JobSpec(instance_type="ml.p3.2xlarge", instance_count=4, max_runtime_minutes=30.0, **changes)


def test_a_job_costs_its_billed_seconds_on_all_instances_and_nothing_known_without_a_price() -> None:
    # Half an hour on 4 instances at 3.06 USD per hour: 2 instance hours.
    assert cost_usd(PRICE, 1800, 4) == pytest.approx(6.12)
    assert cost_usd(PRICE, 0, 4) == 0
    assert cost_usd(None, 1800, 4) is None


def test_the_worst_case_is_the_longest_runtime_what_follows_it_and_the_warm_pool_on_all_instances() -> None:
    assert admitted(spec(), PRICE, 0.0) == pytest.approx(6.12)
    assert admitted(spec(), PRICE, 180.0) == pytest.approx(6.12 + 0.05 * 4 * 3.06)
    assert admitted(spec(sagemaker={"keep_alive_minutes": 30.0}), PRICE, 0.0) == pytest.approx(12.24)


def test_a_worst_case_above_the_limit_is_refused_and_one_equal_to_it_is_not() -> None:
    even = replace(PRICE, usd_per_hour=3.0)  # 2 instance hours at 3 USD: no rounding
    assert admitted(spec(max_cost_usd=6.0), even, 0.0) == 6.0
    with pytest.raises(BudgetRefused, match=r"worst case 6.12 USD .* at most max_cost_usd, 6.11 USD"):
        admitted(spec(max_cost_usd=6.11), PRICE, 0.0)
    with pytest.raises(BudgetRefused, match=r"30 m and 3 m to stop and upload, x 4 x 3 USD per hour"):
        admitted(spec(max_cost_usd=6.0), even, 180.0)


@pytest.mark.parametrize(("usd_per_hour", "stated"), [(3.06, "6.12"), (3.0012, "6.01"), (1234.56, "2,469.12")])
def test_the_worst_case_in_a_refusal_is_enough_as_max_cost_usd(usd_per_hour: float, stated: str) -> None:
    price = replace(PRICE, usd_per_hour=usd_per_hour)
    with pytest.raises(BudgetRefused, match=f"^worst case {stated} USD "):
        admitted(spec(max_cost_usd=1.0), price, 0.0)
    assert admitted(spec(max_cost_usd=float(stated.replace(",", ""))), price, 0.0) == pytest.approx(2 * usd_per_hour)
