"""The phases of a job on SageMaker and their usual seconds, by which an estimate is divided.

`phases.csv` has for each phase and kind of instance the median over public jobs and two standard deviations of the
logarithm: between repositories, which stand for accounts and habits, and between jobs of one repository. `python
benchmarks/public_jobs.py TIMELINES --write` fits them and prints how many jobs of repositories that were left out lie
inside. Source: 555 jobs that public notebooks and threads print, 2018 to 2026, read 2026-11-23.

Waits for capacity are assumed: a few dozen jobs show whether they waited at all. What a job leaves is uploaded in
addition to the usual seconds; the latest that it may take is in `launchers.deadlines`.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist

from paretune.core.noise import Z80
from paretune.specification.catalog import Instance, owner
from paretune.specification.job import JobSpec

PHASES = ("waiting", "starting", "data", "image", "training", "uploading")
"""Waiting for capacity, starting of instances, download of data, pull of the image, training with evaluation, upload.

The first two are not billed.
"""
UNBILLED = frozenset({"waiting", "starting"})

BOOT_SECONDS = 195.0
"""From the container's start to the first step: imports, packages, model, data; a part of the training's phase.

With the medians of the other phases on one GPU it adds up to 360 s, which fine-tunings take around their steps.
"""
UPLOAD_RATE = 200e6  # bytes a second; assumed, because no public job shows an upload of files that are not packed
BOUND_CONFIDENCE = 0.95  # share of jobs whose phase takes no longer than its `bound`
_FAST_NETWORK_GBPS = 100.0  # from there on instances talk by EFA
_MOST_OVERHEAD = 0.9  # of a job's billed seconds, if they are fewer than the usual phases take


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Seconds of a job or of one of its phases, with an interval that holds 80 % of such jobs."""

    seconds: float
    seconds_low: float
    seconds_high: float

    def scaled(self, factor: float) -> "Seconds":
        """Multiply all three by `factor`."""
        return Seconds(**{name: factor * getattr(self, name) for name in ("seconds", "seconds_low", "seconds_high")})


@dataclass(frozen=True, kw_only=True)
class UsualSeconds(Seconds):
    """Seconds of a phase on a kind of instance."""

    bound: float  # seconds that BOUND_CONFIDENCE of jobs stay within, whichever account they are of
    longest: float  # of all public jobs on such instances; on any GPU for those


def kind_of(instance: Instance) -> str:
    """Return the kind of an instance: `cpu`, `gpu` (one accelerator), `multi_gpu` (several, or EFA)."""
    if not instance.accelerator_count:
        return "cpu"
    is_large = instance.accelerator_count > 1 or instance.network_gbps >= _FAST_NETWORK_GBPS
    return "multi_gpu" if is_large else "gpu"


def usual(phase: str, kind: str) -> UsualSeconds:
    """Return the seconds of a phase on a kind of instance; `any` if the instance is unknown."""
    return _table()[phase, kind]


def phases_of(
    total: Seconds, spec: JobSpec, *, factor: float = 1.0, uploaded_bytes: float = 0.0
) -> Mapping[str, Seconds]:
    """Divide the billed seconds of a job among its phases; waiting and starting come in addition and are not billed.

    `factor` is what earlier jobs took around their steps, against the usual. A job whose files do not travel
    only trains.
    """
    if not (spec.has_instances and owner(spec.instance_type).files_travel):
        return {"training": total}
    kind = kind_of(spec.instance())
    billed = {phase: usual(phase, kind).scaled(factor) for phase in ("data", "image", "uploading")}
    upload = billed["uploading"]
    billed["uploading"] = upload.scaled(1 + uploaded_bytes / UPLOAD_RATE / upload.seconds)
    overhead = sum(phase.seconds for phase in billed.values())
    share = min(1.0, _MOST_OVERHEAD * total.seconds / overhead)
    billed = {phase: seconds.scaled(share) for phase, seconds in billed.items()}
    training = total.scaled(1 - share * overhead / total.seconds) if total.seconds else total
    seconds = {phase: usual(phase, kind) for phase in ("waiting", "starting")} | billed | {"training": training}
    return {phase: seconds[phase] for phase in PHASES}


@cache
def _table() -> Mapping[tuple[str, str], UsualSeconds]:
    lines = files("paretune.estimating").joinpath("phases.csv").read_text(encoding="utf-8").splitlines()
    return {(row["phase"], row["kind"]): usual_of_row(row) for row in csv.DictReader(lines)}


def usual_of_row(row: Mapping[str, str]) -> UsualSeconds:
    """Return the seconds in a row of phases.csv."""
    median, longest = float(row["median_seconds"]), float(row["longest_seconds"])
    if row["most_seconds"]:  # most jobs wait for nothing: the interval is that of counted jobs
        most = float(row["most_seconds"])
        return UsualSeconds(seconds=median, seconds_low=0.0, seconds_high=most, bound=longest, longest=longest)
    deviation = math.hypot(float(row["between"]), float(row["within"]))
    width, most = (math.exp(z * deviation) for z in (Z80, NormalDist().inv_cdf(BOUND_CONFIDENCE)))
    return UsualSeconds(
        seconds=median, seconds_low=median / width, seconds_high=median * width, bound=median * most, longest=longest
    )
