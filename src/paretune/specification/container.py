"""What the launching wing and the training wing say to each other: an /opt/ml-shaped folder and three JSON formats.

    ROOT/input/data/job/job.json      one JSON document: what to train            (JobDocument)
    ROOT/input/data/dataset/          the prepared data set
    ROOT/input/data/model/            the model to start from
    ROOT/checkpoints/                 survives a stopped job; where the next one with the same specification continues
    ROOT/model/                       the trained model
    ROOT/output/data/events.jsonl     one JSON object a line, while it runs        (Event)
    ROOT/output/data/report.json      what came out                                (JobReport)
    ROOT/output/data/profile/         where its time went, of a job with profile_steps
    ROOT/output/failure               why it failed: kind, colon, one sentence

A shared job trains several trials. What is a trial's own lies in a folder `members/KEY` below the one of a job of its
own (model/members/KEY, checkpoints/members/KEY, ...); events of all are in the one file, and say of whom they tell.

The layout is that of a SageMaker training container, so the training wing runs unchanged there and on a laptop.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from paretune.core.tags import Attribution
from paretune.core.untrusted import parse_json
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec

ALLOW_NO_GPU = "PARETUNE_ALLOW_NO_GPU"
"""Variable that is 1 for an emulated account: jobs on GPU instances may train without the GPU that AWS would bill."""
TRIALS = "PARETUNE_TRIALS"
"""Variable that says how many trials a shared job on SageMaker has."""
STOP_REQUESTS = "PARETUNE_STOP_REQUESTS"
"""Variable with the S3 URI below which an object named after a trial asks for the end of that trial."""
TRAINING_PLAN = "PARETUNE_TRAINING_PLAN"
"""Variable with the ARN of the training plan that a job on SageMaker was asked for with."""
PROFILE = "profile"
"""Folder of a profile, in what a job leaves and in the artifacts of its run."""
PROFILE_JSON = "profile.json"
"""The file of a profile that programs read; its `summary` is one line for people."""
CHECKPOINTS_KEPT = 2
"""Checkpoints that a SageMaker job keeps: the newest one may be incomplete in S3."""

TELLS = "paretune: "
"""Begins a line in which a process that prepares inputs says how far it is."""


_LONGEST_S = 28 * 86_400  # what SageMaker lets a training job run (quota, read 2026-11-20)
_LATEST = 1e11  # seconds since the epoch, about the year 5138: beyond it a time is none


class FailureKind(Enum):
    """What a failed job asks of its launcher."""

    OUT_OF_MEMORY = "out_of_memory"  # try again with a smaller per-device batch
    BAD_INPUT = "bad_input"  # nothing helps but another request
    DISK_FULL = "disk_full"  # make room, or ask for a larger volume
    DIVERGED = "diverged"  # the loss is NaN or infinite: a lower learning rate; the same job would do so again
    CAPACITY = "capacity"  # there was no instance to run on: try again later, or with another instance type
    OFF_PLAN = "off_plan"  # it would run on demand instead of on its training plan: the same job would do so again
    CROWDED = "crowded"  # of a trial that was trained side by side with others, out of memory: try it by itself
    UNTRIED = "untried"  # of a trial in a shared job that ended before the trial began: try it in another job
    ERROR = "error"  # anything else; the log tells


_MEMBERS = "members"
_HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # or a whole one, as two escapes


class _Below:
    """A path below the root of a job's folder as an attribute of the folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, folder: "JobFolder", _: type) -> Path:
        return folder.root / self._path


class _Own(_Below):
    """The same for a path that each trial of a shared job has for itself: `output/data/x` is `.../members/KEY/x`."""

    def __get__(self, folder: "JobFolder", owner: type) -> Path:
        path = super().__get__(folder, owner)
        if not folder.member:
            return path
        parent, name = (path, "") if self._path in {"model", "checkpoints"} else (path.parent, path.name)
        return parent / _MEMBERS / folder.member / name


