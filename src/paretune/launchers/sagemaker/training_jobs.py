"""The training jobs of one account: created with CreateTrainingJob, found again by name."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_missing, is_transient, was_heard
from paretune.launchers.sagemaker.jobs import SageMakerJob
from paretune.launchers.sagemaker.polling import Poller
from paretune.launchers.sagemaker.request import lost_capacity, lost_plan
from paretune.launchers.sagemaker.results import Results
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import JobDocument

_SHOWN_WITHIN_S = 60.0  # DescribeTrainingJob may know a job later than CreateTrainingJob does
_LOOK_EVERY_S = 2.0
_Value = TypeVar("_Value")


class TrainingJobs:
    """Creates training jobs, and finds them again.

    Args:
        results: reads what the jobs leave.
        staging: makes a `Staging` for jobs that are found.
    """

    def __init__(
        self, account: Account, poller: Poller, clock: Clock, results: type[Results], staging: Callable[[], Staging]
    ) -> None:
        self._account = account
        self._staging = staging
        self._poller = poller
        self._clock = clock
        self._results = results

    def create(self, document: JobDocument, request: Mapping[str, Any], staging: Staging) -> SageMakerJob:
        """Create the job of a CreateTrainingJob request, or adopt the one that has its name.

        A job requested on a training plan is stopped at once if AWS shows it without the plan.

        Raises:
            LaunchRefused: AWS refuses.
            LostContact: the job may have been created.
        """
        name = document.job_name
        try:
            self._account.client("sagemaker").create_training_job(**request)
            job = self._job(name, staging)
        except AWS_ERRORS as error:
            job = self._adopt_after(error, name)
        if document.spec.training_plan is not None:
            self._require_plan(document, job)
        return job

    def find(self, name: str) -> SageMakerJob | None:
        """The job with this name here; one that has lost its training plan is stopped. Raises LaunchRefused."""
        description = self._describe(name)
        if description is None:
            return None
        job = self._job(name, self._staging(), description)
        if plan := lost_plan(description):  # the process that created it was killed before it saw that
            job.reject(_off_plan(name, plan))
        return job

    def _job(self, name: str, staging: Staging, description: Mapping[str, Any] | None = None) -> SageMakerJob:
        """The `Job` of this name."""
        return SageMakerJob(
            *(name, self._account, staging, self._poller, self._clock, self._results, description),
        )

    def _adopt_after(self, error: Exception, name: str) -> SageMakerJob:
        """The job that exists although its creation failed: an earlier one, or one whose answer was lost.

        Raises:
            LaunchRefused: there is none.
            LostContact: AWS does not tell whether there is one.
        """
        is_in_use = code(error) == "ResourceInUse"
        if not is_in_use and not is_transient(error):
            raise LaunchRefused(explain(error, "create the training job")) from error
        hint = f"{name} may have been created: `{command_line('sync')}` finds it"
        try:
            job = _look_for(_SHOWN_WITHIN_S if is_in_use else 0.0, lambda: self.find(name), self._clock)
        except LaunchRefused as refused:
            raise LostContact(f"{refused}\n{hint}") from error
        if job is not None:
            return job
        if is_in_use:
            raise LaunchRefused(
                f"AWS says that the name {name} is in use, and has shown no such job for {_SHOWN_WITHIN_S:g} s: "
                "it is just being deleted; try again in a few minutes"
            ) from error
        if was_heard(error):
            raise LostContact(f"{explain(error, 'create the training job')}\n{hint}") from error
        raise LaunchRefused(explain(error, "create the training job")) from error

    def _require_plan(self, document: JobDocument, job: SageMakerJob) -> None:
        """Stop a job without its training plan, which is billed on demand; raises LostContact if it may still run."""
        name, spec, doubt = document.job_name, document.spec, ""
        resources: Mapping[str, Any] = {}
        try:
            description = _look_for(_SHOWN_WITHIN_S, lambda: self._describe(name), self._clock)
            resources = {} if description is None else description.get("ResourceConfig", {})
        except LaunchRefused as error:
            doubt = f" ({error})"
        if lost_capacity(document, resources):
            job.reject(_off_plan(name, f"{spec.training_plan}{doubt}"))

    def _describe(self, name: str) -> Mapping[str, Any] | None:
        try:
            answer: Mapping[str, Any] = self._account.client("sagemaker").describe_training_job(TrainingJobName=name)
        except AWS_ERRORS as error:
            if is_missing(error):
                return None
            raise LaunchRefused(explain(error, f"look at the training job {name}")) from error
        return answer


def _look_for(seconds: float, look: Callable[[], _Value | None], clock: Clock) -> _Value | None:
    """Call `look` until it returns something; None after `seconds`."""
    until = clock.monotonic() + seconds
    while (value := look()) is None and clock.monotonic() < until:
        clock.sleep(_LOOK_EVERY_S)
    return value


def _off_plan(name: str, plan: str) -> str:
    return (
        f"AWS does not show {name} with the training plan {plan}, so it would be billed on demand: it was stopped "
        "at once, and what it has cost until then is booked at the on-demand price; a newer sagemaker and boto3 may "
        "know training plans, or leave training_plan out"
    )
