"""From what was typed to checked values, before anything slow is imported.

A reader gets what was typed and the faults that are known already, and raises all of them together with its own.
"""

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from paretune.cli.requests.estimate_request import EstimateRequest
from paretune.core.errors import BadInput
from paretune.estimating.recorded.import_request import ImportRequest
from paretune.spec.cluster import listed
from paretune.spec.job import JobSpec, missing_files
from paretune.spec.parameters import read
from paretune.spec.profile import read_profile
from paretune.studies.definition.file import StudyFile

_Asked = TypeVar("_Asked")


def job(texts: Mapping[str, str], faults: list[str]) -> JobSpec:
    """The specification of a job: what was typed, then what the profile says."""
    merged = with_profile(texts, faults)
    return all_or_faults(lambda: JobSpec.from_text(merged), faults, lambda: missing_files(merged))


def estimate(texts: Mapping[str, str], faults: list[str]) -> EstimateRequest:
    """The jobs to be estimated: one per combination of comma-separated values."""
    merged = with_profile(texts, faults)
    return all_or_faults(lambda: EstimateRequest.from_text(merged), faults, lambda: missing_files(merged))


def imported(texts: Mapping[str, str], faults: list[str]) -> ImportRequest:
    """A table of recorded runs, and what was typed of all of them."""
    return all_or_faults(lambda: ImportRequest.from_text(texts), faults)


def study(texts: Mapping[str, str], faults: list[str]) -> StudyFile:
    """The study of a file, and what was typed over it."""
    path = texts.get("study", "").strip()
    if not path:
        raise BadInput([*faults, "study must name a study file, such as studies/smoke.yaml"])
    overrides = {name: text for name, text in texts.items() if name != "study"}
    return all_or_faults(lambda: StudyFile.read(path, overrides), faults)


def nothing(texts: Mapping[str, str], faults: list[str]) -> None:
    """Nothing, for a command without parameters."""
    faults += [f"this command takes no parameters, got {name}" for name in texts]
    if faults:
        raise BadInput(faults)


def own(cls: type[_Asked], command: str) -> Callable[[Mapping[str, str], list[str]], _Asked]:
    """A reader of a command's own parameters: the fields of `cls`."""
    return lambda texts, faults: all_or_faults(lambda: read(cls, texts, command), faults)


def with_profile(texts: Mapping[str, str], faults: list[str]) -> dict[str, str]:
    """What was typed, and below it what the profile says of jobs on SageMaker's instances."""
    profile: dict[str, str] = {}
    types = listed(texts.get("instance_type"))
    if any(name.startswith("ml.") for name in types) or texts.get("launcher") == "sagemaker":  # which it is about
        try:
            profile = read_profile(os.environ)
        except BadInput as error:
            faults += error.faults
    return {**profile, **{name: text for name, text in texts.items() if text.strip() or name not in profile}}


def all_or_faults(make: Callable[[], _Asked], faults: list[str], more: Callable[[], list[str]] = list) -> _Asked:
    """What `make` makes.

    Raises:
        BadInput: `faults`, those that `make` raises, and then also those of `more`.
    """
    found: list[_Asked] = []
    try:
        found.append(make())
    except BadInput as error:
        faults = [*faults, *error.faults]
    if faults:
        raise BadInput([*faults, *more()])
    return found[0]
