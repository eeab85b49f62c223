"""One SageMaker training job as a `Job`, with its warm pool and the output of a project's command."""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from heapq import merge
from typing import Any

from paretune.core.clock import Clock
from paretune.core.errors import LostContact
from paretune.estimating.phases import kind_of
from paretune.estimating.phases import usual as usual_seconds
from paretune.launchers.base import Job, JobState, ProjectOutput, WarmPool, WarmPoolStatus
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_transient
from paretune.launchers.sagemaker.failures import classify
from paretune.launchers.sagemaker.polling import DELETED, GROUP, Poller, Watched
from paretune.launchers.sagemaker.results import OutputArchive, Results
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.catalog import instances
from paretune.specification.container import Event, FailureKind, JobReport
from paretune.specification.job_phases import JobPhases, read_phases, seconds_since_epoch

_KEPT = {"InUse", "Available"}  # WarmPoolStatus of instances that are billed (API reference, read 2026-11-21)
_STATES = {state.value: state for state in JobState}  # SageMaker's words, except InProgress
_GONE = {"Deleting", DELETED}
_USUAL = {"Starting": ("starting",), "Downloading": ("data", "image"), "Uploading": ("uploading",)}
# What pip prints when it cannot connect, and when it gives up (pip 25).
_NOT_REACHED = re.compile("Failed to establish a new connection|ConnectTimeoutError|Name or service not known|Retrying")
_NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")
_LOG_LINES = 200  # the last ones, in which a cause is looked for
_LIMITS = {
    "MaxRuntimeExceeded": (FailureKind.ERROR, "MaxRuntimeExceeded: it ran longer than max_runtime_minutes"),
    "MaxWaitTimeExceeded": (
        FailureKind.CAPACITY,
        "MaxWaitTimeExceeded: spot capacity did not come within max_wait_minutes",
    ),
}


