"""Defaults of a team or a machine: a TOML file with SageMaker parameters that nobody wants to type.

    # paretune.toml, in the current folder or where PARETUNE_PROFILE points
    region = "eu-west-1"
    role = "SageMakerTraining"
    bucket = "my-models"
    tags = {team = "search"}

What is typed wins over the file.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from paretune.core.errors import BadInput, refuse
from paretune.spec.cluster import Cluster, listed
from paretune.spec.job import JobSpec
from paretune.spec.parameters import spell

FILE = "paretune.toml"
# Belong to one job: a file that set them would change what a command means.
_NOT_HERE = {"instance_type", "instance_count", "launcher", "strategy", "processes_per_instance"}
ALLOWED = frozenset(item.name for item in fields(Cluster)) - _NOT_HERE


def read_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Parameter to text, as it would be typed; empty where there is no file.

    Raises:
        BadInput: the file named by PARETUNE_PROFILE is not there, is no TOML, or sets what a profile may not.
    """
    named = environment.get("PARETUNE_PROFILE")
    path = Path(named or FILE).expanduser()
    if not path.is_file():
        if named:
            raise BadInput([f"PARETUNE_PROFILE must name a file, got {named}"])
        return {}
    if not os.access(path, os.R_OK):
        raise BadInput([f"{path} cannot be read: allow it, or move it away"])
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput([f"{path} is no TOML: {error}"]) from error
    allowed = f"it may set {', '.join(sorted(ALLOWED))}"
    refuse([f"{path} may not set {name}: {allowed}" for name in found if name not in ALLOWED])
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else spell(value) for name, value in found.items()
    }


def with_profile(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The parameters `texts`, completed by the profile where they ask for a job on SageMaker's instances.

    An empty text is not set.

    Raises:
        BadInput: as `read_profile`.
    """
    on_instances = any(name.startswith("ml.") for name in listed(texts.get("instance_type")))
    profile = read_profile(environment) if on_instances or texts.get("launcher") == "sagemaker" else {}
    return {**profile, **{name: text for name, text in texts.items() if text.strip() or name not in profile}}


def completed(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """The specification with the profile's values where it has the default; as `with_profile`."""
    return JobSpec.from_text(with_profile(spec.changed(), environment))
