"""The folder and the JSON documents through which a launcher and a training exchange everything.

    ROOT/input/data/job/job.json      the job document: what to train              (JobDocument)
    ROOT/input/data/dataset/          the prepared data set
    ROOT/input/data/model/            the model to start from
    ROOT/input/queue.json             what a job that searches is to train next (TrialQueue)
    ROOT/checkpoints/                 survives a stopped job; the next attempt of its run continues here
    ROOT/model/                       the trained model
    ROOT/output/data/events.jsonl     one JSON object per line while the job runs  (Event)
    ROOT/output/data/report.json      the results                                  (JobReport)
    ROOT/output/data/profile/         the profile of a job with profile_steps
    ROOT/output/failure               why the job failed: kind, colon, one sentence

A shared job trains several trials. Each trial has its own folder `members/KEY` for its model, checkpoints and results
(model/members/KEY, checkpoints/members/KEY, ...). The events of all trials are in one file and name their trial.

The layout is that of a SageMaker training container, so the same training runs there and on a laptop.
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

from paretune.core.errors import BadInput
from paretune.core.tags import Attribution
from paretune.core.untrusted import parse_json
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.limits import LONGEST_S

ALLOW_NO_GPU = "PARETUNE_ALLOW_NO_GPU"
"""Environment variable that is 1 on an emulated account: jobs on GPU instances may train without a GPU."""
TRIALS = "PARETUNE_TRIALS"  # environment variable of a shared job on SageMaker: its number of trials
STOP_REQUESTS = "PARETUNE_STOP_REQUESTS"  # variable with an S3 prefix; an object below it with a trial's name stops it
QUEUE_FILE = "queue.json"  # file with the newest `TrialQueue` of a job that searches; also below STOP_REQUESTS in S3
SEARCHES = "PARETUNE_SEARCHES"  # environment variable of a job on SageMaker that is 1 if the job searches
TRAINING_PLAN = "PARETUNE_TRAINING_PLAN"  # environment variable with the ARN of the training plan of the job
PROFILE = "profile"  # folder of a profile in a job's output and in the artifacts of its run
PROFILE_JSON = "profile.json"  # the machine-readable file of a profile; its `summary` is one line for people
CHECKPOINTS_KEPT = 2  # checkpoints that a SageMaker job keeps: the newest one may be incomplete in S3
CHECKPOINT_EVERY_S = 120.0  # between two checkpoints of a training that may lose its spot instances
TELLS = "paretune: "  # prefix of the progress lines of a process that prepares inputs

NO_QUEUE = BadInput, ValueError, KeyError, TypeError, AttributeError, OverflowError
"""Errors of `TrialQueue.from_json` for values that are no queue."""
_LATEST = 1e11  # seconds since the epoch, about the year 5138; a later time is invalid
_MEMBERS = "members"
_PLAIN = "job_name", "attempt", "spent_seconds", "deadline_s"  # of a job document
_MEMBER_KEY = re.compile(r"[\w-]+", re.ASCII)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # half of a character, or a whole one as two escapes


class FailureKind(Enum):
    """The reason why a job failed, which decides what its launcher does next."""

    OUT_OF_MEMORY = "out_of_memory"  # retry with a smaller per-device batch
    BAD_INPUT = "bad_input"  # only another request helps
    DISK_FULL = "disk_full"  # free space, or ask for a larger volume
    DIVERGED = "diverged"  # the loss is NaN or infinite: lower the learning rate; a retry would diverge again
    CAPACITY = "capacity"  # AWS had no instance: retry later or with another instance type
    OFF_PLAN = "off_plan"  # it would run on demand instead of on its training plan, and so would a retry
    CROWDED = "crowded"  # a trial ran out of memory beside others: retry it alone
    UNTRIED = "untried"  # the shared job ended before this trial began: retry it in another job
    ERROR = "error"  # anything else; see the log


class _Below:
    """Attribute of a job's folder: a path below its root."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, folder: "JobFolder", _: type) -> Path:
        return folder.root / self._path


class _OfMember(_Below):
    """The same for a path that each trial of a shared job has for itself: `output/data/x` is `.../members/KEY/x`."""

    def __get__(self, folder: "JobFolder", owner: type) -> Path:
        path = super().__get__(folder, owner)
        if not folder.member:
            return path
        parent, name = (path, "") if self._path in {"model", "checkpoints"} else (path.parent, path.name)
        return parent / _MEMBERS / folder.member / name


