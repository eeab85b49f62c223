"""The launcher of SageMaker training jobs."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from paretune.core.checks import faults_of
from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact, collecting, refuse
from paretune.core.tags import AWS_PREFIX
from paretune.core.untrusted import at_home
from paretune.launchers.base import CREATED_WITHIN_S, Launcher, run_of
from paretune.launchers.sagemaker import archive, images
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_missing, is_transient, was_heard
from paretune.launchers.sagemaker.jobs import (
    AwsJob,
    ProjectJob,
    ReportingProjectJob,
    SageMakerJob,
    stop_requests,
)
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE, Poller
from paretune.launchers.sagemaker.preflight import account_faults, plan_findings
from paretune.launchers.sagemaker.price_list import offered_plans, training_plan
from paretune.launchers.sagemaker.request import (
    TrainingJobRequest,
    build,
    index_environment,
    load_sdk,
    lost_capacity,
    lost_plan,
    network_environment,
    tracking_environment,
)
from paretune.launchers.sagemaker.staging import Claim, Staging
from paretune.launchers.storage import bytes_on_disk, volume_for_gib
from paretune.pricing.prices import Price, PriceList, plan_price
from paretune.pricing.training_plan import TrainingPlan
from paretune.specification.catalog import Instance
from paretune.specification.container import (
    ALLOW_NO_GPU,
    STOP_REQUESTS,
    TRIALS,
    JobDocument,
    JobInputs,
    ProjectPayload,
)
from paretune.specification.inputs import INPUT_FILES
from paretune.specification.job import JobSpec
from paretune.specification.limits import SEARCHED_PLAN
from paretune.specification.parameters import affecting
from paretune.specification.placement import Placement
from paretune.specification.program import PROJECT

_CODE = "/opt/ml/input/data/code"
_LARGEST_VOLUME_GIB = 16_384  # CreateTrainingJob, VolumeSizeInGB (botocore 1.44.5); gp2 volumes have at most 16 TiB
_SHOWN_WITHIN_S = 60.0  # a job that exists: DescribeTrainingJob may know it later than CreateTrainingJob does
_LOOK_EVERY_S = 2.0
_SMP = {  # parameter to what SMP v2 calls it
    "hybrid_shard_degree": "hybrid_shard_degree",
    "tensor_parallel_degree": "tensor_parallel_degree",
    "context_parallel_degree": "context_parallel_degree",
    "expert_parallel_degree": "expert_parallel_degree",
    "activation_offloading": "sm_activation_offloading",
    "seed": "random_seed",
}

_Found = TypeVar("_Found")


class SageMakerLauncher(Launcher):
    """Starts jobs in an AWS account, and finds those that were started before.

    Args:
        tracking_uri: of the MLflow server; when it is an ARN, the job writes to it itself.
        calls_per_minute: what a poller of its own may spend.
        runs_projects: its jobs run the commands of projects in place of our training.
        reads_reports: those of projects leave a report: a job with the parameter `project`.
        check: called while files are uploaded and before a job is created; what it raises ends that.
    """

    name = "sagemaker"
    # Between SIGTERM and SIGKILL 120 (StopTrainingJob, API reference, read 2026-11-20), and a minute for uploading what
    # a stopped job has left: a report and logs, for checkpoints are uploaded while it runs.
    overrun_s = 180.0

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
        runs_projects: bool = False,
        reads_reports: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.account = Account(cluster, environment)
        of_projects = ReportingProjectJob if reads_reports else ProjectJob
        self._job_class = of_projects if runs_projects else SageMakerJob
        self._clock = clock
        self._environment = environment
        self._tracking_uri = tracking_uri
        self.is_direct = tracking_uri.startswith("arn:")  # of a SageMaker managed tracking server or app
        self._package = package or Path(__file__).parents[2]
        self._poller = poller or Poller(self.account, clock, calls_per_minute)
        self._check = check
        self._plans: dict[str, TrainingPlan] = {}
        self.last_request: Mapping[str, Any] = {}
        """The CreateTrainingJob request that was sent last."""

    def location_tags(self) -> Mapping[str, str]:
        """Account, region and bucket."""
        account = self.account
        return {"account": account.identity["Account"], "region": account.region, "bucket": account.bucket}

    def check(self, spec: JobSpec) -> None:
        """Strategy, image and instance type together; credentials, role, bucket and quotas."""
        faults = images.faults(spec, self.account.region)
        faults += self._account_faults(spec, installed=() if faults else self._installed(spec))
        faults += faults_of(plan_findings(spec, self.account, self._clock.now(), self.overrun_s))
        refuse([*faults, *_script_faults(spec)])
        load_sdk()  # takes a second or two, in which the data are still being prepared

    def check_offline(self, spec: JobSpec) -> None:
        """Strategy, image and instance type together; whether a script's folder can travel."""
        refuse([*images.faults(spec, self.account.region), *_script_faults(spec)])

    def check_inputs(self, spec: JobSpec, inputs: JobInputs) -> None:
        """Model, data and checkpoints must fit on disks that no volume can enlarge."""
        needed = volume_for_gib(bytes_on_disk(spec, inputs))
        if spec.volume_gib is None:
            refuse([fault for name in spec.instance_types() for fault in _room_faults(spec.instance(name), needed)])

    def submit(self, document: JobDocument, inputs: JobInputs) -> AwsJob:
        """Upload what is not in S3 yet and create the training job, or adopt the one that has this name."""
        self.account.create_default_bucket()
        staging = self._staging(document.spec.kms_key)
        request = self._request(document, inputs, staging)
        self._check()
        self.last_request = request
        job = self._create(document, request, staging)
        if document.spec.training_plan is not None:
            self._require_plan(document, job)
        return job

    def attach(self, job_name: str) -> AwsJob | None:
        """The training job of that name in this account and region; one that has lost its training plan is stopped."""
        description = self._described(job_name)
        if description is None:
            return None
        job = self._job(job_name, self._staging(), description, description)
        if lost := lost_plan(description):  # whoever has created it was killed before they saw that
            job.reject(_off_plan(job_name, lost))
        return job

    def price(self, spec: JobSpec) -> Price | None:
        """The on-demand price of the instance type in this region; none on a training plan, which is paid already."""
        if spec.training_plan not in (None, SEARCHED_PLAN):
            return plan_price(spec, self.account.region)
        return self._prices.price(spec.instance_type, self.account.region)

    def prepaid_usd(self, spec: JobSpec, seconds: float) -> float | None:
        """The share of its training plan's upfront fee."""
        if spec.training_plan in (None, SEARCHED_PLAN):
            return None
        try:
            plan = self._plan(spec.training_plan or "")
        except AWS_ERRORS:  # a figure that is missing is absent
            return None
        return plan.share_usd(seconds * spec.instance_count)

    def plan_remarks(self, spec: JobSpec) -> list[str]:
        """What AWS says of the plan, or of those that it offers for the cluster."""
        if spec.training_plan is None:
            return []
        price = self._prices.price(spec.instance_type, self.account.region)
        usd_per_hour = None if price is None else price.usd_per_hour
        try:
            if spec.training_plan != SEARCHED_PLAN:
                paid = "USD of the rows are what a job costs beyond the plan's fee, which is paid already"
                return [self._plan(spec.training_plan).sentence(usd_per_hour), paid]
            offers = offered_plans(spec, self.account)
        except AWS_ERRORS as error:
            return [explain(error, "look at training plans")]
        where = f"{spec.instance_count} x {spec.instance_type} in {self.account.region}"
        return [plan.sentence(usd_per_hour) for plan in offers] or [f"AWS offers no training plan of {where} now"]

    def _plan(self, arn: str) -> TrainingPlan:
        """A training plan, asked for once; raises as boto does."""
        if arn not in self._plans:
            self._plans[arn] = training_plan(arn, self.account)
        return self._plans[arn]

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """The CreateTrainingJob request, exactly; nothing is uploaded."""
        staging = self._staging(document.spec.kms_key)
        staging.dry = True
        return self._request(document, inputs, staging)

    def _account_faults(self, spec: JobSpec, installed: Sequence[str]) -> list[str]:
        """What the account has against the job."""
        return account_faults(spec, self.account, installed=installed)

    def _create(self, document: JobDocument, request: Mapping[str, Any], staging: Staging) -> AwsJob:
        """Send the request, or adopt the job that has this name."""
        try:
            self.account.client("sagemaker").create_training_job(**request)
        except AWS_ERRORS as error:
            return self._after(error, document.job_name)
        return self._job(document.job_name, staging, request)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)

    def _after(self, error: Exception, job_name: str) -> AwsJob:
        """The job that is there although its creation failed: an earlier one, or one whose answer was lost.

        Raises:
            LaunchRefused: there is none.
            LostContact: AWS does not tell whether there is one.
        """
        is_in_use = code(error) == "ResourceInUse"
        if not is_in_use and not is_transient(error):
            raise LaunchRefused(explain(error, "create the training job")) from error
        where = f"{job_name} may have been created: `{command_line('sync')}` finds it"
        try:
            found = self._within(_SHOWN_WITHIN_S if is_in_use else 0.0, lambda: self.attach(job_name))
        except LaunchRefused as unknown:
            raise LostContact(f"{unknown}\n{where}") from error
        if found is not None:
            return found
        if is_in_use:
            raise LaunchRefused(
                f"AWS says that the name {job_name} is in use, and has shown no such job for {_SHOWN_WITHIN_S:g} s: "
                "it is just being deleted; try again in a few minutes"
            ) from error
        if was_heard(error):
            raise LostContact(f"{explain(error, 'create the training job')}\n{where}") from error
        raise LaunchRefused(explain(error, "create the training job")) from error

    def _require_plan(self, document: JobDocument, job: AwsJob) -> None:
        """Stop the job that has just been created, unless AWS shows it with its training plan.

        It has failed then, once it has stopped, and is billed on demand until that.

        Raises:
            LostContact: it cannot be stopped: it may run on demand.
        """
        name, spec, doubt = document.job_name, document.spec, ""
        shown: Mapping[str, Any] = {}
        try:
            found = self._within(_SHOWN_WITHIN_S, lambda: self._described(name))
            shown = {} if found is None else found.get("ResourceConfig", {})
        except LaunchRefused as error:
            doubt = f" ({error})"
        if lost_capacity(spec, document.clusters[1:], shown):
            job.reject(_off_plan(name, f"{spec.training_plan}{doubt}"))

    def _described(self, job_name: str) -> Mapping[str, Any] | None:
        """What DescribeTrainingJob says; None where it knows no such job.

        Raises:
            LaunchRefused: AWS does not answer, or refuses.
        """
        try:
            found: Mapping[str, Any] = self.account.client("sagemaker").describe_training_job(TrainingJobName=job_name)
        except AWS_ERRORS as error:
            if is_missing(error):
                return None
            raise LaunchRefused(explain(error, f"look at the training job {job_name}")) from error
        return found

    def _within(self, seconds: float, look: Callable[[], _Found | None]) -> _Found | None:
        """What is looked for, until AWS shows it or the time is over."""
        until = self._clock.monotonic() + seconds
        while (found := look()) is None and self._clock.monotonic() < until:
            self._clock.sleep(_LOOK_EVERY_S)
        return found

    def _job(
        self,
        name: str,
        staging: Staging,
        request: Mapping[str, Any],
        description: Mapping[str, Any] | None = None,
        *,
        training_job: str = "",
    ) -> SageMakerJob:
        """A job by its request, or by its description, which holds the same."""
        trials = int(request.get("Environment", {}).get(TRIALS, 1))
        return self._job_class(
            *(name, self.account, staging, self._poller, self._clock, description),
            trials=trials,
            training_job=training_job,
        )

    def _staging(self, kms_key: str | None = None) -> Staging:
        return Staging(self.account.client("s3"), self.account.bucket, kms_key=kms_key, check=self._check)

    def _request(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> dict[str, Any]:
        self.check_inputs(document.spec, inputs)
        if inputs.project is not None:
            return build(self._of_project(document, inputs.project, staging), self.account, staging)
        return build(self._of_training(document, inputs, staging), self.account, staging)

    def _of_project(self, document: JobDocument, project: ProjectPayload, staging: Staging) -> TrainingJobRequest:
        spec, run = document.spec, _run_id(document.job_name)
        channels = {name: staging.upload("files", path) for name, path in project.inputs.items()}
        told = {"run_id": run, **project.document}
        channels["job"] = _upload_document(document.job_name, told, staging)
        return TrainingJobRequest(
            job_name=document.job_name,
            cluster=spec,
            others=document.clusters[1:],
            image_uri=images.choose(spec, self.account.region, direct=False).uri,
            code=project.code,
            command=f"python3 {project.program} /opt/ml",
            channels=channels,
            environment={
                "PYTHONUNBUFFERED": "1",
                **_network(document),
                **project.variables,
            },
            checkpoints=staging.uri(f"{PREFIX}/checkpoints/{run}/"),
            max_seconds=max(1, math.ceil(document.max_seconds)),
            volume_gib=_volume_gib(document, bytes_on_disk(spec, JobInputs(project=project))),
            tags=_tags(document),
        )

    def _of_training(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> TrainingJobRequest:
        spec = document.spec
        image = images.choose(spec, self.account.region, direct=self.is_direct)
        channels, inside, code_files = self._inputs(document, inputs, staging)
        code_files |= archive.package_files(self._package)
        if image.requirements:
            own = code_files.get(archive.REQUIREMENTS, "")
            text = own if isinstance(own, str) else own.read_text()
            code_files[archive.REQUIREMENTS] = "\n".join([text.strip(), *image.requirements]).strip() + "\n"
        members = tuple(replace(one, spec=_without_account(one.spec)) for one in document.members)
        shown = replace(document, spec=_without_account(inside), members=members)
        channels["job"] = _upload_document(document.job_name, shown.as_json(), staging)
        is_direct = self.is_direct and not document.members  # its trials are recorded in several runs
        module = "paretune.tracking.in_job" if is_direct else "paretune.training"
        return TrainingJobRequest(
            job_name=document.job_name,
            cluster=spec,
            others=document.clusters[1:],
            image_uri=image.uri,
            code=code_files,
            command=f"python3 -m {module} /opt/ml",
            channels=channels,
            environment=self._job_environment(document) | _of_trials(document, staging),
            checkpoints=self._checkpoints(document, inputs, staging),
            max_seconds=max(1, math.ceil(document.max_seconds)),
            volume_gib=_volume_gib(document, bytes_on_disk(spec, inputs)),
            tags=_tags(document),
            smp=_smp(spec) if spec.strategy == "smp" else None,
        )

    def _inputs(
        self, document: JobDocument, inputs: JobInputs, staging: Staging
    ) -> tuple[dict[str, str], JobSpec, dict[str, Path | str]]:
        """Channels, the specification as it reads inside the job, and a script's own files."""
        channels, spec = {}, document.spec
        if inputs.dataset is not None:
            channels["dataset"] = staging.folder("datasets", inputs.dataset.folder, inputs.dataset.key)
        if inputs.model is not None:
            channels["model"] = staging.folder("models", inputs.model)
        if spec.entry_script is None:
            return channels, spec, {}
        script = at_home(spec.entry_script).resolve()
        files: dict[str, Path | str] = {
            f"{archive.SCRIPT_FOLDER}/{name}": path for name, path in archive.project_files(script.parent).items()
        }
        files[f"{archive.SCRIPT_FOLDER}/{script.name}"] = script
        requirements = files.pop(f"{archive.SCRIPT_FOLDER}/{archive.REQUIREMENTS}", None)
        if requirements is not None:
            files[archive.REQUIREMENTS] = requirements
        moved = {"entry_script": f"{_CODE}/{archive.SCRIPT_FOLDER}/{script.name}"}
        for name in INPUT_FILES:
            path = at_home(getattr(spec, name) or "")
            if getattr(spec, name) and path.exists():
                channels[name] = staging.upload("files", path.resolve())
                moved[name] = f"/opt/ml/input/data/{name}" + ("" if path.is_dir() else f"/{path.resolve().name}")
        return channels, spec.replace(**moved), files

    def _installed(self, spec: JobSpec) -> list[str]:
        """What pip installs when the job starts; of somebody's project nothing is known here."""
        if spec.runs_project:
            return []
        own = at_home(spec.entry_script or "").parent / archive.REQUIREMENTS
        texts = [f"{archive.REQUIREMENTS} of {spec.entry_script}"] if spec.entry_script and own.is_file() else []
        return [*images.choose(spec, self.account.region, direct=self.is_direct).requirements, *texts]

    def _job_environment(self, document: JobDocument) -> dict[str, str]:
        environment = {
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **_network(document),
            **{name: self._environment[name] for name in (ALLOW_NO_GPU,) if name in self._environment},
        }
        if document.spec.entry_script is None:
            environment["HF_HUB_OFFLINE"] = "1"  # model and data come as channels
        if document.spec.strategy == "smddp":
            environment["SM_FRAMEWORK_PARAMS"] = '{"sagemaker_distributed_dataparallel_enabled": true}'
        if self.is_direct and not document.members:
            environment |= tracking_environment(self._tracking_uri, _run_id(document.job_name), self._environment)
        return environment

    def _checkpoints(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> str:
        """Where checkpoints lie: shared by all jobs of the same specification, one after the other.

        The first job claims the place; another one takes it over when that job has ended, else has a place of its own.
        """
        data = inputs.dataset.key[:12] if inputs.dataset else "script"
        if document.members:  # no other job has the same trials
            return staging.uri(f"{PREFIX}/checkpoints/{_run_id(document.job_name)}/")
        place = self._checkpoint_place(f"{document.checkpoint_key or document.spec.spec_hash()}-{data}")
        run, name = _run_id(document.job_name), f"{place}.claim"
        former = None if staging.dry else staging.claim(name)
        is_own = staging.dry or (former is not None and former.owner == document.job_name)
        is_taken = former is not None and _run_id(former.owner) != run and self._is_alive(former)
        if is_own or (not is_taken and staging.take(name, document.job_name, former)):
            return staging.uri(f"{place}/")
        return staging.uri(f"{PREFIX}/checkpoints/{run}/")

    def _checkpoint_place(self, key: str) -> str:
        """Prefix of the checkpoints that jobs with this key share."""
        return f"{PREFIX}/checkpoints/{key}"

    def _is_alive(self, claim: Claim) -> bool:
        """Whether the job that has claimed a place runs, or may just be about to be created."""
        try:
            found = self.account.client("sagemaker").describe_training_job(TrainingJobName=claim.owner)
        except AWS_ERRORS as error:
            return not is_missing(error) or self._clock.now() - claim.since < CREATED_WITHIN_S
        return found["TrainingJobStatus"] in {"InProgress", "Stopping"}


def _of_trials(document: JobDocument, staging: Staging) -> dict[str, str]:
    """What a shared job is told of its trials, and whoever looks at it."""
    if not document.members:
        return {}
    return {TRIALS: str(len(document.members)), STOP_REQUESTS: staging.uri(stop_requests(document.job_name))}


def _off_plan(job_name: str, plan: str) -> str:
    """Why a job is stopped that AWS shows without its training plan; `plan` may tell more of it."""
    return (
        f"AWS does not show {job_name} with the training plan {plan}, so it would be billed on demand: it was stopped "
        "at once, and what it has cost until then is booked at the on-demand price; a newer sagemaker and boto3 may "
        "know training plans, or leave training_plan out"
    )


def _script_faults(spec: JobSpec) -> list[str]:
    """Why the folder of a script of the user's own cannot travel."""
    faults: list[str] = []
    if spec.entry_script is not None and not spec.runs_project:
        with collecting(faults):
            archive.project_files(at_home(spec.entry_script).resolve().parent)
    return faults


def _network(document: JobDocument) -> dict[str, str]:
    """What NCCL and pip need to know of the network."""
    return {**network_environment(document.clusters), **index_environment(document.spec)}


def _run_id(job_name: str) -> str:
    """The MLflow run that a job's name was made from; the name itself where it was made from none."""
    made_from = run_of(job_name)
    return made_from[0] if made_from is not None else job_name


def _tags(document: JobDocument) -> dict[str, str]:
    """AWS tags of a job: its run, the hash of its specification, whose it is, and those that were asked for."""
    spec = document.spec
    own = {f"{AWS_PREFIX}run": _run_id(document.job_name)}
    if spec.entry_script != PROJECT:  # of the command of a foreign project the specification tells nothing
        own[f"{AWS_PREFIX}spec"] = spec.spec_hash()
    return {**own, **document.attribution.aws_tags(), **spec.tags}


def _smp(spec: JobSpec) -> dict[str, Any]:
    given = {there: getattr(spec, here) for here, there in _SMP.items()}
    return {name: value for name, value in given.items() if value is not None and value is not False}


def _upload_document(job_name: str, document: Mapping[str, Any], staging: Staging) -> str:
    """S3 URI of the JSON document that a job reads first."""
    return staging.text(f"{PREFIX}/jobs/{job_name}/job.json", json.dumps(document, indent=2))


def _volume_gib(document: JobDocument, size: float) -> int:
    """Storage of an instance for `size` bytes; no more than the disks of its own, which take the place of a volume.

    Source: ResourceConfig, VolumeSizeInGB (botocore 1.44.5): AWS provisions no volume beside NVMe disks.
    """
    own = [cluster.instance().local_storage_gib for cluster in document.clusters]
    return document.spec.volume_gib or min(volume_for_gib(size), *filter(None, own), _LARGEST_VOLUME_GIB)


def _room_faults(instance: Instance, needed_gib: int) -> list[str]:
    own = instance.local_storage_gib
    room = own or _LARGEST_VOLUME_GIB
    if needed_gib <= room:
        return []
    kind = "disks of its own and gets no other volume" if own else "a volume at most"
    given = f"{instance.instance_type} has {room} GiB, {kind}"
    return [
        f"model, data and checkpoints may take {needed_gib} GiB, and {given}: take "
        "fine_tuning=lora, an instance_type with more room, or set volume_gib to what you know to suffice"
    ]


def _without_account(spec: JobSpec) -> JobSpec:
    """What the training needs to know: nothing of account, network and money."""
    return JobSpec.from_text(spec.as_text() | dict.fromkeys(affecting(JobSpec, "ownership"), ""))
