"""The folder layout and the JSON documents through which a launcher and a running job exchange everything.

    ROOT/input/data/job/job.json      the job document: what to train              (Order)
    ROOT/input/data/dataset/          the prepared data set
    ROOT/input/data/model/            the model to start from
    ROOT/checkpoints/                 kept when a job stops; the next attempt resumes from here
    ROOT/model/                       the trained model
    ROOT/output/data/events.jsonl     one JSON object per line while the job runs  (Event)
    ROOT/output/data/report.json      the results                                  (JobReport)
    ROOT/output/data/partial.json     what a user's own training that did not finish has measured (JobReport)
    ROOT/output/data/paretune/        the records of a user's own training: its log, command line, versions, curves
    ROOT/output/data/profile/         the profile of a job with profile_steps
    ROOT/output/failure               why the job failed: its cause, a colon, one sentence

A SageMaker training container has the same layout, so the same code trains there and on a laptop.
"""

import contextlib
import json
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from paretune.specification.ending import Cause, Ending, failed
from paretune.specification.metrics import may_be_of_a_job
from paretune.specification.parallelism import BatchPlan
from paretune.specification.user_code import ScriptTraining

ALLOW_NO_GPU = "PARETUNE_ALLOW_NO_GPU"
"""Environment variable. An emulator of AWS sets it to 1, so that jobs on "GPU instances" may train without a GPU."""
PROFILE = "profile"  # folder of a profile in a job's output and in the artifacts of its run
PROFILE_JSON = "profile.json"  # the machine-readable file of a profile; its `summary` is one line for people
CHECKPOINTS_KEPT = 2  # checkpoints that a SageMaker job keeps by default: the newest one may be incomplete in S3
CHECKPOINT_EVERY_S = 120.0  # seconds between two checkpoints of a job that may lose its spot instances
MOST_CLASSES_IN_MATRIX = 1_000  # a report with the confusion matrix of 5,500 classes would be too large to read
RUNNER = "runner.py"  # the program that runs a user's own training, among the files of its code
TELLS = "paretune: "  # prefix of the progress lines of a process that prepares inputs

_LONGEST_FAILURE = 10_000  # characters of a failure file that are read
_LATEST = 1e11  # seconds since the epoch, about the year 5138; a later time is invalid


class _Below:
    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, folder: "JobFolder", _: type) -> Path:
        return folder.root / self._path


@dataclass(frozen=True)
class JobFolder:
    """Paths of one job's files. `root` is /opt/ml on SageMaker."""

    root: Path

    document = _Below("input/data/job/job.json")
    resource_config = _Below("input/config/resourceconfig.json")
    """The cluster, as SageMaker describes it on each instance; absent on a laptop."""
    dataset = _Below("input/data/dataset")  # the prepared data set
    model_source = _Below("input/data/model")  # a Hugging Face folder: the model to start from
    checkpoints = _Below("checkpoints")
    model = _Below("model")  # the trained model
    events = _Below("output/data/events.jsonl")
    report = _Below("output/data/report.json")  # exists only when the job has finished
    partial = _Below("output/data/partial.json")  # the report of a user's own training that has not finished
    profile = _Below(f"output/data/{PROFILE}")  # trace.json.gz, profile.json, profile.md
    failure = _Below("output/failure")
    finished = _Below("output/finished")  # exists if paretune's own training has finished on this instance
    stopped = _Below("output/stopped")  # exists if the job was asked to stop, and saved a checkpoint before it did
    log = _Below("output/job.log")  # everything that the job printed

    def make(self) -> None:
        """Create the folders of the job document, the trained model and the output."""
        for path in (self.document.parent, self.model, self.events.parent):
            path.mkdir(parents=True, exist_ok=True)

    def write_failure(self, cause: Cause, sentence: str) -> None:
        """Record why the job failed, unless the disk is full.

        A reason that is already recorded is kept, because it caused the later ones.
        """
        with contextlib.suppress(OSError):
            self.failure.parent.mkdir(parents=True, exist_ok=True)
            with self.failure.open("x") as file:
                file.write(f"{cause.value}: {sentence}\n")

    def read_failure(self) -> Ending | None:
        """Return the ending that the failure file describes, or None if there is no such file.

        An empty file counts as missing, because a full disk leaves one. The cause is ERROR if the file does not begin
        with the name of a cause, because another program wrote it, or if only a service can know the cause.
        """
        if not self.failure.is_file():
            return None
        with self.failure.open(errors="replace") as file:
            text = file.read(_LONGEST_FAILURE).strip()
        if not text:
            return None
        word, _, sentence = text.partition(": ")
        with contextlib.suppress(ValueError):
            if not (cause := Cause(word)).is_of_a_service:
                return failed(cause, sentence)
        return failed(Cause.ERROR, text)


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The instances of a SageMaker cluster, and which of them this is. All processes connect to `names[0]`."""

    names: tuple[str, ...]
    current: str
    network_interface: str

    @property
    def rank(self) -> int:
        """Index of this instance."""
        return self.names.index(self.current)

    @classmethod
    def read(cls, path: Path) -> "Hosts | None":
        """Read the hosts from SageMaker's resourceconfig.json, or return None if the file does not exist."""
        if not path.exists():
            return None
        raw = json.loads(path.read_text())
        names = tuple(sorted(raw["hosts"], key=lambda name: (len(name), name)))  # algo-2 before algo-10
        return cls(names=names, current=raw["current_host"], network_interface=raw["network_interface_name"])


