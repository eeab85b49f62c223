"""A SageMaker training job as a `Job`: its state (at most 20 seconds old), log, warm pool and results."""

import datetime
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused, LostContact
from paretune.core.shell import command_line
from paretune.launchers.base import GONE_AFTER_S, Job, JobStatus, WarmPoolStatus
from paretune.launchers.sagemaker.account import GROUP, PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import (
    AWS_ERRORS,
    code,
    ending_of,
    explain,
    is_denied,
    is_transient,
    refused_to,
)
from paretune.launchers.sagemaker.storage import Storage, output_of
from paretune.launchers.transitions import read_phases, seconds_since_epoch
from paretune.specification.container import PROFILE, RUNNER, Event, JobReport, measurements_of, read_event
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, cut_off, failed
from paretune.specification.order import job_of

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef as Description

RUN_VARIABLE = "PARETUNE_RUN"  # environment variable of a job: id of the run that records it
USER_VARIABLE = "PARETUNE_LAUNCHED_BY"  # environment variable of a job: who has launched it, and where
OUR_TRAINING = "python3 -m paretune.training /opt/ml"  # the command of every job without code of the user
POLL_S = 20.0
"""Longest pause between two descriptions of a job, in seconds. The pause is a twentieth of the time for which this
process has watched the job, but at least 2 s."""
_DELETED = "Deleted"  # our own TrainingJobStatus and WarmPoolStatus of a job that AWS no longer knows
_GONE = {"Deleting", _DELETED}
_TERMINAL = {"Completed", "Failed", "Stopped", *_GONE}
_KEPT = {"InUse", "Available"}  # WarmPoolStatus of instances that are billed (API reference, read 2026-11-21)
_EXPIRED = "Expired"  # our own WarmPoolStatus after the keep-alive period, if AWS never reported one
_LATE_S = 60.0  # how long after a job's end AWS may still complete its description
_RESULT_FILE = re.compile(rf"(?:report|partial)\.json|events\.jsonl|{PROFILE}/(trace\.json\.gz|profile\.(json|md))")
_NO_SPOT = "no spot instance was available within the longest wait"
_PENDING = "no instance was available within half an hour"
_LIMITS = {
    "MaxRuntimeExceeded": cut_off("it ran longer than max_runtime_minutes"),
    "MaxWaitTimeExceeded": Ending(JobState.STOPPED, Cause.CAPACITY, _NO_SPOT),
    "MaxPendingTimeExceeded": Ending(JobState.STOPPED, Cause.CAPACITY, _PENDING),
}
"""The limits at which SageMaker stops a job, by its SecondaryStatus."""
_KEPT_LINES = 1000  # lines that are kept of each instance's log, unless more are requested
_OVERLAP_MS = 60_000  # CloudWatch may show lines of an instance this late
_LAST_MS = 600_000  # how far back from the newest line the last lines of all instances are read
NOT_DESCRIBED = cast("Description", {})  # the result of `described` if AWS cannot describe the job now
_EVENT_START = '{"time"'
_AFTER_EVENT = re.compile(r"(?:\s|\x1b\[[0-9;]*m|#015)+$")  # CloudWatch's export writes a carriage return as #015
_TRACE = re.compile(r"\++ ")


def bucket_in(description: "Description") -> str:
    """Return the bucket of a job from AWS's description of it or from its request."""
    uri = str(description.get("OutputDataConfig", {}).get("S3OutputPath", ""))
    return uri.removeprefix("s3://").partition("/")[0]