@dataclass(frozen=True)
class JobFolder:
    """Names of the files of one job, or of one `member` of a shared job. `root` is /opt/ml on SageMaker."""

    root: Path
    member: str = ""

    document = _Below("input/data/job/job.json")  # the job document
    resource_config = _Below("input/config/resourceconfig.json")
    """The instances of the cluster, as SageMaker tells each of them; not there on a laptop."""
    dataset = _Below("input/data/dataset")  # the prepared data set
    model_source = _Below("input/data/model")  # the model to start from: a Hugging Face folder
    checkpoints = _Own("checkpoints")  # checkpoints of this specification
    model = _Own("model")  # the trained model
    events = _Below("output/data/events.jsonl")  # events, one JSON object a line
    report = _Own("output/data/report.json")  # the report; there only when the job has finished
    profile = _Own(f"output/data/{PROFILE}")  # trace.json.gz, profile.json, profile.md
    failure = _Below("output/failure")  # why the job failed
    stopped = _Own("output/stopped")
    """There when the training stopped before its end because it was asked to, with a checkpoint."""
    stop_request = _Own("input/stop")
    """There when a trial of a shared job is to stop, with a checkpoint, while the others go on."""
    log = _Below("output/job.log")  # everything the job printed

    def of_member(self, key: str) -> "JobFolder":
        """The files of one trial of a shared job."""
        return replace(self, member=key)

    def make(self) -> None:
        """Create the folders a job reads from and writes to."""
        for path in (self.document.parent, self.model, self.events.parent):
            path.mkdir(parents=True, exist_ok=True)

    def write_failure(self, kind: FailureKind, sentence: str) -> None:
        """Say why the job failed; the first reason is kept, for it is the cause of the later ones."""
        self.failure.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), self.failure.open("x") as file:
            file.write(f"{kind.value}: {sentence}\n")

    def read_failure(self) -> tuple[FailureKind, str] | None:
        """Kind and sentence, or None when the job wrote none. A file of another program's is of kind ERROR."""
        try:
            text = self.failure.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None
        kind, _, sentence = text.partition(": ")
        with contextlib.suppress(ValueError):
            return FailureKind(kind), sentence
        return FailureKind.ERROR, text


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The instances of a SageMaker cluster, seen from one of them; processes meet at `names[0]`, the same for all.

    `instance_type` is theirs; empty where SageMaker has not said it.
    """

    names: tuple[str, ...]
    current: str
    network_interface: str
    instance_type: str = ""

    @property
    def rank(self) -> int:
        """Number of this instance, from 0."""
        return self.names.index(self.current)

    @classmethod
    def read(cls, path: Path) -> "Hosts | None":
        """The hosts that SageMaker's resourceconfig.json names; None where there is no such file."""
        if not path.exists():
            return None
        raw = json.loads(path.read_text())
        names = tuple(sorted(raw["hosts"], key=lambda name: (len(name), name)))  # algo-2 before algo-10
        return cls(
            names=names,
            current=raw["current_host"],
            network_interface=raw["network_interface_name"],
            instance_type=raw.get("current_instance_type", ""),
        )


@dataclass(frozen=True, kw_only=True)
class PreparedDataset:
    """A data set that is split and tokenised: where it lies and what is known about it.

    `key` is a digest of rows, split, tokenizer and length; equal keys mean equal bytes. `labels` are the class names in
    the order of their ids, empty for causal-lm. `facts` are metrics of the data alone: rows, tokens, baselines.
    `validation_rows` is a digest of the rows that models are judged on: their texts, labels and the class names,
    whatever the tokenizer and the training rows; empty where an earlier version has prepared them.
    """

    key: str
    folder: Path
    labels: tuple[str, ...]
    facts: Mapping[str, float]
    validation_rows: str = ""

    @classmethod
    def read(cls, folder: Path) -> "PreparedDataset":
        """The prepared data set in `folder`."""
        raw = json.loads((folder / "dataset.json").read_text())
        rows = raw.get("validation_rows", "")
        return cls(key=raw["key"], folder=folder, labels=tuple(raw["labels"]), facts=raw["facts"], validation_rows=rows)

    def write(self) -> None:
        """Write the description beside the rows, last of all: its presence means the folder is complete."""
        described = {"key": self.key, "labels": self.labels, "facts": dict(self.facts)}
        write_json(self.folder / "dataset.json", described | {"validation_rows": self.validation_rows})


@dataclass(frozen=True, kw_only=True)
class ProjectPayload:
    """Somebody's command, which a job runs in place of our training.

    Attributes:
        code: name in the job's current folder to the file that travels there.
        program: the Python file among them that starts it; its argument is the root of the job's folder.
        document: what it finds as input/data/job/job.json; the launcher adds `run_id` where it is absent.
        inputs: channel name to a file or folder on the launching machine.
        beside: name in the current folder of a job on this machine to a file or folder that is linked there.
    """

    code: Mapping[str, Path]
    program: str
    document: Mapping[str, Any]
    beside: Mapping[str, Path] = field(default_factory=dict)
    inputs: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobInputs:
    """What a job reads, as it lies on the launching machine: prepared rows and the model to start from.

    Both are None when a script or project finds its own; `project` is what runs in place of our training.
    """

    dataset: PreparedDataset | None = None
    model: Path | None = None
    project: ProjectPayload | None = None


