"""What a job on SageMaker is expected to look like when it has completed; `compare` says where one does not.

What is expected stands in the tables below: it is what paretune relies on, what the model of DescribeTrainingJob says
(botocore 1.44.5), and what the emulator of the tests does. Nothing of it has been compared with the service itself.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paretune.commands.doctor.paid_job import ObservedJob
from paretune.launchers.base import BATCH_JOB_PREFIX
from paretune.specification import metrics
from paretune.specification.container import Event
from paretune.tracking import schema

STATUSES = ("Starting", "Downloading", "Training", "Uploading", "Completed")
"""SecondaryStatusTransitions of a job on new instances that nothing disturbs, in their order."""
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
"""Fields that DescribeTrainingJob has of a completed job and that paretune reads, or would miss."""
ABSENT = ("FailureReason", "WarmPoolStatus")
"""Fields that it does not have of one that has not failed and keeps no instances."""
NOT_DESCRIBED = ("Tags",)
"""Parameters of CreateTrainingJob that DescribeTrainingJob does not repeat."""
MEASURED = (metrics.F1, metrics.THROUGHPUT_SAMPLES, metrics.TRAIN_SECONDS, metrics.JOB_SECONDS)
"""Metrics of the run, beside those of the bill."""
ROUNDING_S = 2.0
"""Two time stamps and a number of whole seconds may differ by so much."""
_MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One expectation, and what was found: `part` is request, states, events, bill or metrics."""

    part: str
    what: str
    expected: str
    found: str
    holds: bool


def compare(seen: ObservedJob) -> list[Comparison]:
    """Every expectation with what was found; none of a job that was never created."""
    if not seen.description:
        return []
    return [*_request(seen), *_fields(seen), *_states(seen), *_events(seen), *_bill(seen), *_metrics(seen)]


def unknown_fields(seen: ObservedJob) -> list[str]:
    """Fields of DescribeTrainingJob that were neither asked for nor expected: something to learn from."""
    return sorted(set(seen.description) - set(FIELDS) - set(seen.request) - set(ABSENT) - {"ResponseMetadata"})


def _row(part: str, what: str, expected: object, found: object, holds: bool | None = None) -> Comparison:
    """A comparison; without `holds`, of two equal values."""
    same = expected == found if holds is None else holds
    return Comparison(part=part, what=what, expected=str(expected), found=str(found), holds=same)


def _request(seen: ObservedJob) -> Iterator[Comparison]:
    """Whether the job was created as it was asked for."""
    for name, sent in seen.request.items():
        found = seen.description.get(name, _MISSING)
        if name == "TrainingJobName" and seen.spec.queue is not None:
            is_of_queue = str(found).startswith(BATCH_JOB_PREFIX)
            yield _row("request", "the queue has named the training job", f"{BATCH_JOB_PREFIX}...", found, is_of_queue)
        elif name not in NOT_DESCRIBED:
            yield _row("request", f"{name} is as it was sent", sent, found, _contains(found, sent))


def _contains(found: Any, sent: Any) -> bool:
    """Whether all that was sent is in what was found; AWS may have added its defaults."""
    if isinstance(sent, Mapping):
        return isinstance(found, Mapping) and all(
            name in found and _contains(found[name], value) for name, value in sent.items()
        )
    if isinstance(sent, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(found) == len(sent)
            and all(_contains(one, other) for one, other in zip(found, sent, strict=True))
        )
    return bool(found == sent)


def _fields(seen: ObservedJob) -> Iterator[Comparison]:
    for name, kind in FIELDS.items():
        value = seen.description.get(name)
        found = _MISSING if value is None else type(value).__name__
        yield _row("states", f"DescribeTrainingJob has {name}", kind.__name__, found, isinstance(value, kind))
    for name in ABSENT:
        found = seen.description.get(name, _MISSING)
        yield _row("states", f"DescribeTrainingJob has no {name}", _MISSING, found)


def _states(seen: ObservedJob) -> Iterator[Comparison]:
    """Which states the job went through, in which order, and whether their times follow each other."""
    said = seen.description
    transitions = said.get("SecondaryStatusTransitions", [])
    passed = [str(entry.get("Status", _MISSING)) for entry in transitions]
    yield _row("states", "secondary statuses, in order", " ".join(STATUSES), " ".join(passed))
    yield _row("states", "TrainingJobStatus", "Completed", said.get("TrainingJobStatus", _MISSING))
    yield _row("states", "SecondaryStatus is the last of them", passed[-1:], [said.get("SecondaryStatus", _MISSING)])
    wrong = [
        f"{entry.get('Status')} ends at {entry.get('EndTime', _MISSING)}, {after.get('Status')} starts at "
        f"{after.get('StartTime', _MISSING)}"
        for entry, after in itertools.pairwise(transitions)
        if not _is_short(_between(entry, "EndTime", after, "StartTime"))
    ]
    yield _row("states", "each ends when the next one starts", "yes", "; ".join(wrong) or "yes")
    names = ("CreationTime", "TrainingStartTime", "TrainingEndTime")
    times = [said[name] for name in names if isinstance(said.get(name), datetime)]
    yield _row("states", f"{' <= '.join(names)}", "yes", "yes" if times == sorted(times) else times)
    starts = {str(entry.get("Status")): entry for entry in transitions}
    began = _between(said, "TrainingStartTime", starts.get("Downloading", {}), "StartTime")
    expected = "0 s after Downloading began"
    yield _row("states", "TrainingStartTime", expected, _seconds(None if began is None else -began), _is_short(began))


