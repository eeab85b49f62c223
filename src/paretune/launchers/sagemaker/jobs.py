"""One SageMaker training job as a `Job`."""

import re
import tarfile
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Any, BinaryIO

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import Job, JobState, WarmPool
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, classify, code, explain, is_transient
from paretune.launchers.sagemaker.logs import GROUP
from paretune.launchers.sagemaker.polling import DELETED, Poller
from paretune.launchers.sagemaker.request import lost_plan
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import PROFILE, Event, FailureKind, JobReport, read_event, read_report
from paretune.storage.archives import Entry, damage_told, entries

_STATES = {state.value: state for state in JobState}  # called as SageMaker does, but for InProgress
_GONE = {"Deleting", DELETED}
_KEPT = {"InUse", "Available"}  # WarmPoolStatus of instances that are billed (API reference, read 2026-11-21)
_IN_PROFILE = re.compile(rf"{PROFILE}/\w[\w.-]{{0,99}}")  # a file of the folder, with a name for any file system
_LARGEST_RESULTS = 512 * 2**20  # bytes of all files together; reports and a profile have a hundredth of it
# What pip prints when it cannot connect, and when it gives up (pip 25).
_NOT_REACHED = re.compile("Failed to establish a new connection|ConnectTimeoutError|Name or service not known|Retrying")
_NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")
_LIMITS = {
    "MaxRuntimeExceeded": (FailureKind.ERROR, "MaxRuntimeExceeded: it ran longer than max_runtime_minutes"),
    "MaxWaitTimeExceeded": (
        FailureKind.CAPACITY,
        "MaxWaitTimeExceeded: spot capacity did not come within max_wait_minutes",
    ),
}


class AwsJob(Job):
    """A job in an AWS account, created in SageMaker or by a queue."""

    @property
    @abstractmethod
    def description(self) -> Mapping[str, Any]:
        """What DescribeTrainingJob said last; empty before there is a training job."""

    def reject(self, reason: str) -> None:
        """Stop it, for it does not run as it was asked for; `reason` is its failure where a place can keep that."""
        self.stop()

    @abstractmethod
    def logged_events(self) -> list[Event]:
        """What it told in CloudWatch, as far as that has been read; all of it, once the job has ended."""

    @abstractmethod
    def written_events(self) -> list[Event]:
        """What it told, from its results; empty before its end, or where there are none."""


