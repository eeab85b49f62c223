"""`paretune prices` for users, with AWS's Pricing API in memory."""

from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paretune.commands.prices import read_prices
from paretune.core.errors import LaunchRefused
from paretune.specification.price import Price
from tests.support.stand_ins.aws import Aws
from tests.support.typed import Run

FILE = Path("cache/paretune/prices.csv")
OWN = "instance_type,region,price_usd_per_hour,as_of,source\nml.m5.large,us-east-1,0.05,2026,contract\n"


@pytest.fixture
def run(no_settings: None, typed: Run) -> Run:
    """Return a function that runs `paretune prices ...` in an empty folder and returns code, output and errors."""
    return partial(typed, "prices")


def product(usd: str = "0.115", *, unit: str = "Hrs", sku: str = "S", **attributes: str) -> dict[str, Any]:
    """Return a product in the format of GetProducts."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}, "description": "$0.115 per Training hour"}
    reference = {
        "regionCode": "us-east-1",
        "locationType": "AWS Region",
        "component": "Training",
        "usagetype": "USE1-Train:ml.m5.large",
        **attributes,
    }
    return {
        "product": {"sku": sku, "attributes": reference},
        "terms": {"OnDemand": {f"{sku}.JRTC": {"priceDimensions": {f"{sku}.JRTC.6YS6": dimension}}}},
    }


def gpu(usd: str = "1.408", **attributes: str) -> dict[str, Any]:
    return product(usd, **{"usagetype": "USE1-Train:ml.g5.xlarge", "sku": "G", **attributes})


def read(aws: Aws, *products: dict[str, Any]) -> list[Price]:
    aws.products = list(products)
    return read_prices("us-east-1", {}, date(2026, 11, 20))


def dollars(prices: list[Price]) -> dict[str, float]:
    return {price.instance_type: price.usd_per_hour for price in prices}


def lines_of(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{name} ")]


def refresh(run: Run, *more: str) -> tuple[int, str, str]:
    return run("--refresh", "true", "--region", "us-east-1", *more)


OTHERS = (
    {"component": "Hosting", "usagetype": "USE1-Host:ml.g5.xlarge"},
    {"usagetype": "USE1-SpotTraining:ml.g5.xlarge"},
    {"usagetype": "USE1-TrainingPlanUpfrontFee:ml.g5.xlarge"},
    {"locationType": "AWS Outposts"},
    {"regionCode": "us-west-2"},
    {"unit": "GB-Mo"},
    {"usd": "0.0000000000"},
)


def test_only_an_hour_of_on_demand_training_in_the_region_counts(aws: Aws) -> None:
    assert dollars(read(aws, *(gpu(**other) for other in OTHERS), product())) == {"ml.m5.large": 0.115}
    named = gpu("130.71", usagetype="Train:ml.p6-b200.48xlarge", unit="Hours")
    assert dollars(read(aws, named)) == {"ml.p6-b200.48xlarge": 130.71}
    with pytest.raises(LaunchRefused, match="no price of SageMaker Training in us-east-1"):
        read(aws, gpu(usagetype="USE1-Host:ml.g5.xlarge"))


@pytest.mark.usefixtures("no_store")
def test_the_table_has_every_known_price_of_the_region_smallest_size_first(run: Run, workplace: Path) -> None:
    code, out, err = run()

    assert (code, err) == (0, "")
    assert out.startswith("SageMaker Training, on demand, us-east-1\ninstance type ")
    (line,) = lines_of(out, "ml.g5.12xlarge")
    age = (date.today() - date(2026, 8, 1)).days
    assert line.split()[1:8] == ["4", "x", "NVIDIA", "A10G", "7.090", "2026-08", str(age)]
    sizes = [line.split()[0] for line in out.splitlines() if line.startswith("ml.g5.")]
    assert sizes[:3] == ["ml.g5.xlarge", "ml.g5.2xlarge", "ml.g5.4xlarge"]
    assert list(workplace.iterdir()) == []  # no MLflow store, no cache


def test_an_unknown_price_is_said_with_what_to_do(run: Run) -> None:
    code, out, _ = run("--instance_type", "ml.p5en.48xlarge, ml.m5.large", "--region", "us-east-1")

    assert code == 0
    assert "price of ml.p5en.48xlarge in us-east-1 is not known, so no cost will be known" in out
    code, out, _ = run("--region", "eu-west-3")
    assert code == 0
    assert "no price of SageMaker Training in eu-west-3 is known" in out
    assert "`paretune prices --refresh true --region eu-west-3`" in out


def test_without_a_region_it_is_that_of_the_profile_then_of_the_environment(
    run: Run, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert "us-west-2" in run()[1].splitlines()[0]
    (workplace / "ours.toml").write_text('region = "eu-west-3"')
    monkeypatch.setenv("PARETUNE_PROFILE", "ours.toml")
    assert "eu-west-3" in run()[1].splitlines()[0]


def test_refreshing_reads_and_keeps_todays_prices(
    run: Run, aws: Aws, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.products = [product(), gpu("1.056")]
    code, out, _ = refresh(run)

    assert code == 0
    assert out == f"2 prices read (AWS Pricing API, us-east-1), saved to {workplace / FILE}\n"
    assert "1.056" in lines_of(run()[1], "ml.g5.xlarge")[0]
    (workplace / "own.csv").write_text(OWN)
    monkeypatch.setenv("PARETUNE_PRICES", "own.csv")
    _, out, _ = refresh(run, "--instance_type", "ml.m5.large")
    cells = lines_of(out, "ml.m5.large")[0].split()
    assert [*cells[1:3], *cells[4:6]] == ["0.050", "2026", "user", "contract"]


def test_a_refresh_that_fails_ends_with_2_and_leaves_the_file_as_it_was(run: Run, aws: Aws, workplace: Path) -> None:
    aws.products = [product("0.2")]
    refresh(run)
    before = (workplace / FILE).read_bytes()
    aws.products = []

    code, out, err = refresh(run)

    assert (code, out) == (2, "")
    assert err.count("paretune: ") == 1
    assert (workplace / FILE).read_bytes() == before
