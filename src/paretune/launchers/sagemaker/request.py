"""From a job document to a CreateTrainingJob request, as a plain dictionary; what the job reads is uploaded."""

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paretune.core.tags import AWS_PREFIX
from paretune.core.untrusted import at_home
from paretune.estimating.phases import deadline_s, is_compressed
from paretune.launchers import archive
from paretune.launchers.base import checkpoint_folder, run_of
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.storage import Storage
from paretune.launchers.storage import LARGEST_VOLUME_GIB, bytes_on_disk, volume_for_gib
from paretune.specification.container import ALLOW_NO_GPU, JobDocument, JobInputs
from paretune.specification.inputs import SCRIPT_CHANNELS
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting

_CODE = "/opt/ml/input/data/code"
_STARTERS = [Path(__file__).with_name(name) for name in ("start_job.sh", "start_job.py")]
_START = f"cd {_CODE} && tar -xzf {archive.NAME} && exec bash start_job.sh "
_OURS = "pydantic>=2.10"  # what our own code needs in a job; AWS's images hold it through the SageMaker SDK
_SPOT_WAIT_S = 3600.0
_LONGEST_WAIT_S = 28 * 24 * 3600  # AWS, StoppingCondition: a job may take 28 days at most
_RDMA_FAMILIES = {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "trn1"}
_RDMA = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}  # as the SDK's driver sets them
_SMP = {  # parameter to its name in SMP v2
    "hybrid_shard_degree": "hybrid_shard_degree",
    "tensor_parallel_degree": "tensor_parallel_degree",
    "activation_offloading": "sm_activation_offloading",
    "seed": "random_seed",
}


def create_request(
    document: JobDocument,
    inputs: JobInputs,
    account: Account,
    storage: Storage,
    environment: Mapping[str, str],
    package: Path,
) -> dict[str, Any]:
    """The CreateTrainingJob request of a job; its inputs have been uploaded, unless `storage` is dry.

    Of `environment`, the variables of this machine, few travel. `package` is the folder of paretune's own code.

    Raises:
        BadInput: the code cannot travel.
        LaunchRefused: AWS refuses an upload.
    """
    spec, place = document.spec, document.spec.sagemaker
    image = images.choose(spec, account.region)
    deadline = deadline_s(spec, document.max_seconds, environment)
    if (project := inputs.project) is not None:
        command, code, variables = f"python3 {project.program} /opt/ml", dict[str, Path | str](project.code), {}
        channels = {name: storage.upload("files", path) for name, path in project.inputs.items()}
        job = {"deadline_s": deadline, **project.document}
    else:
        command, variables = "python3 -m paretune.training /opt/ml", _variables(spec, environment)
        channels, inner_spec, code = _inputs(spec, inputs, storage)
        code |= {**archive.package_files(package), archive.REQUIREMENTS: _requirements(code, image)}
        job = replace(document, spec=without_account(inner_spec), deadline_s=deadline).as_json()
    channels["job"] = storage.text(f"{PREFIX}/jobs/{document.job_name}/job.json", json.dumps(job, indent=2))
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        packed = archive.pack({**code, **{path.name: path for path in _STARTERS}}, Path(folder) / archive.NAME)
        channels["code"] = storage.upload("code", packed)
    request = {
        "TrainingJobName": document.job_name,
        "RoleArn": account.role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": image.uri,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash"],
            # The command replaces the shell, so that it receives SIGTERM.
            "ContainerArguments": ["-c", f"{_START}{command}"],
        },
        "HyperParameters": {"mp_parameters": _smp_parameters(spec)} if spec.strategy == "smp" else {},
        # DescribeTrainingJob shows it to everybody who may call that.
        "Environment": {"PYTHONUNBUFFERED": "1", **_network(spec), **variables},
        "InputDataConfig": [_channel(name, uri) for name, uri in channels.items()],
        "OutputDataConfig": {
            "S3OutputPath": storage.uri(f"{PREFIX}/jobs"),
            "CompressionType": "GZIP" if is_compressed(spec, environment) else "NONE",
            "KmsKeyId": place.kms_key_id,
        },
        "CheckpointConfig": {
            "S3Uri": storage.uri(f"{PREFIX}/checkpoints/{checkpoint_folder(document)}/"),
            "LocalPath": "/opt/ml/checkpoints",
        },
        "ResourceConfig": {
            "InstanceType": spec.instance_type,
            "InstanceCount": spec.instance_count,
            "VolumeSizeInGB": _volume_gib(spec, inputs),
            "KeepAlivePeriodInSeconds": int(spec.keep_alive_minutes * 60),
            # CreateTrainingJob refuses a key for disks that the instance's own hardware encrypts.
            "VolumeKmsKeyId": None if spec.instance().has_local_storage else place.kms_key_id,
        },
        "StoppingCondition": _limits(document),
        "EnableManagedSpotTraining": spec.spot,
        "VpcConfig": {"Subnets": list(place.subnets), "SecurityGroupIds": list(place.security_group_ids)}
        if place.subnets
        else None,
        "Tags": [{"Key": key, "Value": value} for key, value in _tags(document).items()],
    }
    whole: dict[str, Any] = _without_unset(request)
    return whole