@dataclass(frozen=True, kw_only=True)
class JobDocument:
    """Everything the training wing is told; `spent_seconds` is what earlier attempts of the same job took.

    `checkpoint_key` is the hash of the specification whose checkpoints the job shares; its own where it is empty.
    `members` are the trials of a shared job, in the order in which they are trained; its own specification is that of
    the first one. The name of a member ends with a dot and its key.
    `plans` are the batches on the types that SageMaker may choose in place of the one that was asked for, best first;
    empty where it has no choice.
    `attribution` is for the launcher, and does not travel into the job.
    """

    job_name: str
    spec: JobSpec
    plan: BatchPlan
    attempt: int = 1
    spent_seconds: float = 0.0
    checkpoint_key: str = ""
    members: "tuple[JobDocument, ...]" = ()
    plans: Mapping[str, BatchPlan] = field(default_factory=dict)

    attribution: Attribution = field(default_factory=Attribution)

    @classmethod
    def first(
        cls, job_name: str, spec: JobSpec, plan: BatchPlan | None = None, attribution: Attribution | None = None
    ) -> "JobDocument":
        """That of a first attempt, which begins with `plan`; by default with the batch that was asked for."""
        others = spec.clusters()[1:] if spec.ranks_instance_types else ()
        plans = {other.instance_type: other.plan() for other in others}
        whose = attribution or Attribution()
        return cls(job_name=job_name, spec=spec, plan=plan or spec.plan(), plans=plans, attribution=whose)

    def on(self, instance_type: str) -> "JobDocument":
        """What it says to a job on an instance type that SageMaker has chosen; the same where it had no choice."""
        if instance_type not in self.plans:
            return self
        spec = self.spec.on_instance_type(instance_type)
        return replace(self, spec=spec, plan=self.plans[instance_type], plans={})

    @property
    def clusters(self) -> tuple[JobSpec, ...]:
        """The job on each type that SageMaker may choose, best first; on its only one where there is no choice."""
        return (self.spec, *(self.on(name).spec for name in self.plans))

    @property
    def member(self) -> str:
        """Key of a trial in its shared job; empty for a job of its own."""
        return self.job_name.partition(".")[2]

    @property
    def max_seconds(self) -> float:
        """The longest this attempt may run: the limit of the specification less what earlier attempts took.

        The limits of all trials together of a shared job.
        """
        if self.members:
            return min(_LONGEST_S, sum(document.max_seconds for document in self.members))
        return self.spec.max_runtime_minutes * 60 - self.spent_seconds

    def as_json(self) -> dict[str, Any]:
        """The document as JSON values."""
        own = {**vars(self), "spec": self.spec.as_text(), "plan": asdict(self.plan)}
        del own["attribution"]
        own["plans"] = {name: asdict(plan) for name, plan in self.plans.items()}
        return own | {"members": [document.as_json() for document in self.members]}

    @classmethod
    def read(cls, path: Path) -> "JobDocument":
        """The document in `path`, checked again; the file may hold more than it."""
        return cls.from_json(json.loads(path.read_text()))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "JobDocument":
        """The document that `as_json` has made, in this version or an earlier one, checked again."""
        plain = {name: raw[name] for name in ("job_name", "attempt", "spent_seconds")}
        plain["checkpoint_key"] = raw.get("checkpoint_key", "")  # a document of version 0.1 has none
        plain["members"] = tuple(map(cls.from_json, raw.get("members", ())))
        plain["plans"] = {name: BatchPlan(**plan) for name, plan in raw.get("plans", {}).items()}
        return cls(spec=JobSpec.from_text(raw["spec"]), plan=BatchPlan(**raw["plan"]), **plain)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something a job tells while it runs.

    Attributes:
        time: seconds since the epoch.
        step: optimiser steps done, of `total_steps` in all, where known.
        metrics: metric name to value, finite values only.
        message: one sentence for people; empty for plain measurements.
        member: key of the trial of a shared job that it tells of; empty for the whole job.
        ended: how that trial has ended, told once, see `MemberEnd`; empty before.
    """

    time: float
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    total_steps: int | None = None
    member: str = ""
    ended: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """One line of JSON, without a line end."""
        return json.dumps({name: value for name, value in asdict(self).items() if value not in ({}, "", None)})

    @classmethod
    def from_line(cls, line: str) -> "Event":
        """The event on one line of JSON."""
        return cls(**parse_json(line))


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """What came out of a job.

    Attributes:
        metrics: metric name to value (see `metrics.py` for names and units).
        facts: what the figures depend on: device, precision, effective batch, versions, library of the model.
        labels: C class names; empty when there are none.
        confusion_matrix: C rows (true class) of C counts (answered class).
        label_counts: of several labels a row, C rows of four counts: true and answered, answered only, true only,
            neither.
        predictions: of regression, true and predicted numbers of validation rows, 2,000 at most.
    """

    metrics: Mapping[str, float]
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    confusion_matrix: tuple[tuple[int, ...], ...] = ()
    label_counts: tuple[tuple[int, ...], ...] = ()
    predictions: tuple[tuple[float, ...], ...] = ()

    def write(self, path: Path) -> None:
        """Write the report as JSON; a reader never sees half of it."""
        write_json(path, asdict(self))

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def read(cls, path: Path) -> "JobReport":
        """The report in `path`."""
        return cls.from_json(path.read_text())

    @classmethod
    def from_json(cls, text: str) -> "JobReport":
        """The report that `to_json` or `write` made."""
        raw = parse_json(text)
        tables = ("confusion_matrix", "label_counts", "predictions")
        lists = {name: tuple(map(tuple, raw.get(name, ()))) for name in tables}
        return cls(**raw | lists | {"labels": tuple(raw["labels"])})


@dataclass(frozen=True, kw_only=True)
class MemberEnd:
    """How one trial of a shared job has ended: with a report, a failure, or neither, which is a stop as asked.

    Attributes:
        seconds: wall time of the job that were spent on it alone; of trials side by side each has its share.
        report: what came out; None unless it completed.
        failure: kind and one sentence; None unless it failed.
    """

    seconds: float
    report: JobReport | None = None
    failure: tuple[FailureKind, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values, as `Event.ended` carries them."""
        report = None if self.report is None else asdict(self.report)
        failure = None if self.failure is None else [self.failure[0].value, self.failure[1]]
        return {"seconds": self.seconds, "report": report, "failure": failure}

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "MemberEnd | None":
        """The inverse of `as_json`; None for anything else."""
        try:
            report = None if raw["report"] is None else read_report(json.dumps(raw["report"]).encode())
            failure = None if raw["failure"] is None else (FailureKind(raw["failure"][0]), str(raw["failure"][1]))
            seconds = float(raw["seconds"])
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError):
            return None
        is_whole = math.isfinite(seconds) and seconds >= 0 and (report is None) == (raw["report"] is None)
        return cls(seconds=seconds, report=report, failure=failure) if is_whole else None


