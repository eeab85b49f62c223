"""The launcher of SageMaker training jobs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.clock import Clock
from paretune.core.errors import collecting, refuse
from paretune.core.tags import AWS_PREFIX
from paretune.core.untrusted import at_home
from paretune.estimating import uploading
from paretune.estimating.uploading import deadline_s, is_compressed
from paretune.launchers import archive
from paretune.launchers.base import Launcher, checkpoint_folder, parse_job_name
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.jobs import SageMakerJob
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE, Poller
from paretune.launchers.sagemaker.preflight import account_faults
from paretune.launchers.sagemaker.request import (
    TrainingJobRequest,
    build,
    index_environment,
    load_sdk,
    network_environment,
)
from paretune.launchers.sagemaker.results import Results
from paretune.launchers.sagemaker.staging import Staging
from paretune.launchers.sagemaker.training_jobs import TrainingJobs
from paretune.launchers.storage import LARGEST_VOLUME_GIB, bytes_on_disk, volume_for_gib
from paretune.pricing.prices import Price, PriceList
from paretune.specification.catalog import Instance
from paretune.specification.container import ALLOW_NO_GPU, JobDocument, JobInputs, ProjectPayload
from paretune.specification.inputs import SCRIPT_CHANNELS
from paretune.specification.job import PROJECT, JobSpec
from paretune.specification.parameters import affecting

_CODE = "/opt/ml/input/data/code"
_OURS = "pydantic>=2.10"  # what our own code needs in a job; AWS's images hold it through the SageMaker SDK
_SMP = {  # parameter to its name in SMP v2
    "hybrid_shard_degree": "hybrid_shard_degree",
    "tensor_parallel_degree": "tensor_parallel_degree",
    "activation_offloading": "sm_activation_offloading",
    "seed": "random_seed",
}


@dataclass(frozen=True)
class Packager:
    """Describes jobs as requests and uploads what they need."""

    account: Account
    environment: Mapping[str, str]  # of this machine; few variables travel
    package: Path  # folder of paretune's own code

    def request(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> TrainingJobRequest:
        """The request of a job; its inputs have been uploaded, unless `staging` is dry.

        Raises:
            BadInput: the code cannot travel.
            LaunchRefused: AWS refuses an upload.
        """
        if inputs.project is not None:
            return self._project_request(document, inputs, inputs.project, staging)
        spec = document.spec
        image = images.choose(spec, self.account.region)
        channels, inner_spec, code = self._inputs(document, inputs, staging)
        code |= archive.package_files(self.package)
        content = code.get(archive.REQUIREMENTS, "")
        text = content if isinstance(content, str) else content.read_text()
        code[archive.REQUIREMENTS] = "\n".join([text.strip(), *image.requirements, _OURS]).strip() + "\n"
        inner = replace(
            document,
            spec=without_account(inner_spec),
            deadline_s=deadline_s(spec, document.max_seconds, self.environment),
        )
        channels["job"] = _upload_document(document.job_name, inner.as_json(), staging)
        return TrainingJobRequest(
            document=document,
            image_uri=image.uri,
            code=code,
            command="python3 -m paretune.training /opt/ml",
            channels=channels,
            environment=self._training_environment(document),
            checkpoints=staging.uri(f"{PREFIX}/checkpoints/{checkpoint_folder(document)}/"),
            volume_gib=_volume_gib(document, inputs),
            tags=_tags(document),
            compresses_output=is_compressed(document.spec, self.environment),
            smp=_smp(spec) if spec.strategy == "smp" else None,
        )

    def installed(self, spec: JobSpec) -> list[str]:
        """Names of what pip installs when our training or a user's script starts; empty for a foreign project."""
        if spec.runs_project:
            return []
        requirements = at_home(spec.entry_script or "").parent / archive.REQUIREMENTS
        has_file = spec.entry_script and requirements.is_file()
        image = images.choose(spec, self.account.region)
        return [*image.requirements, *([f"{archive.REQUIREMENTS} of {spec.entry_script}"] if has_file else [])]

    def _project_request(
        self, document: JobDocument, inputs: JobInputs, project: ProjectPayload, staging: Staging
    ) -> TrainingJobRequest:
        channels = {name: staging.upload("files", path) for name, path in project.inputs.items()}
        content = {
            "deadline_s": deadline_s(document.spec, document.max_seconds, self.environment),
            **project.document,
        }
        channels["job"] = _upload_document(document.job_name, content, staging)
        return TrainingJobRequest(
            document=document,
            image_uri=images.choose(document.spec, self.account.region).uri,
            code=project.code,
            command=f"python3 {project.program} /opt/ml",
            channels=channels,
            environment={"PYTHONUNBUFFERED": "1", **_network(document), **project.variables},
            checkpoints=staging.uri(f"{PREFIX}/checkpoints/{checkpoint_folder(document)}/"),
            volume_gib=_volume_gib(document, inputs),
            tags=_tags(document),
            compresses_output=is_compressed(document.spec, self.environment),
        )

    def _inputs(
        self, document: JobDocument, inputs: JobInputs, staging: Staging
    ) -> tuple[dict[str, str], JobSpec, dict[str, Path | str]]:
        """Channels, the specification with the paths inside the job, and the files of a user's own script."""
        channels, spec = {}, document.spec
        if inputs.dataset is not None:
            channels["dataset"] = staging.upload("datasets", inputs.dataset.folder, inputs.dataset.key)
        if inputs.model is not None:
            channels["model"] = staging.upload("models", inputs.model)
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
        for name, channel in SCRIPT_CHANNELS.items():
            path = at_home(getattr(spec, name) or "")
            if getattr(spec, name) and path.exists():
                channels[channel] = staging.upload("files", path.resolve())
                moved[name] = f"/opt/ml/input/data/{channel}" + ("" if path.is_dir() else f"/{path.resolve().name}")
        return channels, spec.replace(**moved), files

    def _training_environment(self, document: JobDocument) -> dict[str, str]:
        environment = {
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **_network(document),
            **{name: self.environment[name] for name in (ALLOW_NO_GPU,) if name in self.environment},
        }
        if document.spec.entry_script is None:
            environment["HF_HUB_OFFLINE"] = "1"  # model and data come as channels
        if document.spec.strategy == "smddp":
            environment["SM_FRAMEWORK_PARAMS"] = '{"sagemaker_distributed_dataparallel_enabled": true}'
        return environment


