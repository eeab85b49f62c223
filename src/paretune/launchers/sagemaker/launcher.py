"""The launcher of SageMaker training jobs."""

from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from paretune.core.checks import faults_of
from paretune.core.clock import Clock
from paretune.core.errors import refuse
from paretune.estimating import uploading
from paretune.launchers.base import Launcher
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS
from paretune.launchers.sagemaker.jobs import AwsJob
from paretune.launchers.sagemaker.packaging import Packager, disk_faults, script_faults
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE, Poller
from paretune.launchers.sagemaker.preflight import account_faults
from paretune.launchers.sagemaker.queue import QueuedJobs
from paretune.launchers.sagemaker.request import build, load_sdk
from paretune.launchers.sagemaker.results import Results
from paretune.launchers.sagemaker.staging import Staging
from paretune.launchers.sagemaker.training_jobs import TrainingJobs
from paretune.launchers.sagemaker.training_plans import plan_findings, training_plan
from paretune.launchers.storage import bytes_on_disk, volume_for_gib
from paretune.pricing.prices import Price, PriceList, plan_price
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.limits import SEARCHED_PLAN
from paretune.specification.placement import Placement


class SageMakerLauncher(Launcher):
    """Starts jobs in an AWS account, directly or through the queue that the cluster names, and finds them again.

    Args:
        tracking_uri: of the MLflow server; if it is an ARN, jobs write to the server themselves.
        calls_per_minute: limit of the poller, and of the calls about a queue.
        poller: shared with other launchers of the same account and region.
        package: folder of the code of paretune that travels.
        results: how the results of its jobs are read.
        check: called while files are uploaded and before a job is created; raises to cancel.
    """

    name = "sagemaker"

    def __init__(
        self,
        cluster: Placement,
        clock: Clock,
        environment: Mapping[str, str],
        *,
        tracking_uri: str = "",
        calls_per_minute: float = CALLS_PER_MINUTE,
        poller: Poller | None = None,
        package: Path | None = None,
        results: type[Results] = Results,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.account = Account(cluster, environment)
        self.jobs_log_to_mlflow = tracking_uri.startswith("arn:")  # of a SageMaker managed tracking server or app
        self._clock = clock
        self._environment = environment
        self._check_interruption = check
        poller = poller or Poller(self.account, clock, calls_per_minute)
        arguments = (self.account, poller, clock, results, self._staging)
        self._jobs = (
            TrainingJobs(*arguments)
            if cluster.queue is None
            else QueuedJobs(cluster.queue, calls_per_minute, *arguments)
        )
        self._packager = Packager(
            self.account,
            environment,
            package or Path(__file__).parents[2],
            tracking_uri if self.jobs_log_to_mlflow else "",
            self._jobs,
        )
        self._plan = cache(partial(training_plan, account=self.account))
        self.last_request: Mapping[str, Any] = {}
        """The CreateTrainingJob request that was sent last."""

    def location_tags(self) -> Mapping[str, str]:
        """Account, region and bucket, and the queue if there is one."""
        account = self.account
        tags = {"account": account.identity["Account"], "region": account.region, "bucket": account.bucket}
        return {**tags, **self._jobs.location_tags}

    def check(self, spec: JobSpec) -> None:
        """Check strategy, image and instance type together; credentials, role, bucket, quotas, queue and plan."""
        faults = images.faults(spec, self.account.region)
        installed = () if faults else self._packager.installed(spec)
        faults += account_faults(spec, self.account, installed=installed, tracking_uri=self._packager.tracking_uri)
        faults += faults_of(plan_findings(spec, self.account, self._clock.now(), self.billed_after_limit_s(spec)))
        refuse([*faults, *script_faults(spec)])
        load_sdk()  # takes a second or two, in which the data are still being prepared

    def check_offline(self, spec: JobSpec) -> None:
        """Check strategy, image and instance type together, and whether a script's folder can travel."""
        refuse([*images.faults(spec, self.account.region), *script_faults(spec)])

    def check_inputs(self, spec: JobSpec, inputs: JobInputs) -> None:
        """Check that model, data and checkpoints fit on the instances' own disks, or on the largest volume."""
        if spec.volume_gib is None:
            needed_gib = volume_for_gib(bytes_on_disk(spec, inputs))
            types = spec.instance_types()
            refuse([fault for name in types for fault in disk_faults(spec.instance(name), needed_gib)])

    def submit(self, document: JobDocument, inputs: JobInputs) -> AwsJob:
        """Upload what is not in S3 yet and create the job, or adopt the one that has this name."""
        self.account.create_default_bucket()
        staging = self._staging(document.spec.kms_key)
        request = self._request(document, inputs, staging)
        self._check_interruption()
        self.last_request = request
        return self._jobs.create(document, request, staging)

    def attach(self, job_name: str) -> AwsJob | None:
        """The job with this name in this account, region and queue."""
        return self._jobs.find(job_name)

    def price(self, spec: JobSpec) -> Price | None:
        """The on-demand price of the instance type in this region; 0 USD on a training plan, which is paid already."""
        if spec.training_plan not in (None, SEARCHED_PLAN):
            return plan_price(spec, self.account.region)
        return self.on_demand_price(spec)

    def plan_share_usd(self, spec: JobSpec, seconds: float) -> float | None:
        """The job's instance-seconds as a share of the plan's upfront fee."""
        if spec.training_plan in (None, SEARCHED_PLAN):
            return None
        try:
            return self._plan(spec.training_plan or "").share_usd(seconds * spec.instance_count)
        except AWS_ERRORS:
            return None

    def billed_after_limit_s(self, spec: JobSpec) -> float:
        """Seconds until the job has stopped, saved and uploaded what it may leave, by its bytes."""
        return uploading.billed_after_limit_s(spec, self._environment)

    def upload_bound_s(self, spec: JobSpec) -> float:
        """The part of them that the upload may take."""
        return uploading.upload_seconds(spec, self._environment)[1]

    def unknown_upload_s(self, spec: JobSpec) -> float:
        """Seconds by which a first upload of a script or a project may exceed its bound."""
        return uploading.first_upload_s(spec, self._environment)

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """The CreateTrainingJob or SubmitServiceJob request, exactly; nothing is uploaded."""
        staging = self._staging(document.spec.kms_key)
        staging.dry = True
        return self._jobs.preview(document.spec, self._request(document, inputs, staging))

    def _request(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> dict[str, Any]:
        self.check_inputs(document.spec, inputs)
        return build(self._packager.request(document, inputs, staging), self.account, staging)

    def _staging(self, kms_key: str | None = None) -> Staging:
        s3 = self.account.client("s3")
        return Staging(s3, self.account.bucket, kms_key=kms_key, check=self._check_interruption)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)

    def on_demand_price(self, cluster: Placement) -> Price | None:
        """The price of the instance type in this region without a training plan."""
        return self._prices.price(cluster.instance_type, self.account.region)