@dataclass(frozen=True)
class JobFolder:
    """Paths of the files of one job, or of one `member` of a shared job. `root` is /opt/ml on SageMaker."""

    root: Path
    member: str = ""

    document = _Below("input/data/job/job.json")
    resource_config = _Below("input/config/resourceconfig.json")
    """SageMaker's description of the cluster on each instance; absent on a laptop."""
    dataset = _Below("input/data/dataset")  # the prepared data set
    model_source = _Below("input/data/model")  # a Hugging Face folder: the model to start from
    checkpoints = _OfMember("checkpoints")
    model = _OfMember("model")  # the trained model
    events = _Below("output/data/events.jsonl")
    report = _OfMember("output/data/report.json")  # exists only when the job has finished
    profile = _OfMember(f"output/data/{PROFILE}")  # trace.json.gz, profile.json, profile.md
    failure = _Below("output/failure")
    stopped = _OfMember("output/stopped")  # exists if the training stopped early on request, with a checkpoint
    stop_request = _OfMember("input/stop")  # exists if one trial of a shared job is to stop, with a checkpoint
    queue = _Below(f"input/{QUEUE_FILE}")  # newest `TrialQueue` of a job that searches; absent while the first holds
    log = _Below("output/job.log")  # everything that the job printed

    def read_queue(self) -> "TrialQueue | None":
        """The newest queue of a job that searches, or None if none has come since the job was created."""
        try:
            return TrialQueue.from_json(parse_json(self.queue.read_text()))
        except (OSError, *NO_QUEUE):
            return None

    def of_member(self, key: str) -> "JobFolder":
        """The files of one trial of a shared job."""
        return replace(self, member=key)

    def make(self) -> None:
        """Create the folders that a job reads from and writes to."""
        for path in (self.document.parent, self.model, self.events.parent):
            path.mkdir(parents=True, exist_ok=True)

    def write_failure(self, kind: FailureKind, sentence: str) -> None:
        """Record why the job failed. The first reason is kept, because it is the cause of later ones."""
        self.failure.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), self.failure.open("x") as file:
            file.write(f"{kind.value}: {sentence}\n")

    def read_failure(self) -> tuple[FailureKind, str] | None:
        """Kind and sentence of the failure file, or None without one; the kind is ERROR if another program wrote it."""
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
    """The instances of a SageMaker cluster, as one of them sees it. Processes meet at `names[0]`, the same for all.

    `instance_type` is empty if SageMaker does not state it.
    """

    names: tuple[str, ...]
    current: str
    network_interface: str
    instance_type: str = ""

    @property
    def rank(self) -> int:
        """Index of this instance."""
        return self.names.index(self.current)

    @classmethod
    def read(cls, path: Path) -> "Hosts | None":
        """The hosts in SageMaker's resourceconfig.json, or None if there is no such file."""
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
    """A data set that is split and tokenised."""

    key: str  # digest of rows, split, tokenizer and length; equal keys mean equal bytes
    folder: Path
    labels: tuple[str, ...]  # class names in the order of their ids; empty for causal-lm
    facts: Mapping[str, float]  # metrics of the data alone: rows, tokens, baselines
    validation_rows: str = ""
    """Digest of texts, labels and class names of the validation rows, whatever the tokenizer and the training rows."""

    @classmethod
    def read(cls, folder: Path) -> "PreparedDataset":
        """The prepared data set in `folder`."""
        raw = json.loads((folder / "dataset.json").read_text())
        return cls(**raw | {"folder": folder, "labels": tuple(raw["labels"])})

    def write(self) -> None:
        """Write the description beside the rows. Call it last: its presence means that the folder is complete."""
        description = {"key": self.key, "labels": self.labels, "facts": dict(self.facts)}
        write_json(self.folder / "dataset.json", description | {"validation_rows": self.validation_rows})


