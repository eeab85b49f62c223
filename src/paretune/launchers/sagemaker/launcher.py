"""The SageMaker launcher, which checks, uploads, creates and finds training jobs.

`place.py` decides where and how a job runs, and `request.py` builds its request.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused, LostContact, collecting, refuse
from paretune.core.shell import command_line
from paretune.launchers import SAGEMAKER, archive
from paretune.launchers.base import GONE_AFTER_S, LOOK_EVERY_S, SHOWN_WITHIN_S, Job, Launcher, Surroundings
from paretune.launchers.offers import order_of
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.account_checks import account_faults
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, refused_to, was_heard
from paretune.launchers.sagemaker.jobs import NOT_DESCRIBED, SageMakerJob, bucket_in, described
from paretune.launchers.sagemaker.place import place_of, volumes_of
from paretune.launchers.sagemaker.request import (
    build_request,
    channels_of,
    document_of,
    read_back,
    request_key,
)
from paretune.launchers.sagemaker.request_rules import request_faults
from paretune.launchers.sagemaker.storage import Storage
from paretune.presentation.text import duration
from paretune.pricing import PriceList, plan_price
from paretune.specification.container import JobInputs, UserCode
from paretune.specification.job import JobSpec
from paretune.specification.order import Order, job_name, job_of
from paretune.specification.price import Price
from paretune.specification.rules import launch_faults

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef as Description

_STARTERS = [Path(__file__).with_name(name) for name in ("container_start.sh", "container_start.py", "with_secrets.py")]
_OF_ACCOUNT = ("role", "bucket", "data in S3", "permissions", "quotas")  # what cannot be checked without an account


class SageMakerLauncher(Launcher):
    """Starts and finds jobs in an AWS account.

    Args:
        region: region of all jobs; by default from the environment or AWS's configuration.
        package: folder with the paretune code that is sent with a job.
        check: called during uploads and before a job is created; raises an error to cancel.
    """

    traits = SAGEMAKER
    uploads_are_billed = True
    has_deadline = True

    def __init__(
        self,
        region: str | None,
        clock: Clock,
        environment: Mapping[str, str],
        *,
        package: Path = Path(__file__).parents[2],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.account = Account(region, environment)
        self.region = self.account.region
        self._clock, self._environment, self._package = clock, environment, package
        self._check_interruption = check

    @classmethod
    def open(cls, surroundings: Surroundings) -> "SageMakerLauncher":
        around = surroundings
        return cls(around.region, around.clock, around.environment, check=around.check)

    def location_tags(self) -> Mapping[str, str]:
        return {"account": self.account.identity["Account"], "region": self.account.region}

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        """Return the job's role, bucket, network, images and variables, and which types share a request.

        Raises BadInput if strategy, image, instance type, role or bucket are wrong, or if the request breaks an AWS
        limit, and LaunchRefused if AWS does not accept the credentials.
        """
        of_account = account_faults(spec.role, spec.sagemaker.s3_bucket, self.account) if account else []
        faults, place = launch_faults(spec), dict[str, Any]()
        if not faults:
            with collecting(faults):
                place = place_of(spec, self.account, self._environment, is_sound=account and not of_account)
                faults += self._limits_broken(
                    build_request(order_of(spec, job_name=job_name("RUN", 1), run_id="RUN", place=place))
                )
        refuse([*faults, *of_account])
        return place if account else {**place, "not_checked": [*_OF_ACCOUNT]}

    def fit(self, spec: JobSpec, place: Mapping[str, Any], inputs: JobInputs) -> Mapping[str, Any]:
        """Return the place with the sizes of the volumes. Raises BadInput as `volumes_of` does."""
        return {**place, "volumes": volumes_of(spec, place, self.account, inputs)}

    def _limits_broken(self, request: Mapping[str, Any]) -> list[str]:
        model = self.account.client("sagemaker").meta.service_model
        return request_faults(request, model.shape_for("CreateTrainingJobRequest"))

    def submit(self, order: Order) -> Job:
        """Upload what is not in S3 yet and create the job, or return the existing job with this name.

        A later attempt is the first order, as AWS and S3 have it, with another attempt, cluster or batch.

        Raises:
            BadInput, LaunchRefused: no job was created.
            LostContact: the job may have been created.
        """
        if order.attempt > 1:
            order = self._later(order)
        elif order.place["s3_bucket"] == self.account.default_bucket:
            self.account.create_default_bucket()
        request = self._request(order)
        self._check_interruption()
        try:
            self.account.client("sagemaker").create_training_job(**request)
        except AWS_ERRORS as error:
            return self._adopt_after(error, order.job_name)
        return SageMakerJob(order.job_name, self.account, self._clock, cast("Description", request))

    def attach(self, job_name: str) -> SageMakerJob | None:
        until = self._clock.monotonic() + GONE_AFTER_S
        with refused_to(f"describe the training job {job_name}"):
            # Without a description, nobody knows which run owns the job.
            while (description := described(self.account, job_name)) == NOT_DESCRIBED:
                if self._clock.monotonic() > until:
                    raise LaunchRefused(
                        f"AWS has not described the training job {job_name} for {duration(GONE_AFTER_S)}: try again in "
                        "a few minutes"
                    )
                self._clock.sleep(LOOK_EVERY_S)
        return None if description is None else SageMakerJob(job_name, self.account, self._clock, description)

    def price(self, spec: JobSpec) -> Price | None:
        kind, region = spec.instance_type, self.account.region
        return plan_price(spec.sagemaker, kind, region) or self._prices.price(kind, region)

    def preview(self, order: Order) -> Mapping[str, Any]:
        """Return the exact CreateTrainingJob request. Nothing is uploaded."""
        return self._request(order, dry=True)

    def _request(self, order: Order, *, dry: bool = False) -> dict[str, Any]:
        """Return the complete CreateTrainingJob request, after uploading inputs and document unless `dry`.

        Raises BadInput if the request breaks an AWS limit, and LaunchRefused if AWS refuses an upload.
        """
        request, place = build_request(order), order.place
        bucket, key = place["s3_bucket"], place["kms_key_id"]
        storage = Storage(self.account.client("s3"), bucket, kms_key=key, dry=dry, check=self._check_interruption)
        channels = dict(place.get("channels", {}))  # a later attempt has those of the first
        if not channels:
            refuse(self._limits_broken(request))
            channels = self._uploaded(order, storage)
        document = json.dumps(document_of(order), indent=2)
        channels["job"] = storage.text(f"{PREFIX}/jobs/{order.job_name}/job.json", document)
        return {**request, "InputDataConfig": channels_of(channels, place["input_mode"])}

    def _uploaded(self, order: Order, storage: Storage) -> dict[str, str]:
        """Upload data and code, and return their channels."""
        channels, inputs = dict[str, str](), order.inputs
        code = inputs.code or UserCode()
        if inputs.dataset is not None:
            channels["dataset"] = storage.upload("datasets", inputs.dataset.folder, inputs.dataset.key)
        if inputs.model is not None:
            channels["model"] = storage.upload("models", inputs.model)
        for name, path in code.inputs.items():
            channels[name] = path if isinstance(path, str) else storage.upload("files", path)
        files = {**code.files, **{path.name: path for path in _STARTERS}}
        if inputs.code is None or code.command.leaves_model:
            files |= archive.package_files(self._package)
        with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
            channels["code"] = storage.upload("code", archive.pack(files, Path(folder) / archive.NAME))
        return channels

    def _later(self, order: Order) -> Order:
        """Return a later attempt, made of the first one. Raises LaunchRefused if that is gone or had other parameters.

        Anyone with write access to MLflow can change a run, but not the job's description in AWS or its document in
        S3.
        """
        name = job_name(job_of(order.job_name), 1)
        if (job := self.attach(name)) is None:
            raise LaunchRefused(
                f"AWS no longer has {name}, whose code and data {order.job_name} would use: launch the job again"
            )
        with refused_to(f"read the document of {name}"):
            storage = Storage(self.account.client("s3"), bucket_in(job.description))
            document = json.loads(storage.read(f"{PREFIX}/jobs/{name}/job.json"))
        types = {instance["instance_type"] for instance in document["instances"]}
        has_other_types = not types.issuperset(offer.instance_type for offer in order.offers)
        if has_other_types or document.get("request_key") != request_key(order):
            raise LaunchRefused(
                f"the parameters or tags of {order.job_name} are not those that its first attempt was launched "
                f"with: somebody changed the tags of run {order.run_id} in MLflow, so the job is not retried; "
                f"`{command_line('stop', {'run': order.run_id})}` records its cost and closes its run"
            )
        return read_back(job.description, document, order)

    def _adopt_after(self, error: Exception, name: str) -> Job:
        """Return the job with this name after its creation failed: an older job, or the new one if AWS did create it.

        Raises LaunchRefused if there is no job with this name, and LostContact if there may be one.
        """
        is_in_use, reason = code(error) == "ResourceInUse", explain(error, "create the training job")
        if not (is_in_use or was_heard(error)):
            raise LaunchRefused(reason) from error
        hint = f"{name} may have been created: `{command_line('sync')}` finds it"
        try:
            job = self.find(name, self._clock, GONE_AFTER_S if is_in_use else SHOWN_WITHIN_S)
        except LaunchRefused as refused:
            raise LostContact(f"{refused}\n{hint}") from error
        if job is not None:
            return job
        if is_in_use:
            raise LaunchRefused(
                f"AWS says that the name {name} is in use, but has not shown the job for {duration(GONE_AFTER_S)}: "
                "it is probably being deleted; try again in a few minutes"
            ) from error
        raise LostContact(f"{reason}\n{hint}") from error

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)
