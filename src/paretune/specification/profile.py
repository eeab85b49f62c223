"""Defaults of a team or a machine: a TOML file with job parameters that nobody wants to type.

    # paretune.toml, in the current folder or where PARETUNE_PROFILE points
    max_cost_usd = 2.0
    region = "eu-west-1"
    role = "SageMakerTraining"
    bucket = "my-models"
    tags = {team = "search"}
    budget = "team.yaml"

Typed parameters override the file, and typed `tags` override its tags one by one. Parameters that only jobs on
SageMaker's instances use are left out of a job on this machine, with a remark. Studies and designs take only `budget`,
`user` and `tags` from it, because their own files state everything else. A relative `budget` starts at the folder of
the profile.
"""

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import LARGEST_SETTINGS, absolute, at_home, exists, read_text
from paretune.specification.account import AccountSettings
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell, split_list
from paretune.specification.placement import Placement

FILE = "paretune.toml"
# These define a single job: a file that set them would change the meaning of a command.
_OF_ONE_JOB = {
    *("instance_type", "instance_count", "launcher", "strategy", "processes_per_instance"),
}
_ONLY_INSTANCES = {item.name for item in fields(AccountSettings)} - {"tags", "user"} | {
    *("instance_facts", "spot", "max_wait_minutes", "fallback_instance_types", "capacity_wait_minutes"),
    "budget",
}
"""Parameters without effect on a job on this machine."""
_ONLY_THIS_MACHINE = {"local_price_usd_per_hour"}  # parameters without effect on a job on SageMaker's instances
CHARGED = ("budget", "user", "tags")  # they say who owns and pays a job; the profile sets them for studies, too
ALLOWED = frozenset(item.name for item in fields(Placement)) - _OF_ONE_JOB


def read_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """The parameters in the profile as the user would type them; empty if there is no file.

    Raises:
        BadInput: the file that PARETUNE_PROFILE names does not exist, is not TOML, or sets a forbidden parameter.
    """
    typed_path = environment.get("PARETUNE_PROFILE")
    path = at_home(typed_path or FILE)
    if not typed_path and not exists(path):
        return {}
    must = "PARETUNE_PROFILE must name a file, and " if typed_path else ""
    try:
        settings = tomllib.loads(read_text(path, LARGEST_SETTINGS, must=must))
    except (ValueError, RecursionError) as error:  # no TOML, a number with thousands of digits
        raise BadInput([f"{path} is no TOML: {error}"]) from error
    allowed = f"it may set {', '.join(sorted(ALLOWED))}"
    refuse([f"{path} may not set {name}: {allowed}" for name in settings if name not in ALLOWED])
    faults, texts = list[str](), dict[str, str]()
    for name, value in settings.items():
        try:
            texts[name] = ",".join(map(str, value)) if isinstance(value, list) else spell(value)
        except (TypeError, ValueError, RecursionError):  # a date in a table, a number with thousands of digits
            rule = "must be a text, a number, true, false, or a list or a table of these"
            faults.append(f"{path}: {name} {rule}; it contains a date or a too long number: write it in quotes")
    refuse(faults)
    return texts | ({"budget": str(path.parent / at_home(texts["budget"]))} if "budget" in texts else {})


def with_profile(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The typed parameters, completed by those of the profile that have an effect on the job; "" means not typed.

    Raises:
        BadInput: as `read_profile`.
    """
    without_effect = _without_effect(texts.get("instance_type"), texts.get("launcher"))
    profile = {name: text for name, text in read_profile(environment).items() if name not in without_effect}
    typed = {name: text for name, text in texts.items() if text.strip() or name not in profile}
    return {**profile, **typed, **_merged_tags(profile, typed)}


def completed(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """The specification with values of the profile in place of defaults; see `with_profile`."""
    return JobSpec.from_text(with_profile(spec.changed(), environment))


def charged(job: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The job parameters of a study or a design, with owner and budget from the profile.

    `budget` becomes an absolute path, because the study may be continued in another folder.

    Raises:
        BadInput: as `read_profile`.
    """
    profile = {name: text for name, text in read_profile(environment).items() if name in CHARGED}
    values = {**profile, **job, **_merged_tags(profile, job)}
    return values | ({"budget": absolute(str(values["budget"]))} if values.get("budget") else {})


def _merged_tags(profile: Mapping[str, str], typed: Mapping[str, Any]) -> dict[str, str]:
    """The `tags` of both, merged; empty if the profile has none or the typed ones are invalid."""
    sources = [source.get("tags") or {} for source in (profile, typed)]
    with suppress(ValueError, RecursionError):  # whoever reads invalid tags refuses them
        defaults, tags = (json.loads(source) if isinstance(source, str) else source for source in sources)
        if defaults and isinstance(defaults, Mapping) and isinstance(tags, Mapping):
            return {"tags": spell({**defaults, **tags})}
    return {}


def remarks(cluster: Placement, environment: Mapping[str, str]) -> list[str]:
    """At most one sentence: the parameters of the profile that have no effect on a job on this cluster."""
    without_effect = _without_effect(cluster.instance_type, cluster.launcher)
    names = sorted(name for name in read_profile(environment) if name in without_effect)
    job = "a job on SageMaker's instances" if cluster.has_instances else "a job on this machine"
    return [f"{FILE}: {', '.join(names)} without effect on {job}"] if names else []


def _without_effect(instance_types: str | None, launcher: str | None) -> set[str]:
    """Parameters of a profile that have no effect on a job on any of the comma-separated instance types."""
    on_instances = {name.startswith("ml.") for name in split_list(instance_types)} or {launcher == "sagemaker"}
    names = set() if True in on_instances else _ONLY_INSTANCES
    return names | (set() if False in on_instances else _ONLY_THIS_MACHINE)