class SageMakerJob(AwsJob):
    """A training job that runs our training, seen from the process that created it or from any other one.

    Args:
        description: what DescribeTrainingJob said, when somebody has asked already.
        training_job: its name in SageMaker, where that is not `name`: a queue names its training jobs itself.
    """

    is_project = False
    """Whether it runs the command of somebody's project."""
    wanted: Collection[str] = ("report.json", "events.jsonl")
    """Files of its results that are read; the rest stays in S3."""
    results_archive = "output.tar.gz"

    def __init__(
        self,
        name: str,
        account: Account,
        staging: Staging,
        poller: Poller,
        clock: Clock,
        description: Mapping[str, Any] | None = None,
        *,
        trials: int = 1,
        training_job: str = "",
    ) -> None:
        self.name = name
        self._training_job = training_job or name
        self._trials = trials
        self._account = account
        self._staging = staging
        self._poller = poller
        self._clock = clock
        self._watched = poller.watch(self._training_job, description, is_project=self.is_project)
        self._created = clock.now()
        self._asked_to_stop = False
        self._must_stop_again = False
        self._told: set[str] = set()  # lines of events, for they come from the log and from the results
        self._read = 0  # events of the log; the reader belongs to all who look at this job
        self._transitions = 0
        self._results: Mapping[str, bytes] | None = None
        self._rejected = ""
        self._keep_alive_s = 0.0  # as it was asked for; AWS says 0 once it is given back

    def state(self) -> JobState:
        """The state as SageMaker last said, asked again if the rate of calls allows."""
        if not self._watched.has_ended:
            self._poller.look()
        if self._must_stop_again and not self._watched.has_ended:
            self._ask_to_stop()
        status = self.description.get("TrainingJobStatus", "InProgress")
        if status in {"Completed", *_GONE}:
            return self._end_state()
        state = _STATES.get(status, JobState.RUNNING)
        if state is JobState.RUNNING and self._asked_to_stop:
            return JobState.STOPPING
        return state

    def detail(self) -> str:
        """SageMaker's secondary status, such as Downloading."""
        return str(self.description.get("SecondaryStatus", ""))

    def events(self) -> list[Event]:
        """What the training told, and each new secondary status as a message."""
        self._poller.drain(self._training_job)
        told = self._watched.log.events[self._read :]
        self._read += len(told)
        told += self.written_events()
        fresh = []
        for event in merge(self._status_events(), told, key=lambda event: event.time):
            if event.line() not in self._told:
                self._told.add(event.line())
                fresh.append(event)
        return fresh

    def stop(self) -> None:
        """StopTrainingJob: SIGTERM, and two minutes to write a checkpoint."""
        if self._watched.has_ended:
            return
        self._asked_to_stop = True
        self._ask_to_stop()

    def reject(self, reason: str) -> None:
        """Stop it, for it does not run as it was asked for: that is its failure, unless it completes all the same.

        Raises:
            LostContact: AWS refuses to stop it.
        """
        self._rejected = reason
        self.stop()

    def trials(self) -> int:
        """As its request said."""
        return self._trials

    def stop_trial(self, key: str) -> None:
        """Write an object that the training looks for; where AWS refuses, the trial goes on to its end."""
        with suppress(LaunchRefused):
            self._staging.text(f"{stop_requests(self.name)}{key}", "")

    def report(self) -> JobReport | None:
        """The report from the job's results in S3."""
        if self.state() is not JobState.COMPLETED:
            return None
        return read_report((self._fetch() or {})["report.json"])

    def failure(self) -> tuple[FailureKind, str] | None:
        """SageMaker's reason, which is that of the instance that failed first; or the limit that stopped the job."""
        state = self.state()
        if self._rejected and state in {JobState.FAILED, JobState.STOPPED}:
            return FailureKind.OFF_PLAN, self._rejected
        if state is JobState.FAILED:
            status = self.description.get("TrainingJobStatus")
            if status == "Completed":
                has_one = "report.json" in (self._fetch() or {})
                what = "with a report.json that cannot be read" if has_one else "without a report.json in its results"
                return FailureKind.ERROR, f"it ended {what}"
            if status in _GONE:
                return FailureKind.ERROR, "it was deleted in AWS, and has left no report"
            return self._with_cause(*classify(str(self.description.get("FailureReason", ""))))
        if state is JobState.STOPPED and self.detail() in _LIMITS and not self._asked_to_stop:
            return _LIMITS[self.detail()]
        return None

    def selected_instances(self) -> tuple[str, int] | None:
        """SelectedInstanceType and SelectedInstanceCount."""
        shown = self.description.get("ResourceConfig", {})
        kind, count = shown.get("SelectedInstanceType"), shown.get("SelectedInstanceCount")
        return (str(kind), int(count)) if kind and count else None

    def has_lost_plan(self) -> bool:
        """Whether AWS shows it without the training plan that its environment names."""
        return bool(lost_plan(self.description))

    def seconds(self) -> float:
        """Seconds from the job's creation to its end, or to now; waiting for instances included."""
        created = self.description.get("CreationTime")
        begin = created.timestamp() if created else self._created
        return max(0.0, self._end() - begin)

    def billable_seconds(self) -> float:
        """BillableTimeInSeconds; where AWS does not say it (yet), the time since the instances were there."""
        billed = self.description.get("BillableTimeInSeconds")
        if billed is not None:
            return float(billed)
        started = self.description.get("TrainingStartTime")
        return max(0.0, self._end() - started.timestamp()) if started else 0.0

    def warm_pool(self) -> WarmPool | None:
        """WarmPoolStatus and ResourceRetainedBillableTimeInSeconds; asked again while the instances are kept.

        Of a job that AWS no longer knows, the pool counts as kept for the whole time that was asked for.
        """
        pool = self._pool()
        if pool is not None and pool.is_kept:
            self._poller.look_at_pool(self._training_job)
            pool = self._pool()
        return pool

    def release(self) -> None:
        """UpdateTrainingJob with a keep-alive period of 0; nothing where no instances are kept."""
        pool = self._pool()
        if pool is None or not pool.is_kept:
            return
        try:
            self._account.client("sagemaker").update_training_job(
                TrainingJobName=self._training_job, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
            )
        except AWS_ERRORS as error:
            self._poller.look_at_pool(
                self._training_job, now=True
            )  # it may have been reused, or have expired, this moment
            pool = self._pool()
            if pool is None or not pool.is_kept:
                return
            raise LostContact(
                f"{explain(error, f'give back the warm pool of {self.name}')}\nits instances are billed for up to "
                f"{pool.most_seconds / 60:g} minutes after it: `aws sagemaker update-training-job --training-job-name "
                f"{self._training_job} --resource-config KeepAlivePeriodInSeconds=0 --region {self._account.region}`"
            ) from error
        self._poller.look_at_pool(self._training_job, now=True)

    def facts(self) -> dict[str, str]:
        """Where the job is in AWS, and what spot made of its bill."""
        description = self.description
        facts = {"job_arn": str(description.get("TrainingJobArn", "")), "secondary_status": self.detail()}
        facts["image_uri"] = str(description.get("AlgorithmSpecification", {}).get("TrainingImage", ""))
        if description.get("EnableManagedSpotTraining") and description.get("TrainingTimeInSeconds"):
            saved = 1 - self.billable_seconds() / float(description["TrainingTimeInSeconds"])
            facts["spot_saving"] = f"{saved:.0%}"
            facts["training_seconds"] = str(description["TrainingTimeInSeconds"])  # what on demand would have billed
        return {name: text for name, text in facts.items() if text}

    def log_tail(self, lines: int = 15) -> list[str]:
        """Last lines of the instance that failed first."""
        self._poller.drain(self._training_job)
        return self._watched.log.tail(lines)

    def log_location(self) -> str:
        """The command that shows the whole log."""
        region = self._account.region
        return f"aws logs tail {GROUP} --log-stream-name-prefix {self._training_job} --since 7d --region {region}"

    def save_results(self, path: Path) -> bool:
        """Download output.tar.gz, the archive of /opt/ml/output/data."""
        try:
            self._account.client("s3").download_file(self._account.bucket, self._key("output.tar.gz"), str(path))
        except AWS_ERRORS as error:
            if code(error) in {"404", "NoSuchKey"}:  # it has ended before it had any
                return False
            raise LostContact(explain(error, f"read the results of {self.name}")) from error
        return True

    def profile(self) -> Mapping[str, bytes]:
        """The folder of the profile in output.tar.gz, which is read once more: a trace is large."""
        try:
            packed = self._staging.open(self._key(self.results_archive))
        except AWS_ERRORS as error:
            raise LostContact(explain(error, f"read the profile of {self.name}")) from error
        files = {} if packed is None else _unpack(packed, _IN_PROFILE.fullmatch)
        return {name.removeprefix(f"{PROFILE}/"): content for name, content in files.items()}

    def model_location(self) -> str:
        """S3 URI of the archive with the trained model."""
        return self._staging.uri(self._key("model.tar.gz"))

    def clean_up(self) -> None:
        """Remove the checkpoints from S3, unless another job has claimed their place since; they cost by the month."""
        where = str(self.description.get("CheckpointConfig", {}).get("S3Uri", ""))
        prefix = where.removeprefix(self._staging.uri(""))
        if not prefix.startswith(f"{PREFIX}/checkpoints/"):
            return
        with suppress(LaunchRefused, *AWS_ERRORS):  # what is left then is seen to be finished by the next job
            claim = self._staging.claim(f"{prefix.rstrip('/')}.claim")
            if claim is None or claim.owner == self.name:
                self._staging.remove(prefix)

    @property
    def description(self) -> Mapping[str, Any]:
        """What DescribeTrainingJob said last."""
        return self._watched.description

    def logged_events(self) -> list[Event]:
        """As far as CloudWatch has been read; all of it, once the job has ended."""
        self._poller.drain(self._training_job)
        return list(self._watched.log.events)

    def written_events(self) -> list[Event]:
        """From its results; empty before its end, or where there are none."""
        if not self._watched.has_ended:
            return []
        lines = (self._fetch() or {}).get("events.jsonl", b"").decode(errors="replace").splitlines()
        return [event for event in map(read_event, lines) if event is not None]

    def _pool(self) -> WarmPool | None:
        """The warm pool as AWS has last said."""
        description = self.description
        asked = float(description.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds") or 0.0)
        self._keep_alive_s = max(self._keep_alive_s, asked)
        if not self._keep_alive_s or not description.get("TrainingStartTime"):
            return None
        said = description.get("WarmPoolStatus", {})
        status = str(said.get("Status", "Available"))
        seconds = float(said.get("ResourceRetainedBillableTimeInSeconds", 0.0))
        is_kept = status in _KEPT
        if status == DELETED:
            seconds, is_kept = self._keep_alive_s, self._clock.now() < self._end() + self._keep_alive_s
        return WarmPool(
            status=status,
            is_kept=is_kept,
            seconds=seconds,
            most_seconds=self._keep_alive_s,
            reused_by=str(said.get("ReusedByJob", "")),
        )

    def _with_cause(self, kind: FailureKind, reason: str) -> tuple[FailureKind, str]:
        """The failure, with what to do where pip has found no index from the job's own network."""
        if kind is not FailureKind.ERROR or not self.description.get("VpcConfig"):
            return kind, reason
        lines = self.log_tail(200)
        wanted = next(filter(None, (_NOT_FOUND.search(line) for line in lines)), None)
        if wanted is None or not any(map(_NOT_REACHED.search, lines)):
            return kind, reason
        return FailureKind.BAD_INPUT, (
            f"pip has reached no index of packages from the job's subnets, and {wanted[1]} is not in the image: give "
            "them a route to a NAT gateway, or package_index that they reach, or image_uri of an image that holds the "
            f"packages ({reason})"
        )

    def _status_events(self) -> list[Event]:
        transitions = self.description.get("SecondaryStatusTransitions", [])
        fresh, self._transitions = transitions[self._transitions :], len(transitions)
        return [
            Event(time=entry["StartTime"].timestamp(), step=0, message=_sentence(entry))
            for entry in fresh
            if entry.get("StartTime")
        ]

    def _end(self) -> float:
        """When the job ended; now, while it has not."""
        ended = self.description.get("TrainingEndTime") or self.description.get("LastModifiedTime")
        return float(ended.timestamp()) if ended and self._watched.has_ended else self._clock.now()

    def _ask_to_stop(self) -> None:
        self._must_stop_again = False
        try:
            self._account.client("sagemaker").stop_training_job(TrainingJobName=self._training_job)
        except AWS_ERRORS as error:
            is_refused = code(error) == "ValidationException"  # it has ended, or stops already, or is not known yet
            self._must_stop_again = is_transient(error) or (is_refused and not self.description)
            if not is_transient(error) and not is_refused:
                raise LostContact(
                    f"{explain(error, f'stop {self.name}')}\nit may still be running: "
                    f"`aws sagemaker stop-training-job --training-job-name {self._training_job} --region "
                    f"{self._account.region}`"
                ) from error
        self._watched.changed = True

    def _end_state(self) -> JobState:
        """How a job ended: by what it left in S3; RUNNING while S3 does not answer."""
        results = self._fetch()
        if results is None:
            return JobState.RUNNING
        return JobState.COMPLETED if read_report(results.get("report.json", b"")) else JobState.FAILED

    def _fetch(self) -> Mapping[str, bytes] | None:
        """What is wanted of an ended job's results, fetched once; None when S3 does not answer just now."""
        if self._results is None:
            try:
                packed = self._staging.open(self._key(self.results_archive))
                self._results = _unpack(packed, self.wanted.__contains__) if packed is not None else {}
            except AWS_ERRORS as error:
                if is_transient(error):
                    return None
                raise LostContact(
                    f"{explain(error, f'read the results of {self.name}')}\nit has ended; sign in again, then "
                    f"`{command_line('sync')}`"
                ) from error
        return self._results

    def _key(self, name: str) -> str:
        return f"{PREFIX}/jobs/{self._training_job}/output/{name}"


def stop_requests(name: str) -> str:
    """Prefix of the keys of the objects that ask for the end of single trials of a shared job."""
    return f"{PREFIX}/jobs/{name}/stop/"


class ProjectJob(SageMakerJob):
    """A training job that runs a project's command: it leaves no report of ours, and what it prints is shown."""

    is_project = True

    def printed(self) -> list[str]:
        """What the first instance has printed since the last call, from where the project's own part begins."""
        self._poller.drain(self._training_job)
        waiting = self._watched.log.printed
        return [waiting.popleft() for _ in range(len(waiting))]

    def report(self) -> JobReport | None:
        """None: the command is somebody else's."""
        return None

    def failure(self) -> tuple[FailureKind, str] | None:
        """SageMaker's reason, with the last line of the log where the reason is only an exit code."""
        found = super().failure()
        if found is None or "ended with exit code" not in found[1]:
            return found
        last = self.log_tail(1)
        return found[0], f"{found[1]}: {last[0].strip()}" if last else found[1]

    def model_location(self) -> str:
        """Empty: whether the command leaves a model is not known."""
        return ""

    def clean_up(self) -> None:
        """Nothing: what the command has put into its checkpoints is the user's."""

    def _end_state(self) -> JobState:
        return JobState.COMPLETED if self.description["TrainingJobStatus"] == "Completed" else JobState.FAILED

    def _fetch(self) -> Mapping[str, bytes]:
        return {}


class ReportingProjectJob(ProjectJob):
    """The same for a job whose launcher wants the metrics of the command: it leaves them in a report."""

    def report(self) -> JobReport | None:
        """The numbers that the command has left; none of a command that has left none."""
        if self.state() is not JobState.COMPLETED:
            return None
        results = SageMakerJob._fetch(self) or {}
        return read_report(results.get("report.json", b"")) or JobReport(metrics={})

    def model_location(self) -> str:
        """S3 URI of the archive with what the command has put into SM_MODEL_DIR."""
        return SageMakerJob.model_location(self)

    def _end_state(self) -> JobState:
        if SageMakerJob._fetch(self) is None:
            return JobState.RUNNING
        return super()._end_state()


def _sentence(transition: Mapping[str, Any]) -> str:
    status, said = transition["Status"], transition.get("StatusMessage", "")
    return f"{status}: {said}" if said and said != status else str(status)


def _unpack(packed: BinaryIO, is_wanted: Callable[[str], object]) -> dict[str, bytes]:
    """The files that are wanted, but for those too large for memory; none of an archive that is damaged."""
    files: dict[str, bytes] = {}
    left = _LARGEST_RESULTS
    try:
        with damage_told(), tarfile.open(fileobj=packed, mode="r|gz", tarinfo=Entry) as archive:
            for entry in entries(archive):
                name = entry.name.removeprefix("./")
                is_small = entry.isfile() and entry.size <= left
                file = archive.extractfile(entry) if is_small and is_wanted(name) else None
                if file is not None:
                    files[name] = file.read()
                    left -= len(files[name])
    except tarfile.TarError:
        return {}
    return files
