"""What a container of a training job finds: folders, files and environment."""

import json
from pathlib import Path
from typing import Any

from tests.stand_ins.sagemaker.jobs import Job
from tests.stand_ins.sagemaker.settings import Settings
from tests.stand_ins.sagemaker.storage import Store

CHECKPOINTS = "/opt/ml/checkpoints"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ClientFault(Exception):
    """The job cannot start because of what the request names."""


def hosts_of(job: Job) -> list[str]:
    """algo-1, algo-2, ..."""
    return [f"algo-{number + 1}" for number in range(job.count)]


def lay_out(job: Job, image: Path, folder: Path, store: Store, settings: Settings, url: str) -> None:
    """Make the folders of all instances of one attempt, with their data."""
    hosts = hosts_of(job)
    names = "".join(f"10.77.0.{number} {host}\n" for number, host in enumerate(hosts, start=1))
    for host in hosts:
        ml = folder / host / "ml"
        for part in ("input/config", "input/data", "model", "output/data", "checkpoints", "code"):
            (ml / part).mkdir(parents=True)
        (folder / host / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        (folder / host / "log").touch()
        _write_configuration(job, host, hosts, ml / "input" / "config")
        spec = _spec(job, host, image, settings, url)
        (folder / host / "spec.json").write_text(json.dumps(spec, indent=1))
    for channel in job.request.get("InputDataConfig", []):
        _bring_channel(job, channel, folder, store)
    checkpoints = job.request.get("CheckpointConfig")
    if checkpoints:
        uri = checkpoints["S3Uri"].rstrip("/") + "/"
        keys = store.keys(uri)
        for host in hosts:
            store.download(uri, keys, folder / host / "ml" / "checkpoints")


def _write_configuration(job: Job, host: str, hosts: list[str], place: Path) -> None:
    name = "homogeneousCluster"
    resources = {
        "current_group_name": name,
        "current_host": host,
        "current_instance_type": job.kind,
        "hosts": hosts,
        "instance_groups": [{"instance_group_name": name, "instance_type": job.kind, "hosts": hosts}],
        "network_interface_name": "eth0",
        "topology": None,
    }
    channels = {channel["ChannelName"]: _channel_words(channel) for channel in job.request.get("InputDataConfig", [])}
    (place / "resourceconfig.json").write_text(json.dumps(resources))
    (place / "hyperparameters.json").write_text(json.dumps(job.request.get("HyperParameters", {})))
    (place / "inputdataconfig.json").write_text(json.dumps(channels))


def _channel_words(channel: dict[str, Any]) -> dict[str, str]:
    words = {
        "TrainingInputMode": channel.get("InputMode", "File"),
        "S3DistributionType": channel["DataSource"]["S3DataSource"].get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    return words | ({"ContentType": channel["ContentType"]} if channel.get("ContentType") else {})


def _bring_channel(job: Job, channel: dict[str, Any], folder: Path, store: Store) -> None:
    source = channel["DataSource"]["S3DataSource"]
    uri = source["S3Uri"]
    try:
        keys = store.keys(uri)
    except Exception as error:
        raise ClientFault(f"ClientError: Data download failed: {error}, S3 URL: {uri}") from error
    if not keys:
        raise ClientFault(
            f"ClientError: Data download failed: no S3 objects found under S3 URL {uri} given in input data source."
            " Please ensure that the bucket exists in the selected region, that objects exist under that S3 prefix,"
            " and that the role may list and read them."
        )
    for host in hosts_of(job):
        store.download(uri, keys, folder / host / "ml" / "input" / "data" / channel["ChannelName"])


def _spec(job: Job, host: str, image: Path, settings: Settings, url: str) -> dict[str, Any]:
    algorithm = job.request["AlgorithmSpecification"]
    command = [*algorithm.get("ContainerEntrypoint", []), *algorithm.get("ContainerArguments", [])] or ["train"]
    environment = {
        "PATH": f"{image}/bin:{_SYSTEM_PATH}",
        "HOME": "/opt/home",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": job.arn,
        "CURRENT_HOST": host,
        "DMLC_INTERFACE": "eth0",
    }
    interpreter = (image / "bin" / "python3").resolve().parent.parent
    return {
        "command": command,
        "environment": environment | settings.environment(url) | job.request.get("Environment", {}),
        "image": str(image),
        "keep": [*map(str, settings.keep), *([str(interpreter)] if not interpreter.is_relative_to(image) else [])],
        "hide": [str(path) for path in settings.hide],
        "ports": [int(url.rpartition(":")[2]), *settings.forward],
        "checkpoints": job.request.get("CheckpointConfig", {}).get("LocalPath", CHECKPOINTS),
    }
