"""The phases of a job's life, and its bill, from the status transitions that DescribeTrainingJob reports."""

import itertools
import math
from collections.abc import Mapping
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
FINAL = frozenset({"Completed", "Failed", "Stopped", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"})


@dataclass(frozen=True, kw_only=True)
class JobPhases:
    """The seconds that a job's transitions show."""

    seconds: Mapping[str, float]  # phase to seconds, `downloading` for data and image; absent without a transition
    billed_seconds: int
    """Whole seconds billed per instance on demand, from the first download to the end: SageMaker counts from whole
    second to whole second, as 19 of 19 public answers with exact times do."""


def read_phases(description: Mapping[str, Any], now: float | None = None) -> JobPhases:
    """The phases in an answer of DescribeTrainingJob; a transition without a time is left out.

    Times are datetimes, seconds since the epoch or ISO 8601 texts. The last phase of a job that has not ended lasts
    until `now`, seconds since the epoch, or until the last time in the answer. A transition that begins before its
    predecessor begins with it, and one of an unknown status belongs to the phase before it.
    """
    entries = description.get("SecondaryStatusTransitions") or ()
    times = [(seconds_since_epoch(item.get("StartTime")), item) for item in entries]
    known = [(begin, item) for begin, item in times if begin is not None]
    begins = list(itertools.accumulate((begin for begin, _ in known), max))
    seconds: dict[str, float] = {}
    billed, phase = 0, "starting"
    for number, (begin, (_, item)) in enumerate(zip(begins, known, strict=True)):
        if item.get("Status") in FINAL:
            break
        phase = _PHASE_OF.get(item.get("Status", ""), phase)
        if item.get("Status") == "Starting" and "capacity" in (item.get("StatusMessage") or "").lower():
            phase = "waiting"  # "Insufficient capacity error from EC2 while launching instances, retrying!"
        is_last = number == len(known) - 1
        end = max(begin, seconds_since_epoch(item.get("EndTime")) or now or begin) if is_last else begins[number + 1]
        seconds[phase] = seconds.get(phase, 0.0) + end - begin
        billed += 0 if phase in UNBILLED else math.floor(end) - math.floor(begin)
    return JobPhases(seconds=seconds, billed_seconds=billed)


def seconds_since_epoch(value: object) -> float | None:
    """A time of an AWS answer, a datetime or a number or an ISO 8601 text, as seconds; None if it is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        number = value.timestamp() if isinstance(value, datetime) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
