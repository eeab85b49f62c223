"""Lists and removes what jobs have left in S3: models, checkpoints, and inputs (data, base models, files and code).

S3 keeps objects, and bills them by the month, until somebody removes them.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paretune.core.errors import BadInput, LaunchRefused
from paretune.jobs.record import ENDED
from paretune.presentation.text import plain, usd
from paretune.specification.order import job_of
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.store import Tracking

if TYPE_CHECKING:
    from paretune.launchers.sagemaker.storage import Storage

USD_PER_GB_MONTH = 0.023
"""List price of S3 Standard in us-east-1, first 50 TB (AWS, Amazon S3 pricing, since December 2016)."""
_DAY_S = 86_400.0
_LONGEST_JOB_DAYS = 28  # a job that started earlier has ended: AWS, StoppingCondition
_SHARED = {"datasets": "data", "models": "base models", "files": "files", "code": "code"}


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """Objects in S3 that are removed together."""

    bucket: "Storage"
    prefix: str
    kind: str  # models, checkpoints, data, base models, files or code
    size: int  # bytes
    run_id: str = ""  # run whose job has left them; "" for inputs that jobs share
    why_kept: str = ""  # empty if it may be removed

    def row(self) -> dict[str, object]:
        """Return the fields as a JSON object."""
        facts = {"kind": self.kind, "gigabytes": self.size / 1e9, "run_id": self.run_id, "why_kept": self.why_kept}
        return {"uri": self.bucket.uri(self.prefix), **facts}


def found_in_s3(
    tracking: Tracking, environment: Mapping[str, str], days: float, *, keeps_front: bool = False
) -> tuple[list[Leftover], list[str]]:
    """Return what the jobs of a store have left in their buckets, and remarks on the buckets.

    `why_kept` is set for everything that must stay, such as objects of the last `days` and, with `keeps_front`, the
    models of trials on a front. Raises LaunchRefused if none of the buckets can be read.
    """
    from paretune.launchers.sagemaker.account import Account  # imports boto3
    from paretune.launchers.sagemaker.storage import Storage

    runs_of = dict[tuple[str, str], list[RecordedRun]]()  # runs by the region and bucket that their jobs wrote to
    for run in tracking.runs(f"tags.`{schema.LAUNCHER}` = 'sagemaker' and tags.`{schema.STATE}` != ''"):
        name = None
        with suppress(BadInput):  # somebody has changed the tag
            name = schema.settings_by(run.tags).get("s3_bucket")
        if name:
            runs_of.setdefault((run.tags.get(schema.REGION, ""), name), []).append(run)
    leftovers, remarks, refused, registered = (
        list[Leftover](),
        list[str](),
        list[LaunchRefused](),
        tracking.registered(),
    )
    for (region, name), runs in runs_of.items():
        try:
            bucket = Storage(Account(region or None, environment).client("s3"), name)
            leftovers += _leftovers(bucket, runs, registered, days, keeps_front=keeps_front)
        except LaunchRefused as error:  # such as a bucket of another account, or a deleted one
            refused.append(error)
            continue
        if bucket.keeps_versions:
            remarks.append(
                f"the bucket {name} keeps versions: what is removed stays billed as an earlier version until a "
                "lifecycle rule of the bucket (NoncurrentVersionExpiration) removes it"
            )
    if refused and len(refused) == len(runs_of):
        raise refused[0]
    return leftovers, [*remarks, *map(str, refused)]


def _leftovers(
    bucket: "Storage", runs: Iterable[RecordedRun], registered: Mapping[str, str], days: float, *, keeps_front: bool
) -> Iterator[Leftover]:
    """Yield the models, checkpoints and inputs under our prefix of a bucket, with the reason why each is kept, if any.

    Models and checkpoints are kept if they were written in the last `days`, or if their job still runs, belongs to
    another MLflow store or has gaps in its record. Registered models are kept, and with `keeps_front` the models of
    trials on the front. Inputs that jobs share are kept as long as a recent job may read them.
    """
    owners = sorted(runs, key=lambda run: run.has_job)  # if several runs name a job, its owner comes last and wins
    run_by_job = {job_of(run.tags.get(schema.JOB_NAME, "")): run for run in owners}
    places = dict[tuple[str, str, str], list[tuple[int, float]]]()  # kind, name, prefix to size and time of each object
    newest_job, now = 0.0, time.time()
    for key, entry in bucket.entries("paretune/").items():
        _, kind, name, *rest = [*key.split("/"), "", ""]
        if kind == "jobs":
            newest_job = max(newest_job, entry[1])
            if rest[:1] != ["output"] or not rest[1].startswith("model"):
                continue  # reports and events are small, and `sync` reads them
        prefix = f"paretune/jobs/{name}/output/model" if kind == "jobs" else f"paretune/{kind}/{name}/"
        places.setdefault((kind, name, prefix), []).append(entry)
    is_quiet = now - newest_job > max(days, _LONGEST_JOB_DAYS) * _DAY_S
    for (kind, name, prefix), entries in places.items():
        is_model, is_shared = kind == "jobs", kind in _SHARED
        run = None if is_shared else run_by_job.get(job_of(name) if is_model else name.partition("-ml.")[0])
        run_id, tags = ("", dict[str, str]()) if run is None else (run.run_id, run.tags)
        is_young = now - max(moment for _, moment in entries) <= days * _DAY_S
        uri = bucket.uri(prefix)
        version = next((registered[of] for of in registered if of == run_id or of.startswith(uri)), "")
        reasons = {
            "no run of this store has it": run is None,
            "its job is still running": tags.get(schema.STATE) not in ENDED,
            "its record has gaps, which `paretune sync` fills": tags.get(schema.GAP) == "true",
            f"it is not older than {days:g} days": is_young,
            f"its model is registered as {version}": is_model and version,
            "its trial is on the front": is_model and keeps_front and tags.get(schema.PARETO_RANK) == "0",
        }
        if is_shared:
            reasons = {"a recent job may read it": is_young or not is_quiet}
        why = next((reason for reason, applies in reasons.items() if applies), "")
        kind, size = _SHARED.get(kind, "models" if is_model else kind), sum(size for size, _ in entries)
        yield Leftover(bucket=bucket, prefix=prefix, kind=kind, size=size, run_id=run_id, why_kept=why)


def remove(leftovers: Iterable[Leftover], tracking: Tracking, today: str) -> None:
    """Remove what is not kept, and tag the runs of removed models. Raises LaunchRefused if S3 refuses."""
    for each in leftovers:
        if each.why_kept:
            continue
        each.bucket.remove(each.prefix)
        if each.kind == "models":
            tracking.run(each.run_id).set_tags({schema.NO_MODEL: f"removed from S3 by `paretune clean` on {today}"})


def in_words(leftovers: Iterable[Leftover]) -> str:
    """Return as text the total size in gigabytes, the size of each kind, and the dollars per month."""
    sums = Counter[str]()
    for each in leftovers:
        sums[each.kind] += each.size
    kinds = ", ".join(f"{kind} {plain(size / 1e9, 3)}" for kind, size in sums.most_common())
    gigabytes = sums.total() / 1e9
    price = f"{usd(USD_PER_GB_MONTH)} per GB-month, list price of S3 Standard in us-east-1"
    return f"{plain(gigabytes, 3)} GB in S3 ({kinds}): {usd(gigabytes * USD_PER_GB_MONTH)} a month ({price})"
