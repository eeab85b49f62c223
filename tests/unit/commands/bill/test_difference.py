"""Why a bill differs from what was recorded: by hand, and that the parts always add up."""

from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.commands.bill.difference import PARTS, RunBill, RunTally
from paretune.commands.bill.lines import Line, LineKind, kind_of, tag_name
from paretune.commands.bill.rates import RateSums, read_rates
from paretune.commands.bill.reading import EXACT
from paretune.commands.bill.recorded_costs import RecordedCost, RunsByJob
from paretune.core.result import csv_text

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/"
HOUR = {"type": "Usage", "usage_type": "EU-Train:ml.g5.xlarge", "resource": f"{ARN}paretune-a-1", "unit": "Hrs"}


def recorded(**others: Any) -> RecordedCost:
    """Two instances for half an hour at 1.50 USD an hour: 1.50 USD."""
    values = {
        "run_id": "a",
        "job_name": "paretune-a-1",
        "cost_usd": Decimal("1.5"),
        "seconds": Decimal(1800),
        "pool_seconds": Decimal(0),
        "instance_count": 2,
        "price_usd_per_hour": Decimal("1.5"),
        "started": datetime(2026, 11, 1, tzinfo=UTC),
        "ended_at": datetime(2026, 11, 1, 1, tzinfo=UTC),
    }
    return RecordedCost(**{**values, **others})


def bill_of(recorded_cost: RecordedCost, *lines: dict[str, Any]) -> RunBill:
    tally = RunTally(recorded_cost)
    for number, report in enumerate(lines):
        named = {name: Decimal(value) if name in MONEY else value for name, value in report.items()}
        tally.add(Line(**{"id": str(number), **HOUR, **named}))
    return tally.bill("")


MONEY = {"amount", "unblended_usd", "list_usd", "rate", "effective_usd"}
FULL = {"amount": "1", "unblended_usd": "1.5", "rate": "1.5"}


@pytest.mark.parametrize(
    ("recorded_cost", "lines", "parts"),
    [
        (recorded(), [FULL], {}),
        (recorded(), [{**FULL, "unblended_usd": "1.8", "rate": "1.8"}], {"price": "0.3"}),
        (recorded(), [{**FULL, "unblended_usd": "1.8"}], {"residue": "0.3"}),  # its cost is not its rate x hours
        (recorded(), [{**FULL, "amount": "1.2", "unblended_usd": "1.8"}], {"seconds": "0.3"}),
        (recorded(), [FULL, {"usage_type": "EU-Train:VolumeUsage.gp2", "unblended_usd": "0.1"}], {"storage": "0.1"}),
        (recorded(), [{**FULL, "unblended_usd": "1.2", "rate": "1.2", "list_usd": "1.5"}], {"discount": "-0.3"}),
        (recorded(), [FULL, {"type": "EdpDiscount", "unblended_usd": "-0.2"}], {"discount": "-0.2"}),
        (recorded(), [FULL, {"type": "Fee", "unblended_usd": "0.2"}], {"residue": "0.2"}),
        (recorded(), [FULL, {"type": "Tax", "unblended_usd": "0.2"}], {}),
        (recorded(cost_usd=Decimal(1)), [FULL], {"residue": "0.5"}),  # of the record, not of a line
        (  # a warm pool that was booked for 600 s x 2, and billed for 900 s x 2
            recorded(pool_seconds=Decimal(600), cost_usd=Decimal(2)),
            [FULL, {"usage_type": "EU-TrainWarmPool:ml.g5.xlarge", "amount": "0.5", "unblended_usd": "0.75"}],
            {"pool": "0.25"},
        ),
        (  # the same where AWS does not tell its hours from others
            recorded(pool_seconds=Decimal(600), cost_usd=Decimal(2)),
            [FULL, {**FULL, "amount": "0.5", "unblended_usd": "0.75"}],
            {"seconds": "0.25"},
        ),
    ],
)
def test_a_difference_is_explained_by_its_cause(
    recorded_cost: RecordedCost, lines: list[dict[str, Any]], parts: dict[str, str]
) -> None:
    bill = bill_of(recorded_cost, *lines)
    report = {name: value for name, value in bill.parts.items() if value}
    if bill.residue:
        report["residue"] = sum((item.usd for item in bill.residue), Decimal(0))

    assert report == {name: Decimal(value) for name, value in parts.items()}


