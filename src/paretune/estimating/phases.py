"""The phases of a job on SageMaker: their usual seconds, those of the upload, and those that its transitions show.

`phases.csv` has for each phase and kind of instance the median over public jobs and two standard deviations of the
logarithm: between repositories, which stand for accounts and habits, and between jobs of one repository. `python
benchmarks/public_jobs.py TIMELINES --write` fits them and tells how many jobs of repositories that were left out lie
inside. Source: 555 jobs that public notebooks and threads print, 2018 to 2026, read 2026-11-23.

Waits for capacity are assumed: a few dozen jobs show whether they waited at all.

What a job leaves is uploaded in addition to the usual seconds, and the training must stop for it in time:

    upload = START + bytes / RATE              billed after the training; outside AWS's MaxRuntimeInSeconds
    deadline = limit - BEFORE_CONTAINER - saving       seconds after the container's start at which the training stops

Files are uploaded as they are (CompressionType NONE), which no public job shows: its rate is assumed, and its bound at
about the slowest rate of public jobs that pack a known model with gzip before (read 2026-11-23): DistilBERT, 0.27 GB,
in 26 to 58 s; Stable Diffusion, 4.3 GB, in 582 s; GPT-J, 12.1 GB, in 1,029 and 1,077 s. Nobody knows what a script or a
project leaves: its bound holds for 95 % of public jobs on such instances, 96 % of those of repositories that were left
out, and its first upload may take twice as long as the longest of them; all of them pack, which should take longer.
`benchmarks/public_jobs.py` measures all but the rates of known models.
"""

import csv
import itertools
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.untrusted import is_folder
from paretune.estimating.architecture import Architecture, architecture_of, well_known
from paretune.estimating.noise import Z80
from paretune.estimating.workload import trained_weights
from paretune.specification.catalog import Instance
from paretune.specification.inputs import IN_S3
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.specification.parallelism import DEEPSPEED

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
        """All three times `factor`."""
        return Seconds(**{name: factor * getattr(self, name) for name in ("seconds", "seconds_low", "seconds_high")})


@dataclass(frozen=True, kw_only=True)
class UsualSeconds(Seconds):
    """Seconds of a phase on a kind of instance."""

    bound: float  # seconds that BOUND_CONFIDENCE of jobs stay within, whichever account they are of
    longest: float  # of all public jobs on such instances; on any GPU for those


def kind_of(instance: Instance) -> str:
    """The kind of an instance: `cpu`, `gpu` for one accelerator, `multi_gpu` for several or a network of EFA."""
    if not instance.accelerator_count:
        return "cpu"
    is_large = instance.accelerator_count > 1 or instance.network_gbps >= _FAST_NETWORK_GBPS
    return "multi_gpu" if is_large else "gpu"


def usual(phase: str, kind: str) -> UsualSeconds:
    """The seconds of a phase on a kind of instance; `any` where the instance is not known."""
    return _table()[phase, kind]


def overhead_s(kind: str) -> float:
    """The billed seconds of a usual job before its first step and after its last, without its model's upload."""
    return BOOT_SECONDS + sum(usual(phase, kind).seconds for phase in ("data", "image", "uploading"))


def phases_of(
    total: Seconds, spec: JobSpec, *, factor: float = 1.0, uploaded_bytes: float = 0.0
) -> Mapping[str, Seconds]:
    """Divide the billed seconds of a job among its phases; waiting and starting come in addition and are not billed.

    `factor` is what earlier jobs took around their steps, against the usual. A job on this machine only trains.
    """
    if not spec.has_instances:
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
    """The seconds of a row of phases.csv."""
    median, longest = float(row["median_seconds"]), float(row["longest_seconds"])
    if row["most_seconds"]:  # most jobs wait for nothing: the interval is that of counted jobs
        most = float(row["most_seconds"])
        return UsualSeconds(seconds=median, seconds_low=0.0, seconds_high=most, bound=longest, longest=longest)
    deviation = math.hypot(float(row["between"]), float(row["within"]))
    width, most = (math.exp(z * deviation) for z in (Z80, NormalDist().inv_cdf(BOUND_CONFIDENCE)))
    return UsualSeconds(
        seconds=median, seconds_low=median / width, seconds_high=median * width, bound=median * most, longest=longest
    )


SCRIPT_BYTES = 1e9
"""The output of a script counts with this, or with the size of `model`."""
UNKNOWN_MODEL_BYTES = 4e9  # stands for a model whose size nobody tells before the launch: a billion weights in fp32
BEFORE_CONTAINER_S = 200.0
"""Seconds billed before the container starts that the deadline leaves room for: data and image usually take 167 s
on several GPUs, and less on others."""
LONGEST_BEFORE_CONTAINER_S = 300.0
"""The same of 19 of 20 public jobs. AWS alone stops as late: 841 s after a limit of 603 (sagemaker-python-sdk#4451)
and 350 after 60 (airflow#33982), because its limit does not count them."""
LONGEST_SHARE = 2.0
"""The first upload of a script counts with so many times the longest public one: leaving out each repository in turn,
no longest upload of the others was exceeded by more (1,077 against 582 s)."""
# Margins of the worst case; the first and the third are those of scripts, too.
_START_S = 60.0  # bound of the seconds until an upload begins and after it
_SLOWEST_UPLOAD_BYTES_PER_S = 10e6  # assumed
_SAVING_BYTES_PER_S = 500e6  # of a checkpoint to the instance's own disk; assumed


