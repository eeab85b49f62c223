"""Bills in AWS's formats: lines in CUR 2.0, FOCUS or CUR before 2.0, and deliveries with their manifests."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"
BEGIN = datetime(2026, 11, 3, 10, tzinfo=UTC)


def line(job: str, usd: float, at: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return a line of CUR 2.0, by default for an hour of usage that begins `at` hours after `BEGIN`.

    The line's id contains `at`. If `job` is empty, the line belongs to EC2.
    """
    start = BEGIN + timedelta(hours=at)
    standard = {
        "bill_billing_period_start_date": start.replace(day=1, hour=0).isoformat(),
        "identity_line_item_id": f"{job}-{at}",
        "identity_time_interval": start.isoformat(),
        "line_item_product_code": "AmazonSageMaker" if job else "AmazonEC2",
        "line_item_resource_id": ARN + job if job else "arn:aws:ec2:us-east-1:123456789012:instance/i-1",
        "line_item_line_item_type": "Usage",
        "line_item_unblended_cost": usd,
        "line_item_usage_start_date": start.isoformat(),
        "line_item_usage_end_date": (start + timedelta(hours=1)).isoformat(),
        "line_item_currency_code": "USD",
    }
    return {**standard, **more}


def of_month(kind: str, usd: float, job: str = "", **more: Any) -> dict[str, Any]:
    """Return a line of this `kind`, such as a tax, fee or discount, from `BEGIN` to the end of the month.

    If `job` is given, the line names this job.
    """
    resource = {"line_item_resource_id": ARN + job if job else ""}
    end = {"line_item_usage_end_date": "2026-12-01T00:00:00+00:00", "line_item_product_code": "AmazonSageMaker"}
    return {**line(job or kind, usd), **resource, **end, "line_item_line_item_type": kind, **more}


def later(days: float = 3.0) -> dict[str, Any]:
    """Return a line of EC2 `days` days after `BEGIN`, so that the bill does not end with the jobs."""
    return line("", 5.0, at=24 * days)


def in_focus(row: dict[str, Any]) -> dict[str, Any]:
    """Return the same line with the columns of FOCUS 1.0 and 1.2."""
    return {
        "ResourceId": row["line_item_resource_id"],
        "BilledCost": row["line_item_unblended_cost"],
        "EffectiveCost": row.get("line_item_net_unblended_cost", row["line_item_unblended_cost"]),
        "ChargeCategory": row["line_item_line_item_type"],
        "ChargePeriodStart": row["line_item_usage_start_date"],
        "ChargePeriodEnd": row["line_item_usage_end_date"],
        "BillingPeriodStart": row["bill_billing_period_start_date"],
        "BillingCurrency": row["line_item_currency_code"],
    }


def in_legacy(row: dict[str, Any]) -> dict[str, Any]:
    """Return the same line with the names of the Cost and Usage Report before 2.0, such as `lineItem/UnblendedCost`."""

    def named(column: str) -> str:
        group = next(name for name in ("line_item", "savings_plan", "identity", "bill") if column.startswith(name))
        words = [group.split("_"), column.removeprefix(f"{group}_").split("_")]
        first, second = ("".join(word.capitalize() for word in each) for each in words)
        return f"{first[0].lower()}{first[1:]}/{second}"

    return {named(column): value for column, value in row.items()}


def write(rows: list[dict[str, Any]], path: Path) -> Path:
    """Write a bill as Parquet or CSV, depending on the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


def deliver(
    rows: list[dict[str, Any]], folder: Path, *, month: str = "2026-11", parts: int = 1, delivery: str = ""
) -> list[Path]:
    """Write the bill of a month under `folder` as AWS Data Exports does, and return the paths of its parts.

    The rows are distributed over the parts. If an export creates new files, each delivery has its own folder. The
    name of the folder is `delivery`, which begins with the time of the delivery.
    """
    place = f"BILLING_PERIOD={month}/{delivery}".rstrip("/")
    names = [f"data/{place}/cur-{number:05}.csv" for number in range(1, parts + 1)]
    manifest = {
        "executionId": delivery.partition("-")[2] or f"execution-of-{month}",
        "exportArn": "arn:aws:bcm-data-exports:us-east-1:123456789012:export/cur-1",
        "columns": [{"name": name, "type": "string"} for name in rows[0]],
        "dataFiles": [f"s3://bills-of-a-company/finance/cur/{name}" for name in names],
        "additionalOutputFiles": [],
    }
    _write_manifest(manifest, folder / "metadata" / place / "cur-Manifest.json")
    return [write(rows[number::parts], folder / name) for number, name in enumerate(names)]


def deliver_legacy(rows: list[dict[str, Any]], folder: Path, assembly: str, *, parts: int = 1) -> list[Path]:
    """Write the bill of November as CUR before 2.0 does, and return the paths of its parts.

    Each assembly has its own folder. The manifest above these folders names the newest assembly.
    """
    period = folder / "20261101-20261201"
    names = [f"{assembly}/report-{number}.csv.gz" for number in range(1, parts + 1)]
    manifest = {
        "assemblyId": assembly,
        "account": "123456789012",
        "columns": [],
        "reportId": "494124bac4e25a16a3b704c13be2c525fd60d25b0675eb0f72e7b9e8ea09e167",
        "reportName": "report",
        "billingPeriod": {"start": "20261101T000000.000Z", "end": "20261201T000000.000Z"},
        "bucket": "bills-of-a-company",
        "reportKeys": [f"finance/report/{period.name}/{name}" for name in names],
        "additionalArtifactKeys": [],
    }
    for place in (period, period / assembly):
        _write_manifest(manifest, place / "report-Manifest.json")
    return [write([in_legacy(row) for row in rows[n::parts]], period / name) for n, name in enumerate(names)]


def _write_manifest(manifest: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