class JobLog:
    """Reads a job's log in CloudWatch: its lines and events.

    If the job `runs_user_code`, a line is an event only if it names the job, as the lines of the runner do.
    """

    def __init__(self, client: Any, job_name: str, *, runs_user_code: bool) -> None:
        self._client, self._job_name, self._runs_user_code = client, job_name, runs_user_code
        self._shown_ms = 0  # time of the newest line that `new` has returned
        self._shown: dict[tuple[str, str], int] = {}  # stream and id of the lines that it may read again, with times
        self._newest_ms = 0  # time of the newest line of the first instance, which writes the events
        self.events: list[Event] = []  # events that were not taken yet; each `read` adds those of the last minute again
        self.is_read = False  # whether `read` was called
        self.unreadable = ""  # why this identity may not read logs; "" if it may

    def read(self) -> None:
        """Read the log of the first instance, starting one minute before its newest line.

        Raises boto's errors, except denied access, which is kept in `unreadable`.
        """
        newest_ms, self.is_read = self._newest_ms, True
        for entry in self._entries("algo-1-", newest_ms - _OVERLAP_MS):
            newest_ms = max(newest_ms, entry["timestamp"])
            if (event := self._parsed(entry)[1]) is not None:
                self.events.append(event)
        self._newest_ms = newest_ms

    def tail(self, lines: int, reason: str = "") -> list[str]:
        """Return the last lines of one instance, without empty lines or the trace of a shell script.

        Without a `reason`, this is the first instance. With the `reason` of a failure, it is the instance that printed
        the reason or, if none did, the instance that stopped printing first.
        """
        tails: dict[str, deque[str]] = {}  # by stream
        last_ms: dict[str, int] = {}
        for entry in self._entries("", self._newest_ms - _LAST_MS):
            line = self._parsed(entry)[0]
            last_ms[entry["logStreamName"]] = entry["timestamp"]
            is_shown = line.strip() and not _TRACE.match(line)
            if is_shown:
                tails.setdefault(entry["logStreamName"], deque(maxlen=max(_KEPT_LINES, lines))).append(line)
        if not tails:
            return [self.unreadable] if self.unreadable else []
        streams = sorted(tails, key=lambda name: (len(name), name))
        latest = {name.rpartition("-")[0]: name for name in streams}  # the newest stream of each host
        matching = [name for name in latest.values() if any(reason in line for line in tails[name])]
        chosen = min(matching or latest.values(), key=last_ms.__getitem__) if reason else next(iter(latest.values()))
        return list(tails[chosen])[-lines:]

    def new(self) -> list[str]:
        """Return the lines of the first instance since the last call, or those of the last minutes at the first call.

        Raises boto's errors, except denied access.
        """
        is_first, lines, shown = not self._shown_ms, list[str](), dict(self._shown)
        since_ms = self._newest_ms - _LAST_MS if is_first else self._shown_ms - _OVERLAP_MS
        for entry in self._entries("algo-1-", since_ms):
            place = (entry["logStreamName"], entry["eventId"])
            line = "" if place in shown else self._parsed(entry)[0]
            shown[place] = entry["timestamp"]
            if line.strip() and not _TRACE.match(line):
                lines.append(line)
        self._shown_ms = max([self._shown_ms, *shown.values()])
        self._shown = {place: time for place, time in shown.items() if time >= self._shown_ms - 2 * _OVERLAP_MS}
        return [self.unreadable] if is_first and self.unreadable else lines

    def _entries(self, stream: str, since_ms: int) -> Iterator[dict[str, Any]]:
        if self.unreadable:
            return
        pages, prefix = self._client.get_paginator("filter_log_events"), f"{self._job_name}/{stream}"
        try:
            for page in pages.paginate(logGroupName=GROUP, logStreamNamePrefix=prefix, startTime=max(0, since_ms)):
                yield from (entry for entry in page.get("events", ()) if entry["logStreamName"].startswith(prefix))
        except AWS_ERRORS as error:
            if is_denied(error):
                self.unreadable = explain(error, "read the log of a job")
            elif code(error) != "ResourceNotFoundException":  # no job has ever run in this account and region
                raise

    def _parsed(self, entry: Mapping[str, Any]) -> tuple[str, Event | None]:
        line = entry["message"].rstrip("\n")
        before, start, rest = line.partition(_EVENT_START)
        is_indented = before and not before.strip()  # our own events are not
        event = None if is_indented else read_event(_AFTER_EVENT.sub("", start + rest))
        if event is None or (self._runs_user_code and not measurements_of([event], self._job_name)):
            return line, None
        return before, event


