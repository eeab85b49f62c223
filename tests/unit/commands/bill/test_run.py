"""`paretune reconcile` and `report --rate effective` against a real store."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mlflow.artifacts
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from moto import mock_aws

from paretune.cli import main
from paretune.commands.bill.recorded_costs import RecordedCost
from paretune.launchers.sagemaker.s3_download import s3_client
from tests.stand_ins.bill import ARN, MONTH, UNIT, UNTIL, Bill, BillMaker, write_file

Run = Callable[..., tuple[int, Any, str]]
JOBS = 8


@pytest.fixture
def store(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    client = MlflowClient()
    experiment = client.create_experiment("bills", artifact_location=str(workplace / "artifacts"))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
    return client


@pytest.fixture
def bill(store: MlflowClient) -> Bill:
    """A bill of jobs whose runs are in the store, one of them forgotten by AWS, and of one that no run tells of."""
    ids = [store.create_run(os.environ["MLFLOW_EXPERIMENT_ID"], start_time=ms(MONTH)).info.run_id for _ in range(JOBS)]
    made = BillMaker(50, run_ids=ids).add_jobs(JOBS).add_unknown(1).add_others(30).bill
    for item in made.recorded:
        record(store, item)
    return made


def ms(time: Any) -> int:
    return int(time.timestamp() * 1000)


def record(store: MlflowClient, recorded_cost: RecordedCost) -> None:
    """Everything of a run that a bill is compared with."""
    metrics = {"cost_usd": recorded_cost.cost_usd, "billable_seconds": recorded_cost.seconds, "f1": 0.9}
    if recorded_cost.pool_seconds:
        metrics["warm_pool_seconds"] = recorded_cost.pool_seconds
    tags = {"job_name": recorded_cost.job_name, "launcher": "sagemaker", "state": "Completed", "origin": "measured"}
    tags |= {"price_usd_per_hour": str(recorded_cost.price_usd_per_hour), "price_region": "us-east-1"}
    params = {"instance_type": "ml.g5.xlarge", "instance_count": str(recorded_cost.instance_count), "dataset": "d"}
    store.log_batch(
        recorded_cost.run_id,
        metrics=[Metric(name, float(value or 0), 0, 0) for name, value in metrics.items()],
        params=[Param(name, text) for name, text in params.items()],
        tags=[RunTag(f"paretune.{name}", text) for name, text in tags.items()],
    )
    assert recorded_cost.ended_at is not None
    store.set_terminated(
        recorded_cost.run_id, end_time=ms(recorded_cost.ended_at - timedelta(seconds=float(recorded_cost.pool_seconds)))
    )


@pytest.fixture
def run(store: MlflowClient, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; (exit code, document, standard error)."""

    def command(*words: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main([*words, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return command


def billed(store: MlflowClient, bill: Bill) -> dict[str, float | None]:
    return {item.run_id: store.get_run(item.run_id).data.metrics.get("billed_usd") for item in bill.recorded}


def truth(bill: Bill) -> dict[str, float]:
    """Run to its dollars, of runs with a job of their own."""
    return {run_id: first.billed / UNIT for run_id, first in bill.truths.items() if run_id not in bill.silent}


def rows_of(store: MlflowClient, document: Any, name: str) -> list[dict[str, str]]:
    text = mlflow.artifacts.load_text(f"{store.get_run(document['run_id']).info.artifact_uri}/{name}")
    return list(csv.DictReader(io.StringIO(text)))


def test_every_run_gets_what_it_was_billed_once_with_the_reasons_of_its_difference(
    run: Run, store: MlflowClient, bill: Bill, tmp_path: Path
) -> None:
    write_file(bill.rows, tmp_path / "bill.parquet")
    code, document, _ = run("reconcile", "--bill", str(tmp_path / "bill.parquet"))
    first = billed(store, bill)
    _, again, _ = run("reconcile", "--bill", str(tmp_path / "bill.parquet"))
    expected = truth(bill)

    assert code == 0
    assert {name: first[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert (document["recorded"], again["recorded"]) == (len(bill.recorded) - 1, 0)  # AWS has forgotten one
    assert billed(store, bill) == first
    some = store.get_run(next(iter(expected)))
    assert len(store.get_metric_history(some.info.run_id, "billed_usd")) == 1
    assert some.data.tags["paretune.bill"] == "complete"
    assert sum(item["usd"] for item in document["totals"].values()) == pytest.approx(bill.total / UNIT)
    require_reasons(bill, rows_of(store, document, "reconcile.csv"), rows_of(store, document, "residue.csv"))


def require_reasons(bill: Bill, table: list[dict[str, str]], residue: list[dict[str, str]]) -> None:
    """A row for each job, whose parts add up; the residue by line; what is on one side only is named."""
    rows = {row["run_id"] or row["job"]: row for row in table}
    parts = ("price_usd", "rounding_usd", "storage_usd", "pool_usd", "discount_usd", "seconds_usd", "residue_usd")
    (silent,), (unknown,) = bill.silent, bill.unknown

    assert rows.keys() == {entry.run_id for entry in bill.recorded} | {unknown}
    assert rows[silent]["remark"] == "the bill has no line of it"
    assert (rows[unknown]["run_id"], rows[unknown]["remark"]) == ("", "it has no run here")
    for name in truth(bill):
        row = rows[name]
        total = sum(float(row[part]) for part in parts)
        assert total == pytest.approx(float(row["billed_usd"]) - float(row["cost_usd"]))
    unexplained = sum(item.unexplained for item in bill.truths.values())
    assert sum(float(element["usd"]) for element in residue) == pytest.approx(unexplained / UNIT)
    assert unexplained


def test_a_partial_bill_is_not_final_and_does_not_replace_a_whole_one(
    run: Run, store: MlflowClient, bill: Bill, tmp_path: Path
) -> None:
    element = max((item for item in bill.recorded if item.run_id in truth(bill)), key=lambda entry: entry.seconds)
    run_id, finished = element.run_id, element.ended_at or UNTIL
    before = finished.replace(minute=0, second=0, microsecond=0)
    part = [row for row in bill.rows if row["line_item_usage_end_date"] <= before]
    write_file(part, tmp_path / "part.csv")
    write_file(bill.rows, tmp_path / "whole.csv")

    run("reconcile", "--bill", str(tmp_path / "part.csv"))
    early = store.get_run(run_id).data.tags.get("paretune.bill", "")
    run("reconcile", "--bill", str(tmp_path / "whole.csv"))
    whole = store.get_run(run_id).data
    _, document, _ = run("reconcile", "--bill", str(tmp_path / "part.csv"))

    assert early.startswith("not complete yet: the bill ")
    assert whole.tags["paretune.bill"] == "complete"
    assert whole.metrics["billed_usd"] == pytest.approx(truth(bill)[run_id])
    assert store.get_run(run_id).data.metrics == whole.metrics
    assert document["recorded"] == 0
    assert any("its figures stay" in remark and run_id in remark for remark in document["remarks"])


def test_of_two_bills_that_tell_all_of_a_run_the_later_one_counts_in_whatever_order_they_are_read(
    run: Run, store: MlflowClient, bill: Bill, tmp_path: Path
) -> None:
    write_file(bill.rows, tmp_path / "newer.csv")
    newest = max(row["line_item_usage_start_date"] for row in bill.rows)
    older = [dict(row) for row in bill.rows if row["line_item_usage_start_date"] != newest]
    named = ((row, run_id) for row in older for run_id in truth(bill) if f"-{run_id}-" in row["line_item_resource_id"])
    about, run_id = next(named)
    first = truth(bill)[run_id]
    about["line_item_unblended_cost"] += UNIT
    write_file(older, tmp_path / "older.csv")

    run("reconcile", "--bill", str(tmp_path / "older.csv"))
    before = billed(store, bill)[run_id]
    run("reconcile", "--bill", str(tmp_path / "newer.csv"))
    after = billed(store, bill)[run_id]
    _, document, _ = run("reconcile", "--bill", str(tmp_path / "older.csv"))

    assert before == pytest.approx(first + 1)
    assert after == billed(store, bill)[run_id] == pytest.approx(first)
    assert any("its figures stay" in remark and run_id in remark for remark in document["remarks"])


def test_effective_dollars_are_drawn_and_others_priced_by_the_rate_of_the_bill(
    run: Run, store: MlflowClient, bill: Bill, tmp_path: Path
) -> None:
    before = run("report", "--rate", "effective")
    write_file(bill.rows, tmp_path / "bill.parquet")
    _, reconciled, _ = run("reconcile", "--bill", str(tmp_path / "bill.parquet"))
    code, document, _ = run("report", "--rate", "effective")
    rows = {row["run_id"]: row for row in document["rows"]}
    (hour,) = [rate["usd_per_hour"] for rate in reconciled["rates"] if rate["instance_type"] == "ml.g5.xlarge"]

    assert before[0] == 2
    assert "rate=effective needs a bill that has been read" in before[2]
    assert code == 0
    for name in truth(bill):
        assert rows[name]["new_cost_usd"] == pytest.approx(bill.truths[name].effective / UNIT)
        assert rows[name]["new_cost_basis"] == "bill"
    for name in bill.silent:
        entry = next(item for item in bill.recorded if item.run_id == name)
        hours = float((entry.seconds + entry.pool_seconds) * entry.instance_count) / 3600
        assert rows[name]["new_cost_usd"] == pytest.approx(hours * hour)
        assert rows[name]["new_cost_basis"] == "rate"
    assert 0 < hour < 1.408  # the list price
    cheapest = min(rows.values(), key=lambda row: row["new_cost_usd"])
    assert [row["run_id"] for row in rows.values() if row["on_new_front"]] == [cheapest["run_id"]]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["reconcile"], ["paretune: bill must name a Cost and Usage Report 2.0"]),
        (["reconcile", "--bill", "nowhere.csv"], ["got nowhere.csv: there is no such"]),
        (
            ["report", "--rate", "effective", "--region", "us-east-1", "--spot_share", "0.5"],
            ["region is a term of list prices, got rate=effective", "spot_share is a term of list prices"],
        ),
        (["report", "--view", "scaling", "--rate", "effective"], ["rate=effective prices the runs of view=runs again"]),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_next_step(run: Run, words: list[str], parts: list[str]) -> None:
    code, _, err = run(*words)

    assert code == 2
    for part in parts:
        assert part in err


def test_what_a_job_records_of_itself_is_what_a_bill_is_compared_with(
    run: Run, store: MlflowClient, tmp_path: Path
) -> None:
    words = ("--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--instance_count", "2")
    _, job, _ = run("train", *words, "--max_train_samples", "4000")
    done = store.get_run(job["run_id"])
    store.set_tag(job["run_id"], "paretune.origin", "measured")
    seconds, cost = (round(done.data.metrics[name] * UNIT) for name in ("billable_seconds", "cost_usd"))
    bill = Bill(net=False)
    location = {"line_item_resource_id": ARN + done.data.tags["paretune.job_name"]}
    hours = seconds * 2 // 3600
    start = datetime.fromtimestamp(done.info.start_time / 1000, UTC).replace(minute=0, second=0, microsecond=0)
    for later in range(3):  # the bill goes on after the job
        report = location if later == 0 else {"line_item_product_code": "AmazonEC2"}
        amount = {"line_item_usage_amount": hours if later == 0 else 0}
        bill.row("Usage", "USE1-Train:ml.g5.xlarge", cost, start + timedelta(hours=later), **report, **amount)
    write_file(bill.rows, tmp_path / "bill.csv")
    _, document, _ = run("reconcile", "--bill", str(tmp_path / "bill.csv"))
    (row,) = document["rows"]

    assert (row["run_id"], row["cost_usd"]) == (job["run_id"], done.data.metrics["cost_usd"])
    assert row["billed_usd"] == pytest.approx(row["cost_usd"], abs=1e-9)
    assert [row[f"{name}_usd"] for name in ("price", "storage", "pool", "discount", "seconds", "residue")] == [0] * 6
    assert abs(row["rounding_usd"]) < 1e-6


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket of an S3 without a network."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        s3_client(None, {}).create_bucket(Bucket="bills-of-a-company")
        yield "bills-of-a-company"


def test_a_bill_is_read_from_s3_without_what_lies_beside_its_data(
    run: Run, bill: Bill, bucket: str, tmp_path: Path
) -> None:
    s3, half = s3_client(None, {}), len(bill.rows) // 2
    for name, rows in {"e-00001.csv.gz": bill.rows[:half], "e-00002.parquet": bill.rows[half:]}.items():
        write_file(rows, tmp_path / name)
        s3.upload_file(str(tmp_path / name), bucket, f"export/data/BILLING_PERIOD=2026-11/{name}")
    s3.put_object(Bucket=bucket, Key="export/metadata/BILLING_PERIOD=2026-11/export-Manifest.json", Body=b"{}")
    code, document, _ = run("reconcile", "--bill", f"s3://{bucket}/export")

    assert code == 0
    assert sum(item["usd"] for item in document["totals"].values()) == pytest.approx(bill.total / UNIT)
