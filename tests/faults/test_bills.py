"""Bills that lack a file or a month, of jobs that have really run."""

import json
import shutil
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.bills import BEGIN, deliver, line
from tests.support.faults.worlds import Trial, World
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow
PARTS = 3


def test_a_bill_with_a_hole_is_complete_for_no_job_and_the_hole_is_named(trial: Trial) -> None:
    with trial.world("sagemaker") as world:
        world.write_script(steps=5)
        for _ in range(2):
            command = world.begin(world.open_run())
            assert command.wait() == 0, command.text
        bill = world.folder / "bill"
        parts = _deliver_bill(world, bill)
        for part in parts:
            rows, text = _reconcile(world, _without(part, bill, world.folder / "copied"))
            trial.count_fault(f"a bill without {part.name}")
            assert [row["complete"] for row in rows] == [False, False], text
            assert all(part.name in row["remark"] for row in rows), text
        month = parts[0].parent
        rows, text = _reconcile(world, _without(month, bill, world.folder / "copied"))
        trial.count_fault(f"a bill without {month.name}")
        assert not any(row["complete"] for row in rows), text
        assert month.name.removeprefix("BILLING_PERIOD=") in text
        assert {tags_of(run).get("paretune.bill") for run in world.runs()} != {"complete"}

        rows, text = _reconcile(world, bill)
        assert [row["complete"] for row in rows] == [True, True], text
        assert sum(row["billed_usd"] for row in rows) == pytest.approx(sum(job.usd or 0.0 for job in world.created()))


def _deliver_bill(world: World, folder: Path) -> list[Path]:
    """Deliver the bills of this month, the previous and the next one, and return the files of this month."""
    months = defaultdict[str, list[dict[str, Any]]](list)
    (first, *_) = begins = [_hours_until(world.aws.described(job.name)["CreationTime"]) for job in world.created()]
    for job, hours in zip(world.created(), begins, strict=True):
        rows = [line(job.name, (job.usd or 0.0) / PARTS, hours + part / 1000) for part in range(PARTS)]
        months[f"{BEGIN + timedelta(hours=hours):%Y-%m}"] += rows
    (now,) = months
    others = [line("", 5.0, first + 24 * days + part / 1000) for days in (-31, 0, 31) for part in range(PARTS)]
    for row in others:
        months[row["line_item_usage_start_date"][:7]].append(row)
    return [
        file
        for month, rows in months.items()
        for file in deliver(rows, folder, month=month, parts=PARTS)
        if month == now
    ]


def _hours_until(time: float) -> float:
    return (datetime.fromtimestamp(time, UTC) - BEGIN) / timedelta(hours=1)


def _without(path: Path, bill: Path, copy: Path) -> Path:
    """Copy a bill without one of its files or folders, as when copying it is interrupted."""
    shutil.rmtree(copy, ignore_errors=True)
    left_out = path.name if path.is_dir() else f"{path.parent.name}/{path.name}"
    shutil.copytree(bill, copy)
    for each in copy.rglob("*"):
        if each.as_posix().endswith(left_out):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    return copy


def _reconcile(world: World, bill: Path) -> tuple[list[dict[str, Any]], str]:
    """Run `reconcile`, and return its rows and all that it printed."""
    done = world.begin_words(["paretune", "reconcile", "--bill", str(bill), "--json"])
    assert done.wait() == 0, done.text
    return json.loads(done.text[done.text.index("{") :])["rows"], done.text
