"""The phases of a job's life, and its bill, from the status transitions that DescribeTrainingJob reports."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

PHASES = ("waiting", "starting", "data", "image", "training", "uploading")
"""Waiting for capacity, starting of instances, download of data, pull of the image, training with evaluation, upload.

The first two are not billed.
"""
UNBILLED = frozenset({"waiting", "starting"})
DOWNLOADING = "downloading"  # data and image together: a transition does not say where one ends and the other begins
# Secondary statuses of the SageMaker API reference (read 2026-11-23). What Interrupted and Restarting last and cost is
# assumed: no public job prints them.
_PHASE_OF = {
    **dict.fromkeys(("Starting", "LaunchingMLInstances", "PreparingTrainingStack", "Restarting"), "starting"),
    **dict.fromkeys(("Pending", "Interrupted"), "waiting"),
    **dict.fromkeys(("Downloading", "DownloadingTrainingImage"), DOWNLOADING),
    **dict.fromkeys(("Training", "Stopping"), "training"),
    "Uploading": "uploading",
}
_ENDS = frozenset({"Completed", "Failed", "Stopped", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"})


@dataclass(frozen=True, kw_only=True)
class JobPhases:
    """The seconds and states that a job's transitions show."""

    seconds: Mapping[str, float]  # phase to seconds, `downloading` for data and image; absent without a transition
    billed_seconds: int
    """Whole seconds billed per instance on demand, from the first download to the end: SageMaker counts from whole
    second to whole second, as 19 of 19 public answers with exact times do."""
    has_ended: bool  # whether a final status is among the transitions
    faults: tuple[str, ...] = ()  # what could not be read, a sentence each


@dataclass(frozen=True)
class _Transition:
    status: str
    message: str
    begin: float
    end: float | None


def read_phases(description: Mapping[str, Any], now: float | None = None) -> JobPhases:
    """Return the phases in an answer of DescribeTrainingJob, read as far as it goes.

    Times are datetimes, seconds since the epoch or ISO 8601 texts. The last phase of a job that has not ended lasts
    until `now`, seconds since the epoch, or until the last time in the answer.
    """
    faults: list[str] = []
    raw = description.get("SecondaryStatusTransitions") or ()
    if not isinstance(raw, list | tuple):
        faults.append(f"SecondaryStatusTransitions must be a list, got {type(raw).__name__}")
        raw = ()
    transitions = list(_in_order(_transitions(raw, faults), faults))
    seconds: dict[str, float] = {}
    billed, phase, has_ended = 0, "starting", False
    for transition, following in itertools.zip_longest(transitions, transitions[1:]):
        has_ended = transition.status in _ENDS
        if has_ended:
            break
        phase = _phase(transition, phase, faults)
        last = now if transition.end is None else transition.end
        end = following.begin if following is not None else max(transition.begin, last or transition.begin)
        seconds[phase] = seconds.get(phase, 0.0) + end - transition.begin
        if phase not in UNBILLED:
            billed += math.floor(end) - math.floor(transition.begin)
    if has_ended and not billed and "training" not in seconds and "Completed" in {item.status for item in transitions}:
        faults.append("the job completed without a transition of its training: its bill does not follow from them")
    return JobPhases(seconds=seconds, billed_seconds=billed, has_ended=has_ended, faults=tuple(faults))


def seconds_since_epoch(value: object) -> float | None:
    """Return a time of an AWS answer, a datetime or a number or an ISO 8601 text, as seconds; None if it is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        number = value.timestamp() if isinstance(value, datetime) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _transitions(raw: Iterable[Any], faults: list[str]) -> Iterator[_Transition]:
    """Yield the transitions that have a status and a begin."""
    for number, entry in enumerate(raw, start=1):
        entry = entry if isinstance(entry, Mapping) else {}
        status, begin = entry.get("Status"), seconds_since_epoch(entry.get("StartTime"))
        if not status or begin is None:
            faults.append(f"transition {number} ({status or 'no status'}) has no time that can be read: left out")
            continue
        message = str(entry.get("StatusMessage") or "")
        yield _Transition(str(status), message, begin, seconds_since_epoch(entry.get("EndTime")))


def _in_order(transitions: Iterable[_Transition], faults: list[str]) -> Iterator[_Transition]:
    """Yield the transitions; one that begins before its predecessor begins with it."""
    before: _Transition | None = None
    for item in transitions:
        if before is not None and item.begin < before.begin:
            faults.append(f"{item.status} begins before {before.status}, which precedes it: {before.status} has 0 s")
            item = _Transition(item.status, item.message, before.begin, item.end)
        if item.end is not None and item.end < item.begin:
            faults.append(f"{item.status} ends before it begins")
        yield item
        before = item


def _phase(transition: _Transition, before: str, faults: list[str]) -> str:
    """Return the phase of a transition; that of its predecessor if its status is unknown."""
    if transition.status == "Starting" and "capacity" in transition.message.lower():
        return "waiting"  # "Insufficient capacity error from EC2 while launching instances, retrying!"
    if transition.status not in _PHASE_OF:
        faults.append(f"secondary status {transition.status} is unknown: its seconds count as {before}")
    return _PHASE_OF.get(transition.status, before)
