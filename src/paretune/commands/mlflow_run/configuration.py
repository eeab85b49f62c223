"""What --backend-config may say: the cluster, and how the run is filled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import BadInput, collecting, did_you_mean
from paretune.specification.job import JobSpec
from paretune.specification.limits import OF_A_QUEUE
from paretune.specification.parameters import annotations, spell
from paretune.specification.placement import Placement
from paretune.specification.profile import read_profile
from paretune.specification.program import PROJECT

CLUSTER_KEYS = (
    *("instance_type", "instance_count", "spot", "max_runtime_minutes", "max_wait_minutes", "max_cost_usd"),
    "max_silence_minutes",
    *("region", "role", "bucket", "image_uri", "volume_gib", "keep_alive_minutes"),
    *("subnets", "security_group_ids", "kms_key", "tags", "user", "budget", "queue", *OF_A_QUEUE),
)
"""Those fields of `Placement` that mean something for a command paretune knows nothing of."""
LOGGING = ("auto", "direct", "collect")
# What MLflow 3.17 itself puts beside the user's keys (mlflow/projects/utils.py).
_OF_MLFLOW = {"ENV_MANAGER", "SYNCHRONOUS", "DOCKER_ARGS", "STORAGE_DIR", "build_image", "docker_auth"}
_LISTS = {"subnets", "security_group_ids"}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One backend configuration, checked.

    Attributes:
        spec: where the job runs and what it may cost; what it says of training means nothing here.
        logging: `direct`, the job writes to the tracking server; `collect`, it is copied at the end; `auto` decides.
        wait: whether `mlflow run` waits for the end; from Python, `synchronous` says so.
        run_id: a run whose job is taken up again instead of starting one.
        again: whether a job is started although one of the same command runs that nobody watches.
        installs: whether the project's dependencies are installed; not with --env-manager local.
    """

    spec: JobSpec
    logging: str = "auto"
    wait: bool = True
    run_id: str | None = None
    again: bool = False
    installs: bool = True


def read_configuration(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Configuration:
    """The configuration that MLflow hands over, completed by the profile file.

    Raises:
        BadInput: all that is wrong with it, at once.
    """
    given = user_keys(raw)
    faults = _unknown(given) + [
        f"{option} means nothing on SageMaker: give an image in ECR as docker_env or image_uri"
        for option, name in (("--docker-args", "DOCKER_ARGS"), ("--build-image", "build_image"))
        if raw.get(name)
    ]
    logging, run_id = given.get("mlflow_logging", "auto"), given.get("run_id")
    wait, again = given.get("wait", True), given.get("again", False)
    if logging not in LOGGING:
        faults.append(f"mlflow_logging must be one of {', '.join(LOGGING)}, got {logging!r}")
    for name, value in (("wait", wait), ("again", again)):
        if not isinstance(value, bool):
            faults.append(f"{name} must be true or false, got {value!r}")
    if not isinstance(run_id, str | None):
        faults.append(f"run_id must be a text, got {run_id!r}")
    texts = _cluster_texts(given, environment, faults)
    if "instance_type" not in given:
        faults.append('instance_type must be given, such as {"instance_type": "ml.m5.xlarge"}')
        texts["instance_type"] = "ml.m5.xlarge"  # so that what is wrong with the rest is found, too
    with collecting(faults):
        # A specification with an entry script asks for nothing that paretune's own training would need.
        spec = JobSpec.from_text({**texts, "launcher": "sagemaker", "entry_script": PROJECT})
    if faults:
        raise BadInput(faults)
    installs = raw.get("ENV_MANAGER") != "local"
    return Configuration(spec=spec, logging=logging, wait=wait, run_id=run_id, again=again, installs=installs)


def user_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What the user has set in the configuration that MLflow hands over."""
    return {name: value for name, value in raw.items() if name not in _OF_MLFLOW and value is not None}


def _cluster_texts(given: Mapping[str, Any], environment: Mapping[str, str], faults: list[str]) -> dict[str, str]:
    """Fields of `Placement` as they would be typed: those given, then those of the profile."""
    profile: Mapping[str, str] = {}
    with collecting(faults):
        profile = read_profile(environment)
    return {
        name: _spelled(name, given[name], faults) if name in given else profile.get(name, "") for name in CLUSTER_KEYS
    }


def _spelled(name: str, value: Any, faults: list[str]) -> str:
    """The value of a JSON key as it would be typed; empty, with a fault, where it is of another kind."""
    if name in _LISTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    is_text = annotations(Placement)[name] in (str, str | None)
    if isinstance(value, list) or (is_text and not isinstance(value, str)):
        faults.append(f"{name} must be a text, got {value!r}")
        return ""
    return spell(value)


def _unknown(given: Mapping[str, Any]) -> list[str]:
    known = (*CLUSTER_KEYS, "mlflow_logging", "wait", "run_id", "again")
    faults = []
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, most=2) or f"it may hold {', '.join(known)}"
            faults.append(f"the backend configuration knows no {name}: {hint}")
    return faults