@dataclass(frozen=True, kw_only=True)
class PreparedDataset:
    """A data set that has been split and tokenized."""

    key: str  # digest of rows, split, tokenizer and length; data sets with the same key have the same bytes
    folder: Path
    labels: tuple[str, ...]  # class names in the order of their ids; empty for causal-lm
    facts: Mapping[str, float]  # metrics of the data: rows, tokens, baselines
    digests: Mapping[str, str]  # by split (train, validation, test): digest of its rows and labels before tokenizing

    @classmethod
    def read(cls, folder: Path) -> "PreparedDataset":
        """Read the description of the prepared data set in `folder`."""
        raw = json.loads((folder / "dataset.json").read_text())
        return cls(**raw | {"folder": folder, "labels": tuple(raw["labels"])})

    def write(self) -> None:
        """Write the description next to the rows. Call this last, because the file marks the folder as complete."""
        content = {"key": self.key, "labels": self.labels, "facts": dict(self.facts), "digests": dict(self.digests)}
        write_json(self.folder / "dataset.json", content)


@dataclass(frozen=True, kw_only=True)
class DataFindings:
    """Findings about a job's rows, made while they are prepared."""

    words: str = ""  # a summary: number of rows per class, and lengths of the texts
    warnings: tuple[str, ...] = ()  # sentences that also say what to do
    facts: Mapping[str, float] = field(default_factory=dict)  # metrics that cannot be computed from the prepared rows


