"""Runs `doctor`: checks machine, account and server, and launches one real job if asked for."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from paretune.commands.command import describe_opened_run
from paretune.commands.doctor import checks
from paretune.commands.doctor.command import PAID_INSTANCE_TYPE, DoctorRequest
from paretune.core.checks import Finding, Verdict, run_check
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, LaunchRefused, ParetuneError
from paretune.core.packages import sagemaker_is_missing
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.estimating.uploading import billed_after_limit_s
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList, usual_price
from paretune.specification.profile import NOTIFY


def run_doctor(request: DoctorRequest) -> CommandOutput:
    """Make all checks and, if asked for, run the paid job; failed checks are reported, not raised."""
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
    lines = [f"{item.verdict.value:<11}  {item.subject:<11}  {' '.join(item.text.split())}" for item in findings]
    summary = f"{counts[Verdict.PASSED]} ok, {wrong} wrong, {counts[Verdict.NOT_CHECKED]} could not be asked"
    lines += ["", f"{summary}; nothing was paid for this"]
    if not request.paid or wrong:
        failed = [f"- {item.subject}: {item.text}" for item in findings if item.verdict is Verdict.FAILED]
        with suppress(ParetuneError):  # a check reports faults of MLflow
            describe_opened_run("doctor", "\n".join([summary, *failed]))
        if request.paid:
            lines.append("paid=true: no job was launched, repair what is wrong first")
        elif not request.is_local:
            cost = "nothing while no price is known" if worst_usd is None else f"at most {worst_usd:.2f} USD"
            lines.append(f"`paretune doctor --paid true` runs a small job on 1 x {PAID_INSTANCE_TYPE}; it costs {cost}")
        return CommandOutput(text="\n".join(lines), document=document, exit_code=BadInput.exit_code if wrong else 0)
    print(printable("\n".join(lines)), flush=True)  # before the minutes that the job takes
    from paretune.jobs.launch import launch_here

    result = launch_here(request.paid_spec())
    return CommandOutput(text=f"\n{result}", document=document | {"paid": result.to_dict()})


def examine(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> list[Finding]:
    """The findings of all checks, those of this machine first; nothing is raised, and nothing costs money."""
    all_checks: dict[str, Callable[[], Iterable[Finding]]] = {
        checks.ENVIRONMENT: checks.environment_findings,
        checks.TORCH: lambda: checks.torch_findings(environment),
        checks.BUDGETS: lambda: checks.budget_findings(request, environment, clock.now()),
        NOTIFY: lambda: checks.notice_findings(environment),
        checks.MLFLOW: lambda: checks.store_findings(environment),
    }
    if not sagemaker_is_missing():  # which environment_findings says
        all_checks[checks.AWS] = lambda: checks.cloud_findings(request, environment)
    return [finding for subject, check in all_checks.items() for finding in run_check(subject, check)]


def paid_worst_case_usd(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> float | None:
    """The highest bill of the paid job, or None if a price is unknown, or it would be refused."""
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
