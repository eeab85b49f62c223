"""The command `doctor`: checks of this machine, the AWS account and MLflow."""

import os
from collections.abc import Mapping

from paretune.commands.command import Command, make_or_refuse
from paretune.commands.doctor.request import PAID_HELP, DoctorRequest
from paretune.core.result import CommandOutput
from paretune.specification.inputs import missing_files


def _read(texts: Mapping[str, str], faults: list[str]) -> DoctorRequest:
    """Read the request; a broken profile is one of the doctor's findings and does not refuse it."""
    return make_or_refuse(lambda: DoctorRequest.from_text(texts, os.environ), faults, lambda: missing_files(texts))


def _run(request: DoctorRequest) -> CommandOutput:
    from paretune.commands.doctor.run import run_doctor  # boto3 and MLflow take seconds to import

    return run_doctor(request)


COMMAND = Command(read=_read, run=_run, parameters={"paid": f"{PAID_HELP} (default: false)"}, takes_jobs=True)
