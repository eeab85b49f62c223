"""Runs `doctor`: checks machine, account and server, and whether a real job runs as expected."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from paretune.commands.command import describe_opened_run
from paretune.commands.doctor import local_checks
from paretune.commands.doctor.command import MOST_USD, DoctorRequest
from paretune.core.checks import Finding, Verdict, run_check
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, LaunchRefused, ParetuneError
from paretune.core.packages import sagemaker_is_missing
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.estimating.uploading import billed_after_limit_s
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList, usual_price


def run_doctor(request: DoctorRequest) -> CommandOutput:
    """Make all checks and, if asked for, one paid job; failed checks are reported, not raised."""
    environment, clock = dict(os.environ), SystemClock()
    findings = examine(request, environment, clock)
    counts = Counter(finding.verdict for finding in findings)
    wrong = counts[Verdict.FAILED]
    worst_usd = None if request.is_local else paid_worst_case_usd(request, environment, clock)
    document: dict[str, object] = {
        "checks": [
            {"subject": item.subject, "verdict": item.verdict.value, "text": item.text, "commands": item.commands}
            for item in findings
        ],
        "wrong": wrong,
        "paid_worst_case_usd": worst_usd,
        "paid": None,
    }
    rows = [f"{item.verdict.value:<11}  {item.subject:<11}  {' '.join(item.text.split())}" for item in findings]
    summary = f"{counts[Verdict.PASSED]} ok, {wrong} wrong, {counts[Verdict.NOT_CHECKED]} could not be asked"
    summary += "; nothing was paid for this"
    lines = [*rows, "", summary]
    if not request.paid or wrong:
        failed = [f"- {item.subject}: {item.text}" for item in findings if item.verdict is Verdict.FAILED]
        with suppress(ParetuneError):  # a check reports faults of MLflow
            describe_opened_run("doctor", "\n".join([summary, *failed]))
        if request.paid:
            lines.append("paid=true: no job was launched, repair what is wrong first")
        elif not request.is_local:
            cost = f"{MOST_USD:g} USD, refused where no price is known" if worst_usd is None else f"{worst_usd:.3f} USD"
            job = "launches one real job, 8 steps of 64 rows on 1 x ml.m5.large"
            lines.append(f"`paretune doctor --paid true` {job}; it costs at most {cost}")
        return CommandOutput(text="\n".join(lines), document=document, exit_code=BadInput.exit_code if wrong else 0)
    print(printable("\n".join(lines)), flush=True)  # before the minutes that the job takes
    from paretune.jobs.launch import launch_here

    try:
        result = launch_here(request.paid_spec())
    except ParetuneError as error:
        document["paid"] = {"failure": str(error)}
        text = f"the paid job has no result: {error}"
        return CommandOutput(text=text, document=document, exit_code=error.exit_code)
    document["paid"] = result.to_dict()
    return CommandOutput(text=f"the paid job ran as every job does\n{result}", document=document)


def examine(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> list[Finding]:
    """The findings of all checks, those of this machine first; nothing is raised, and nothing costs money."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        local_checks.ENVIRONMENT: local_checks.environment_findings,
        local_checks.TORCH: lambda: [local_checks.torch_finding(environment)],
        local_checks.PROFILE: lambda: local_checks.profile_findings(environment, request.profile_faults),
        local_checks.HOME: lambda: [local_checks.home_finding(environment)],
        local_checks.BUDGETS: lambda: local_checks.budget_findings(request, environment, clock.now()),
        local_checks.MLFLOW: local_checks.store_findings,
        "aws": lambda: _cloud_findings(request, environment, datetime.fromtimestamp(clock.now(), UTC)),
    }
    return [finding for subject, check in checks.items() for finding in run_check(subject, check)]


def paid_worst_case_usd(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> float | None:
    """The highest bill of the paid job, or None if its price is unknown, or it would be refused."""
    try:
        from paretune.launchers.sagemaker.launcher import SageMakerLauncher

        spec = request.paid_spec()
        try:
            return SageMakerLauncher(spec, clock, environment).worst_case_usd(spec)
        except LaunchRefused:  # no region is set yet
            price = usual_price(spec, PriceList.read(environment), environment)
            return admit(spec, price, billed_after_limit_s(spec, environment))
    except (ParetuneError, ImportError):  # a check reports it
        return None


def _cloud_findings(request: DoctorRequest, environment: Mapping[str, str], now: datetime) -> Iterable[Finding]:
    if sagemaker_is_missing():  # which environment_findings says
        return []
    from paretune.commands.doctor.cloud_checks import cloud_findings  # if boto3 cannot be imported, the check fails

    return cloud_findings(request, environment, now)