def _run_id(job_name: str) -> str:
    parsed = parse_job_name(job_name)
    return parsed[0] if parsed is not None else job_name


def without_account(spec: JobSpec) -> JobSpec:
    """The specification as the training sees it: nothing of account, network and money."""
    return spec.replace(**dict.fromkeys(affecting(JobSpec, "ownership")))


def script_faults(spec: JobSpec) -> list[str]:
    """The reasons why the folder of a user's own script cannot travel; empty if it can."""
    faults: list[str] = []
    if spec.entry_script is not None and not spec.runs_project:
        with collecting(faults):
            archive.project_files(at_home(spec.entry_script).resolve().parent)
    return faults


def disk_faults(instance: Instance, needed_gib: int) -> list[str]:
    """The reasons why `needed_gib` GiB do not fit on an instance; empty if they do."""
    local_gib = instance.local_storage_gib
    most_gib = local_gib or LARGEST_VOLUME_GIB
    if needed_gib <= most_gib:
        return []
    kind = "disks of its own and gets no other volume" if local_gib else "a volume at most"
    return [
        f"model, data and checkpoints may take {needed_gib} GiB, and {instance.instance_type} has {most_gib} GiB, "
        f"{kind}: take fine_tuning=lora, an instance_type with more room, or set volume_gib to what you know to suffice"
    ]


def _network(document: JobDocument) -> dict[str, str]:
    return {**network_environment(document.spec), **index_environment(document.spec)}


def _tags(document: JobDocument) -> dict[str, str]:
    spec = document.spec
    tags = {f"{AWS_PREFIX}run": _run_id(document.job_name)}
    if spec.entry_script != PROJECT:  # the specification says nothing of a foreign project's command
        tags[f"{AWS_PREFIX}spec"] = spec.spec_hash()
    return {**tags, **document.attribution.aws_tags(), **spec.tags}


def _smp(spec: JobSpec) -> dict[str, Any]:
    settings = {smp_name: getattr(spec, name) for name, smp_name in _SMP.items()}
    return {name: value for name, value in settings.items() if value is not None and value is not False}


def _upload_document(job_name: str, document: Mapping[str, Any], staging: Staging) -> str:
    return staging.text(f"{PREFIX}/jobs/{job_name}/job.json", json.dumps(document, indent=2))