def _between(before: Mapping[str, Any], begin: str, after: Mapping[str, Any], end: str) -> float | None:
    """Seconds from one time to another; None where one of them is missing."""
    times = before.get(begin), after.get(end)
    if not isinstance(times[0], datetime) or not isinstance(times[1], datetime):
        return None
    return (times[1] - times[0]).total_seconds()


def _is_short(seconds: float | None) -> bool:
    return seconds is not None and abs(seconds) <= ROUNDING_S


def _seconds(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.1f} s"


def _events(seen: ObservedJob) -> Iterator[Comparison]:
    """Whether all that the job wrote came through, by CloudWatch and at all, and stands in MLflow's curves."""
    written = {event.line() for event in seen.written}
    yield _row("events", "events in the job's results", "more than 0", len(written), bool(written))
    for way, there in (("the log in CloudWatch", seen.logged), ("log and results together", seen.received)):
        came = len(written & {event.line() for event in there})
        yield _row("events", f"of them received through {way}", len(written), came)
    for name, curve in seen.curves.items():
        points = _points(seen.written, name)
        lacking = [step for step, value in points.items() if not _is_close(curve.get(step), value)]
        yield _row("events", f"steps of {name} missing or different in MLflow", [], lacking)


def _points(events: Sequence[Event], name: str) -> dict[int, float]:
    """Step to value; the first of a step, as MLflow's curve keeps it."""
    points: dict[int, float] = {}
    for event in events:
        if name in event.metrics:
            points.setdefault(event.step, event.metrics[name])
    return points


def _is_close(found: float | None, expected: float, tolerance: float = 1e-9) -> bool:
    return found is not None and abs(found - expected) <= tolerance * max(1.0, abs(expected))


def _bill(seen: ObservedJob) -> Iterator[Comparison]:
    """Whether what AWS bills follows from its own times, and was booked."""
    said, booked = seen.description, seen.metrics
    billed = said.get("BillableTimeInSeconds")
    taken = _between(said, "TrainingStartTime", said, "TrainingEndTime")
    if not isinstance(billed, int):
        yield _row("bill", "BillableTimeInSeconds", "a whole number", _MISSING)
        return
    trained = said.get("TrainingTimeInSeconds", _MISSING)
    yield _row("bill", "BillableTimeInSeconds is TrainingTimeInSeconds", trained, billed)
    holds = taken is not None and _is_short(billed - taken)
    yield _row("bill", "BillableTimeInSeconds is TrainingEndTime - TrainingStartTime", _seconds(taken), billed, holds)
    found = booked.get(metrics.BILLABLE_SECONDS)
    yield _row("bill", "billable_seconds in MLflow", billed, found, _is_close(found, billed))
    if seen.price is not None:
        dollars, paid = seen.price.cost_usd(billed, seen.spec.instance_count), booked.get(metrics.COST_USD)
        formula = f"{billed} s x {seen.spec.instance_count} x {seen.price.usd_per_hour:g} USD an hour"
        yield _row("bill", f"cost_usd in MLflow is {formula}", f"{dollars:.6f}", paid, _is_close(paid, dollars))
    if seen.worst_usd is not None:
        paid = booked.get(metrics.COST_USD)
        most = f"at most {seen.worst_usd:.4f}"
        yield _row("bill", "cost_usd is within the worst case", most, paid, paid is not None and paid <= seen.worst_usd)


def _metrics(seen: ObservedJob) -> Iterator[Comparison]:
    """Whether the run has what every job records."""
    for name in MEASURED:
        value = seen.metrics.get(name)
        yield _row("metrics", f"{name} in MLflow", "a number", _MISSING if value is None else value, value is not None)
    lasted = _between(seen.description, "CreationTime", seen.description, "TrainingEndTime")
    found = seen.metrics.get(metrics.JOB_SECONDS)
    holds = lasted is not None and found is not None and _is_short(found - lasted)
    yield _row("metrics", "job_seconds is TrainingEndTime - CreationTime", _seconds(lasted), found, holds)
    for tag, expected in ((schema.STATE, "Completed"), (schema.SECONDARY_STATUS, "Completed")):
        yield _row("metrics", f"tag {tag}", expected, seen.tags.get(tag, _MISSING))