def read_event(line: str) -> Event | None:
    """The event on a line; None for a line of somebody else's that only looks like one, and for half a line."""
    if not line.startswith('{"time"'):
        return None
    try:
        _check_characters(line)
        event = Event.from_line(line)
        metrics = _finite(event.metrics)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    is_one = isinstance(event.time, int | float) and isinstance(event.message, str) and isinstance(event.member, str)
    is_one = is_one and isinstance(event.ended, dict) and _are_counts([event.step])
    is_one = is_one and (event.total_steps is None or _are_counts([event.total_steps]))
    return replace(event, metrics=metrics) if is_one and 0 <= event.time < _LATEST else None


def read_report(content: bytes) -> JobReport | None:
    """The report in `content`; None for half of one and for anything else. Metrics that are not finite are left out."""
    try:
        text = content.decode()
        _check_characters(text)
        report = JobReport.from_json(text)
        metrics = _finite(report.metrics)
        return replace(report, metrics=metrics) if _is_sound(report) else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _is_sound(report: JobReport) -> bool:
    """Whether names are texts, counts are counts and predictions finite, in tables of the shapes that they must have.

    Raises:
        TypeError, AttributeError, OverflowError: they are not.
    """
    rows, labels, points = report.confusion_matrix, report.label_counts, report.predictions
    classes = len(report.labels)
    has_texts = all(isinstance(name, str) for name in report.labels)
    has_facts = all(isinstance(value, str | int | float) for value in report.facts.values())
    are_tables = len(rows) in (0, classes) and all(len(row) == classes for row in rows)
    are_tables &= len(labels) in (0, classes) and all(len(row) == 4 for row in labels)
    are_tables &= all(len(row) == 2 and all(map(math.isfinite, row)) for row in points)
    return has_texts and has_facts and are_tables and all(map(_are_counts, (*rows, *labels)))


def _are_counts(values: Iterable[Any]) -> bool:
    """Whether they are whole numbers from 0 that a database takes."""
    return all(isinstance(value, int) and 0 <= value < 2**63 for value in values)


def _check_characters(document: str) -> None:
    """Raise ValueError where a JSON document holds half a character, which no file and no database takes."""
    if _HALF_A_CHARACTER.search(document):
        json.dumps(parse_json(document), ensure_ascii=False).encode()


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics with finite values; TypeError where one is no number."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


class EventReader:
    """Reads a growing events file: each call yields the events on the complete lines that have come since the last one.

    A line that is no event is passed over: the command of a job may write to the file as well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Event]:
        """Events written since the last call; a line still being written waits for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            event = read_event(line.decode(errors="replace"))
            if event is not None:
                yield event


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON beside `path` and move it there, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    draft.replace(path)


def write_json_once(path: Path, value: Any) -> bool:
    """Write `value` as JSON unless `path` exists; whether it was written. Readers never see an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value))
    try:
        os.link(draft, path)  # fails if it exists: the first one is kept
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True