class Slot:
    """Places in the words of a command that are filled where it runs. NUL encloses them: no argument can contain it."""

    BATCH = "\0batch\0"  # rows per device and micro-batch
    STEPS = "\0steps\0"  # micro-batches per optimizer step
    TOTAL = "\0total\0"  # rows per optimizer step on all devices
    SHARE = "\0share\0"  # rows per optimizer step on one device
    OUTPUT = "\0output\0"  # the folder of the trained model


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command of a user's own training, bound once: every attempt of the job runs it, on whatever machine.

    Attributes:
        words: the words of the command line, with slots. For a script, the words after its name.
        script: path of the Python script that the words are for; "" for a command of bash, which is the only word.
        folder: the folder in which it runs, relative to the code of the job; "" for the current folder.
        requirements: lines that pip installs before it starts, relative to `requirements_folder`.
        recorded: parameters of the job's run: the values that the command gets.
        takes_seed: whether another seed changes the words.
        takes_batch: whether the words have the batch of the job's plan.
        accumulates: whether the words have both batch and accumulation, so that a smaller batch changes no result.
        settings: names that are no metrics if the command prints them.
        named: names that the user gave or that stand in the text of the code: printed numbers with them are metrics.
        renamed: further names of metrics.
        metric_definitions: those of the job.
        logging_steps: steps between two dictionaries that Hugging Face's Trainer prints; None if unknown.
        leaves_model: whether its model is described for MLflow.
        keeps_models: whether the model files that it saves become artifacts of its run.
        saves: names of model files in the text of the code; * stands for a value.
        usage_hint: what to do if its command-line parser refuses the words.
        totals: the total of its counters that its arguments state, by unit: epoch or step.
    """

    words: tuple[str, ...]
    script: str = ""
    folder: str = ""
    requirements: tuple[str, ...] = ()
    requirements_folder: str = "."
    recorded: Mapping[str, str] = field(default_factory=dict)
    takes_seed: bool = True
    takes_batch: bool = False
    accumulates: bool = False
    settings: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    metric_definitions: tuple[Mapping[str, str], ...] = ()
    logging_steps: int | None = None
    leaves_model: bool = False
    keeps_models: bool = True
    saves: tuple[str, ...] = ()
    usage_hint: str = ""
    totals: Mapping[str, float] = field(default_factory=dict)

    def filled(self, plan: BatchPlan, output: str) -> list[str]:
        """Return the words with the batch of `plan` and the folder `output`, as the job runs them."""
        values = slot_values(plan, output)
        return [_filled(word, values) for word in self.words]

    def shown(self, plan: BatchPlan) -> str:
        """Return the command line of a first attempt, as a user would type it."""
        words = self.filled(plan, "OUTPUT_DIR")
        return shlex.join(["python", PurePath(self.script).name, *words]) if self.script else " ".join(words)


def slot_values(plan: BatchPlan, output: str) -> dict[str, str]:
    """Return the value of each slot."""
    batch, steps = plan.per_device_train_batch_size, plan.gradient_accumulation_steps
    total, share = plan.global_batch_size, batch * steps
    numbers = {Slot.BATCH: batch, Slot.STEPS: steps, Slot.TOTAL: total, Slot.SHARE: share}
    return {**{slot: str(number) for slot, number in numbers.items()}, Slot.OUTPUT: output}


def _filled(word: str, values: Mapping[str, str]) -> str:
    for slot, text in values.items():
        word = word.replace(slot, text)
    return word


@dataclass(frozen=True, kw_only=True)
class UserCode:
    """A training script or a project of the user, read and bound once before the job.

    Attributes:
        command: what the job runs.
        files: the files that are sent into the job, by their names in its working directory.
        key: for code that is uploaded, a digest that is the same for jobs that run the same code; else "".
        linked: for a job on this machine, the files and folders that are linked into that directory and not copied.
        inputs: by channel, a file or folder on this machine, or an address in S3 if the launcher uploads files.
        left_behind: names of files and folders that are not sent: those named like secrets or, outside of git, those
            that begin with a dot.
        requirements: lines that pip installs in the job.
        texts: the source files that the job's run keeps, by name.
        described: what a dry run says of it, by heading.
        training: for a script with Hugging Face's Trainer, what its text says of its training.
        parameters: names of the inputs as users know them, by channel, if they differ.
    """

    command: Command = Command(words=())
    files: Mapping[str, Path] = field(default_factory=dict)
    key: str = ""
    linked: Mapping[str, Path] = field(default_factory=dict)
    inputs: Mapping[str, Path | str] = field(default_factory=dict)
    left_behind: Sequence[str] = ()
    requirements: tuple[str, ...] = ()
    texts: Mapping[str, Path] = field(default_factory=dict)
    described: Mapping[str, str] = field(default_factory=dict)
    training: ScriptTraining | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, Path | str]:
        """The files, folders and addresses of `inputs`, by the names that users know."""
        return {self.parameters.get(channel, channel): path for channel, path in self.inputs.items()}

    @property
    def in_s3(self) -> dict[str, str]:
        """The addresses in S3 among the `sources`."""
        return {name: path for name, path in self.sources.items() if isinstance(path, str)}


@dataclass(frozen=True, kw_only=True)
class JobInputs:
    """The inputs of a job on the launching machine: the prepared rows and the model to start from.

    A script or project of the user is in `code`. It reads its own data and model, so `dataset` and `model` are None.
    """

    dataset: PreparedDataset | None = None
    model: Path | None = None
    code: UserCode | None = None
    findings: DataFindings = field(default_factory=DataFindings)

    @property
    def command(self) -> Command | None:
        """The command of a user's own training; None for paretune's."""
        return None if self.code is None else self.code.command

    @property
    def training(self) -> ScriptTraining | None:
        """The training that the text of the user's script shows; None if it shows none, and for paretune's own."""
        return None if self.code is None else self.code.training

    @property
    def revision(self) -> str | None:
        """The commit of the model if it comes from the cache of the Hugging Face Hub, else None."""
        return self.model.name if self.model is not None and self.model.parent.name == "snapshots" else None


def _known(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value) and may_be_of_a_job(name)}


Metrics = Annotated[dict[str, float], AfterValidator(_known)]
"""Values of a job's metrics by name. Validation drops those that are not finite, of bills, or of paretune."""
_Amount = Annotated[float, Field(ge=0, lt=1e15)]
Count = Annotated[int, Field(ge=0, lt=2**63)]  # a whole number that fits into a database