def test_a_run_without_a_price_has_a_bill_and_no_difference() -> None:
    bill = bill_of(recorded(cost_usd=None, price_usd_per_hour=None), FULL)

    assert (bill.billed_usd, bill.difference_usd, bill.parts, bill.residue) == (Decimal("1.5"), None, {}, ())


def amounts() -> st.SearchStrategy[Decimal]:
    return st.decimals(-1000, 10_000, places=10)


any_line = st.builds(
    Line,
    id=st.text(max_size=3),
    type=st.sampled_from(
        ["Usage", "SavingsPlanCoveredUsage", "DiscountedUsage", "EdpDiscount", "Fee", "Tax", "Credit"]
    ),
    usage_type=st.sampled_from(
        ["EU-Train:ml.g5.xlarge", "EU-Train:VolumeUsage.gp2", "EU-TrainWarmPool:ml.g5.xlarge", "x"]
    ),
    amount=amounts(),
    unblended_usd=amounts(),
    list_usd=st.none() | amounts(),
    rate=st.none() | amounts(),
    effective_usd=amounts(),
)
any_run = st.builds(
    recorded,
    cost_usd=st.decimals(0, 10**6, places=16),
    seconds=st.decimals(0, 10**6, places=6),
    pool_seconds=st.just(Decimal(0)) | st.just(Decimal(7)),
    instance_count=st.integers(1, 64),
    price_usd_per_hour=st.none() | st.decimals(0, 200, places=6),
    instance_type=st.sampled_from(["", "ml.g5.xlarge", "ml.g5.12xlarge"]),
)


@settings(deadline=None)  # the machine may be busy
@given(any_run, st.lists(any_line, max_size=8))
def test_parts_and_residue_add_up_to_the_difference_whatever_the_lines_say(
    one: RecordedCost, lines: list[Line]
) -> None:
    with localcontext(EXACT):
        tally = RunTally(one)
        for line in lines:
            tally.add(line)
        bill = tally.bill("")

        assert bill.parts.keys() == set(PARTS)
        assert sum(bill.parts.values(), sum((item.usd for item in bill.residue), Decimal(0))) == bill.difference_usd


def test_a_line_belongs_to_the_run_of_any_attempt() -> None:
    retried = recorded(run_id="b", job_name="paretune-b-3")
    runs_by_job = RunsByJob([recorded(), retried])

    def run(**report: str) -> RecordedCost | None:
        return runs_by_job.run_of(Line(**{"id": "1", **HOUR, **report}))

    assert run(resource=f"{ARN}paretune-b-1") is run(resource=f"{ARN}paretune-b-2") is retried
    assert run(resource="", run_tag="b") is retried
    assert run(resource=f"{ARN}others-b-1") is None


def test_the_tag_of_a_job_of_another_name_is_a_copy() -> None:
    runs_by_job = RunsByJob([recorded()])

    def is_matched(resource: str) -> bool:
        line = Line(**{"id": "1", **HOUR, "resource": resource}, run_tag="a")
        return runs_by_job.run_of(line) is not None

    assert not is_matched(f"{ARN}somebody-elses")
    assert is_matched("paretune-a-1")


def test_a_job_is_known_by_its_bare_name_too() -> None:
    runs_by_job = RunsByJob([recorded()])

    assert runs_by_job.run_of(Line(**{"id": "1", **HOUR, "resource": "paretune-a-1"}))
    assert not runs_by_job.run_of(Line(**{"id": "1", **HOUR, "resource": "paretune-b-1"}))


def test_attempts_on_two_instance_types_differ_by_nothing_where_bill_and_record_say_the_same() -> None:
    item = recorded(instance_count=1, seconds=Decimal(3600), cost_usd=Decimal("4.25"), instance_type="ml.g5.xlarge")
    other = {"usage_type": "EU-Train:ml.g5.12xlarge", "amount": "0.5", "unblended_usd": "3.5", "rate": "7"}
    last = {**FULL, "amount": "0.5", "unblended_usd": "0.75"}

    assert not any(bill_of(item, other, last).parts.values())
    assert not bill_of(item, other, last).residue
    longer = bill_of(item, {**other, "amount": "1", "unblended_usd": "7"}, last)
    assert {name: usd for name, usd in longer.parts.items() if usd} == {"seconds": Decimal("3.5")}