class SageMakerJob(Job):
    """A training job, seen from the process that created it or from any other."""

    def __init__(
        self,
        name: str,
        account: Account,
        staging: Staging,
        poller: Poller,
        clock: Clock,
        results: type[Results],  # reads what the job leaves
        description: Mapping[str, Any] | None = None,  # an answer of DescribeTrainingJob, if there is one already
    ) -> None:
        self.name = name
        self._account = account
        self._staging = staging
        self._poller = poller
        self._clock = clock
        self._results = results(OutputArchive(staging, name))
        self._watched = poller.watch(name, description, is_project=results.is_project)
        self.warm_pool = _SageMakerWarmPool(self._watched, account, poller, clock)
        self.output: ProjectOutput = ProjectOutput(fetch=self._results.archive.download, printed=self._printed)
        self._created = clock.now()
        self._asked_to_stop = False
        self._must_stop_again = False
        self._seen_lines: set[str] = set()  # of events, which come from the log and from the results
        self._events_read = 0  # of the log, whose reader is shared by all who look at this job
        self._transitions_read = 0

    def state(self) -> JobState:
        """The state as SageMaker last described it, asked again if the rate of calls allows."""
        if not self._watched.has_ended:
            self._poller.look()
        if self._must_stop_again and not self._watched.has_ended:
            self._request_stop()
        status = self.description.get("TrainingJobStatus", "InProgress")
        if status in {"Completed", *_GONE}:
            return self._results.end_state(status)
        if self._watched.has_ended and not self._results.is_project and self._results.archive.files() is None:
            return JobState.STOPPING if self._asked_to_stop else JobState.RUNNING  # its events are still to be read
        if self._stopped_itself:
            return JobState.STOPPED
        state = _STATES.get(status, JobState.RUNNING)
        if state is JobState.RUNNING and self._asked_to_stop:
            return JobState.STOPPING
        return state

    def detail(self) -> str:
        """SageMaker's secondary status, such as Downloading."""
        return str(self.description.get("SecondaryStatus", ""))

    def events(self) -> list[Event]:
        """The events of the training, and each new secondary status as a message."""
        self._poller.drain(self.name)
        events = self._watched.log.events[self._events_read :]
        self._events_read += len(events)
        events += self.written_events()
        fresh = []
        for event in merge(self._status_events(), events, key=lambda event: event.time):
            if event.line() not in self._seen_lines:
                self._seen_lines.add(event.line())
                fresh.append(event)
        return fresh

    def stop(self) -> None:
        """Call StopTrainingJob: SIGTERM, and two minutes to write a checkpoint."""
        if self._watched.has_ended:
            return
        self._asked_to_stop = True
        self._request_stop()

    def report(self) -> JobReport | None:
        """The report in the job's results in S3."""
        return self._results.report() if self.state() is JobState.COMPLETED else None

    def failure(self) -> tuple[FailureKind, str] | None:
        """SageMaker's reason, which is that of the instance that failed first; or the limit that stopped the job."""
        state = self.state()
        if self._stopped_itself:
            return _LIMITS["MaxRuntimeExceeded"]
        if state is JobState.FAILED:
            status = self.description.get("TrainingJobStatus")
            if status == "Completed":
                has_one = "report.json" in (self._results.archive.files() or {})
                fault = "with a report.json that cannot be read" if has_one else "without a report.json in its results"
                return FailureKind.ERROR, f"it ended {fault}"
            if status in _GONE:
                return FailureKind.ERROR, "it was deleted in AWS, and has left no report"
            reason = str(self.description.get("FailureReason", ""))
            return self._explained(*classify(reason, partial(self.log_tail, _LOG_LINES)))
        if state is JobState.STOPPED and self.detail() in _LIMITS and not self._asked_to_stop:
            return _LIMITS[self.detail()]
        return None

    @property
    def _stopped_itself(self) -> bool:
        """Whether the container has ended the job at its deadline, which AWS calls a failure."""
        reason = str(self.description.get("FailureReason", ""))
        return self.description.get("TrainingJobStatus") == "Failed" and "MaxRuntimeExceeded: it stopped it" in reason

    def seconds(self) -> float:
        """Seconds from the job's creation to its end, or to now; waiting for instances included."""
        created = self.description.get("CreationTime")
        begin = created.timestamp() if created else self._created
        return max(0.0, self._watched.ended_at(self._clock) - begin)

    def billable_seconds(self) -> float:
        """BillableTimeInSeconds; until AWS gives it, the time since the training started."""
        billed = self.description.get("BillableTimeInSeconds")
        if billed is not None:
            return float(billed)
        started = self.description.get("TrainingStartTime")
        return max(0.0, self._watched.ended_at(self._clock) - started.timestamp()) if started else 0.0

    def phase_seconds(self) -> Mapping[str, float]:
        """The phases in SecondaryStatusTransitions."""
        return self._phases().seconds

    def facts(self) -> dict[str, str]:
        """The place of the job in AWS, its image, what spot saved, and what of its transitions could not be read."""
        description = self.description
        facts = {"job_arn": str(description.get("TrainingJobArn", "")), "secondary_status": self.detail()}
        facts["image_uri"] = str(description.get("AlgorithmSpecification", {}).get("TrainingImage", ""))
        if description.get("EnableManagedSpotTraining") and description.get("TrainingTimeInSeconds"):
            saved = 1 - self.billable_seconds() / float(description["TrainingTimeInSeconds"])
            facts["spot_saving"] = f"{saved:.0%}"
            facts["training_seconds"] = str(description["TrainingTimeInSeconds"])  # what on demand would have billed
        facts["unread_transitions"] = "; ".join(self._phases().faults)
        return {name: text for name, text in facts.items() if text}

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines of the instance that failed first."""
        self._poller.drain(self.name)
        return self._watched.log.tail(lines)

    def log_location(self) -> str:
        """The command that shows the whole log."""
        region = self._account.region
        return f"aws logs tail {GROUP} --log-stream-name-prefix {self.name} --since 7d --region {region}"

    def profile(self) -> Mapping[str, bytes]:
        """The profile in the job's results."""
        return self._results.archive.profile()

    def model_location(self) -> str:
        """S3 URI of the archive with the trained model, or of its files."""
        compression = self.description.get("OutputDataConfig", {}).get("CompressionType")
        return self._results.model_uri(is_compressed=compression != "NONE")

    def clean_up(self) -> None:
        """Remove our training's checkpoints from S3, which cost by the month."""
        checkpoints = str(self.description.get("CheckpointConfig", {}).get("S3Uri", ""))
        prefix = checkpoints.removeprefix(self._staging.uri(""))
        if self._results.is_project or not prefix.startswith(f"{PREFIX}/checkpoints/"):
            return
        with suppress(*AWS_ERRORS):
            self._staging.remove(prefix)

    @property
    def description(self) -> Mapping[str, Any]:
        """The last answer of DescribeTrainingJob; empty before there is one."""
        return self._watched.description

    def logged_events(self) -> list[Event]:
        """The events read from CloudWatch so far; all of them once the job has ended."""
        self._poller.drain(self.name)
        return list(self._watched.log.events)

    def written_events(self) -> list[Event]:
        """The events in the job's results; empty before its end."""
        return self._results.events() if self._watched.has_ended else []

    def _printed(self) -> list[str]:
        self._poller.drain(self.name)
        lines = self._watched.log.printed
        return [lines.popleft() for _ in range(len(lines))]

    def _explained(self, kind: FailureKind, reason: str) -> tuple[FailureKind, str]:
        if self._results.is_project and "ended with exit code" in reason:
            last = self.log_tail(1)
            reason = f"{reason}: {last[0].strip()}" if last else reason
        if kind is not FailureKind.ERROR or not self.description.get("VpcConfig"):
            return kind, reason
        lines = self.log_tail(_LOG_LINES)
        missing = next(filter(None, (_NOT_FOUND.search(line) for line in lines)), None)
        if missing is None or not any(map(_NOT_REACHED.search, lines)):
            return kind, reason
        return FailureKind.BAD_INPUT, (
            f"pip could not reach a package index from the job's subnets, and {missing[1]} is not in the image: give "
            "them a route to a NAT gateway, or package_index that they reach, or image_uri of an image that holds the "
            f"packages ({reason})"
        )

    def _status_events(self) -> list[Event]:
        transitions = self.description.get("SecondaryStatusTransitions", [])
        fresh, self._transitions_read = transitions[self._transitions_read :], len(transitions)
        return [
            Event(time=begin, step=0, message=f"{_sentence(entry)}{self._usual(entry)}")
            for entry in fresh
            if (begin := seconds_since_epoch(entry.get("StartTime"))) is not None
        ]

    def _usual(self, transition: Mapping[str, Any]) -> str:
        instance = instances().get(str(self.description.get("ResourceConfig", {}).get("InstanceType")))
        phases = _USUAL.get(str(transition.get("Status")), ())
        if instance is None or not phases:
            return ""
        usual = [usual_seconds(phase, kind_of(instance)) for phase in phases]
        low, high = sum(item.seconds_low for item in usual), sum(item.seconds_high for item in usual)
        return f" (usually {low:.0f} to {high:.0f} s)"

    def _phases(self) -> JobPhases:
        return read_phases(self.description, self._watched.ended_at(self._clock))

    def _request_stop(self) -> None:
        self._must_stop_again = False
        try:
            self._account.client("sagemaker").stop_training_job(TrainingJobName=self.name)
        except AWS_ERRORS as error:
            is_refused = code(error) == "ValidationException"  # it has ended, or stops already, or is not known yet
            self._must_stop_again = is_transient(error) or (is_refused and not self.description)
            if not is_transient(error) and not is_refused:
                raise LostContact(
                    f"{explain(error, f'stop {self.name}')}\nit may still be running: "
                    f"`aws sagemaker stop-training-job --training-job-name {self.name} --region "
                    f"{self._account.region}`"
                ) from error
        self._watched.changed = True