@dataclass(frozen=True, kw_only=True)
class ProjectPayload:
    """The command of a project, which a job runs instead of paretune's training."""

    code: Mapping[str, Path]  # name in the job's current folder to the file that is sent there
    program: str  # the Python file among them that starts the command; its argument is the root of the job's folder
    document: Mapping[str, Any]  # the content of input/data/job/job.json; the launcher adds `run_id` if it is absent
    beside: Mapping[str, Path] = field(default_factory=dict)  # name in a local job's current folder to what is linked
    inputs: Mapping[str, Path] = field(default_factory=dict)  # channel name to a file or folder on this machine
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobInputs:
    """The inputs of a job on the launching machine: the prepared rows and the model to start from.

    Both are None if a script or project reads its own; `project` is the project that replaces paretune's training.
    """

    dataset: PreparedDataset | None = None
    model: Path | None = None
    project: ProjectPayload | None = None


@dataclass(frozen=True, kw_only=True)
class TrialQueue:
    """The trainings that a job that searches is to do next; a queue with a higher version replaces the one before.

    The job trains the first trial of `order` that has done fewer optimiser steps than it says to that step, pauses it,
    looks for a newer queue, and begins at the front of the order again.
    """

    version: int = 1  # counts up from 1
    order: tuple[tuple[str, int], ...] = ()  # member key and optimiser steps, in order; a key may occur repeatedly
    given_up: frozenset[str] = frozenset()  # member keys of trials that are not continued; they end as stopped
    is_complete: bool = False  # no newer queue follows, so that the job ends when the order is done
    members: "tuple[JobDocument, ...]" = ()  # the trials that have joined since the creation, in their order

    def as_json(self) -> dict[str, Any]:
        """The queue as JSON values."""
        members = [document.as_json() for document in self.members]
        return {**vars(self), "order": self.order, "given_up": sorted(self.given_up), "members": members}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "TrialQueue":
        """The inverse of `as_json`; raises NO_QUEUE if the values are no queue."""
        order = tuple((str(key), int(steps)) for key, steps in raw["order"])
        members = tuple(map(JobDocument.from_json, raw["members"]))
        if not _are_counts(steps for _, steps in order):
            raise ValueError("optimiser steps are counted from 0")
        if not all(_MEMBER_KEY.fullmatch(document.member) for document in members):  # names folders
            raise ValueError("a trial is named by letters, digits, - and _")
        return cls(
            version=int(raw["version"]),
            order=order,
            given_up=frozenset(map(str, raw["given_up"])),
            is_complete=bool(raw["is_complete"]),
            members=members,
        )