@pytest.mark.parametrize(
    ("line_type", "usage_type", "kind"),
    [
        ("Usage", "USE1-Train:ml.g5.xlarge", LineKind.INSTANCE),
        ("Usage", "Train:ml.p4d.24xlarge", LineKind.INSTANCE),
        ("SavingsPlanCoveredUsage", "EUC1-SpotTraining:ml.p5en.48xlarge", LineKind.INSTANCE),
        ("Usage", "USE1-Train:VolumeUsage.gp3", LineKind.STORAGE),
        ("Usage", "USE1-Train-WarmPool:ml.g5.xlarge", LineKind.POOL),
        ("Usage", "USE1-TrainingPlanUpfrontFee:ml.p5.48xlarge-2", LineKind.OTHER),
        ("Usage", "USE1-Host:ml.g5.xlarge", LineKind.OTHER),
        ("PrivateRateDiscount", "USE1-Train:ml.g5.xlarge", LineKind.DISCOUNT),
        ("BundledDiscount", "", LineKind.DISCOUNT),
        ("SavingsPlanNegation", "USE1-Train:ml.g5.xlarge", LineKind.PLAN),
        ("Rounding", "", LineKind.OTHER),
        ("Refund", "USE1-Train:ml.g5.xlarge", LineKind.CREDIT),
        ("Tax", "USE1-Train:ml.g5.xlarge", LineKind.TAX),
    ],
)
def test_a_line_has_the_kind_that_its_type_and_usage_say(line_type: str, usage_type: str, kind: LineKind) -> None:
    assert kind_of(line_type, usage_type) is kind


def test_a_line_in_another_unit_than_hours_is_not_taken_for_hours() -> None:
    assert kind_of("Usage", "USE1-Train:ml.g5.xlarge", "Seconds") is LineKind.OTHER


@pytest.mark.parametrize(
    "key", ["paretune:run", "user:paretune:run", "user_paretune_run", "resource_tags_user_paretune_run"]
)
def test_a_tag_is_found_however_the_bill_spells_it(key: str) -> None:
    assert tag_name(key) == tag_name("paretune:run") != tag_name("paretune:spec")


def test_the_effective_rate_is_effective_dollars_by_hours() -> None:
    sums = RateSums()
    sums.add(Line(id="1", **HOUR, amount=Decimal(3), effective_usd=Decimal(3)))
    sums.add(
        Line(id="2", **{**HOUR, "type": "SavingsPlanCoveredUsage"}, amount=Decimal(1), effective_usd=Decimal("0.6"))
    )
    sums.add(Line(id="3", **{**HOUR, "type": "EdpDiscount"}, amount=Decimal(1), effective_usd=Decimal("-0.4")))
    sums.add(Line(id="4", **{**HOUR, "type": "Tax"}, amount=Decimal(1), effective_usd=Decimal(9)))
    sums.add(Line(id="5", **{**HOUR, "resource": ""}, amount=Decimal(9), effective_usd=Decimal(9)))  # of no region
    sums.add(Line(id="6", **HOUR, amount=Decimal(40)))  # a training plan has paid for them
    spot = {**HOUR, "usage_type": "EU-SpotTrain:ml.g5.xlarge"}
    sums.add(Line(id="7", **spot, amount=Decimal(40), effective_usd=Decimal(12)))
    sums.add(Line(id="8", **{**spot, "type": "EdpDiscount"}, effective_usd=Decimal(-1)))
    (rate,) = sums.rates("2026-11-20")

    assert (rate.instance_type, rate.region, rate.usd_per_hour) == ("ml.g5.xlarge", "eu-west-1", Decimal("0.8"))
    again = read_rates(
        csv_text(
            ("instance_type", "region", "instance_hours", "effective_usd", "as_of"),
            [{name: value for name, value in rate.row().items() if name != "usd_per_hour"}],
        )
    )
    assert again == {("ml.g5.xlarge", "eu-west-1"): rate}
