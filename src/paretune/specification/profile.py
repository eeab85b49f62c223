"""Defaults of a user or a team: a TOML file with job parameters that need not be typed for each job.

    # ~/.paretune/paretune.toml, or the file that PARETUNE_PROFILE names
    max_cost_usd = 2.0
    region = "eu-west-1"
    role = "SageMakerTraining"
    tags = {team = "search"}
    budget = "team.yaml"
    sagemaker = {s3_bucket = "my-models"}

The file may set who owns and pays for a job, its limits, and where in AWS it runs, with which image. It may not set
what the job computes. Typed parameters override the file; `tags` and `sagemaker` are merged entry by entry. A
job on this machine ignores parameters that only jobs on instances use. A study with a study file uses only `budget` and
`tags` of this file, because the study file states everything else; a study without one uses all parameters. A relative
path in `budget` is relative to the folder of this file.
"""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from paretune.core.errors import BadInput, did_you_mean, refuse
from paretune.core.reading import LARGEST_SETTINGS, absolute, at_home, exists, parse_json, read_text
from paretune.specification.declaration import Parameters, spell, split_list
from paretune.specification.job import JobSpec, JobValues, parameters_affecting
from paretune.specification.launchers import AUTO, LOCAL, known, uses_instances

FILE = "paretune.toml"
OWN_FILE = f"~/.paretune/{FILE}"
CHARGED = ("budget", "tags")  # these name who owns and pays for a job; studies take them from the file, too
SETTABLE = {*parameters_affecting("ownership", "stopping", "dollars")} - {"simulation"}
_MERGED = {name for name in SETTABLE if isinstance(JobSpec.model_fields[name].default, dict | Parameters)}
"""Parameters that are mappings, and are merged entry by entry."""
_ONLY_INSTANCES = {*parameters_affecting("ownership"), "spot", "fallback_instance_types"} - {"tags", "max_cost_usd"}
"""Parameters that have no effect on a job on this machine."""


def read_profile(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the parameters in the file, if there is one.

    Raises BadInput if the file cannot be read, sets parameters that it may not set, or has invalid values.
    """
    named = environment.get("PARETUNE_PROFILE")
    path = at_home(named or OWN_FILE)
    if not named and not exists(path):
        return {}
    try:
        must, hint = (
            ("PARETUNE_PROFILE must name a file, and ", "name another file") if named else ("", "repair or delete it")
        )
        text = read_text(path, LARGEST_SETTINGS, must=must, hint=hint)
        settings = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number with thousands of digits
        raise BadInput([f"{path} is not TOML: {error}"]) from error
    rule = f"it may set {', '.join(sorted(SETTABLE))}"
    hints = {name: did_you_mean(name, SETTABLE, most=1) or rule for name in settings if name not in SETTABLE}
    refuse([f"{path} may not set {name}: {hint}" for name, hint in hints.items()])
    values, wrong = JobValues.check(settings)
    refuse([f"{path}: {fault.text}" for fault in wrong])
    budget = None if values is None else values.budget  # read as text: TOML may have a number
    others = {name: value for name, value in settings.items() if name != "budget"}
    return others if budget is None else {**others, "budget": str(path.parent / at_home(budget))}


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**first, **second}
    for name in first.keys() & second.keys() & _MERGED:
        with suppress(ValueError, TypeError):  # an invalid value is refused later, when the specification is read
            merged[name] = {**_mapping(first[name]), **_mapping(second[name])}
    return merged


def _mapping(value: Any) -> Mapping[str, Any]:
    return dict(parse_json(value) if isinstance(value, str) else value)


def with_profile(texts: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Add the parameters of the file that affect the job to the typed ones (see `sets_value`)."""
    types = split_list(spell(texts.get("instance_type")))
    launcher = spell(texts.get("launcher")).strip()
    launcher = launcher if launcher in known() else AUTO  # an unknown one is refused later, with all other faults
    without_effect = set() if any(uses_instances(launcher, name) for name in types or (LOCAL,)) else _ONLY_INSTANCES
    profile = {name: value for name, value in read_profile(environment).items() if name not in without_effect}
    return _merged(profile, {name: text for name, text in texts.items() if sets_value(name, text)})


def sets_value(name: str, text: Any) -> bool:
    """Return whether an option sets a value: an empty string does not, except for an environment variable."""
    return bool(spell(text).strip()) or name.startswith("environment.")


def completed(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """Return the specification with the file's values for parameters that were not given; see `with_profile`."""
    return JobSpec.read(with_profile(spec.given(), environment))


def charged(job: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the job parameters of a study, completed with tags and budget from the file.

    `budget` becomes an absolute path, because the study may be continued in another folder.
    """
    values = _merged({name: value for name, value in read_profile(environment).items() if name in CHARGED}, job)
    return values | ({"budget": absolute(str(values["budget"]))} if values.get("budget") else {})
