"""`paretune reconcile` and `report --rate effective` with a real store."""

import json
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import mlflow.artifacts
import pytest
from mlflow import MlflowClient
from moto import mock_aws

from paretune.launchers.sagemaker.storage import s3_client
from paretune.specification.order import job_name
from tests.support.bills import BEGIN, deliver, deliver_legacy, in_focus, in_legacy, later, line, of_month, write
from tests.support.recorded_jobs import put_run
from tests.support.tags import tags_of

Run = Callable[..., tuple[int, Any, str]]
VOLUME = {"identity_line_item_id": "volume"}
INDIA = {"line_item_currency_code": "INR"}  # other accounts of a bill may pay in other currencies


@pytest.fixture
def store(client: MlflowClient, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    experiment = client.create_experiment("bills", artifact_location=str(workplace / "artifacts"))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
    return client


def recorded(
    store: MlflowClient, cost_usd: float = 2.8, hours: float = 2.0, state: str = "Completed", begins: float = 0.0
) -> str:
    """Record a run of a job on one ml.g5.xlarge that begins with the bill, or `begins` hours later; return its id."""
    begin = BEGIN + timedelta(hours=begins)
    tags = {"launcher": "sagemaker", "state": state, "origin": "measured"}
    params = {"instance_type": "ml.g5.xlarge", "instance_count": "1", "dataset": "d"}
    metrics = {"cost_usd": cost_usd, "billable_seconds": 3600 * hours, "f1": 0.9}
    run_id = put_run(store, params, tags, metrics, start_time=int(begin.timestamp() * 1000))
    store.set_tag(run_id, "paretune.job_name", job_name(run_id, 1))
    store.set_terminated(run_id, end_time=int((begin + timedelta(hours=hours)).timestamp() * 1000))
    return run_id


@pytest.fixture
def run(store: MlflowClient, typed: Callable[..., tuple[int, str, str]]) -> Run:
    """Return a function that runs a command, and returns exit code, document and standard error."""

    def command(*words: str) -> tuple[int, Any, str]:
        code, out, err = typed(*words, "--json")
        return code, json.loads(out), err

    return command


def bill_of(run_id: str, usd: float = 1.4, **more: Any) -> list[dict[str, Any]]:
    """Return the lines of a bill for two hours and the volume of a run's job."""
    name = job_name(run_id, 1)
    return [line(name, usd, at=0, **more), line(name, usd, at=1, **more), line(name, 0.05, at=1, **VOLUME)]


@pytest.mark.parametrize("name", ["bill.csv", "legacy.csv.gz", "bill.parquet", "focus.csv", "focus.parquet"])
def test_every_run_gets_what_it_was_billed_once_whatever_form_the_bill_has(
    run: Run, store: MlflowClient, tmp_path: Path, name: str
) -> None:
    run_id, forgotten, stranger = recorded(store), recorded(store), "f" * 32
    rows = [*bill_of(run_id), line(job_name(stranger, 1), 7.0), line("another-team", 9.0), later()]
    form = {"focus": in_focus, "legacy": in_legacy, "bill": dict}[name.partition(".")[0]]
    path = write([form(row) for row in [*rows, of_month("Tax", 0.5, job_name(run_id, 1))]], tmp_path / name)

    code, document, _ = run("reconcile", "--bill", str(path))
    _, again, _ = run("reconcile", "--bill", str(path))

    assert code == 0
    assert (document["recorded"], again["recorded"]) == (1, 0)
    data = store.get_run(run_id).data
    assert data.metrics["billed_usd"] == data.metrics["effective_usd"] == pytest.approx(2.85)
    assert data.tags["paretune.bill"] == "complete"
    assert len(store.get_metric_history(run_id, "billed_usd")) == 1
    by_job = {row["run_id"] or row["job"]: row for row in document["rows"]}
    assert by_job.keys() == {run_id, forgotten, job_name(stranger, 1)}
    assert by_job[run_id]["difference_usd"] == pytest.approx(0.05)
    assert by_job[forgotten]["remark"] == "the bill has no line for it"
    assert by_job[job_name(stranger, 1)]["billed_usd"] == 7.0
    table = mlflow.artifacts.load_text(f"{store.get_run(document['run_id']).info.artifact_uri}/reconcile.csv")
    assert run_id in table


def test_hours_of_plans_and_private_rates_cost_what_is_paid_in_effect(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    plan, private, unknown = recorded(store), recorded(store), recorded(store)
    covered = {"line_item_line_item_type": "SavingsPlanCoveredUsage"}
    paid = "savings_plan_savings_plan_effective_cost"
    rows = bill_of(plan, **covered, **{paid: 0.9}) + bill_of(private, line_item_net_unblended_cost=1.2)
    rows += [*bill_of(unknown, **covered), later()]
    run("reconcile", "--bill", str(write(rows, tmp_path / "bill.csv")))

    def figures(run_id: str) -> tuple[float, float | None]:
        metrics = store.get_run(run_id).data.metrics
        return round(metrics["billed_usd"], 6), metrics.get("effective_usd")

    assert figures(plan) == (2.85, pytest.approx(1.85))
    assert figures(private) == (2.85, pytest.approx(2.45))
    assert figures(unknown) == (2.85, None)
    assert "lacks its effective cost" in tags_of(store.get_run(unknown))["paretune.bill"]
    _, document, _ = run("report", "--rate", "effective")
    costs = {row["run_id"]: row["new_cost_usd"] for row in document["rows"]}
    assert costs == {plan: pytest.approx(1.85), private: pytest.approx(2.45), unknown: None}


@pytest.mark.parametrize(
    ("rows", "state", "missing"),
    [
        (lambda name: [line(name, 1.4)], "Completed", "the bill ends at 2026-11-03 11:00"),
        (lambda name: [line(name, 1.4), later(1)], "Completed", "less than 2 days after the job"),
        (
            lambda name: [line(name, 1.4), of_month("Tax", 0.5), of_month("Usage", 9.0)],
            "Completed",
            "ends at 2026-11-03",
        ),
        (lambda name: [line(name, 1.4), later()], "Running", "has not ended"),
    ],
)
def test_a_bill_that_does_not_cover_all_of_a_run_is_not_final(
    run: Run, store: MlflowClient, tmp_path: Path, rows: Callable[[str], Any], state: str, missing: str
) -> None:
    run_id = recorded(store, state=state)
    _, document, _ = run("reconcile", "--bill", str(write(rows(job_name(run_id, 1)), tmp_path / "bill.csv")))

    assert missing in tags_of(store.get_run(run_id))["paretune.bill"]
    assert any(missing in remark for remark in document["remarks"])


def test_a_partial_bill_does_not_replace_a_whole_one(run: Run, store: MlflowClient, tmp_path: Path) -> None:
    run_id = recorded(store)
    run("reconcile", "--bill", str(write([*bill_of(run_id), later()], tmp_path / "whole.csv")))

    _, document, _ = run("reconcile", "--bill", str(write(bill_of(run_id)[:1], tmp_path / "part.csv")))

    assert store.get_run(run_id).data.metrics["billed_usd"] == pytest.approx(2.85)
    assert any("its figures stay" in remark and run_id in remark for remark in document["remarks"])


def test_of_an_export_the_newest_delivery_counts_and_a_line_in_two_files_once(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    run_id = recorded(store)
    month = tmp_path / "data" / "BILLING_PERIOD=2026-11"
    write(bill_of(run_id, 99.0), month / "20261104T000000Z-old" / "e-00001.csv")
    write([*bill_of(run_id)[:2], later()], month / "20261109T000000Z-new" / "e-00001.csv")
    write(bill_of(run_id)[1:], month / "20261109T000000Z-new" / "e-00002.parquet")
    run("reconcile", "--bill", str(tmp_path / "data"))

    assert store.get_run(run_id).data.metrics["billed_usd"] == pytest.approx(2.85)


def test_two_charges_of_one_job_and_hour_are_two(run: Run, store: MlflowClient, tmp_path: Path) -> None:
    run_id = recorded(store)
    name = job_name(run_id, 1)
    rows = [line(name, 0.7, at=hour, identity_line_item_id=part) for hour in (0, 1) for part in "ab"]
    run("reconcile", "--bill", str(write([*rows, later()], tmp_path / "bill.csv")))

    assert store.get_run(run_id).data.metrics["billed_usd"] == pytest.approx(2.8)
    assert tags_of(store.get_run(run_id))["paretune.bill"] == "complete"


CUR, FOCUS = "cur/data/BILLING_PERIOD=2026-11/cur-00001.csv", "focus/data/BILLING_PERIOD=2026-11/focus-00001.csv"
UUID = "report/20261101-20261201/{}a7b35ad-2b2e-45a5-8a5d-3f3f1d0f2c11/report-00001.csv"


@pytest.mark.parametrize(
    "names",
    [
        (CUR, "cur2/data/BILLING_PERIOD=2026-11/cur2-00001.csv"),
        (CUR, FOCUS),
        (FOCUS, "focus/data/focus-again.csv"),
        ("a.csv", "b.csv"),
        (UUID.format(1), UUID.format(2)),
    ],
)
def test_of_two_exports_below_one_prefix_nothing_is_added_up(
    run: Run, store: MlflowClient, tmp_path: Path, names: tuple[str, str]
) -> None:
    run_id = recorded(store)
    for number, name in enumerate(names):
        rows = [row | {"identity_line_item_id": f"{number}{row['identity_line_item_id']}"} for row in bill_of(run_id)]
        rows = [*rows, later()]
        write([in_focus(row) for row in rows] if name.startswith("focus") else rows, tmp_path / "bills" / name)
    _, document, _ = run("reconcile", "--bill", str(tmp_path / "bills"))

    (row,) = document["rows"]
    assert (row["billed_usd"], row["complete"], document["recorded"]) == (None, False, 0)
    assert row["effective_usd"] is None
    assert "two exports or deliveries have it" in row["remark"]
    _, document, _ = run("reconcile", "--bill", str(tmp_path / "bills" / names[0]))
    assert document["rows"][0]["billed_usd"] == pytest.approx(2.85)


def test_a_line_without_a_cost_is_named_as_the_reason(run: Run, store: MlflowClient, tmp_path: Path) -> None:
    run_id = recorded(store)
    first, *others = bill_of(run_id)
    rows = [first | {"line_item_unblended_cost": None}, *others, later()]
    _, document, _ = run("reconcile", "--bill", str(write(rows, tmp_path / "bill.csv")))

    (row,) = document["rows"]
    assert (row["billed_usd"], row["complete"], document["recorded"]) == (None, False, 0)
    assert row["remark"].startswith("one of its lines on the bill has no cost")


def test_a_job_over_the_end_of_a_month_is_on_two_bills_of_one_export(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    run_id, name = recorded(store, hours=30 * 24.0), "20261108T000000Z-one/e-00001.csv"
    job = job_name(run_id, 1)
    write([line(job, 1.0), line(job, 1.0, at=27 * 24.0)], tmp_path / "BILLING_PERIOD=2026-11" / name)
    write([line(job, 1.0, at=29 * 24.0), later(33)], tmp_path / "BILLING_PERIOD=2026-12" / name)
    run("reconcile", "--bill", str(tmp_path))

    assert store.get_run(run_id).data.metrics["billed_usd"] == pytest.approx(3.0)
    assert tags_of(store.get_run(run_id))["paretune.bill"] == "complete"


def state_of(store: MlflowClient, run_id: str) -> str:
    return str(tags_of(store.get_run(run_id))["paretune.bill"])


SEPTEMBER, OCTOBER, DECEMBER = -48 * 24.0, -8 * 24.0, 29 * 24.0  # hours of a line in that month


def test_a_bill_without_a_month_of_a_job_is_not_complete_and_names_the_month(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    over_the_end, in_november = recorded(store, hours=31 * 24.0), recorded(store)
    begun_before = recorded(store, begins=OCTOBER, hours=-OCTOBER + 2.0)
    in_october, in_july = recorded(store, begins=OCTOBER), recorded(store, begins=SEPTEMBER - 60 * 24.0)
    job, before = job_name(over_the_end, 1), job_name(begun_before, 1)
    rows = [line(job, 1.0), line(before, 1.0), *bill_of(in_november)]
    deliver([line("", 1.0, at=SEPTEMBER)], tmp_path, month="2026-09")
    deliver(rows, tmp_path)
    deliver([line(job, 1.0, at=DECEMBER), later(34)], tmp_path, month="2026-12")
    _, document, _ = run("reconcile", "--bill", str(tmp_path))

    assert state_of(store, in_november) == state_of(store, over_the_end) == "complete"
    assert "the bill lacks 2026-10" in state_of(store, begun_before)
    (remark,) = (remark for remark in document["remarks"] if "the bill lacks 2026-10" in remark)
    assert begun_before in remark
    assert in_october in remark
    assert in_july not in {row["run_id"] for row in document["rows"]}  # this bill need not have it


@pytest.mark.parametrize("form", ["with a manifest", "without a manifest", "before 2.0"])
def test_a_bill_without_a_part_is_not_complete_and_names_the_file(
    run: Run, store: MlflowClient, tmp_path: Path, form: str
) -> None:
    run_id, unbilled = recorded(store), recorded(store)
    rows = [*bill_of(run_id), line("", 1.0), line("", 1.0), later()]
    if form == "before 2.0":
        parts = deliver_legacy(rows, tmp_path, "a7b35ad2-2b2e-45a5-8a5d-3f3f1d0f2c11", parts=3)
    else:
        parts = deliver(rows, tmp_path, parts=3)
    if form == "without a manifest":
        (tmp_path / "metadata/BILLING_PERIOD=2026-11/cur-Manifest.json").unlink()
    parts[1].unlink()
    _, document, _ = run("reconcile", "--bill", str(tmp_path))

    lost = f"{parts[1].parent.name}/{parts[1].name}"
    assert f"the bill of 2026-11 lacks {lost}" in state_of(store, run_id).replace("\\", "/")
    by_run = {row["run_id"]: row for row in document["rows"]}
    assert by_run.keys() == {run_id, unbilled}
    assert not any(row["complete"] for row in by_run.values())
    assert lost in by_run[unbilled]["remark"]


def test_without_a_manifest_a_last_part_that_nobody_misses_is_said_to_be_unknown(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    run_id = recorded(store)
    deliver([*bill_of(run_id), later()], tmp_path, parts=2)
    _, whole, _ = run("reconcile", "--bill", str(tmp_path))
    _, data_only, _ = run("reconcile", "--bill", str(tmp_path / "data"))

    assert not any("manifest" in remark for remark in whole["remarks"])
    assert any("without their manifest" in remark for remark in data_only["remarks"])


def test_the_manifest_says_which_delivery_counts(run: Run, store: MlflowClient, tmp_path: Path) -> None:
    created_new, assemblies = recorded(store), recorded(store)
    old, new = "20261104T000000Z-aaa", "20261109T000000Z-bbb"
    for name, usd in ((new, 1.4), (old, 99.0)):
        deliver([*bill_of(created_new, usd), later()], tmp_path / "cur", delivery=name, parts=2)
    (tmp_path / "cur/data/BILLING_PERIOD=2026-11" / new / "cur-00003.csv").write_text("a,stranger's,file\n1,2,3\n")
    for name, usd in (("f" * 8, 99.0), ("0" * 8, 1.4)):  # the newest assembly is written last
        assembly = f"{name}-2b2e-45a5-8a5d-3f3f1d0f2c11"
        deliver_legacy([*bill_of(assemblies, usd), later()], tmp_path / "report", assembly, parts=2)
    run("reconcile", "--bill", str(tmp_path / "cur"))
    run("reconcile", "--bill", str(tmp_path / "report"))

    for run_id in (created_new, assemblies):
        assert store.get_run(run_id).data.metrics["billed_usd"] == pytest.approx(2.85)
        assert state_of(store, run_id) == "complete"


def test_a_manifest_that_is_none_is_refused(run: Run, tmp_path: Path) -> None:
    deliver([later()], tmp_path)
    manifest = tmp_path / "metadata/BILLING_PERIOD=2026-11/cur-Manifest.json"
    for text in ("{}", "[]", "{", '{"exportArn": "x", "executionId": "y", "dataFiles": "z"}'):
        manifest.write_text(text)
        code, _, err = run("reconcile", "--bill", str(tmp_path))
        assert (code, "cur-Manifest.json is not the manifest of a bill" in err) == (2, True)


PLAN = {"line_item_line_item_type": "SavingsPlanCoveredUsage", "savings_plan_savings_plan_effective_cost": 0.9}
NET_PLAN = "savings_plan_net_savings_plan_effective_cost"


@pytest.mark.parametrize(
    ("lines", "effective_usd"),
    [
        ([(1.4, PLAN | {NET_PLAN: 0.8, "line_item_net_unblended_cost": 1.3})], 0.8),
        ([(1.4, PLAN | {"line_item_net_unblended_cost": 1.3})], None),
        ([(1.4, {"line_item_net_unblended_cost": 1.2}), (-0.2, {"line_item_net_unblended_cost": None})], 1.2),
        ([(1.4, {"line_item_net_unblended_cost": 1.2}), (-0.2, {"line_item_net_unblended_cost": 0.0})], 1.2),
        ([(1.4, {}), (-0.2, {})], 1.2),
    ],
)
def test_private_rates_reduce_plans_and_usage_once(
    run: Run, store: MlflowClient, tmp_path: Path, lines: list[Any], effective_usd: float | None
) -> None:
    run_id = recorded(store)
    kinds = [{} if usd > 0 else {"line_item_line_item_type": "EdpDiscount"} for usd, _ in lines]
    name = job_name(run_id, 1)
    rows = [line(name, usd, at=n, **kinds[n], **more) for n, (usd, more) in enumerate(lines)]
    run("reconcile", "--bill", str(write([*rows, later()], tmp_path / "bill.csv")))

    assert store.get_run(run_id).data.metrics.get("effective_usd") == pytest.approx(effective_usd)


def test_a_discount_that_names_no_job_leaves_the_effective_cost_unknown_without_net_costs(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    plain, net = recorded(store), recorded(store)
    rows = bill_of(plain) + bill_of(net, line_item_net_unblended_cost=1.2)
    rows += [line("another-team", 9.0, **INDIA), of_month("EdpDiscount", -9.0, **INDIA)]
    run("reconcile", "--bill", str(write([*rows, of_month("EdpDiscount", -9.0), later()], tmp_path / "bill.csv")))

    plain_run, net_run = store.get_run(plain).data, store.get_run(net).data
    assert (plain_run.metrics["billed_usd"], "effective_usd" in plain_run.metrics) == (pytest.approx(2.85), False)
    assert "lacks its effective cost" in plain_run.tags["paretune.bill"]
    assert (net_run.metrics["effective_usd"], net_run.tags["paretune.bill"]) == (pytest.approx(2.45), "complete")


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([{"costs": 1}], "create a Data Export of CUR 2.0 or FOCUS"),
        ([line(job_name("x", 1), 1.0, line_item_currency_code="CNY")], "the currency must be USD, got CNY"),
        (
            [line(job_name("x", 1), math.nan, line_item_unblended_cost="1,50")],
            "could not convert string to float: '1,50'",
        ),
    ],
)
def test_what_is_no_bill_in_dollars_is_refused(run: Run, tmp_path: Path, rows: list[Any], part: str) -> None:
    code, _, err = run("reconcile", "--bill", str(write(rows, tmp_path / "bill.csv")))

    assert code == 2
    assert part in err


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the name of an empty bucket in an S3 without a network."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        s3_client(None, {}).create_bucket(Bucket="bills-of-a-company")
        yield "bills-of-a-company"


def test_a_bill_is_read_from_s3_without_other_files_next_to_its_data(
    run: Run, store: MlflowClient, bucket: str, tmp_path: Path
) -> None:
    run_id, s3 = recorded(store), s3_client(None, {})
    path = write([*bill_of(run_id), later()], tmp_path / "e-00001.csv.gz")
    s3.upload_file(str(path), bucket, "export/data/BILLING_PERIOD=2026-11/e-00001.csv.gz")
    s3.put_object(Bucket=bucket, Key="export/readme.txt", Body=b"not a bill")
    code, document, _ = run("reconcile", "--bill", f"s3://{bucket}/export")

    assert (code, document["recorded"]) == (0, 1)


def test_a_bill_in_s3_is_complete_only_with_all_files_of_its_manifest(
    run: Run, store: MlflowClient, bucket: str, tmp_path: Path
) -> None:
    run_id, s3 = recorded(store), s3_client(None, {})
    deliver([*bill_of(run_id), later()], tmp_path / "cur", parts=2)
    for path in (tmp_path / "cur").rglob("cur-*"):
        s3.upload_file(str(path), bucket, f"finance/{path.relative_to(tmp_path)}")
    lost = "finance/cur/data/BILLING_PERIOD=2026-11/cur-00002.csv"
    run("reconcile", "--bill", f"s3://{bucket}/finance/cur/")
    assert state_of(store, run_id) == "complete"
    s3.delete_object(Bucket=bucket, Key=lost)
    _, document, _ = run("reconcile", "--bill", f"s3://{bucket}/finance/cur/")

    assert any("2026-11/cur-00002.csv" in remark for remark in document["remarks"])