def without_account(spec: JobSpec) -> JobSpec:
    """The specification as the training sees it: nothing of account, network and money."""
    return spec.replace(**dict.fromkeys(affecting(JobSpec, "ownership")))


def _variables(spec: JobSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for our own training."""
    allowed = {name: environment[name] for name in (ALLOW_NO_GPU,) if name in environment}
    variables = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1", **allowed}
    if spec.entry_script is None:
        variables["HF_HUB_OFFLINE"] = "1"  # model and data come as channels
    if spec.strategy == "smddp":
        variables["SM_FRAMEWORK_PARAMS"] = '{"sagemaker_distributed_dataparallel_enabled": true}'
    return variables


def _requirements(code: Mapping[str, Path | str], image: images.Image) -> str:
    """Those of the user's own script, of the image, and of our code."""
    content = code.get(archive.REQUIREMENTS, "")
    text = content if isinstance(content, str) else content.read_text()
    return "\n".join([text.strip(), *image.requirements, _OURS]).strip() + "\n"


def _smp_parameters(spec: JobSpec) -> str:
    settings = {smp_name: getattr(spec, name) for name, smp_name in _SMP.items()}
    return json.dumps({name: value for name, value in settings.items() if value is not None and value is not False})


def _inputs(
    spec: JobSpec, inputs: JobInputs, storage: Storage
) -> tuple[dict[str, str], JobSpec, dict[str, Path | str]]:
    """Channels, the specification with the paths inside the job, and the files of a user's own script."""
    channels = {}
    if inputs.dataset is not None:
        channels["dataset"] = storage.upload("datasets", inputs.dataset.folder, inputs.dataset.key)
    if inputs.model is not None:
        channels["model"] = storage.upload("models", inputs.model)
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
            channels[channel] = storage.upload("files", path.resolve())
            moved[name] = f"/opt/ml/input/data/{channel}" + ("" if path.is_dir() else f"/{path.resolve().name}")
    return channels, spec.replace(**moved), files


def _channel(name: str, uri: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": "File"}


def _limits(document: JobDocument) -> dict[str, int]:
    """Longest runtime; on spot also the longest time for waiting and running together."""
    runtime_s = max(1, math.ceil(document.max_seconds))
    wait_s = max(runtime_s, int(min(_LONGEST_WAIT_S, runtime_s + _SPOT_WAIT_S)))
    return {"MaxRuntimeInSeconds": runtime_s, **({"MaxWaitTimeInSeconds": wait_s} if document.spec.spot else {})}


def _network(spec: JobSpec) -> dict[str, str]:
    """Variables for NCCL on instances with EFA, and the package index for pip."""
    index = spec.sagemaker.package_index
    rdma = _RDMA if spec.instance().family in _RDMA_FAMILIES else {}
    return {**rdma, "PIP_INDEX_URL": index} if index else rdma


def _volume_gib(spec: JobSpec, inputs: JobInputs) -> int:
    """Volume of an instance, at most the size of its own NVMe disks, which replace the volume.

    Source: ResourceConfig, VolumeSizeInGB (botocore 1.44.5): AWS provisions no volume beside NVMe disks.
    """
    if spec.sagemaker.volume_size_in_gb is not None:
        return spec.sagemaker.volume_size_in_gb
    most_gib = spec.instance().local_storage_gib or LARGEST_VOLUME_GIB
    return min(volume_for_gib(bytes_on_disk(spec, inputs)), most_gib, LARGEST_VOLUME_GIB)


def _tags(document: JobDocument) -> dict[str, str]:
    ours = {f"{AWS_PREFIX}run": run_of(document.job_name), f"{AWS_PREFIX}spec": document.spec.spec_hash()}
    return {**ours, **document.attribution.aws_tags(), **document.spec.tags}


def _without_unset(value: Any) -> Any:
    """A request without members that are None, zero seconds or empty; False is a value."""
    if not isinstance(value, dict):
        return value
    members = {name: _without_unset(member) for name, member in value.items()}
    return {name: member for name, member in members.items() if member is False or member}
