"""Runs `doctor`: checks machine, account and server, and whether a real job runs as expected."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from paretune.commands.command import describe_opened_run
from paretune.commands.doctor import local_checks
from paretune.commands.doctor.command import MOST_USD, DoctorRequest
from paretune.commands.doctor.local_checks import BUDGETS, budget_findings
from paretune.core.checks import Finding, Verdict, run_check
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, LaunchRefused, ParetuneError
from paretune.core.packages import sagemaker_is_missing
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.estimating.uploading import billed_after_limit_s
from paretune.presentation.table import Cell, Table
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList, usual_price


def run_doctor(request: DoctorRequest) -> CommandOutput:
    """Make all checks and, if asked for, one paid job; failed checks are reported, not raised."""
    environment, clock = dict(os.environ), SystemClock()
    findings = examine(request, environment, clock)
    counts = Counter(finding.verdict for finding in findings)
    document: dict[str, object] = {
        "checks": [_document(finding) for finding in findings],
        "wrong": counts[Verdict.FAILED],
        "paid_worst_case_usd": None if request.is_local else paid_worst_case_usd(request, environment, clock),
        "paid": None,
    }
    lines = [_table(findings), "", _summary(counts)]
    if not request.paid or counts[Verdict.FAILED]:
        failed = [f"- {item.subject}: {item.text}" for item in findings if item.verdict is Verdict.FAILED]
        with suppress(ParetuneError):  # a check reports faults of MLflow
            describe_opened_run("doctor", "\n".join([_summary(counts), *failed]))
    if not request.paid:
        lines += [] if request.is_local else [_offer(document["paid_worst_case_usd"])]
        return CommandOutput(text="\n".join(lines), document=document, exit_code=_code(counts))
    if counts[Verdict.FAILED]:
        lines.append("paid=true: no job was launched, repair what is wrong first")
        return CommandOutput(text="\n".join(lines), document=document, exit_code=BadInput.exit_code)
    print(printable("\n".join(lines)), flush=True)  # before the minutes that the job takes
    text, document["paid"], code = _pay(request)
    return CommandOutput(text=text, document=document, exit_code=code)


def _pay(request: DoctorRequest) -> tuple[str, dict[str, object], int]:
    """Launch the paid job as every job is launched; return its text, its document and the exit code."""
    from paretune.jobs.launch import launch_here

    try:
        result = launch_here(request.paid_spec())
    except ParetuneError as error:
        return f"the paid job has no result: {error}", {"failure": str(error)}, error.exit_code
    return f"the paid job ran as every job does\n{result}", result.to_dict(), 0


def _document(finding: Finding) -> dict[str, object]:
    return {
        "subject": finding.subject,
        "verdict": finding.verdict.value,
        "text": finding.text,
        "commands": finding.commands,
    }


def _table(findings: Sequence[Finding]) -> str:
    """Return a line for every check."""
    rows = [(finding.verdict.value, finding.subject, " ".join(finding.text.split())) for finding in findings]
    return Table(headers=("", "", ""), cells=[list(map(Cell, row)) for row in rows]).text()


def _summary(counts: Counter[Verdict]) -> str:
    counts_text = (
        f"{counts[Verdict.PASSED]} ok, {counts[Verdict.FAILED]} wrong, {counts[Verdict.NOT_CHECKED]} could not be asked"
    )
    return f"{counts_text}; nothing was paid for this"


def _offer(worst_usd: object) -> str:
    """Return what the paid job would do, and its highest cost."""
    cost = (
        f"{worst_usd:.3f} USD" if isinstance(worst_usd, float) else f"{MOST_USD:g} USD, refused where no price is known"
    )
    return (
        "`paretune doctor --paid true` launches one real job, 8 steps of 64 rows on 1 x ml.m5.large; it costs at most "
        f"{cost}"
    )


def _code(counts: Counter[Verdict]) -> int:
    return BadInput.exit_code if counts[Verdict.FAILED] else 0


def examine(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> list[Finding]:
    """Return the findings of all checks, those of this machine first; nothing is raised, and nothing costs money."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        local_checks.ENVIRONMENT: local_checks.environment_findings,
        local_checks.TORCH: lambda: [local_checks.torch_finding(environment)],
        local_checks.PROFILE: lambda: local_checks.profile_findings(environment, request.profile_faults),
        local_checks.HOME: lambda: [local_checks.home_finding(environment)],
        BUDGETS: lambda: budget_findings(request, environment, clock.now()),
        "mlflow": _store_findings,
        "aws": lambda: _cloud_findings(request, environment, datetime.fromtimestamp(clock.now(), UTC)),
    }
    return [finding for subject, check in checks.items() for finding in run_check(subject, check)]


def paid_worst_case_usd(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> float | None:
    """Return the highest bill of the paid job, or None if its price is unknown, or it would be refused."""
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


def _store_findings() -> list[Finding]:
    from paretune.commands.doctor.store_checks import store_findings  # if MLflow cannot be imported, the check fails

    return store_findings()


def _cloud_findings(request: DoctorRequest, environment: Mapping[str, str], now: datetime) -> Iterable[Finding]:
    if sagemaker_is_missing():  # which environment_findings says
        return []
    from paretune.commands.doctor.cloud_checks import cloud_findings  # the same for boto3

    return cloud_findings(request, environment, now)
