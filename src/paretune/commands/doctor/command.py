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

PAID_INSTANCE_TYPE = "ml.m5.large"
_TRAINING: dict[str, Any] = {
    "instance_type": PAID_INSTANCE_TYPE,
    "max_runtime_minutes": "20",  # (20 x 60 + 260 s) at 0.115 USD an hour: 0.047 USD
    "max_cost_usd": "0.12",
    "max_train_samples": "64",
    "max_eval_samples": "32",
    "max_seq_length": "32",
    "per_device_train_batch_size": "8",
    "precision": "fp32",
    "training_arguments": {"logging_steps": 1},
}
_OWNERSHIP = {*affecting(JobSpec, "ownership")}
_INHERITED = {*affecting(JobSpec, "ownership", without=("stopping",))} - {"keep_alive_minutes"}
_INHERITED |= {"model", "dataset", "dataset_config_name", "text_column", "label_column"}
"""Parameters that the paid job inherits from the request."""


class DoctorOptions(Parameters):
    """The options of the command; others are parameters of the job that is checked for."""

    paid: bool = parameter(
        False,
        "after the checks, run one small training in your AWS account, for at most 0.12 USD",
    )
    listed_by: ClassVar[str] = "doctor"


@dataclass(frozen=True, kw_only=True)
class DoctorRequest:
    """The cluster to check, and whether to run the paid job."""

    spec: JobSpec  # the job to be checked for; on SageMaker unless `is_local`
    paid: bool = False
    is_local: bool = False  # whether the launcher is local or simulated, so that AWS is not checked
    wants_sagemaker: bool = False
    """Whether an instance type, the account or its profile has been set, or the paid job is requested; otherwise a
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
            faults.append("paid=true launches a job on SageMaker: leave launcher and instance_type out")
        usual = {} if is_local else {"instance_type": PAID_INSTANCE_TYPE}
        with collecting(faults):  # the launcher decides which settings of the profile have an effect
            profile = with_profile({**typed, **({} if is_local else {"launcher": "sagemaker"})}, environment)
        with collecting(faults):
            spec = JobSpec.read(usual | (profile or typed))
        refuse(faults)
        account_settings = ({"instance_type", *_OWNERSHIP} - set(CHARGED)) & {*typed, *profile}
        return cls(
            spec=spec,
            paid=paid,
            is_local=is_local,
            wants_sagemaker=not is_local and bool(account_settings or paid or typed.get("launcher") == "sagemaker"),
        )

    def paid_spec(self) -> JobSpec:
        """The paid job: a training of some minutes on a CPU instance of the requested account.

        Raises:
            BadInput: an inherited parameter does not fit it.
        """
        return JobSpec.read(
            {name: value for name, value in self.spec.given().items() if name in _INHERITED} | _TRAINING
        )


COMMAND = Command(
    read=lambda texts: DoctorRequest.from_text(texts, os.environ),
    run=imported_later("paretune.commands.doctor.run:run_doctor"),
    options=DoctorOptions,
    takes_jobs=True,
)
