"""Prices and where they come from."""

import csv
import re
from datetime import date
from importlib.resources import files

import pytest

from paretune.catalog import ML_M5_LARGE, instance, instances, local_price, nearest, training_price
from paretune.errors import BadInput
from paretune.spec import JobSpec


def test_the_default_price_is_that_of_ml_m5_large_with_region_date_and_source() -> None:
    price = local_price(JobSpec().local_price_usd_per_hour)

    assert price == ML_M5_LARGE
    assert price.usd_per_hour == 0.115
    assert price.region == "us-east-1"
    assert date.fromisoformat(price.as_of) == date(2026, 8, 11)
    assert "ml.m5.large" in price.source


@pytest.mark.parametrize("usd", [0.0, 0.1, 2.5])
def test_a_price_of_the_user_s_own_claims_no_region_and_no_date(usd: float) -> None:
    price = local_price(usd)

    assert (price.usd_per_hour, price.region, price.as_of) == (usd, "", "")
    assert "local_price_usd_per_hour" in price.source


def test_every_price_of_a_local_job_says_that_it_is_notional() -> None:
    assert local_price(0.115).source.startswith("notional")
    assert local_price(1.0).source.startswith("notional")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("ml.m5.larg", "ml.m5.large"), ("m5.large", "ml.m5.large"), ("ml.p4d.24xlage", "ml.p4d.24xlarge")],
)
def test_a_mistyped_instance_finds_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert nearest(typed)[0] == meant
    with pytest.raises(BadInput, match=f"did you mean .*{meant}"):
        instance(typed)


def test_what_is_like_nothing_is_refused_without_a_guess() -> None:
    with pytest.raises(BadInput) as caught:
        instance("banana")

    assert "did you mean" not in str(caught.value)


def test_every_row_of_the_catalogue_makes_sense() -> None:
    assert len(instances()) > 50
    for name, known in instances().items():
        assert name == known.instance_type
        assert name.startswith("ml.")
        assert known.vcpus > 0
        assert known.memory_gib > 0
        assert (known.accelerator_count > 0) == (known.accelerator_memory_gib > 0) == (known.accelerator != "none")
        if known.price is not None:
            assert known.price.usd_per_hour > 0
            is_dated = re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", known.price.as_of)
            assert is_dated or known.price.source.startswith("uncertain")
            assert known.price.region
            assert known.price.source


def test_a_price_is_never_taken_from_another_region() -> None:
    known = training_price("ml.m5.large", "us-east-1")

    assert known is not None
    assert known.usd_per_hour == 0.115
    assert training_price("ml.m5.large", "eu-west-1") is None
    assert training_price("ml.m5.large", "") is None


def test_a_price_that_the_sources_contradict_says_so() -> None:
    lines = files("paretune").joinpath("instances.csv").read_text(encoding="utf-8").splitlines()
    rows = [row for row in csv.DictReader(lines) if row["price_usd_per_hour"]]
    said = {"uncertain": "uncertain: ", "single_source": "one source: "}

    for row in rows:
        price = training_price(row["instance_type"], row["region"])
        assert price is not None
        assert price.source == said.get(row["confidence"], "") + row["source"]
    assert {row["confidence"] for row in rows} & set(said)


def test_the_family_is_the_middle_of_the_name() -> None:
    assert instance("ml.p4d.24xlarge").family == "p4d"
    assert instance("ml.p4d.24xlarge").has_gpu
    assert not instance("ml.m5.large").has_gpu
