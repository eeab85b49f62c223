"""From what was typed to checked values, before anything slow is imported.

A reader gets what was typed and the faults that are known already, and raises all of them together with its own.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

from paretune.commands.design.file import DesignFile
from paretune.commands.design.reading import read_design
from paretune.commands.doctor.request import DoctorRequest
from paretune.commands.recur.file import RecurFile
from paretune.core.errors import BadInput, collecting
from paretune.estimating.recorded.import_request import ImportRequest
from paretune.jobs.estimates.request import EstimateRequest
from paretune.specification.job import JobSpec, missing_files
from paretune.specification.parameters import read
from paretune.specification.profile import CHARGED, FILE, read_profile, with_profile
from paretune.studies.definition.file import StudyFile

_Request = TypeVar("_Request")


def job(texts: Mapping[str, str], faults: list[str]) -> JobSpec:
    """The specification of a job: what was typed, then what the profile says."""
    merged = _with_profile(texts, faults)
    return all_or_faults(lambda: JobSpec.from_text(merged), faults, lambda: missing_files(merged))


def estimate(texts: Mapping[str, str], faults: list[str]) -> EstimateRequest:
    """The jobs to be estimated: one per combination of comma-separated values."""
    merged = _with_profile(texts, faults)
    return all_or_faults(lambda: EstimateRequest.from_text(merged), faults, lambda: missing_files(merged))


def doctor(texts: Mapping[str, str], faults: list[str]) -> DoctorRequest:
    """What to check; a profile that is wrong is a finding, and not refused."""
    return all_or_faults(lambda: DoctorRequest.from_text(texts, os.environ), faults, lambda: missing_files(texts))


def import_(texts: Mapping[str, str], faults: list[str]) -> ImportRequest:
    """A table of recorded runs, and what was typed of all of them."""
    return all_or_faults(lambda: ImportRequest.from_text(texts), faults)


def study(texts: Mapping[str, str], faults: list[str]) -> StudyFile:
    """The study of a file, and what was typed over it."""
    path = texts.get("study", "").strip()
    if not path:
        raise BadInput([*faults, "study must name a study file, such as studies/smoke.yaml"])
    overrides = {name: text for name, text in texts.items() if name != "study"}
    _leave_out_profile("study", faults)
    return all_or_faults(lambda: StudyFile.read(path, overrides), faults)


def design(texts: Mapping[str, str], faults: list[str]) -> DesignFile:
    """The design of a file, and what was typed over it."""
    path = texts.get("design", "").strip()
    if not path:
        raise BadInput([*faults, "design must name a design file, such as studies/polarity_scaling.yaml"])
    overrides = {name: text for name, text in texts.items() if name != "design"}
    _leave_out_profile("design", faults)
    return all_or_faults(lambda: read_design(path, overrides), faults)


def recur(texts: Mapping[str, str], faults: list[str]) -> RecurFile:
    """The recurring training of a file, and what was typed over it."""
    path = texts.get("file", "").strip()
    if not path:
        raise BadInput([*faults, "file must name the file of a recurring training, such as examples/nightly.yaml"])
    overrides = {name: text for name, text in texts.items() if name != "file"}
    _leave_out_profile("recurring training", faults)
    return all_or_faults(lambda: RecurFile.read(path, overrides), faults)


def nothing(texts: Mapping[str, str], faults: list[str]) -> None:
    """Nothing, for a command without parameters."""
    faults += [f"this command takes no parameters, got {name}" for name in texts]
    if faults:
        raise BadInput(faults)


def own(cls: type[_Request], command: str) -> Callable[[Mapping[str, str], list[str]], _Request]:
    """A reader of a command's own parameters: the fields of `cls`."""
    return lambda texts, faults: all_or_faults(lambda: read(cls, texts, command), faults)


def all_or_faults(make: Callable[[], _Request], faults: list[str], more: Callable[[], list[str]] = list) -> _Request:
    """What `make` makes.

    Raises:
        BadInput: `faults`, those that `make` raises, and then also those of `more`.
    """
    faults = list(faults)
    with collecting(faults):
        made = make()
    if faults:
        raise BadInput([*faults, *more()])
    return made


def _leave_out_profile(kind: str, faults: list[str]) -> None:
    """Say what of the profile a study, a design or a recurring training does not take."""
    with collecting(faults):
        if names := sorted(read_profile(os.environ).keys() - set(CHARGED)):
            print(f"{FILE}: {', '.join(names)} without effect on a {kind}: write them into its job", file=sys.stderr)


def _with_profile(texts: Mapping[str, str], faults: list[str]) -> Mapping[str, str]:
    """`texts` completed by the profile; what is wrong with the profile is added to `faults`."""
    with collecting(faults):
        return with_profile(texts, os.environ)
    return texts
