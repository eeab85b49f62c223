"""Expectations of a completed job on SageMaker; `compare` checks a job against them.

They stand in the tables below and come from what paretune relies on, from the model of DescribeTrainingJob (botocore
1.44.5) and from the emulator of the tests. They have not been compared with the service itself.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paretune.commands.doctor.paid_job import ObservedJob
from paretune.specification import metrics
from paretune.specification.container import Event
from paretune.tracking import schema

STATUSES = ("Starting", "Downloading", "Training", "Uploading", "Completed")
"""SecondaryStatusTransitions of an undisturbed job on new instances, in order."""
WAITING = "Pending"
"""Status of a job that waits for capacity; since 2024 it may come after Starting, and says nothing against the job."""
FIELDS: Mapping[str, type] = {
    "TrainingJobName": str,
    "TrainingJobArn": str,
    "TrainingJobStatus": str,
    "SecondaryStatus": str,
    "SecondaryStatusTransitions": list,
    "CreationTime": datetime,
    "LastModifiedTime": datetime,
    "TrainingStartTime": datetime,
    "TrainingEndTime": datetime,
    "TrainingTimeInSeconds": int,
    "BillableTimeInSeconds": int,
    "AlgorithmSpecification": dict,
    "ResourceConfig": dict,
    "StoppingCondition": dict,
    "OutputDataConfig": dict,
    "CheckpointConfig": dict,
    "ModelArtifacts": dict,
}
"""Fields in DescribeTrainingJob of a completed job that paretune reads."""
ABSENT = ("FailureReason", "WarmPoolStatus")
"""Fields that are absent for a job that has not failed and keeps no instances."""
NOT_DESCRIBED = ("Tags",)  # parameters of CreateTrainingJob that DescribeTrainingJob does not repeat
MEASURED = (metrics.F1, metrics.THROUGHPUT_SAMPLES, metrics.TRAIN_SECONDS, metrics.JOB_SECONDS)
"""Metrics of the run, without those of the bill."""
ROUNDING_S = 2.0  # largest difference between two time stamps and a number of whole seconds
_MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One expectation and the actual value: `part` is request, states, events, bill or metrics."""

    part: str
    subject: str
    expected: str
    actual: str
    holds: bool


def compare(job: ObservedJob) -> list[Comparison]:
    """Compare a job with every expectation; returns nothing for a job that was never created."""
    if not job.description:
        return []
    return [*_request(job), *_fields(job), *_states(job), *_events(job), *_bill(job), *_metrics(job)]


def unknown_fields(job: ObservedJob) -> list[str]:
    """Return fields of DescribeTrainingJob that were neither requested nor expected."""
    return sorted(set(job.description) - set(FIELDS) - set(job.request) - set(ABSENT) - {"ResponseMetadata"})


def _row(part: str, subject: str, expected: object, actual: object, holds: bool | None = None) -> Comparison:
    """Return a comparison; by default it holds if both values are equal."""
    same = expected == actual if holds is None else holds
    return Comparison(part=part, subject=subject, expected=str(expected), actual=str(actual), holds=same)


def _request(job: ObservedJob) -> Iterator[Comparison]:
    """Compare the created job with the request."""
    for name, sent in job.request.items():
        actual = job.description.get(name, _MISSING)
        if name not in NOT_DESCRIBED:
            yield _row("request", f"{name} is as it was sent", sent, actual, _contains(actual, sent))


def _contains(actual: Any, sent: Any) -> bool:
    """Whether the actual value contains all that was sent; AWS may have added defaults."""
    if isinstance(sent, Mapping):
        return isinstance(actual, Mapping) and all(
            name in actual and _contains(actual[name], value) for name, value in sent.items()
        )
    if isinstance(sent, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(actual) == len(sent)
            and all(_contains(value, sent_value) for value, sent_value in zip(actual, sent, strict=True))
        )
    return bool(actual == sent)


def _fields(job: ObservedJob) -> Iterator[Comparison]:
    for name, kind in FIELDS.items():
        value = job.description.get(name)
        actual = _MISSING if value is None else type(value).__name__
        yield _row("states", f"DescribeTrainingJob has {name}", kind.__name__, actual, isinstance(value, kind))
    for name in ABSENT:
        actual = job.description.get(name, _MISSING)
        yield _row("states", f"DescribeTrainingJob has no {name}", _MISSING, actual)


def _states(job: ObservedJob) -> Iterator[Comparison]:
    """Compare the states of the job, their order, and whether their times follow each other."""
    description = job.description
    transitions = description.get("SecondaryStatusTransitions", [])
    passed = [str(entry.get("Status", _MISSING)) for entry in transitions]
    undisturbed = tuple(status for status in passed if status != WAITING) == STATUSES
    yield _row("states", "secondary statuses, in order", " ".join(STATUSES), " ".join(passed), undisturbed)
    yield _row("states", "TrainingJobStatus", "Completed", description.get("TrainingJobStatus", _MISSING))
    yield _row(
        "states", "SecondaryStatus is the last of them", passed[-1:], [description.get("SecondaryStatus", _MISSING)]
    )
    gaps = [
        f"{entry.get('Status')} ends at {entry.get('EndTime', _MISSING)}, {after.get('Status')} starts at "
        f"{after.get('StartTime', _MISSING)}"
        for entry, after in itertools.pairwise(transitions)
        if not _is_short(_between(entry, "EndTime", after, "StartTime"))
    ]
    yield _row("states", "each ends when the next one starts", "yes", "; ".join(gaps) or "yes")
    names = ("CreationTime", "TrainingStartTime", "TrainingEndTime")
    times = [description[name] for name in names if isinstance(description.get(name), datetime)]
    yield _row("states", f"{' <= '.join(names)}", "yes", "yes" if times == sorted(times) else times)
    starts = {str(entry.get("Status")): entry for entry in transitions}
    began = _between(description, "TrainingStartTime", starts.get("Downloading", {}), "StartTime")
    expected = "0 s after Downloading began"
    yield _row("states", "TrainingStartTime", expected, _seconds(None if began is None else -began), _is_short(began))


