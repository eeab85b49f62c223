"""Defaults of a team or a machine: a TOML file with parameters of jobs that nobody wants to type.

    # paretune.toml, in the current folder or where PARETUNE_PROFILE points
    max_cost_usd = 2.0
    region = "eu-west-1"
    role = "SageMakerTraining"
    bucket = "my-models"
    tags = {team = "search"}
    budget = "team.yaml"

What is typed wins over the file; of `tags` each name for itself. What only a job on SageMaker's instances can use is
left out of a job on this machine; the job says so. Studies and designs take of it `budget`, `user` and `tags`; all else
that their jobs have stands in their own files. A relative `budget` counts from the folder of the profile.
"""

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import LARGEST_SETTINGS, absolute, at_home, exists, read_text
from paretune.specification.cluster import SIMULATED
from paretune.specification.job import JobSpec
from paretune.specification.limits import OF_A_QUEUE
from paretune.specification.parameters import spell, split_list
from paretune.specification.placement import Placement

FILE = "paretune.toml"
# Belong to one job: a file that set them would change what a command means.
_NOT_HERE = {"instance_type", "instance_count", "launcher", "strategy", "processes_per_instance"}
_ON_INSTANCES = {
    *("legacy_smp", "instance_facts", "spot", "max_wait_minutes", "fallback_instance_types", "capacity_wait_minutes"),
    *("region", "role", "bucket", "image_uri", "volume_gib", "keep_alive_minutes", "subnets", "security_group_ids"),
    *("package_index", "kms_key", "on_interrupt", "training_plan", "queue", *OF_A_QUEUE, "budget"),
}
"""Parameters that mean nothing for a job on this machine."""
_ON_THIS_MACHINE = {"local_price_usd_per_hour"}
"""Parameters that mean nothing for a job on SageMaker's instances."""
CHARGED = ("budget", "user", "tags")
"""Parameters that say whose job it is and who pays: those of the file hold for studies and designs, too."""
ALLOWED = frozenset(item.name for item in fields(Placement)) - _NOT_HERE


def read_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Parameter to text, as it would be typed; empty where there is no file.

    Raises:
        BadInput: the file named by PARETUNE_PROFILE is not there, is no TOML, or sets what a profile may not.
    """
    named = environment.get("PARETUNE_PROFILE")
    path = at_home(named or FILE)
    if not named and not exists(path):
        return {}
    must = "PARETUNE_PROFILE must name a file, and " if named else ""
    try:
        found = tomllib.loads(read_text(path, LARGEST_SETTINGS, must=must))
    except (ValueError, RecursionError) as error:  # no TOML, a number with thousands of digits
        raise BadInput([f"{path} is no TOML: {error}"]) from error
    allowed = f"it may set {', '.join(sorted(ALLOWED))}"
    refuse([f"{path} may not set {name}: {allowed}" for name in found if name not in ALLOWED])
    faults, texts = list[str](), dict[str, str]()
    for name, value in found.items():
        try:
            texts[name] = ",".join(map(str, value)) if isinstance(value, list) else spell(value)
        except (TypeError, ValueError, RecursionError):  # a date in a table, a number with thousands of digits
            rule = "must be a text, a number, true, false, or a list or a table of these"
            faults.append(f"{path}: {name} {rule}; it holds a date or a number of more digits: write it in quotes")
    refuse(faults)
    return texts | ({"budget": str(path.parent / at_home(texts["budget"]))} if "budget" in texts else {})


def with_profile(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The parameters `texts`, completed by what of the profile has an effect on the job that they ask for.

    An empty text is not set.

    Raises:
        BadInput: as `read_profile`.
    """
    useless = _useless(texts.get("instance_type"), texts.get("launcher"))
    profile = {name: text for name, text in read_profile(environment).items() if name not in useless}
    typed = {name: text for name, text in texts.items() if text.strip() or name not in profile}
    return {**profile, **typed, **_tags(profile, typed)}


def completed(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """The specification with the profile's values where it has the default; as `with_profile`."""
    return JobSpec.from_text(with_profile(spec.changed(), environment))


def charged(job: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Parameters of a job of a study or a design, with what of the profile says whose it is and who pays.

    A `budget` is an absolute path: whoever goes on with the study may do so in another folder.

    Raises:
        BadInput: as `read_profile`.
    """
    profile = {name: text for name, text in read_profile(environment).items() if name in CHARGED}
    found = {**profile, **job, **_tags(profile, job)}
    return found | ({"budget": absolute(str(found["budget"]))} if found.get("budget") else {})


def _tags(profile: Mapping[str, str], asked: Mapping[str, Any]) -> dict[str, str]:
    """The tags of both, where the profile has some; of a name that both have, the value that is asked for.

    Nothing where what is asked for cannot be read as tags: whoever reads it says so.
    """
    both = [source.get("tags") or {} for source in (profile, asked)]
    with suppress(ValueError, RecursionError):
        known, typed = (json.loads(tags) if isinstance(tags, str) else tags for tags in both)
        if known and isinstance(known, Mapping) and isinstance(typed, Mapping):
            return {"tags": spell({**known, **typed})}
    return {}


def remarks(spec: JobSpec, environment: Mapping[str, str]) -> list[str]:
    """What of the profile has no effect on a job, in one sentence; empty where all of it has."""
    useless = _useless(spec.instance_type, spec.launcher)
    names = sorted(name for name in read_profile(environment) if name in useless)
    where = "a job on SageMaker's instances" if spec.has_instances else "a job on this machine"
    return [f"{FILE}: {', '.join(names)} without effect on {where}"] if names else []


def _useless(instance_types: str | None, launcher: str | None) -> set[str]:
    """Parameters of a profile that have no effect on a job on these instance types, comma-separated."""
    kinds = {name.startswith("ml.") for name in split_list(instance_types)} or {launcher == "sagemaker"}
    useless = (set() if True in kinds else _ON_INSTANCES) | (set() if False in kinds else _ON_THIS_MACHINE)
    return useless | ({"queue", *OF_A_QUEUE} if launcher == SIMULATED else set())