class SageMakerJob(Job):
    """A training job, created by this process or any other.

    `description` is a response of DescribeTrainingJob, or the request that created the job: both name the command and
    the bucket of the results in the same members. Only a user's own training can complete without a report.
    """

    def __init__(self, name: str, account: Account, clock: Clock, description: "Description") -> None:
        self.name, self._account, self._clock = name, account, clock
        self.description = description  # the last response; before the first one, the request
        self._prefix = f"{PREFIX}/jobs/{name}/output/"  # S3 prefix of the results, which SageMaker uploads at the end
        self._files: Mapping[str, bytes] | None = None  # report, events and profile by name; None before they are read
        self._model = ""  # URI of the trained model, read together with `_files`
        self._log = JobLog(account.client("logs"), name, runs_user_code=self._runs_user_code)
        self._created, self._began = clock.now(), clock.monotonic()
        self._due = self._began + (2.0 if "TrainingJobStatus" in description else 0.0)
        self._end_seen: float | None = None  # when the end was first seen without the billed seconds
        self._missing_since: float | None = None  # when AWS first answered that it does not know the job
        self._asked_to_stop = False
        self._must_stop_again = False
        self._seen_lines: set[str] = set()  # events returned so far: log, results and description repeat them

    @property
    def run_id(self) -> str:
        """Id of the run that first submitted the job, from its environment variables or, if absent, from its name."""
        return str(self.description.get("Environment", {}).get(RUN_VARIABLE, "")) or job_of(self.name)

    @property
    def _runs_user_code(self) -> bool:
        """Whether the job's command is the runner of a user's own training."""
        arguments = self.description.get("AlgorithmSpecification", {}).get("ContainerArguments", [])
        return bool(arguments) and RUNNER in arguments[-1]

    @property
    def _storage(self) -> Storage:
        return Storage(self._account.client("s3"), bucket_in(self.description))

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended according to SageMaker, or no longer exists."""
        return self.description.get("TrainingJobStatus") in _TERMINAL

    @property
    def ended_at(self) -> float:
        """When the job ended, in seconds since the epoch; the current time if it has not."""
        end = self.description.get("TrainingEndTime") or self.description.get("LastModifiedTime")
        return float(end.timestamp()) if end and self.has_ended else self._clock.now()

    @property
    def launched_by(self) -> str:
        return str(self.description.get("Environment", {}).get(USER_VARIABLE, ""))

    def state(self) -> JobState:
        """Return the state, after describing the job again if its last description is too old."""
        self._look()
        if self._must_stop_again and not self.has_ended:
            self._request_stop()
        if (ending := self._ending()) is not None:
            return ending.state
        is_stopping = self._asked_to_stop or self.description.get("TrainingJobStatus") == "Stopping"
        return JobState.STOPPING if is_stopping else JobState.RUNNING

    def detail(self) -> str:
        return str(self.description.get("SecondaryStatus", ""))

    def events(self) -> list[Event]:
        """Return the events of the training, and each new secondary status as a message."""
        self._look()
        self._drain()
        if self._may_have_log and not self._log.is_read:  # a job that was attached a moment ago
            with suppress(*AWS_ERRORS):
                self._log.read()
        events, self._log.events = self._log.events, []
        if self.has_ended:
            lines = (self._results() or {}).get("events.jsonl", b"").decode(errors="replace").splitlines()
            events = events + [event for event in map(read_event, lines) if event is not None]
        fresh = []
        for event in sorted([*self._status_events(), *events], key=lambda event: event.time):
            if event.line() not in self._seen_lines:
                self._seen_lines.add(event.line())
                fresh.append(event)
        return fresh

    def stop(self) -> None:
        """Call StopTrainingJob, which sends SIGTERM and gives the job two minutes to write a checkpoint."""
        if not self.has_ended:
            self._asked_to_stop = True
            self._request_stop()

    def chosen_instance_type(self) -> str:
        return str(self.description.get("ResourceConfig", {}).get("SelectedInstanceType", ""))

    def status(self) -> JobStatus:
        """Return state, seconds and results. Until AWS reports billed seconds, those since TrainingStartTime count."""
        has_ended, description = self.state().is_terminal, self.description
        created, started = description.get("CreationTime"), description.get("TrainingStartTime")
        billed = max(0.0, self.ended_at - started.timestamp()) if started else 0.0
        billed = float(description.get("BillableTimeInSeconds", billed))
        ending = self._ending() if has_ended else None
        has_completed = ending is not None and ending.has_completed
        return JobStatus(
            ending=None if ending is None else ending.explained(self._lines_after(ending)),
            seconds=max(0.0, self.ended_at - (created.timestamp() if created else self._created)),
            billable_seconds=billed,
            phase_seconds=read_phases(description, self.ended_at),
            ended_at=self.ended_at if self.has_ended else None,
            report=self._report() if has_completed else None,
            partial=self._partial() if ending is not None and not has_completed else None,
            facts=self._facts(billed),
            model=self._model if has_completed else "",
        )

    def _ending(self) -> Ending | None:
        """Return how the job ended; None while it runs, and until its results can be read.

        The reason of a failure is SageMaker's, from the first instance that failed. AWS also reports a training that
        has stopped itself at its deadline as failed.
        """
        if not self.has_ended or not self._is_complete or self._results() is None:
            return None
        status = self.description.get("TrainingJobStatus")
        if status == "Failed":
            return ending_of(str(self.description.get("FailureReason", "")))
        if status == "Stopped":
            return STOPPED if self._asked_to_stop else _LIMITS.get(self.detail(), STOPPED)
        if self._report() is not None:
            return COMPLETED
        if status == "Completed":
            return failed(Cause.ERROR, "it ended without a report.json that can be read")
        return failed(Cause.ERROR, "it was deleted in AWS, and has left no report")

    def _lines_after(self, ending: Ending) -> list[str]:
        return self.log_tail(_KEPT_LINES) if ending.cause is Cause.SILENT else []

    def _facts(self, billed: float) -> dict[str, str]:
        description = self.description
        facts: dict[str, str | None] = {"job_arn": description.get("TrainingJobArn"), "secondary_status": self.detail()}
        facts["image_uri"] = description.get("AlgorithmSpecification", {}).get("TrainingImage")
        trained = description.get("TrainingTimeInSeconds")  # seconds that would be billed on demand
        if description.get("EnableManagedSpotTraining") and trained:
            facts |= {"spot_saving": f"{1 - billed / float(trained):.0%}", "training_seconds": str(trained)}
        return {name: text for name, text in facts.items() if text}

    def log_tail(self, lines: int = 15) -> list[str]:
        self._drain()
        reason = self.description.get("FailureReason")
        with suppress(*AWS_ERRORS):
            return self._log.tail(lines, ending_of(reason).sentence if reason else "")
        return []

    def new_lines(self) -> list[str]:
        self._drain()
        with suppress(*AWS_ERRORS):
            return self._log.new()
        return []

    def log_location(self) -> str:
        region = self._account.region
        return f"aws logs tail {GROUP} --log-stream-name-prefix {self.name} --since 7d --region {region}"

    def profile(self) -> Mapping[str, bytes]:
        files, folder = self._results() or {}, f"{PROFILE}/"
        return {name.removeprefix(folder): files[name] for name in files if name.startswith(folder)}

    def fetch_output(self, name: str, folder: Path) -> Path:
        storage = self._storage
        with refused_to(f"read the results of {self.name}", LostContact):
            for path, key in output_of(storage, self._prefix)[0].items():
                if path.startswith(f"{name}/"):
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    storage.s3.download_file(storage.bucket, key, str(folder / path))
        return folder / name

    def clean_up(self) -> None:
        """Remove the job's checkpoints from S3, which bills them by the month."""
        checkpoints = str(self.description.get("CheckpointConfig", {}).get("S3Uri", ""))
        prefix = checkpoints.removeprefix(self._storage.uri(""))
        if prefix.startswith(f"{PREFIX}/checkpoints/"):
            with suppress(LaunchRefused):
                self._storage.remove(prefix)

    def warm_pool(self) -> WarmPoolStatus | None:
        """Return the job's warm pool, read again while instances are kept, or None if there never was a pool.

        Its seconds are unknown if AWS never reported the pool, or if the job has been deleted, which AWS allows once no
        instances are kept.
        """
        self._look()
        if not (status := self._pool_status):
            return None
        pool = self.description.get("WarmPoolStatus", {})
        retained_s = float(pool.get("ResourceRetainedBillableTimeInSeconds", 0.0))
        return WarmPoolStatus(
            status=status,
            is_kept=status in _KEPT,
            seconds=None if status in {_DELETED, _EXPIRED} else retained_s,
        )

    def release_warm_pool(self) -> None:
        """Set the keep-alive period to 0 with UpdateTrainingJob, if the instances are kept."""
        if self.warm_pool() is None or not (self.has_ended and self._pool_status in _KEPT):
            return
        sagemaker = self._account.client("sagemaker")
        try:
            sagemaker.update_training_job(TrainingJobName=self.name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})
        except AWS_ERRORS as error:
            if code(error) != "ValidationException":  # which AWS returns if they were reused or have expired meanwhile
                raise LostContact(
                    f"{explain(error, f'release the warm pool of {self.name}')}\nits instances are billed for up to "
                    f"sagemaker.keep_alive_minutes after it: `aws sagemaker update-training-job --training-job-name "
                    f"{self.name} --resource-config KeepAlivePeriodInSeconds=0 --region {self._account.region}`"
                ) from error
        self._due = self._clock.monotonic()

    @property
    def _pool_status(self) -> str:
        """WarmPoolStatus; "" if the job keeps no instances.

        Until AWS reports a status, the instances are assumed to be kept for the requested period.
        """
        description = self.description
        if status := str(description.get("WarmPoolStatus", {}).get("Status", "")):
            return status  # AWS keeps reporting it after another process has released the instances
        kept_s = description.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds", 0)
        if not kept_s or not description.get("TrainingStartTime"):
            return ""
        return "Available" if self._clock.now() < self.ended_at + kept_s + _LATE_S else _EXPIRED

    @property
    def _is_complete(self) -> bool:
        """Whether AWS has completed an ended job's description. Its billed seconds may follow up to _LATE_S later."""
        if "BillableTimeInSeconds" in self.description or not self.description.get("TrainingStartTime"):
            return True
        self._end_seen = self._clock.monotonic() if self._end_seen is None else self._end_seen
        return self._clock.monotonic() - self._end_seen > _LATE_S

    def _results(self) -> Mapping[str, bytes] | None:
        """Return report, events and profile of the ended job, read once; None if S3 does not answer now.

        Raises LostContact if this identity may not read them.
        """
        if self._files is None:
            storage = self._storage
            try:
                keys, self._model = output_of(storage, self._prefix)
                wanted = {name: key for name, key in keys.items() if _RESULT_FILE.fullmatch(name)}
                self._files = {name: storage.read(key) for name, key in wanted.items()}
            except AWS_ERRORS as error:
                if is_transient(error):
                    return None
                raise LostContact(
                    f"{explain(error, f'read the results of {self.name}')}\nit has ended; sign in again, then "
                    f"`{command_line('sync')}`"
                ) from error
        return self._files

    def _report(self) -> JobReport | None:
        report = JobReport.read_json((self._results() or {}).get("report.json", b""))
        if report is not None or self.description.get("TrainingJobStatus") != "Completed":
            return report
        return JobReport(metrics={}) if self._runs_user_code else None  # a full disk may keep it from reporting

    def _partial(self) -> JobReport | None:
        return JobReport.read_json((self._results() or {}).get("partial.json", b""))

    def _look(self) -> None:
        """Describe the job and read its log, if the last description is too old.

        Transient errors are ignored, because the next call tries again. Raises LostContact for all others.
        """
        now = self._clock.monotonic()
        if now < self._due or (self.has_ended and self._is_complete and self._pool_status not in _KEPT):
            return
        self._due = now + min(POLL_S, max(2.0, (now - self._began) / 20))
        try:
            if self.has_ended:
                without_pool: dict[str, object] = {"WarmPoolStatus": {"Status": _DELETED}}
                gone = cast("Description", {**self.description, **without_pool})  # keep what is known about its end
                answer = described(self._account, self.name)
                self.description = gone if answer is None else answer or self.description
                return
            self._describe()
            if self._may_have_log:
                self._log.read()
        except AWS_ERRORS as error:
            if not is_transient(error):
                raise LostContact(
                    f"{explain(error, 'describe the job')}\n{self.name} may still be running, or its instances kept: "
                    f"sign in again, then `{command_line('sync')}`"
                ) from error

    def _describe(self) -> None:
        """Describe the job. It counts as deleted if AWS has not known it for GONE_AFTER_S."""
        now, description = self._clock.monotonic(), described(self._account, self.name)
        self.description = description or self.description
        if description is not None:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since >= GONE_AFTER_S:
            noticed = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC)
            ending: dict[str, object] = {
                "TrainingJobStatus": _DELETED,
                "SecondaryStatus": _DELETED,
                "LastModifiedTime": noticed,
                "WarmPoolStatus": {"Status": _DELETED},
            }
            self.description = cast("Description", {**self.description, **ending})

    @property
    def _may_have_log(self) -> bool:
        return self.detail() not in {"", "Starting", "Pending"}

    def _drain(self) -> None:
        if self.has_ended:
            with suppress(*AWS_ERRORS):  # the log is useful, but only the results matter
                self._log.read()

    def _status_events(self) -> Iterator[Event]:
        for entry in self.description.get("SecondaryStatusTransitions", []):
            status, message = str(entry.get("Status", "")), entry.get("StatusMessage", "")
            text = f"{status}: {message}" if message and message != status else status
            if (begin := seconds_since_epoch(entry.get("StartTime"))) is not None:
                yield Event(time=begin, step=0, message=text)

    def _request_stop(self) -> None:
        self._must_stop_again = False
        try:
            self._account.client("sagemaker").stop_training_job(TrainingJobName=self.name)
        except AWS_ERRORS as error:
            # It has ended, is already stopping, or is not visible yet.
            is_refused = code(error) == "ValidationException"
            self._must_stop_again = is_transient(error) or (is_refused and "TrainingJobStatus" not in self.description)
            if not is_transient(error) and not is_refused:
                raise LostContact(
                    f"{explain(error, f'stop {self.name}')}\nit may still be running: "
                    f"`aws sagemaker stop-training-job --training-job-name {self.name} --region {self._account.region}`"
                ) from error
        self._began = self._due = self._clock.monotonic()  # describe it again soon


def described(account: Account, name: str) -> "Description | None":
    """Return DescribeTrainingJob's response, NOT_DESCRIBED if AWS gives none now, or None if there is no such job.

    A job that DescribeTrainingJob does not know is looked up with ListTrainingJobs. If that shows the job, the result
    is NOT_DESCRIBED; if this identity may not call it, the result is None. Raises boto's errors.
    """
    sagemaker = account.client("sagemaker")
    try:
        answer = sagemaker.describe_training_job(TrainingJobName=name)
        return answer if "TrainingJobStatus" in answer else NOT_DESCRIBED
    except AWS_ERRORS as error:
        if code(error) not in {"ValidationException", "ResourceNotFound"}:
            raise
    try:
        listed = sagemaker.list_training_jobs(NameContains=name[:63], MaxResults=100).get("TrainingJobSummaries")
    except AWS_ERRORS as error:
        if is_denied(error):
            return None
        raise
    return NOT_DESCRIBED if listed is None or name in [summary["TrainingJobName"] for summary in listed] else None