def _between(before: Mapping[str, Any], begin: str, after: Mapping[str, Any], end: str) -> float | None:
    """Return the seconds from one time to another, or None if one is missing."""
    times = before.get(begin), after.get(end)
    if not isinstance(times[0], datetime) or not isinstance(times[1], datetime):
        return None
    return (times[1] - times[0]).total_seconds()


def _is_short(seconds: float | None) -> bool:
    return seconds is not None and abs(seconds) <= ROUNDING_S


def _seconds(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.1f} s"


def _events(job: ObservedJob) -> Iterator[Comparison]:
    """Compare the events that the job wrote with those in CloudWatch, those received, and MLflow's curves."""
    written = {event.line() for event in job.written}
    yield _row("events", "events in the job's results", "more than 0", len(written), bool(written))
    ways = {"the log in CloudWatch": job.logged, "log and results together": job.received}
    if job.log_fault:
        ways.pop("the log in CloudWatch")
        yield _row("events", "this identity may read the log in CloudWatch", "yes", job.log_fault)
    for way, events in ways.items():
        received = len(written & {event.line() for event in events})
        yield _row("events", f"of them received through {way}", len(written), received)
    for name, curve in job.curves.items():
        points = _points(job.written, name)
        lacking = [step for step, value in points.items() if not _is_close(curve.get(step), value)]
        yield _row("events", f"steps of {name} missing or different in MLflow", [], lacking)


def _points(events: Sequence[Event], name: str) -> dict[int, float]:
    """Return step to value; the first of a step, as in MLflow's curve."""
    points: dict[int, float] = {}
    for event in events:
        if name in event.metrics:
            points.setdefault(event.step, event.metrics[name])
    return points


def _is_close(actual: float | None, expected: float, tolerance: float = 1e-9) -> bool:
    return actual is not None and abs(actual - expected) <= tolerance * max(1.0, abs(expected))


def _bill(job: ObservedJob) -> Iterator[Comparison]:
    """Compare AWS's billed seconds with its times, and with what was booked."""
    description, booked = job.description, job.metrics
    billed = description.get("BillableTimeInSeconds")
    duration_s = _between(description, "TrainingStartTime", description, "TrainingEndTime")
    if not isinstance(billed, int):
        yield _row("bill", "BillableTimeInSeconds", "a whole number", _MISSING)
        return
    trained = description.get("TrainingTimeInSeconds", _MISSING)
    yield _row("bill", "BillableTimeInSeconds is TrainingTimeInSeconds", trained, billed)
    holds = duration_s is not None and _is_short(billed - duration_s)
    yield _row(
        "bill", "BillableTimeInSeconds is TrainingEndTime - TrainingStartTime", _seconds(duration_s), billed, holds
    )
    recorded = booked.get(metrics.BILLABLE_SECONDS)
    yield _row("bill", "billable_seconds in MLflow", billed, recorded, _is_close(recorded, billed))
    if job.price is not None:
        dollars, paid = job.price.cost_usd(billed, job.spec.instance_count), booked.get(metrics.COST_USD)
        formula = f"{billed} s x {job.spec.instance_count} x {job.price.usd_per_hour:g} USD an hour"
        yield _row("bill", f"cost_usd in MLflow is {formula}", f"{dollars:.6f}", paid, _is_close(paid, dollars))
    if job.worst_usd is not None:
        paid = booked.get(metrics.COST_USD)
        most = f"at most {job.worst_usd:.4f}"
        yield _row("bill", "cost_usd is within the worst case", most, paid, paid is not None and paid <= job.worst_usd)


def _metrics(job: ObservedJob) -> Iterator[Comparison]:
    """Check that the run has the metrics and tags that every job records."""
    for name in MEASURED:
        value = job.metrics.get(name)
        yield _row("metrics", f"{name} in MLflow", "a number", _MISSING if value is None else value, value is not None)
    lasted = _between(job.description, "CreationTime", job.description, "TrainingEndTime")
    recorded = job.metrics.get(metrics.JOB_SECONDS)
    holds = lasted is not None and recorded is not None and _is_short(recorded - lasted)
    yield _row("metrics", "job_seconds is TrainingEndTime - CreationTime", _seconds(lasted), recorded, holds)
    for tag, expected in ((schema.STATE, "Completed"), (schema.SECONDARY_STATUS, "Completed")):
        yield _row("metrics", f"tag {tag}", expected, job.tags.get(tag, _MISSING))