class _Document(BaseModel):
    """Base class of JSON documents that a job writes.

    The user's own program may write such files, too, so types are checked strictly.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version of paretune may have written more fields

    @classmethod
    def read_json(cls, text: str | bytes) -> Self | None:
        """Parse the document, or return None if the text is incomplete or not such a document."""
        try:
            return cls.model_validate_json(text, strict=True)
        except (ValueError, RecursionError):
            return None


class Progress(_Document):
    """How far a training has come, by one of its counters, such as its epochs."""

    unit: Literal["epoch", "step"]
    done: _Amount  # units that are done, from 0 on
    total: _Amount | None = None  # all units; None if nothing says so
    seconds: _Amount  # what `done` has taken, without the start of the program
    stands_still: bool = False  # whether the counter has not moved for much longer than ever before

    @property
    def share(self) -> float | None:
        """The share that is done, from 0 to 1; None if the total is unknown."""
        return min(self.done / self.total, 1.0) if self.total else None

    @property
    def left_s(self) -> float | None:
        """Expected seconds until the counter is at its total; None if the total is unknown, or nothing is done."""
        if not self.total or self.done <= 0:
            return None
        return self.seconds * max(self.total - self.done, 0.0) / self.done

    @property
    def evidence(self) -> str:
        """The counter in words: `epoch 3 of 52`, or `step 200` if the total is unknown."""
        total = f" of {self.total:g}" if self.total else ""
        return f"{self.unit} {self.done:.4g}{total}" + (", standing still" if self.stands_still else "")


class Event(_Document):
    """A measurement or message of a running job.

    Everything that a job prints or writes can be made to look like an event. Paretune's own training runs no code of
    the user, so its events are believed. From a user's own training, only measurements are believed that name the job,
    as its runner writes them: see `measurements_of`.
    """

    time: Annotated[float, Field(ge=0, lt=_LATEST)]  # seconds since the epoch
    step: Count  # optimizer steps done so far
    metrics: Metrics = {}
    message: str = ""  # one sentence for people; empty for a plain measurement
    total_steps: Count | None = None  # optimizer steps of the whole job, if known
    progress: Progress | None = None  # of a user's own training; of another one, `step` and `total_steps` say so
    job: str = ""  # name of the job; only the runner of a user's own training writes it
    is_from_job: bool = Field(default=False, exclude=True)  # whether it was read from what a job printed or wrote

    def line(self) -> str:
        """Return the event as one line of JSON, without a newline."""
        return json.dumps(self.model_dump(exclude_defaults=True))


GPU_IDLE_SHARE = "gpu_idle_share"
"""Fact of a report: the share of the time after the warm-up in which the GPUs of the first instance were idle."""


class JobReport(_Document):
    """The results of a job."""

    metrics: Metrics  # see `metrics.py` for names and units
    not_finite: tuple[str, ...] = ()  # metrics of the user's own training whose last value was NaN or infinite
    facts: dict[str, str | bool | int | float] = {}
    """Facts that the metrics depend on: device, precision, effective batch, versions, library of the model."""
    model_fault: str = ""  # why MLflow cannot load the job's model; empty if it can
    labels: tuple[str, ...] = ()  # C class names; empty if there are none
    confusion_matrix: tuple[tuple[Count, ...], ...] = ()
    """C rows (true class) of C counts (predicted class); empty if C is above MOST_CLASSES_IN_MATRIX."""
    label_counts: tuple[tuple[Count, Count, Count, Count], ...] = ()
    """For multi-label, C rows of four counts: true and predicted, predicted only, true only, neither."""

    @model_validator(mode="after")
    def _counts_each_class(self) -> Self:
        tables = filter(None, (self.confusion_matrix, self.label_counts))
        if {*map(len, tables), *map(len, self.confusion_matrix)} - {len(self.labels)}:
            raise ValueError("counts must have a row for each class, and the confusion matrix also a column")
        return self

    def write(self, path: Path) -> None:
        """Write the report as JSON. Readers never see an incomplete file."""
        write_json(path, self.model_dump())


def read_event(line: str) -> Event | None:
    """Parse the event on a line, or return None if the line is incomplete or comes from another program."""
    event = Event.read_json(line) if line.startswith('{"time"') else None
    return None if event is None else event.model_copy(update={"is_from_job": True})


def measurements_of(events: Iterable[Event], job_name: str) -> list[Event]:
    """Return the events of a user's own training that are believed: what its runner has measured.

    What the script itself prints or writes has no messages and measures nothing here. Events that do not come from the
    job, such as those of a service, stay.
    """
    own = [
        event
        for event in events
        if not event.is_from_job or (event.job == job_name and (event.metrics or event.progress))
    ]
    silenced = {"message": "", "total_steps": None}
    return [event.model_copy(update=silenced) if event.is_from_job else event for event in own]


class EventReader:
    """Reads an events file while it grows, and skips lines that are not events of paretune."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Event]:
        """Yield the events on lines that were completed since the last call."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        yield from filter(None, (read_event(line.decode(errors="replace")) for line in complete.splitlines()))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON to a file next to `path` and rename it, so that readers never see an incomplete file."""
    _draft(path, value).replace(path)


def write_json_once(path: Path, value: Any) -> None:
    """Write JSON like `write_json`, unless the file exists already."""
    draft = _draft(path, value)
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


def _draft(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=2) + "\n")
    return draft