@dataclass(frozen=True, kw_only=True)
class JobDocument:
    """Everything that a training must know, as it travels into the job."""

    job_name: str
    spec: JobSpec
    plan: BatchPlan
    attempt: int = 1
    spent_seconds: float = 0.0  # seconds that earlier attempts of the same job took
    members: "tuple[JobDocument, ...]" = ()
    """The trials of a shared job, in training order; `spec` is the specification of the first one. The job name of a
    member ends with a dot and its key."""
    deadline_s: float | None = None  # seconds after the container's start when the training stops itself
    plans: Mapping[str, BatchPlan] = field(default_factory=dict)
    """Batch plan by instance type, for the other types that SageMaker may choose, best first."""
    queue: TrialQueue | None = None
    """The first queue of a job that searches, whose later queues may bring more members; None for other jobs."""
    attribution: Attribution = field(default_factory=Attribution)
    """The owner of the job; only for the launcher, not sent into the job."""

    @classmethod
    def first(
        cls, job_name: str, spec: JobSpec, plan: BatchPlan | None = None, attribution: Attribution | None = None
    ) -> "JobDocument":
        """The document of a first attempt, with the batch plan of the specification unless another is given."""
        fallbacks = spec.clusters()[1:] if spec.ranks_instance_types else ()
        return cls(
            job_name=job_name,
            spec=spec,
            plan=plan or spec.plan(),
            plans={fallback.instance_type: fallback.plan() for fallback in fallbacks},
            attribution=attribution or Attribution(),
        )

    def on(self, instance_type: str, count: int | None = None) -> "JobDocument":
        """The document of the same job on the instances that SageMaker chose from `plans`."""
        document = self
        if instance_type in self.plans:
            spec = self.spec.on_instance_type(instance_type)
            document = replace(self, spec=spec, plan=self.plans[instance_type], plans={})
        if count in {None, document.spec.instance_count}:
            return document
        return replace(document, spec=document.spec.replace(instance_count=count, global_batch_size=None))

    @property
    def clusters(self) -> tuple[JobSpec, ...]:
        """The job on each instance type that SageMaker may choose, best first."""
        return (self.spec, *(self.on(name).spec for name in self.plans))

    @property
    def member(self) -> str:
        """Key of a trial in its shared job; empty for any other job."""
        return self.job_name.partition(".")[2]

    @property
    def max_seconds(self) -> float:
        """Time limit of this attempt: the limit of the job less the time of earlier attempts; summed over members.

        The limit of each member of a job that searches is that of the whole job.
        """
        if self.members and self.queue is None:
            return min(LONGEST_S, sum(document.max_seconds for document in self.members))
        return self.spec.max_runtime_minutes * 60 - self.spent_seconds

    def as_json(self) -> dict[str, Any]:
        """The document as JSON values, without the attribution."""
        raw = {**vars(self), "spec": self.spec.as_text(), "plan": asdict(self.plan)}
        plans = {name: asdict(plan) for name, plan in self.plans.items()}
        members, queue = [member.as_json() for member in self.members], self.queue and self.queue.as_json()
        raw |= {"members": members, "queue": queue, "plans": plans}
        return {name: value for name, value in raw.items() if name != "attribution"}

    @classmethod
    def read(cls, path: Path) -> "JobDocument":
        """The document in `path`, checked again. Other keys in the file are ignored."""
        return cls.from_json(json.loads(path.read_text()))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "JobDocument":
        """The document from the result of `as_json`, checked again."""
        plain = {name: raw[name] for name in _PLAIN}
        plain["members"] = tuple(map(cls.from_json, raw.get("members", ())))
        plain["plans"] = {name: BatchPlan(**plan) for name, plan in raw.get("plans", {}).items()}
        plain["queue"] = TrialQueue.from_json(raw["queue"]) if raw.get("queue") else None
        return cls(spec=JobSpec.from_text(raw["spec"]), plan=BatchPlan(**raw["plan"]), **plain)


@dataclass(frozen=True, kw_only=True)
class Event:
    """A measurement or message of a running job."""

    time: float  # seconds since the epoch
    step: int  # optimiser steps done, of `total_steps` in all, if known
    metrics: Mapping[str, float] = field(default_factory=dict)  # metric name to finite value
    message: str = ""  # one sentence for people; empty for plain measurements
    total_steps: int | None = None
    member: str = ""  # key of a trial of a shared job; empty for the whole job
    ended: Mapping[str, Any] = field(default_factory=dict)
    """How that trial ended, sent once, see `MemberEnd`; empty before."""
    paused: float | None = None  # seconds that a trial has used when a job that searches pauses it; None otherwise

    def line(self) -> str:
        """The event as one line of JSON, without a line end."""
        return json.dumps({name: value for name, value in asdict(self).items() if value not in ({}, "", None)})

    @classmethod
    def from_line(cls, line: str) -> "Event":
        """The event on one line of JSON, unchecked; `read_event` checks it."""
        return cls(**parse_json(line))


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """The results of a job."""

    metrics: Mapping[str, float]  # metric name to value (see `metrics.py` for names and units)
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What the metrics depend on: device, precision, effective batch, versions, library of the model."""
    labels: tuple[str, ...] = ()  # C class names; empty if there are none
    confusion_matrix: tuple[tuple[int, ...], ...] = ()  # C rows (true class) of C counts (predicted class)
    label_counts: tuple[tuple[int, ...], ...] = ()
    """For multi-label, C rows of four counts: true and predicted, predicted only, true only, neither."""

    def write(self, path: Path) -> None:
        """Write the report as JSON; a reader never sees half of it."""
        write_json(path, asdict(self))

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def read(cls, path: Path) -> "JobReport":
        """The report in `path`, unchecked."""
        return cls.from_json(path.read_text())

    @classmethod
    def from_json(cls, text: str) -> "JobReport":
        """The report from JSON, unchecked; `read_report` checks it."""
        raw = parse_json(text)
        tables = ("confusion_matrix", "label_counts")
        lists = {name: tuple(map(tuple, raw.get(name, ()))) for name in tables}
        return cls(**raw | lists | {"labels": tuple(raw["labels"])})


@dataclass(frozen=True, kw_only=True)
class MemberEnd:
    """The end of one trial of a shared job: with a report, a failure, or neither if it was stopped on request.

    `seconds` is the wall time of the job that the trial used; trials that run side by side share it. A failure has a
    kind and one sentence.
    """

    seconds: float
    report: JobReport | None = None
    failure: tuple[FailureKind, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON values that `Event.ended` carries."""
        report = None if self.report is None else asdict(self.report)
        failure = None if self.failure is None else [self.failure[0].value, self.failure[1]]
        return {"seconds": self.seconds, "report": report, "failure": failure}

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "MemberEnd | None":
        """The inverse of `as_json`, or None for any other values."""
        try:
            report = None if raw["report"] is None else read_report(json.dumps(raw["report"]).encode())
            failure = None if raw["failure"] is None else (FailureKind(raw["failure"][0]), str(raw["failure"][1]))
            seconds = float(raw["seconds"])
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError):
            return None
        is_valid = 0 <= seconds < _LATEST and (report is None) == (raw["report"] is None)
        return cls(seconds=seconds, report=report, failure=failure) if is_valid else None


