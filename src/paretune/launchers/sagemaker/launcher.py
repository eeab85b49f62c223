"""The SageMaker launcher, which checks, uploads, creates and finds training jobs.

`request.py` builds their requests, and `images.py` chooses their images.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, LaunchRefused, LostContact, collecting, refuse
from paretune.core.secrets import without_secrets
from paretune.core.shell import command_line
from paretune.launchers import SAGEMAKER, archive
from paretune.launchers.base import GONE_AFTER_S, LOOK_EVERY_S, SHOWN_WITHIN_S, Job, JobSetup, Launcher, Surroundings
from paretune.launchers.deadlines import billed_after_limit_s, deadline_s
from paretune.launchers.disk import LARGEST_VOLUME_GIB, bytes_on_disk, pooled_volume_gib, volume_for_gib
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.account_checks import account_faults
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, refused_to, was_heard
from paretune.launchers.sagemaker.images import Image, choose_image
from paretune.launchers.sagemaker.jobs import NOT_DESCRIBED, OUR_TRAINING, SageMakerJob, described
from paretune.launchers.sagemaker.request import (
    ANY_BUCKET,
    ANY_ROLE,
    RDMA_FAMILIES,
    build_request,
    channels_of,
    owner_tags,
    shell_words,
)
from paretune.launchers.sagemaker.request_rules import request_faults
from paretune.launchers.sagemaker.storage import Storage, absent, upload_faults
from paretune.presentation.text import duration
from paretune.pricing import PriceList, plan_price
from paretune.specification.container import RUNNER, JobDocument, JobInputs, UserCode
from paretune.specification.declaration import affecting
from paretune.specification.identity import owned_request
from paretune.specification.job import JobSpec
from paretune.specification.order import job_name, job_of
from paretune.specification.price import Price
from paretune.specification.rules import IN_SECRETS_MANAGER, launch_faults

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef as Description

_STARTERS = [Path(__file__).with_name(name) for name in ("container_start.sh", "container_start.py", "with_secrets.py")]
_OURS = "pydantic>=2.10"  # paretune's own code in a job needs it; AWS's images have it as part of the SageMaker SDK
_READS_SECRETS = "boto3"  # a job needs it to read secrets; AWS's images have it
_PORT_OR_VARIABLE = re.compile(r":(\d+(?=/)|\$\{\w+\})")  # parts of an address that look like a password but are not
_MOST_PREFERENCES = 5  # AWS's limit on InstancePreferences
_OLDEST_TRANSFORMERS = (5, 3)  # the oldest version with which our training is tested


@dataclass(frozen=True, kw_only=True)
class SageMakerSetup(JobSetup):
    """A job's role, bucket and network (in `spec`), and its images and volume.

    Attributes:
        images: the image for each instance type, the job's own and its fallbacks.
        types: the instance types of the first request, best first.
        volume_gib: size of the volume in GiB; 0 until the job's inputs are known.
    """

    images: Mapping[str, Image]
    types: tuple[str, ...]
    volume_gib: int = 0


class SageMakerLauncher(Launcher):
    """Starts and finds jobs in an AWS account.

    Args:
        region: region of all jobs; by default from the environment or AWS's configuration.
        package: folder with the paretune code that is sent with a job.
        check: called during uploads and before a job is created; raises an error to cancel.
    """

    traits = SAGEMAKER

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
        self._clock, self._environment, self._package = clock, environment, package
        self._check_interruption = check

    @classmethod
    def open(cls, surroundings: Surroundings) -> "SageMakerLauncher":
        around = surroundings
        return cls(around.region, around.clock, around.environment, check=around.check)

    def location_tags(self) -> Mapping[str, str]:
        return {"account": self.account.identity["Account"], "region": self.account.region}

    def check(self, spec: JobSpec) -> SageMakerSetup:
        """Return the setup with the job's role, bucket, network and images.

        Raises BadInput if strategy, image, instance type, role or bucket are wrong, or if the request breaks an AWS
        limit, and LaunchRefused if AWS does not accept the credentials.
        """
        return self._checked(spec, account_faults(spec, self.account))

    def check_without_account(self, spec: JobSpec, inputs: JobInputs) -> None:
        """Check strategy, image, instance type, input sizes, and the request with placeholders for role and bucket."""
        self._with_volume(self._checked(spec), inputs)

    def _checked(self, spec: JobSpec, of_account: Sequence[str] | None = None) -> SageMakerSetup:
        """Return the setup; `of_account` are the faults of role and bucket, or None if these are not known."""
        faults, made = launch_faults(spec), list[SageMakerSetup]()
        if not faults:
            with collecting(faults):
                made.append(self._setup(spec, is_sound=of_account is not None and not of_account))
                document = JobDocument.first(job_name("RUN", 1), made[0].spec, run_id="RUN")
                command, needed_gib = shell_words(OUR_TRAINING), volume_for_gib(0.0)
                faults += self._limits_broken(self._body(document, made[0], command, needed_gib))
        refuse([*faults, *(of_account or ())])
        return made[0]

    def _setup(self, spec: JobSpec, *, is_sound: bool) -> SageMakerSetup:
        """Choose a job's role, bucket, network and images, with placeholders for role and bucket if not `is_sound`."""
        of_any = {"role": ANY_ROLE, "sagemaker.s3_bucket": ANY_BUCKET}
        settings = self.account.settings(spec) if is_sound else {**self.account.usual(spec), **of_any}
        recorded = {name: settings[name] for name in ("sagemaker.s3_bucket", "tags")}
        return replace(self._images(spec.replace(**settings)), recorded=recorded)

    def _images(self, spec: JobSpec) -> SageMakerSetup:
        """Choose the images of a job. Raises BadInput if there is none."""
        images = images_of(spec, self.account.region)
        return SageMakerSetup(spec=spec, images=images, types=_types_of_one_request(spec, images))

    def check_inputs(self, setup: JobSetup, inputs: JobInputs) -> SageMakerSetup:
        """Return the setup with the size of the volume.

        Raises BadInput if data in S3 does not exist, or if data on this machine cannot be uploaded. If neither is the
        case, raises BadInput if the inputs do not fit on the disks, if the size of the volume must be set, if
        requirements contain a password, or if a job with sagemaker.network_isolation needs the network.
        """
        addresses = inputs.code.in_s3.items() if inputs.code is not None else ()
        refuse([fault for name, address in addresses if (fault := absent(self.account, name, address))])
        return self._with_volume(setup, inputs)

    def _with_volume(self, setup: JobSetup, inputs: JobInputs) -> SageMakerSetup:
        """Choose the size of a job's volume, if not yet chosen. Raises BadInput if the inputs do not suit the job."""
        setup = setup if isinstance(setup, SageMakerSetup) else self._images(setup.spec)
        if setup.volume_gib:
            return setup
        sources = {"model": inputs.model, **(inputs.code.sources if inputs.code is not None else {})}
        paths = [(name, path) for name, path in sources.items() if isinstance(path, Path)]
        refuse([fault for name, path in paths for fault in upload_faults(name, path)])
        spec, faults = setup.spec, [*isolation_faults(setup, inputs)]
        needed = [_PORT_OR_VARIABLE.sub("", line) for line in (inputs.code.requirements if inputs.code else ())]
        if any(without_secrets(line) != line for line in needed):
            faults.append(
                "requirements must not contain a password or key, because they are uploaded with the code: use "
                "sagemaker.package_index, or a sagemaker.training_image that has the packages"
            )
        volume_gib = 0
        with collecting(faults):
            volume_gib = _volume_gib(spec, inputs)
        refuse(faults)
        return replace(setup, volume_gib=volume_gib)

    def _limits_broken(self, request: Mapping[str, Any]) -> list[str]:
        model = self.account.client("sagemaker").meta.service_model
        return request_faults(request, model.shape_for("CreateTrainingJobRequest"))

    def submit(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> Job:
        """Upload what is not in S3 yet and create the job, or return the existing job with this name.

        A later attempt uses the role, bucket and network of the first attempt, whatever this process's settings are.

        Raises:
            BadInput, LaunchRefused: no job was created.
            LostContact: the job may have been created.
        """
        spec = document.spec if setup is None else setup.spec
        if document.attempt == 1 and spec.sagemaker.s3_bucket == self.account.default_bucket:
            self.account.create_default_bucket()
        request = self._request(document, inputs, setup)
        self._check_interruption()
        try:
            self.account.client("sagemaker").create_training_job(**request)
        except AWS_ERRORS as error:
            return self._adopt_after(error, document.job_name)
        return SageMakerJob(document.job_name, self.account, self._clock, cast("Description", request))

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
        return plan_price(spec, self.account.region) or self._prices.price(spec.instance_type, self.account.region)

    def region(self, spec: JobSpec) -> str:
        return self.account.region

    def billed_after_limit_s(self, spec: JobSpec) -> float:
        """Return the most seconds billed after the limit: to stop, save and upload. They grow with the model."""
        return billed_after_limit_s(spec, self._environment)

    def deadline_s(self, document: JobDocument) -> float:
        """Return the seconds after its container's start at which the attempt stops itself.

        The billed seconds of earlier attempts are already subtracted.
        """
        return deadline_s(document.spec, self._environment) - document.spent_seconds

    def types_of_request(self, spec: JobSpec) -> tuple[str, ...]:
        """Return the types for InstancePreferences: the job's own, and fallbacks until one needs another request.

        They have the same image, batch, RDMA support and kind of disk. There are at most five, and only one on spot or
        with a warm pool.
        """
        return self._images(spec).types

    def preview(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> Mapping[str, Any]:
        """Return the exact CreateTrainingJob request. Nothing is uploaded."""
        return self._request(document, inputs, setup or self._setup(document.spec, is_sound=True), dry=True)

    def _request(
        self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None, *, dry: bool = False
    ) -> dict[str, Any]:
        """Return the complete CreateTrainingJob request, after uploading the inputs unless `dry`.

        Raises BadInput if there is no image, if the inputs do not suit the job, or if the request breaks an AWS limit.
        Raises LaunchRefused if AWS refuses an upload, or if the first attempt is gone or had other parameters.
        """
        first = None if document.attempt == 1 else self._first_attempt(document)
        if first is None:
            chosen = self._with_volume(setup or JobSetup(spec=document.spec), inputs)
            command = shell_words(OUR_TRAINING if inputs.code is None else f"python3 {RUNNER} /opt/ml")
            volume_gib = chosen.volume_gib
        else:  # later attempts run the code that the first one uploaded
            chosen = self._images(document.spec.replace(**_settings_of(first.description)))
            command = first.description["AlgorithmSpecification"]["ContainerArguments"]
            volume_gib = int(first.document["volume_gib"])
        document = replace(document, spec=chosen.spec)
        spec, settings = document.spec, document.spec.sagemaker
        body = self._body(document, chosen, command, volume_gib)
        s3, bucket = self.account.client("s3"), str(settings.s3_bucket)
        storage = Storage(s3, bucket, kms_key=settings.kms_key_id, dry=dry, check=self._check_interruption)
        bound = inputs.code.command if inputs.code is not None else None
        if first is None:
            refuse(self._limits_broken(body))
            channels = self._uploaded(inputs, storage)
        else:
            channels = _channels_of(first)
        packages = [_READS_SECRETS] if spec.reads_secrets else []
        if spec.project is None:
            packages += [*chosen.images[spec.instance_type].requirements, _OURS]
        # The training does not get the parameters of the user's account, network and budget.
        inner_spec = spec.replace(**dict.fromkeys(affecting(JobSpec, "ownership")))
        job = replace(document, spec=inner_spec, deadline_s=self.deadline_s(document), command=bound).as_json()
        if first is not None and first.document["command"] is not None:
            job["command"] = first.document["command"] | {"processes": spec.processes_here}
        job["packages"] = packages  # not part of the code, because another instance type may have another image
        job |= {"request_key": owned_request(document.request, owner_tags(document)), "volume_gib": volume_gib}
        if first is not None and spec.instance_type == _type_that_ran(first):
            job["packages"] = first.document["packages"]
        channels["job"] = storage.text(f"{PREFIX}/jobs/{document.job_name}/job.json", json.dumps(job, indent=2))
        body["InputDataConfig"] = channels_of(channels, settings.input_mode)
        if first is not None and spec.instance_type == _type_that_ran(first):
            algorithm = first.description["AlgorithmSpecification"]
            body["AlgorithmSpecification"]["TrainingImage"] = algorithm["TrainingImage"]
        return body

    def _body(
        self, document: JobDocument, setup: SageMakerSetup, command: Sequence[str], needed_gib: int
    ) -> dict[str, Any]:
        return build_request(
            document,
            image=setup.images[document.spec.instance_type].uri,
            types=setup.types,
            command=command,
            needed_gib=needed_gib,
            environment=self._environment,
        )

    def _uploaded(self, inputs: JobInputs, storage: Storage) -> dict[str, str]:
        """Upload data and code, and return their channels."""
        channels, code = dict[str, str](), inputs.code or UserCode()
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

    def _first_attempt(self, document: JobDocument) -> "_FirstAttempt":
        """Read a job's first attempt from AWS. Raises LaunchRefused if it is gone or had other parameters.

        Anyone with write access to MLflow can change a run, but not the job's description in AWS or its document in
        S3.
        """
        name = job_name(job_of(document.job_name), 1)
        if (job := self.attach(name)) is None:
            raise LaunchRefused(
                f"AWS no longer has {name}, whose code and data {document.job_name} would use: launch the job again"
            )
        bucket = _settings_of(job.description)["sagemaker.s3_bucket"]
        with refused_to(f"read the document of {name}"):
            storage = Storage(self.account.client("s3"), bucket)
            launched = json.loads(storage.read(f"{PREFIX}/jobs/{name}/job.json"))
        if launched.get("request_key") != owned_request(document.request, owner_tags(document)):
            raise LaunchRefused(
                f"the parameters or tags of {document.job_name} are not those that its first attempt was launched "
                f"with: somebody changed the tags of run {document.run_id} in MLflow, so the job is not retried; "
                f"`{command_line('stop', {'run': document.run_id})}` records its cost and closes its run"
            )
        return _FirstAttempt(job.description, launched)

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


class _FirstAttempt(NamedTuple):
    """The first attempt of a job."""

    description: "Description"  # the response of DescribeTrainingJob
    document: Mapping[str, Any]  # the job.json that was uploaded for it


def _volume_gib(spec: JobSpec, inputs: JobInputs) -> int:
    """Return the given or needed size of a job's volume.

    Raises BadInput if it must be set, or if an instance has less space. A study or profile may give one size for all
    types, because AWS ignores it for instances with their own disks.
    """
    faults, given_gib = list[str](), spec.sagemaker.volume_size_in_gb
    local = [spec.instance(name).local_storage_gib for name in spec.instance_types()]
    size = bytes_on_disk(spec, inputs)
    if given_gib is not None:
        enough_gib = given_gib if size is None else min(given_gib, volume_for_gib(size))
        for name, local_gib in zip(spec.instance_types(), local, strict=True):
            if 0 < local_gib < enough_gib:
                faults.append(
                    f"sagemaker.volume_size_in_gb must be at most {local_gib} for {name}, which has its own disks "
                    f"instead of a volume, for a job that may need {enough_gib} GiB, got {given_gib}: lower it if you "
                    "know how much is enough, or use an instance_type with larger disks"
                )
        refuse(faults)
        return given_gib
    if size is None and all(local):
        return min(local)  # such instances have no volume whose size could be set
    if size is None:
        raise BadInput(
            [
                "training_arguments.save_total_limit=null keeps all checkpoints, and it is unknown how many the job "
                "will write: set sagemaker.volume_size_in_gb, or a number for save_total_limit"
            ]
        )
    needed_gib = volume_for_gib(size)
    for name, local_gib in zip(spec.instance_types(), local, strict=True):
        if needed_gib > (most_gib := local_gib or LARGEST_VOLUME_GIB):
            has = f"only {most_gib} GiB on local disks" if local_gib else f"a volume of at most {most_gib} GiB"
            faults.append(
                f"model, data and checkpoints may take {needed_gib} GiB, but {name} has {has}: use fine_tuning=lora or "
                "an instance_type with larger disks, or set sagemaker.volume_size_in_gb if you know how much is enough"
            )
    refuse(faults)
    # A later job can reuse kept instances only if it requests a volume of the same size.
    return pooled_volume_gib(spec, inputs) if spec.sagemaker.keep_alive_minutes > 0 else needed_gib


def _settings_of(description: "Description") -> dict[str, Any]:
    """Return the role, bucket, key and network of a job from AWS's description, by parameter."""
    output, network = description["OutputDataConfig"], description.get("VpcConfig") or {}
    return {
        "role": description["RoleArn"],
        "sagemaker.s3_bucket": output["S3OutputPath"].removeprefix("s3://").partition("/")[0],
        "sagemaker.kms_key_id": output.get("KmsKeyId") or None,
        "sagemaker.subnets": tuple(network.get("Subnets", ())),
        "sagemaker.security_group_ids": tuple(network.get("SecurityGroupIds", ())),
        "sagemaker.network_isolation": bool(description.get("EnableNetworkIsolation")),
        "sagemaker.encrypt_traffic": bool(description.get("EnableInterContainerTrafficEncryption")),
    }


def _channels_of(first: _FirstAttempt) -> dict[str, str]:
    """Return the channels of the first attempt, whose code and data later attempts use."""
    return {
        channel["ChannelName"]: channel["DataSource"]["S3DataSource"]["S3Uri"]
        for channel in first.description["InputDataConfig"]
    }


def images_of(spec: JobSpec, region: str) -> dict[str, Image]:
    """Choose an image for each instance type of a job. Raises BadInput if AWS has none, or the user's is unsuitable."""
    images, faults = dict[str, Image](), list[str]()
    for cluster in spec.clusters():
        try:
            images[cluster.instance_type] = choose_image(cluster, region)
        except ValueError as error:
            reason = str(error).partition(". ")[0].strip()
            faults.append(
                f"AWS's list has no image for strategy {spec.strategy} on {cluster.instance_type} in {region} "
                f"({reason}): set sagemaker.training_image, or use another region or instance_type"
            )
    refuse([*faults, *image_faults(spec, region)])
    return images


def image_faults(spec: JobSpec, region: str) -> list[str]:
    """Return the reasons why the user's own image does not suit the job; empty if it does or if there is none."""
    faults, uri = list[str](), spec.sagemaker.training_image
    if uri is None:
        return []
    registry = re.search(r"\.dkr\.ecr\.([\w-]+)\.", uri)
    if registry and registry[1] != region:
        faults.append(
            f"sagemaker.training_image is in {registry[1]}, but the job runs in {region}: use its address there"
        )
    transformers = re.search(r"transformers(\d+)\.(\d+)", uri)
    if transformers and not spec.runs_user_code and tuple(map(int, transformers.groups())) < _OLDEST_TRANSFORMERS:
        oldest = ".".join(map(str, _OLDEST_TRANSFORMERS))
        faults.append(
            f"sagemaker.training_image has transformers {'.'.join(transformers.groups())}, but paretune's training "
            f"needs {oldest} or newer: remove sagemaker.training_image, or set an entry_script of your own"
        )
    kind, other = ("gpu", "cpu") if spec.instance().has_gpu else ("cpu", "gpu")
    if f"-{other}" in uri.rpartition("/")[2].partition(":")[2]:  # only the tag: AWS's tags name the kind
        faults.append(f"sagemaker.training_image must suit {spec.instance_type}, got {uri}: use its -{kind}- variant")
    return faults


def _types_of_one_request(spec: JobSpec, images: Mapping[str, Image]) -> tuple[str, ...]:
    clusters = spec.clusters()[: 1 if spec.spot or spec.sagemaker.keep_alive_minutes else _MOST_PREFERENCES]

    def rest(each: JobSpec) -> tuple[object, ...]:
        instance = each.instance()
        is_rdma, has_disks = instance.family in RDMA_FAMILIES, bool(instance.local_storage_gib)
        return each.plan(), images[each.instance_type], is_rdma, has_disks

    if len(clusters) == 1:
        return (spec.instance_type,)
    same = rest(spec)
    return tuple(each.instance_type for each in takewhile(lambda each: rest(each) == same, clusters))


def isolation_faults(setup: SageMakerSetup, inputs: JobInputs) -> Iterator[str]:
    """Yield the reasons why a job with sagemaker.network_isolation needs the network."""
    spec, settings, needed = setup.spec, setup.spec.sagemaker, list[str]()
    if not settings.network_isolation:
        return
    if settings.training_image is None:  # the user's own image may have everything
        # Nothing is installed into the image for a project, whose command has its own environment.
        images = () if spec.project is not None else setup.images.values()
        needed += [each for image in images for each in image.requirements]
        needed += inputs.code.requirements if inputs.code is not None else ()
    if names := ", ".join(dict.fromkeys(filter(None, map(str.strip, needed)))):
        image = "set a sagemaker.training_image that has them, or remove network_isolation"
        yield f"sagemaker.network_isolation cuts the job off from the network, but pip must install {names}: {image}"
    for name, text in spec.environment.items():
        if text.startswith(IN_SECRETS_MANAGER):
            read = f"the job reads environment.{name} from Secrets Manager"
            yield f"{read}, but has no network with sagemaker.network_isolation: remove one of them"


def _type_that_ran(first: "_FirstAttempt") -> str:
    """Return the instance type on which the first attempt ran, or "" if AWS has not chosen one of several."""
    resources = first.description["ResourceConfig"]
    return str(resources.get("SelectedInstanceType", resources.get("InstanceType", "")))