class _SageMakerWarmPool(WarmPool):
    """The warm pool of one training job, as WarmPoolStatus and ResourceRetainedBillableTimeInSeconds describe it."""

    def __init__(self, job: Watched, account: Account, poller: Poller, clock: Clock) -> None:
        self._job = job
        self._account = account
        self._poller = poller
        self._clock = clock
        self._keep_alive_s = 0.0  # as requested; AWS says 0 once the instances are given back

    def status(self) -> WarmPoolStatus | None:
        """The status, asked again while the instances are kept.

        The pool of a job that AWS has deleted counts as kept for the whole time that was requested.
        """
        status = self._last_status()
        if status is not None and status.is_kept:
            self._poller.look_at_pool(self._job.name)
            status = self._last_status()
        return status

    def release(self) -> None:
        """Set the keep-alive period to 0 with UpdateTrainingJob, if the instances are kept."""
        status, name = self._last_status(), self._job.name
        if status is None or not status.is_kept:
            return
        try:
            self._account.client("sagemaker").update_training_job(
                TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0}
            )
        except AWS_ERRORS as error:
            self._poller.look_at_pool(name, now=True)  # it may have been reused, or have expired, this moment
            status = self._last_status()
            if status is None or not status.is_kept:
                return
            raise LostContact(
                f"{explain(error, f'give back the warm pool of {name}')}\nits instances are billed for up to "
                f"{status.most_seconds / 60:g} minutes after it: `aws sagemaker update-training-job "
                f"--training-job-name {name} --resource-config KeepAlivePeriodInSeconds=0 --region "
                f"{self._account.region}`"
            ) from error
        self._poller.look_at_pool(name, now=True)

    def _last_status(self) -> WarmPoolStatus | None:
        """The status as AWS last described it; None without a keep-alive period, or if the job never started."""
        description = self._job.description
        requested_s = float(description.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds") or 0.0)
        self._keep_alive_s = max(self._keep_alive_s, requested_s)
        pool = description.get("WarmPoolStatus", {})  # stays when another process has given the instances back
        if not (self._keep_alive_s or pool) or not description.get("TrainingStartTime"):
            return None
        status = str(pool.get("Status", "Available"))
        seconds, is_kept = float(pool.get("ResourceRetainedBillableTimeInSeconds", 0.0)), status in _KEPT
        if status == DELETED:
            seconds = self._keep_alive_s
            is_kept = self._clock.now() < self._job.ended_at(self._clock) + self._keep_alive_s
        return WarmPoolStatus(
            status=status,
            is_kept=is_kept,
            seconds=seconds,
            most_seconds=self._keep_alive_s,
            reused_by=str(pool.get("ReusedByJob", "")),
        )


def _sentence(transition: Mapping[str, Any]) -> str:
    status, message = transition.get("Status", "a status without a name"), transition.get("StatusMessage", "")
    return f"{status}: {message}" if message and message != status else str(status)
