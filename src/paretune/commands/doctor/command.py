"""The command `doctor`: checks of this machine, the AWS account and MLflow."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paretune.commands.command import Command, imported_later
from paretune.core.errors import collecting, refuse
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Parameters, affecting, parameter
from paretune.specification.profile import CHARGED, with_profile

USUAL_INSTANCE_TYPE = "ml.m5.large"


class DoctorOptions(Parameters):
    """The options of the command; others are parameters of the job that is checked for."""

    paid: bool = parameter(
        False, "after the checks, settle by small jobs in your AWS account what else is open, for at most 0.50 USD"
    )
    listed_by: ClassVar[str] = "doctor"


@dataclass(frozen=True, kw_only=True)
class DoctorRequest:
    """The cluster to check, and whether to run the paid checks."""

    spec: JobSpec  # the job to be checked for; on SageMaker unless `is_local`
    paid: bool = False
    is_local: bool = False  # whether the launcher is local or simulated, so that AWS is not checked
    wants_sagemaker: bool = False
    """Whether an instance type, the account or its profile has been set, or paid checks are requested; otherwise a
    machine without credentials is no fault."""

    @classmethod
    def from_text(cls, texts: Mapping[str, Any], environment: Mapping[str, str]) -> "DoctorRequest":
        """Read the typed texts, completed by the profile; raises BadInput with all faults."""
        faults, paid, spec, profile = list[str](), False, JobSpec(), dict[str, Any]()
        with collecting(faults):
            paid = DoctorOptions.read({"paid": texts.get("paid", "")}).paid
        typed = {name: text for name, text in texts.items() if name != "paid" and text.strip()}
        is_local = typed.get("launcher") in {"local", "simulated"} or typed.get("instance_type") == "local"
        if is_local and paid:
            faults.append("paid=true launches jobs on SageMaker: leave launcher and instance_type out")
        usual = {} if is_local else {"instance_type": USUAL_INSTANCE_TYPE}
        with collecting(faults):  # the launcher decides which settings of the profile have an effect
            profile = with_profile({**typed, **({} if is_local else {"launcher": "sagemaker"})}, environment)
        with collecting(faults):
            spec = JobSpec.read(usual | (profile or typed))
        refuse(faults)
        account = {"instance_type", *affecting(JobSpec, "ownership")} - set(CHARGED)
        wants = paid or typed.get("launcher") == "sagemaker" or bool(account & {*typed, *profile})
        return cls(spec=spec, paid=paid, is_local=is_local, wants_sagemaker=wants and not is_local)


COMMAND = Command(
    read=lambda texts: DoctorRequest.from_text(texts, os.environ),
    run=imported_later("paretune.commands.doctor.run:run_doctor"),
    options=DoctorOptions,
    takes_jobs=True,
)
