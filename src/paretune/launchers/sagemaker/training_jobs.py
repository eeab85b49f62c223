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

        Raises:
            LaunchRefused: AWS refuses.
            LostContact: the job may have been created.
        """
        name = document.job_name
        try:
            self._account.client("sagemaker").create_training_job(**request)
        except AWS_ERRORS as error:
            return self._adopt_after(error, name)
        return self._job(name, staging)

    def find(self, name: str) -> SageMakerJob | None:
        """The job with this name here, or None. Raises LaunchRefused."""
        description = self._describe(name)
        return None if description is None else self._job(name, self._staging(), description)

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
