"""Defaults of a user or a team: TOML files with job parameters that nobody wants to type.

    # ~/.paretune/paretune.toml, or the file that PARETUNE_PROFILE names
    max_cost_usd = 2.0
    region = "eu-west-1"
    role = "SageMakerTraining"
    tags = {team = "search"}
    budget = "team.yaml"
    sagemaker = {s3_bucket = "my-models"}
    notify = "arn:aws:sns:eu-west-1:123456789012:trainings"  # or the https address of a webhook

A `paretune.toml` in the current folder wins over it, and may set only what can neither run foreign code nor spend for
somebody else, because the folder may be a clone of somebody's repository. Typed parameters override both files, and
`tags` and `sagemaker` entry by entry. Parameters that only jobs on SageMaker's instances use are left out of a job on
this machine, with a remark. Studies take only `budget` and `tags`, because their own files state everything else. A
relative `budget` starts at the folder of its file.
"""

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import LARGEST_SETTINGS, absolute, at_home, exists, parse_json, read_text
from paretune.specification.job import JobSpec, JobValues
from paretune.specification.parameters import affecting, spell, split_list

FILE = "paretune.toml"
OWN_FILE = f"~/.paretune/{FILE}"
CHARGED = ("budget", "tags")  # they say who owns and pays a job; the files set them for studies, too
NOTIFY = "notify"
"""Key of the user's own file that is no parameter of a job, because nothing may record it: where notices are sent."""
_ADDRESS = re.compile(r"arn:aws[\w-]*:sns:[\w-]+:\d{12}:[\w-]+|https?://\S+")
_MERGED = {"tags", "sagemaker"}  # entry by entry
SETTABLE = {*affecting(JobSpec, "ownership", "stopping", "dollars"), "max_silence_minutes"} - {"simulation"}
_ONLY_IN_OWN = {"role", "sagemaker", "budget", "max_cost_usd", "keep_alive_minutes", "max_runtime_minutes"}
"""Parameters that only the user's own file may set: they choose the code that runs, and whose money it spends."""
_SETTABLE_IN_OWN = {*SETTABLE, NOTIFY}
_ONLY_INSTANCES = {*affecting(JobSpec, "ownership"), "spot", "fallback_instance_types"} - {"tags", "max_cost_usd"}
"""Parameters without effect on a job on this machine."""


def read_profile(environment: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of both files; empty if there is none.

    Raises:
        BadInput: the file that PARETUNE_PROFILE names does not exist, is not TOML, or sets a forbidden parameter.
    """
    return {name: value for name, value in _read_files(environment).items() if name != NOTIFY}


def notify_address(environment: Mapping[str, str]) -> str:
    """The topic of SNS or the webhook that is told of ended jobs, a secret; "" if there is none. Raises BadInput."""
    return str(_read_files(environment).get(NOTIFY, ""))


def _read_files(environment: Mapping[str, str]) -> dict[str, Any]:
    named = environment.get("PARETUNE_PROFILE")
    profile = dict[str, Any]()
    for path, may_set in ((at_home(named or OWN_FILE), _SETTABLE_IN_OWN), (Path(FILE), SETTABLE - _ONLY_IN_OWN)):
        if exists(path) or (named and may_set == _SETTABLE_IN_OWN):
            profile = _merged(profile, _read(path, may_set, must="PARETUNE_PROFILE must name a file, and "))
    return profile


def _read(path: Path, may_set: set[str], must: str) -> dict[str, Any]:
    try:
        settings = tomllib.loads(read_text(path, LARGEST_SETTINGS, must=must))
    except (ValueError, RecursionError) as error:  # no TOML, a number with thousands of digits
        raise BadInput([f"{path} is no TOML: {error}"]) from error
    faults = []
    for name in settings:
        if name in _SETTABLE_IN_OWN - may_set:
            text = f"it chooses the code that runs or whose money it spends; set it in {OWN_FILE}"
            faults.append(f"{path} may not set {name}: {text}")
        elif name not in may_set:
            faults.append(f"{path} may not set {name}: it may set {', '.join(sorted(may_set))}")
    refuse(faults)
    if NOTIFY in settings and not _ADDRESS.fullmatch(str(settings[NOTIFY])):
        refuse([f"{path}: {NOTIFY} must be the ARN of a topic of SNS, or the https address of a webhook"])
    _, wrong = JobValues.check({name: value for name, value in settings.items() if name != NOTIFY})
    refuse([f"{path}: {fault.text}" for fault in wrong])
    if "budget" in settings:
        settings["budget"] = str(path.parent / at_home(settings["budget"]))
    return settings


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the second one winning; mappings of tags and of SageMaker's settings entry by entry."""
    merged = {**first, **second}
    for name in first.keys() & second.keys() & _MERGED:
        with suppress(ValueError, TypeError):  # whoever reads an invalid value refuses it
            merged[name] = {**_mapping(first[name]), **_mapping(second[name])}
    return merged


def _mapping(value: Any) -> Mapping[str, Any]:
    return dict(parse_json(value) if isinstance(value, str) else value)


def with_profile(texts: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The typed parameters, completed by those of the files that have an effect on the job; "" means not typed.

    Raises:
        BadInput: as `read_profile`.
    """
    without_effect = _without_effect(texts.get("instance_type"), texts.get("launcher"))
    profile = {name: value for name, value in read_profile(environment).items() if name not in without_effect}
    return _merged(profile, {name: text for name, text in texts.items() if spell(text).strip()})


def completed(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """The specification with values of the files in place of defaults; see `with_profile`."""
    return JobSpec.read(with_profile(spec.given(), environment))


def charged(job: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The job parameters of a study, with owner and budget from the files.

    `budget` becomes an absolute path, because the study may be continued in another folder.

    Raises:
        BadInput: as `read_profile`.
    """
    values = _merged({name: value for name, value in read_profile(environment).items() if name in CHARGED}, job)
    return values | ({"budget": absolute(str(values["budget"]))} if values.get("budget") else {})


def remarks(spec: JobSpec, environment: Mapping[str, str]) -> list[str]:
    """At most one sentence: the parameters of the files that have no effect on a job on this cluster."""
    without_effect = _without_effect(spec.instance_type, spec.launcher)
    names = sorted(name for name in read_profile(environment) if name in without_effect)
    return [f"{FILE}: {', '.join(names)} without effect on a job on this machine"] if names else []


def _without_effect(instance_types: str | None, launcher: str | None) -> set[str]:
    """Parameters of a file that have no effect on a job on any of the comma-separated instance types."""
    on_instances = any(name.startswith("ml.") for name in split_list(instance_types)) or launcher == "sagemaker"
    return set() if on_instances else _ONLY_INSTANCES