def written_shares(spec: JobSpec, built: Architecture | None) -> tuple[float, float]:
    """The sizes of the trained model and of one checkpoint, as multiples of all weights in fp32.

    A checkpoint holds weights and two moments of Adam for each trained weight. DeepSpeed writes the weights twice more,
    in the model's and in its own format. Adapters are written without the frozen weights; merged, they are as large as
    the pretrained model. A head counts as half of all weights: the output layer of a small language model.
    Without an architecture, adapters count as all weights.
    """
    if spec.fine_tuning in ADAPTERS and built is not None:
        share = trained_weights(spec, built) / built.parameters
        return share, 3 * share
    if spec.fine_tuning == "head":
        return 1.0, 2.0
    return 1.0, 5.0 if spec.strategy in DEEPSPEED else 3.0


def output_bytes(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """The most bytes that a job leaves in its model folder; for scripts and projects an allowance."""
    if spec.runs_user_code:
        names_model = "model" in spec.changed() and spec.project is None
        return max(SCRIPT_BYTES, _fp32_bytes(spec, environment) if names_model else 0.0)
    if spec.probe_steps is not None:
        return 0.0
    merged = spec.fine_tuning in ADAPTERS and spec.lora.merge
    share = written_shares(spec, _architecture(spec, environment))[0] + (1.0 if merged else 0.0)
    return share * _fp32_bytes(spec, environment)


def longest_upload_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """The bound of the seconds of a job's upload that its worst case counts with."""
    size = output_bytes(spec, environment)
    seconds = _START_S + size / _SLOWEST_UPLOAD_BYTES_PER_S
    if not spec.runs_user_code:
        return seconds
    public_s = usual("uploading", kind_of(spec.instance())).bound
    return public_s if size <= SCRIPT_BYTES else max(public_s, seconds)


def first_upload_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """The seconds beyond its bound that a study reserves until it has seen an upload; 0 for paretune's training.

    Only the script or project itself decides what it leaves, and all jobs of a study leave alike.
    """
    if not (spec.runs_user_code and spec.has_instances):
        return 0.0
    longest = LONGEST_SHARE * usual("uploading", kind_of(spec.instance())).longest
    return max(0.0, longest - longest_upload_s(spec, environment))


def deadline_s(spec: JobSpec, limit_s: float, environment: Mapping[str, str]) -> float:
    """The seconds after its container's start at which a training with this maximum runtime stops itself.

    What is billed before it and a checkpoint fit into the limit; but the training has at least half of it.
    """
    return max(limit_s / 2, limit_s - BEFORE_CONTAINER_S - _saving_s(spec, environment))


def billed_after_limit_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """The most seconds that a job is billed beyond its maximum runtime: a late stop, saving and the upload."""
    limit_s = spec.max_runtime_minutes * 60
    late_s = LONGEST_BEFORE_CONTAINER_S - BEFORE_CONTAINER_S
    stopped_s = LONGEST_BEFORE_CONTAINER_S + deadline_s(spec, limit_s, environment) + _saving_s(spec, environment)
    return max(late_s, stopped_s - limit_s) + longest_upload_s(spec, environment)


def _saving_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    if spec.runs_user_code:
        return 0.0
    checkpoint = written_shares(spec, _architecture(spec, environment))[1]
    return checkpoint * _fp32_bytes(spec, environment) / _SAVING_BYTES_PER_S


def _fp32_bytes(spec: JobSpec, environment: Mapping[str, str]) -> float:
    built = _architecture(spec, environment)
    return UNKNOWN_MODEL_BYTES if built is None else 4.0 * built.parameters


def _architecture(spec: JobSpec, environment: Mapping[str, str]) -> Architecture | None:
    of_hub = tuple(item for item in environment.items() if item[0].startswith("HF_"))
    return _architecture_of(spec.model, spec.task, of_hub)


@lru_cache(maxsize=256)
def _architecture_of(model: str, task: str, environment: tuple[tuple[str, str], ...]) -> Architecture | None:
    if well_known(model) is None and not is_folder(model) and ("/" not in model or model.startswith(IN_S3)):
        return None
    with suppress(BadInput):  # preparing the job's inputs says so
        return architecture_of(model, task, dict(environment))
    return None


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


def read_phases(description: Mapping[str, Any], now: float | None = None) -> dict[str, float]:
    """The seconds of each phase in an answer of DescribeTrainingJob, `downloading` for data and image.

    Times are datetimes, seconds since the epoch or ISO 8601 texts; a transition without one is left out. The last phase
    of a job that has not ended lasts until `now`, seconds since the epoch, or until the last time in the answer. A
    transition that begins before its predecessor begins with it, and one of an unknown status belongs to the phase
    before it.
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
    """A time of an AWS answer, a datetime or a number or an ISO 8601 text, as seconds; None if it is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        number = value.timestamp() if isinstance(value, datetime) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