def _volume_gib(document: JobDocument, inputs: JobInputs) -> int:
    """Volume of an instance, at most the size of its own NVMe disks, which replace the volume.

    Source: ResourceConfig, VolumeSizeInGB (botocore 1.44.5): AWS provisions no volume beside NVMe disks.
    """
    spec = document.spec
    most_gib = spec.instance().local_storage_gib or LARGEST_VOLUME_GIB
    return spec.sagemaker.volume_size_in_gb or min(
        volume_for_gib(bytes_on_disk(spec, inputs)), most_gib, LARGEST_VOLUME_GIB
    )


class SageMakerLauncher(Launcher):
    """Starts jobs in an AWS account, and finds them again."""

    name = "sagemaker"

    def __init__(
        self,
        cluster: JobSpec,
        clock: Clock,
        environment: Mapping[str, str],
        *,
        calls_per_minute: float = CALLS_PER_MINUTE,  # limit of the poller
        poller: Poller | None = None,  # shared with other launchers of the same account and region
        package: Path | None = None,  # folder of the code of paretune that travels
        results: type[Results] = Results,  # how the results of its jobs are read
        # called while files are uploaded and before a job is created; raises to cancel
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.account = Account(cluster, environment)
        self._clock = clock
        self._environment = environment
        self._check_interruption = check
        poller = poller or Poller(self.account, clock, calls_per_minute)
        self._jobs = TrainingJobs(self.account, poller, clock, results, self._staging)
        self._packager = Packager(self.account, environment, package or Path(__file__).parents[2])
        self.last_request: Mapping[str, Any] = {}
        """The CreateTrainingJob request that was sent last."""

    def location_tags(self) -> Mapping[str, str]:
        """Account, region and bucket."""
        account = self.account
        return {"account": account.identity["Account"], "region": account.region, "bucket": account.bucket}

    def check(self, spec: JobSpec) -> None:
        """Check strategy, image and instance type together; credentials, role, bucket and quotas."""
        faults = images.faults(spec, self.account.region)
        installed = () if faults else self._packager.installed(spec)
        faults += account_faults(spec, self.account, installed=installed)
        refuse([*faults, *script_faults(spec)])
        load_sdk()  # takes a second or two, in which the data are still being prepared

    def check_offline(self, spec: JobSpec) -> None:
        """Check strategy, image and instance type together, and whether a script's folder can travel."""
        refuse([*images.faults(spec, self.account.region), *script_faults(spec)])

    def check_inputs(self, spec: JobSpec, inputs: JobInputs) -> None:
        """Check that model, data and checkpoints fit on the instances' own disks, or on the largest volume."""
        if spec.sagemaker.volume_size_in_gb is None:
            needed_gib = volume_for_gib(bytes_on_disk(spec, inputs))
            types = spec.instance_types()
            refuse([fault for name in types for fault in disk_faults(spec.instance(name), needed_gib)])

    def submit(self, document: JobDocument, inputs: JobInputs) -> SageMakerJob:
        """Upload what is not in S3 yet and create the job, or adopt the one that has this name."""
        self.account.create_default_bucket()
        staging = self._staging(document.spec.sagemaker.kms_key_id)
        request = self._request(document, inputs, staging)
        self._check_interruption()
        self.last_request = request
        return self._jobs.create(document, request, staging)

    def attach(self, job_name: str) -> SageMakerJob | None:
        """The job with this name in this account and region."""
        return self._jobs.find(job_name)

    def price(self, spec: JobSpec) -> Price | None:
        """The on-demand price of the instance type in this region."""
        return self._prices.price(spec.instance_type, self.account.region)

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
        """The CreateTrainingJob request, exactly; nothing is uploaded."""
        staging = self._staging(document.spec.sagemaker.kms_key_id)
        staging.dry = True
        return self._request(document, inputs, staging)

    def _request(self, document: JobDocument, inputs: JobInputs, staging: Staging) -> dict[str, Any]:
        self.check_inputs(document.spec, inputs)
        return build(self._packager.request(document, inputs, staging), self.account, staging)

    def _staging(self, kms_key: str | None = None) -> Staging:
        s3 = self.account.client("s3")
        return Staging(s3, self.account.bucket, kms_key=kms_key, check=self._check_interruption)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)
