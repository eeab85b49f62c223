"""The launcher of SageMaker training jobs."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact, collecting, refuse
from paretune.core.untrusted import at_home
from paretune.estimating.phases import billed_after_limit_s
from paretune.launchers import archive
from paretune.launchers.base import GONE_AFTER_S, LOOK_EVERY_S, Job, Launcher
from paretune.launchers.sagemaker.account import Account, account_faults
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_transient, was_heard
from paretune.launchers.sagemaker.jobs import SageMakerJob, described, is_listed
from paretune.launchers.sagemaker.request import create_request, image_faults
from paretune.launchers.sagemaker.storage import Storage
from paretune.launchers.storage import LARGEST_VOLUME_GIB, bytes_on_disk, volume_for_gib
from paretune.pricing import Price, PriceList
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec


class SageMakerLauncher(Launcher):
    """Starts jobs in an AWS account, and finds them again.

    Args:
        cluster: a job whose account, region and kind are those of all jobs of this launcher.
        package: folder of the code of paretune that travels.
        check: called while files are uploaded and before a job is created; raises to cancel.
    """

    name = "sagemaker"

    def __init__(
        self,
        cluster: JobSpec,
        clock: Clock,
        environment: Mapping[str, str],
        *,
        package: Path = Path(__file__).parents[2],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.account = Account(cluster, environment)
        self._runs_projects = cluster.project is not None
        self._clock, self._environment, self._package = clock, environment, package
        self._check_interruption = check

    def location_tags(self) -> Mapping[str, str]:
        """Account, region and bucket."""
        account = self.account
        return {"account": account.identity["Account"], "region": account.region, "bucket": account.bucket}

    def check(self, spec: JobSpec) -> None:
        """Check strategy, image and instance type together; credentials, role, bucket and quotas."""
        faults = [*image_faults(spec, self.account.region), *account_faults(spec, self.account)]
        if spec.entry_script is not None:
            with collecting(faults):
                archive.project_files(at_home(spec.entry_script).resolve().parent)
        refuse(faults)

    def check_inputs(self, spec: JobSpec, inputs: JobInputs) -> None:
        """Check that model, data and checkpoints fit on the instances' own disks, or on the largest volume."""
        if spec.sagemaker.volume_size_in_gb is not None:
            return
        needed_gib, faults = volume_for_gib(bytes_on_disk(spec, inputs)), list[str]()
        for name in spec.instance_types():
            local_gib = spec.instance(name).local_storage_gib
            if needed_gib > (most_gib := local_gib or LARGEST_VOLUME_GIB):
                kind = "disks of its own and gets no other volume" if local_gib else "a volume at most"
                faults.append(
                    f"model, data and checkpoints may take {needed_gib} GiB, and {name} has {most_gib} GiB, "
                    f"{kind}: take fine_tuning=lora, an instance_type with more room, or set "
                    "sagemaker.volume_size_in_gb to what you know to suffice"
                )
        refuse(faults)

    def submit(self, document: JobDocument, inputs: JobInputs) -> Job:
        """Upload what is not in S3 yet and create the job, or adopt the one that has this name.

        Raises:
            BadInput, LaunchRefused: there is no job.
            LostContact: the job may have been created.
        """
        self.account.create_default_bucket()
        storage = self._storage(document.spec)
        request = self._request(document, inputs, storage)
        self._check_interruption()
        try:
            self.account.client("sagemaker").create_training_job(**request)
        except AWS_ERRORS as error:
            return self._adopt_after(error, document.job_name)
        return self._job(document.job_name, storage)

    def attach(self, job_name: str) -> SageMakerJob | None:
        """The job with this name in this account and region.

        One answer of DescribeTrainingJob is no proof that there is none, so ListTrainingJobs is asked as well; if it
        shows the job, Describe is asked again for up to a minute.

        Raises:
            LaunchRefused: AWS does not tell.
        """
        until = self._clock.monotonic() + GONE_AFTER_S
        try:
            while (description := described(self.account, job_name)) is None and is_listed(self.account, job_name):
                if self._clock.monotonic() >= until:
                    raise LaunchRefused(f"AWS lists the training job {job_name} and does not describe it: try again")
                self._clock.sleep(LOOK_EVERY_S)
        except AWS_ERRORS as error:
            raise LaunchRefused(explain(error, f"look at the training job {job_name}")) from error
        return None if description is None else self._job(job_name, self._storage(), description)

    def price(self, spec: JobSpec) -> Price | None:
        """The on-demand price of the instance type in this region."""
        return self._prices.price(spec.instance_type, self.account.region)

    def billed_after_limit_s(self, spec: JobSpec) -> float:
        """Seconds until the job has stopped, saved and uploaded what it may leave, by its bytes."""
        return billed_after_limit_s(spec, self._environment)

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """The CreateTrainingJob request, exactly; nothing is uploaded."""
        storage = self._storage(document.spec)
        storage.dry = True
        return self._request(document, inputs, storage)

    def _request(self, document: JobDocument, inputs: JobInputs, storage: Storage) -> dict[str, Any]:
        self.check_inputs(document.spec, inputs)
        return create_request(document, inputs, self.account, storage, self._environment, self._package)

    def _storage(self, spec: JobSpec | None = None) -> Storage:
        kms_key = None if spec is None else spec.sagemaker.kms_key_id
        s3 = self.account.client("s3")
        return Storage(s3, self.account.bucket, kms_key=kms_key, check=self._check_interruption)

    def _job(self, name: str, storage: Storage, description: Mapping[str, Any] | None = None) -> SageMakerJob:
        return SageMakerJob(name, self.account, storage, self._clock, description, is_project=self._runs_projects)

    def _adopt_after(self, error: Exception, name: str) -> Job:
        """The job that exists although its creation failed: an earlier one, or one whose answer was lost."""
        is_in_use, reason = code(error) == "ResourceInUse", explain(error, "create the training job")
        if not is_in_use and not is_transient(error):
            raise LaunchRefused(reason) from error
        hint = f"{name} may have been created: `{command_line('sync')}` finds it"
        try:
            job = self.find(name, self._clock, GONE_AFTER_S if is_in_use else 0.0)
        except LaunchRefused as refused:
            raise LostContact(f"{refused}\n{hint}") from error
        if job is not None:
            return job
        if is_in_use:
            raise LaunchRefused(
                f"AWS says that the name {name} is in use, and has shown no such job for {GONE_AFTER_S:g} s: "
                "it is just being deleted; try again in a few minutes"
            ) from error
        raise (LostContact(f"{reason}\n{hint}") if was_heard(error) else LaunchRefused(reason)) from error

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)