def read_event(line: str) -> Event | None:
    """The event on a line, or None if the line is incomplete or was written by another program."""
    if not line.startswith('{"time"'):
        return None
    try:
        _check_characters(line)
        event = Event.from_line(line)
        metrics = _finite(event.metrics)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    is_valid = isinstance(event.time, int | float) and isinstance(event.message, str) and isinstance(event.member, str)
    is_valid = is_valid and isinstance(event.ended, dict) and _are_counts([event.step])
    paused = 0 if event.paused is None else event.paused
    is_valid = is_valid and isinstance(paused, int | float) and 0 <= paused < _LATEST
    is_valid = is_valid and (event.total_steps is None or _are_counts([event.total_steps]))
    return replace(event, metrics=metrics) if is_valid and 0 <= event.time < _LATEST else None


def read_report(content: bytes) -> JobReport | None:
    """The report in `content` without metrics that are not finite, or None if it is incomplete or no report."""
    try:
        text = content.decode()
        _check_characters(text)
        report = JobReport.from_json(text)
        metrics = _finite(report.metrics)
        return replace(report, metrics=metrics) if _is_valid(report) else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _is_valid(report: JobReport) -> bool:
    """Whether names are texts, counts are counts and all tables have their shapes.

    Raises:
        TypeError, AttributeError, OverflowError: a value has another type.
    """
    rows, labels = report.confusion_matrix, report.label_counts
    classes = len(report.labels)
    has_texts = all(isinstance(name, str) for name in report.labels)
    has_facts = all(isinstance(value, str | int | float) for value in report.facts.values())
    are_tables = len(rows) in (0, classes) and all(len(row) == classes for row in rows)
    are_tables &= len(labels) in (0, classes) and all(len(row) == 4 for row in labels)
    return has_texts and has_facts and are_tables and all(map(_are_counts, (*rows, *labels)))


def _are_counts(values: Iterable[Any]) -> bool:
    """Whether all values are whole numbers from 0 that fit into a database."""
    return all(isinstance(value, int) and 0 <= value < 2**63 for value in values)


def _check_characters(document: str) -> None:
    """Raise ValueError if a JSON document contains a lone surrogate, which no file and no database can store."""
    if _SURROGATE.search(document):
        json.dumps(parse_json(document), ensure_ascii=False).encode()


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics with finite values. Raises TypeError if one is not a number."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


class EventReader:
    """Reads a growing events file, and skips lines that the command of the job wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Event]:
        """The events on lines that were completed since the last call."""
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
    """Write `value` as JSON beside `path` and move it there, so that readers never see half a file."""
    _draft(path, value).replace(path)


def write_json_once(path: Path, value: Any) -> bool:
    """Write `value` as JSON unless `path` exists, and return whether it was written. Readers never see half a file."""
    draft = _draft(path, value)
    try:
        os.link(draft, path)  # fails if it exists: the first one is kept
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _draft(path: Path, value: Any) -> Path:
    """Write `value` as JSON beside `path`, and return that file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    return draft
