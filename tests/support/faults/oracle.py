"""Compares the runs in MLflow with what really happened, which is counted without paretune's own records.

The functions for each launcher return its jobs with their bills and the events that they wrote. `faults_of` compares
these jobs with the runs.
"""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.pricing import PriceList
from tests.support.tags import tags_of

_STATUS = {"Completed": "FINISHED", "Failed": "FAILED", "Stopped": "KILLED"}
LOCAL_USD_PER_HOUR = 0.115


@dataclass(frozen=True, kw_only=True)
class Created:
    """A job that was created.

    Attributes:
        state: `Completed`, `Failed` or `Stopped`; any other word while it runs.
        seconds: billed seconds per instance.
        usd: its cost in dollars; None if its price is unknown.
        points: name and step of each metric value that it wrote.
        tolerance_s: largest allowed error of recorded seconds.
        begun: how many processes ran its command, according to a file that they write.
        may_fail: whether its run may be FAILED although the job did not fail.
    """

    name: str
    state: str
    seconds: float
    usd: float | None
    points: Counter[tuple[str, int]] = field(default_factory=Counter)
    tolerance_s: float = 0.01
    begun: int = 1
    may_fail: bool = False


def faults_of(created: list[Created], runs: list[Run], client: MlflowClient, *, attempts: int = 1) -> list[str]:
    """Return every difference between the runs and the jobs that were created; empty if there is none.

    A run may have up to `attempts` jobs, because the first ones may run out of memory or find no capacity.
    """
    jobs, owned = defaultdict(list), set[str]()
    for job in created:
        jobs[_without_attempt(job.name)].append(job)
    result: list[str] = []
    for run in runs:
        name = _without_attempt(tags_of(run).get("paretune.job_name", ""))
        faults = [*_faults_of_run(run, jobs.get(name, []), client, attempts)]
        faults += [f"has {name}, and another run has it, too"] if name and name in owned else []
        result += [f"run {run.info.run_id}: {fault}" for fault in faults]
        owned.add(name)
    return result + [
        f"{job.name}: created and billed, and no run has it" for name in jobs.keys() - owned for job in jobs[name]
    ]


def _without_attempt(name: str) -> str:
    """Return a job's name without the number of its attempt."""
    return name.rpartition("-")[0]


def _faults_of_run(run: Run, jobs: list[Created], client: MlflowClient, attempts: int) -> Iterator[str]:
    is_untouched = not any(name.startswith("paretune.") for name in tags_of(run))  # killed before paretune wrote a tag
    if run.info.status == "RUNNING" and (jobs or not is_untouched):
        yield f"is left RUNNING, with the state {tags_of(run).get('paretune.state')}"
    yield from (f"{job.name} was begun {job.begun} times" for job in jobs if job.begun > 1)
    if len(jobs) > attempts:
        yield f"has {len(jobs)} jobs: {', '.join(job.name for job in jobs)}"
    if not jobs:
        if run.data.metrics.get("cost_usd", 0.0) != 0.0:
            yield f"has no job, and records {run.data.metrics['cost_usd']} USD"
        return
    last = max(jobs, key=lambda job: int(job.name.rpartition("-")[2]))
    if last.state not in _STATUS:
        yield f"{last.name} is still {last.state}"
    elif run.info.status not in (_STATUS[last.state], "RUNNING", "FAILED" if last.may_fail else "RUNNING"):
        yield f"{last.name} {last.state}, and the run is {run.info.status}"
    yield from _faults_of_bill(run, jobs)
    yield from _faults_of_points(run, jobs, client)


def _faults_of_bill(run: Run, jobs: list[Created]) -> Iterator[str]:
    seconds, tolerance = sum(job.seconds for job in jobs), sum(job.tolerance_s for job in jobs)
    recorded = run.data.metrics.get("billable_seconds")
    if recorded is None or abs(recorded - seconds) > tolerance:
        yield f"records {recorded} billable seconds, and the bill has {seconds}"
    if any(job.usd is None for job in jobs):
        return
    usd = sum(job.usd for job in jobs if job.usd is not None)
    cost = run.data.metrics.get("cost_usd")
    allowed = max(1e-6 * usd, usd * tolerance / seconds if seconds else 0.0, 1e-9)
    if cost is None or abs(cost - usd) > allowed:
        yield f"records {cost} USD, and the bill is {usd} USD"


def _faults_of_points(run: Run, jobs: list[Created], client: MlflowClient) -> Iterator[str]:
    for name in {name for job in jobs for name, _ in job.points}:
        written = {step for job in jobs for point, step in job.points if point == name}
        recorded = Counter(point.step for point in client.get_metric_history(run.info.run_id, name))
        if written - recorded.keys():
            yield f"lacks steps {sorted(written - recorded.keys())} of {name}"
        twice = sorted(step for step, count in recorded.items() if count > 1)
        if twice:
            yield f"has steps {twice} of {name} more than once"


