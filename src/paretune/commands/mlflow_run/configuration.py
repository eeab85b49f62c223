"""The keys of --backend-config: the cluster, and how the run is filled: by the job itself, or at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import collecting, did_you_mean, refuse
from paretune.specification.job import JobSpec
from paretune.specification.parameters import annotations, spell
from paretune.specification.placement import Placement
from paretune.specification.profile import read_profile
from paretune.specification.program import PROJECT

CLUSTER_KEYS = (
    *("instance_type", "instance_count", "spot", "max_runtime_minutes", "max_wait_minutes", "max_cost_usd"),
    "max_silence_minutes",
    *("region", "role", "bucket", "image_uri", "volume_gib", "keep_alive_minutes"),
    *("subnets", "security_group_ids", "kms_key", "tags", "user", "budget"),
)
"""Parameters of a job that apply to any command, whatever it trains."""
# Keys that MLflow 3.17 itself adds to the user's (mlflow/projects/utils.py).
_ADDED_BY_MLFLOW = {"ENV_MANAGER", "SYNCHRONOUS", "DOCKER_ARGS", "STORAGE_DIR", "build_image", "docker_auth"}
_LISTS = {"subnets", "security_group_ids"}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One backend configuration, checked."""

    spec: JobSpec  # the cluster and the limits of the job; its parameters of training have no effect here
    wait: bool = True  # whether `mlflow run` waits for the end; from Python, `synchronous` decides
    run_id: str | None = None  # a run whose job is followed again instead of starting one
    again: bool = False  # whether a job is started although one of the same command is running that nobody watches
    installs: bool = True  # whether the project's dependencies are installed; not with --env-manager local


def read_configuration(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Configuration:
    """The configuration that MLflow passes on, completed by the profile file; raises BadInput with all faults."""
    keys = user_keys(raw)
    faults = _unknown_key_faults(keys) + [
        f"{option} means nothing on SageMaker: give an image in ECR as docker_env or image_uri"
        for option, name in (("--docker-args", "DOCKER_ARGS"), ("--build-image", "build_image"))
        if raw.get(name)
    ]
    run_id = keys.get("run_id")
    wait, again = keys.get("wait", True), keys.get("again", False)
    for name, value in (("wait", wait), ("again", again)):
        if not isinstance(value, bool):
            faults.append(f"{name} must be true or false, got {value!r}")
    if not isinstance(run_id, str | None):
        faults.append(f"run_id must be a text, got {run_id!r}")
    texts = _cluster_texts(keys, environment, faults)
    if "instance_type" not in keys:
        faults.append('instance_type must be given, such as {"instance_type": "ml.m5.xlarge"}')
        texts["instance_type"] = "ml.m5.xlarge"  # so that faults of the other keys are found, too
    with collecting(faults):
        # A specification with an entry script needs nothing for paretune's own training.
        spec = JobSpec.from_text({**texts, "launcher": "sagemaker", "entry_script": PROJECT})
    refuse(faults)
    installs = raw.get("ENV_MANAGER") != "local"
    return Configuration(spec=spec, wait=wait, run_id=run_id, again=again, installs=installs)


def user_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the user has set in the configuration that MLflow passes on."""
    return {name: value for name, value in raw.items() if name not in _ADDED_BY_MLFLOW and value is not None}


def _unknown_key_faults(keys: Mapping[str, Any]) -> list[str]:
    allowed = (*CLUSTER_KEYS, "wait", "run_id", "again")
    faults = []
    for name in keys:
        if name not in allowed:
            hint = did_you_mean(name, allowed, most=2) or f"it may hold {', '.join(allowed)}"
            faults.append(f"the backend configuration has no key {name}: {hint}")
    return faults


def _cluster_texts(keys: Mapping[str, Any], environment: Mapping[str, str], faults: list[str]) -> dict[str, str]:
    """The parameters CLUSTER_KEYS as a user would type them: the user's keys, then those of the profile."""
    profile: Mapping[str, str] = {}
    with collecting(faults):
        profile = read_profile(environment)
    return {
        name: _as_typed(name, keys[name], faults) if name in keys else profile.get(name, "") for name in CLUSTER_KEYS
    }


def _as_typed(name: str, value: Any, faults: list[str]) -> str:
    """A JSON value as a user would type it; empty, with a fault, if it has the wrong type."""
    if name in _LISTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    is_text = annotations(Placement)[name] in (str, str | None)
    if isinstance(value, list) or (is_text and not isinstance(value, str)):
        faults.append(f"{name} must be a text, got {value!r}")
        return ""
    return spell(value)
