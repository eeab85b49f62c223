"""The keys of --backend-config: the cluster, and how the run is filled: by the job itself, or at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import collecting, did_you_mean, refuse
from paretune.specification.job import PROJECT, JobSpec
from paretune.specification.profile import read_profile

CLUSTER_KEYS = (
    *("instance_type", "instance_count", "spot", "max_runtime_minutes", "max_silence_minutes", "max_cost_usd"),
    *("region", "role", "sagemaker", "keep_alive_minutes", "tags", "budget"),
)
"""Parameters of a job that apply to any command, whatever it trains."""
# Keys that MLflow 3.17 itself adds to the user's (mlflow/projects/utils.py).
_ADDED_BY_MLFLOW = {"ENV_MANAGER", "SYNCHRONOUS", "DOCKER_ARGS", "STORAGE_DIR", "build_image", "docker_auth"}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One backend configuration, checked."""

    spec: JobSpec  # the cluster and the limits of the job; its parameters of training have no effect here
    wait: bool = True  # whether `mlflow run` waits for the end; from Python, `synchronous` decides
    run_id: str | None = None  # a run whose job is followed again instead of starting one
    force: bool = False  # whether a job is started although one of the same command is running
    installs: bool = True  # whether the project's dependencies are installed; not with --env-manager local


def read_configuration(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Configuration:
    """The configuration that MLflow passes on, completed by the profile file; raises BadInput with all faults."""
    keys = user_keys(raw)
    faults = _unknown_key_faults(keys) + [
        f"{option} means nothing on SageMaker: give an image in ECR as docker_env or sagemaker.training_image"
        for option, name in (("--docker-args", "DOCKER_ARGS"), ("--build-image", "build_image"))
        if raw.get(name)
    ]
    run_id = keys.get("run_id")
    wait, force = keys.get("wait", True), keys.get("force", False)
    for name, value in (("wait", wait), ("force", force)):
        if not isinstance(value, bool):
            faults.append(f"{name} must be true or false, got {value!r}")
    if not isinstance(run_id, str | None):
        faults.append(f"run_id must be a text, got {run_id!r}")
    profile = dict[str, Any]()
    with collecting(faults):
        profile = read_profile(environment)
    if "instance_type" not in keys:
        faults.append('instance_type must be given, such as {"instance_type": "ml.m5.xlarge"}')
    values = {"instance_type": "ml.m5.xlarge", **profile, **keys}
    values = {name: value for name, value in values.items() if name.partition(".")[0] in CLUSTER_KEYS}
    with collecting(faults):
        # A specification with an entry script needs nothing for paretune's own training.
        spec = JobSpec(**values, launcher="sagemaker", entry_script=PROJECT)
    refuse(faults)
    installs = raw.get("ENV_MANAGER") != "local"
    return Configuration(spec=spec, wait=wait, run_id=run_id, force=force, installs=installs)


def user_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the user has set in the configuration that MLflow passes on."""
    return {name: value for name, value in raw.items() if name not in _ADDED_BY_MLFLOW and value is not None}


def _unknown_key_faults(keys: Mapping[str, Any]) -> list[str]:
    allowed = (*CLUSTER_KEYS, "wait", "run_id", "force")
    faults = []
    for name in keys:
        if name.partition(".")[0] not in allowed:
            hint = did_you_mean(name, allowed, most=2) or f"it may hold {', '.join(allowed)}"
            faults.append(f"the backend configuration has no key {name}: {hint}")
    return faults
