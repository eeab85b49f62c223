"""Reads the phases of a SageMaker job from a response of DescribeTrainingJob."""

import itertools
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

DOWNLOADING = "downloading"  # data and image together: the transitions do not show where one ends and the other begins
# Secondary statuses of the SageMaker API reference (read 2026-11-23). The phases of Interrupted and Restarting
# are assumed, because no public log of a job shows these statuses.
_PHASE_OF = {
    **dict.fromkeys(("Starting", "LaunchingMLInstances", "PreparingTrainingStack", "Restarting"), "starting"),
    **dict.fromkeys(("Pending", "Interrupted"), "waiting"),
    **dict.fromkeys(("Downloading", "DownloadingTrainingImage"), DOWNLOADING),
    **dict.fromkeys(("Training", "Stopping"), "training"),
    "Uploading": "uploading",
}
FINAL = frozenset({"Completed", "Failed", "Stopped", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"})


def read_phases(description: Mapping[str, Any], now: float | None = None) -> dict[str, float]:
    """Return the seconds of each phase in a response of DescribeTrainingJob. `downloading` is both data and image.

    Times may be datetimes, seconds since the epoch or ISO 8601 strings. A transition without a start is left out. One
    that starts before its predecessor is counted from the predecessor's start. One with an unknown status belongs to
    the phase before it. If the last transition has no end, it lasts until `now` (seconds since the epoch), or 0 s
    without `now`.
    """
    entries = description.get("SecondaryStatusTransitions") or ()
    dated = [(begin, item) for item in entries if (begin := seconds_since_epoch(item.get("StartTime"))) is not None]
    begins = list(itertools.accumulate((begin for begin, _ in dated), max))
    seconds, phase = dict[str, float](), "starting"
    for number, (begin, (_, item)) in enumerate(zip(begins, dated, strict=True)):
        if item.get("Status") in FINAL:
            break
        phase = _PHASE_OF.get(item.get("Status", ""), phase)
        if item.get("Status") == "Starting" and "capacity" in (item.get("StatusMessage") or "").lower():
            phase = "waiting"  # "Insufficient capacity error from EC2 while launching instances, retrying!"
        is_last = number == len(dated) - 1
        end = max(begin, seconds_since_epoch(item.get("EndTime")) or now or begin) if is_last else begins[number + 1]
        seconds[phase] = seconds.get(phase, 0.0) + end - begin
    return seconds


def seconds_since_epoch(value: object) -> float | None:
    """Convert a time from AWS (a datetime, number or ISO 8601 string) to epoch seconds; None for other values."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        number = value.timestamp() if isinstance(value, datetime) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
