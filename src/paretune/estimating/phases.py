"""The phases of a job on SageMaker, and their usual seconds, which are used to divide an estimate into phases.

For each phase except training, and each kind of instance, `phases.csv` has the median over public jobs and, except for
waits, two standard deviations of the logarithm of seconds: `between` repositories, which represent accounts and habits,
and `within` one repository. Source: 555 jobs whose logs were printed in public notebooks and threads, 2018 to 2026,
read 2026-11-23. `python benchmarks/public_jobs.py TIMELINES --fit` fits the table. It also leaves out each repository
in turn, and prints how many jobs of that repository lie inside the intervals of the fit to the others.

Waits for capacity are poorly known: only a few dozen public jobs show whether they waited. The time to upload a job's
model is not part of the usual seconds. The longest upload that a worst case allows for is in
`launchers.deadlines`.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import NormalDist

from paretune.core.noise import Z80
from paretune.specification.catalog import Instance, owner

PHASES = ("waiting", "starting", "data", "image", "training", "uploading")
"""Waiting for capacity, starting of instances, download of the data, pull of the image, training with evaluation, and
upload. The first two are not billed.
"""
UNBILLED = frozenset({"waiting", "starting"})

BOOT_SECONDS = 195.0
"""Seconds from the start of the container to the first step: imports, packages, model, data. Part of `training`.

Together with the medians of the other billed phases on one GPU this is 360 s, the time that fine-tuning jobs take
outside their steps.
"""
UPLOAD_RATE = 200e6  # bytes per second; assumed, because no public job shows an upload of unpacked files
PACK_RATE = 9.3e6
"""Bytes per second at which SageMaker packs and uploads the folder of a model. Two public jobs (T0249 and T0374,
DistilBERT on ml.p3.2xlarge) took 371 and 379 s to upload 3.48 GB: the model and four checkpoints, because they had
2,105 steps. gzip alone packs such files at 14 to 21 MB/s (measured on 2026-11-28, zlib level 6, one thread of an Intel
Xeon with amx_bf16)."""
BOUND_CONFIDENCE = 0.95  # share of jobs whose phase takes no longer than its `bound`
_FAST_NETWORK_GBPS = 100.0  # instances with at least this bandwidth use EFA
_MOST_OVERHEAD = 0.9  # largest share of a job's billed seconds that phases other than training get


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Seconds of a job or of one of its phases, with an interval that contains 80 % of such jobs."""

    seconds: float
    seconds_low: float
    seconds_high: float

    def scaled(self, factor: float) -> "Seconds":
        """Return all three multiplied by `factor`."""
        return Seconds(**{name: factor * getattr(self, name) for name in ("seconds", "seconds_low", "seconds_high")})


@dataclass(frozen=True, kw_only=True)
class UsualSeconds(Seconds):
    """The usual seconds of a phase on a kind of instance."""

    bound: float  # over all accounts, the share BOUND_CONFIDENCE of jobs takes at most this long; for waits, `longest`
    longest: float  # longest of all public jobs on such instances; `gpu` and `multi_gpu` have the same figure


def kind_of(instance: Instance) -> str:
    """Return the kind of an instance: `cpu`, `gpu` (one accelerator), or `multi_gpu` (several, or a fast network)."""
    if not instance.accelerator_count:
        return "cpu"
    is_large = instance.accelerator_count > 1 or instance.network_gbps >= _FAST_NETWORK_GBPS
    return "multi_gpu" if is_large else "gpu"


def usual(phase: str, kind: str) -> UsualSeconds:
    """Return the seconds of a phase on a kind of instance. The kind `any` covers all instances."""
    return _table()[phase, kind]


def phases_of(
    total: Seconds, instance: Instance | None, *, factor: float = 1.0, upload_seconds: float = 0.0
) -> Mapping[str, Seconds]:
    """Divide the billed seconds of a job on instances of a type among its phases, and add those that are not billed.

    `factor` is the time that earlier jobs took before and after their steps, divided by the usual time.
    `upload_seconds` is the time to upload the model. Without an instance, or if its launcher uploads no files,
    `training` is the only phase. A billed phase takes at most what the whole job may take without the others.
    """
    if instance is None or not owner(instance.instance_type).files_travel:
        return {"training": total}
    kind = kind_of(instance)
    billed = {phase: usual(phase, kind).scaled(factor) for phase in ("data", "image", "uploading")}
    upload = billed["uploading"]
    billed["uploading"] = upload.scaled(1 + upload_seconds / upload.seconds)
    overhead = sum(phase.seconds for phase in billed.values())
    share = min(1.0, _MOST_OVERHEAD * total.seconds / overhead)
    billed = {phase: seconds.scaled(share) for phase, seconds in billed.items()}
    training = total.scaled(1 - share * overhead / total.seconds) if total.seconds else total
    billed["training"] = training
    lows = sum(phase.seconds_low for phase in billed.values())
    most = {name: total.seconds_high - (lows - phase.seconds_low) for name, phase in billed.items()}
    billed = {name: replace(phase, seconds_high=min(phase.seconds_high, most[name])) for name, phase in billed.items()}
    seconds = {phase: usual(phase, kind) for phase in ("waiting", "starting")} | billed
    return {phase: seconds[phase] for phase in PHASES}


@cache
def _table() -> Mapping[tuple[str, str], UsualSeconds]:
    lines = files("paretune.estimating").joinpath("phases.csv").read_text(encoding="utf-8").splitlines()
    return {(row["phase"], row["kind"]): usual_of_row(row) for row in csv.DictReader(lines)}


def usual_of_row(row: Mapping[str, str]) -> UsualSeconds:
    """Return the seconds in a row of phases.csv."""
    median, longest = float(row["median_seconds"]), float(row["longest_seconds"])
    if row["most_seconds"]:  # most waits are 0, so their interval comes from counting jobs, not from deviations
        most = float(row["most_seconds"])
        return UsualSeconds(seconds=median, seconds_low=0.0, seconds_high=most, bound=longest, longest=longest)
    deviation = math.hypot(float(row["between"]), float(row["within"]))
    width, most = (math.exp(z * deviation) for z in (Z80, NormalDist().inv_cdf(BOUND_CONFIDENCE)))
    return UsualSeconds(
        seconds=median, seconds_low=median / width, seconds_high=median * width, bound=median * most, longest=longest
    )