def price_of(instance_type: str, region: str = "us-east-1") -> float | None:
    """Return the price of an instance in dollars per hour, or None if the price list does not have it."""
    price = PriceList.read({}).price(instance_type, region)
    return None if price is None else price.usd_per_hour


def points_of(path: Path) -> Counter[tuple[str, int]]:
    """Return the name and step of every metric value in the complete events of a file. Other lines are skipped."""
    result: Counter[tuple[str, int]] = Counter()
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            event = json.loads(line.decode()) if line.endswith(b"\n") else None
            is_event = event.keys() <= {"time", "step", "metrics", "message", "total_steps"} and event["time"] >= 0
            if is_event and isinstance(event["step"], int):
                metrics = event.get("metrics", {}).items()
                result.update([(name, event["step"]) for name, value in metrics if math.isfinite(value)])
    return result


def points_of_store(path: Path) -> Counter[tuple[str, int]]:
    """Return the name and step of every metric value that a project's command recorded in the store of its job."""
    if not path.exists():
        return Counter()
    with closing(sqlite3.connect(path)) as database:
        has_table = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'metrics'").fetchone()
        return Counter(database.execute("SELECT key, step FROM metrics").fetchall() if has_table else [])


def simulated_jobs(home: Path) -> list[Created]:
    """Return the jobs of the simulated launcher, computed from the timelines in its files."""
    return [_simulated_job(path) for path in sorted(home.glob("simulated/jobs/*.json")) if ".stop" not in path.name]


def _simulated_job(path: Path) -> Created:
    raw, stop = json.loads(path.read_text()), path.with_suffix(".stop.json")
    timeline, until, billed, begin = raw["timeline"], math.inf, 0.0, 0.0
    request = json.loads(stop.read_text())["time"] - raw["created"] if stop.exists() else math.inf
    whole = sum(seconds for _, seconds in timeline["phases"])
    for status, seconds in timeline["phases"]:
        runs = status not in ("Starting", "Pending", "Interrupted")
        if begin <= request < begin + seconds:
            until = request + (5.0 if runs else 0.0)
        billed += max(0.0, min(until - begin, seconds)) if runs else 0.0
        begin += seconds
    state = "Stopped" if until < whole else "Failed" if timeline["failure"] else "Completed"
    points: Counter[tuple[str, int]] = Counter()
    for moment, event in timeline["events"]:
        if moment <= (request if until < whole else whole):
            points.update((name, event["step"]) for name in event.get("metrics", {}))
    spec = raw["spec"]
    price, count = price_of(spec["instance_type"]), int(spec.get("instance_count", 1))
    usd = None if price is None else billed * count * price / 3600
    return Created(name=path.stem, state=state, seconds=billed, usd=usd, points=points)


def local_jobs(home: Path) -> list[Created]:
    """Return the jobs of the local launcher, read from their folders. The last write to a folder is the job's end."""
    return [_local_job(home / "jobs" / path.parent.name, path.parent) for path in home.glob("launched/*/process.json")]


def _local_job(folder: Path, record: Path) -> Created:
    process, end = json.loads((record / "process.json").read_text()), record / "end.json"
    state = json.loads(end.read_text())["state"] if end.exists() else "unseen"
    custom = [path for path in folder.rglob("*") if path.is_file()]
    seconds = max(path.stat().st_mtime for path in custom) - process["started"]
    points = points_of(folder / "output" / "data" / "events.jsonl")
    notes = folder / "output" / "begun"
    return Created(
        begun=len(notes.read_text().splitlines()) if notes.exists() else 1,
        name=folder.name,
        state=state,
        seconds=seconds,
        usd=seconds * LOCAL_USD_PER_HOUR / 3600,
        points=points,
        tolerance_s=10.0,
    )


def sagemaker_job(described: Mapping[str, Any], folder: Path) -> Created:
    """Return a job of the emulator, read from its description and from the files of its instances."""
    resources = described["ResourceConfig"]
    seconds = float(described.get("BillableTimeInSeconds", 0.0))
    price = 0.0 if "TrainingPlanArn" in resources else price_of(resources["InstanceType"])
    usd = None if price is None else seconds * resources["InstanceCount"] * price / 3600
    attempts = sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name))
    points: Counter[tuple[str, int]] = Counter()
    for attempt in attempts:
        data = attempt / "algo-1" / "ml" / "output" / "data"
        points += points_of(data / "events.jsonl") + points_of_store(data / "paretune" / "mlflow.db")
    return Created(
        name=described["TrainingJobName"],
        state=described["TrainingJobStatus"],
        seconds=seconds,
        usd=usd,
        points=points,
    )
