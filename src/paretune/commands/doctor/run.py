"""Runs `doctor`: checks machine, account and server, and shows by paid jobs what no public job has shown."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from paretune.commands.command import describe_opened_run
from paretune.commands.doctor import checks
from paretune.commands.doctor.command import MOST_USD, PAID_INSTANCE_TYPE, DoctorRequest
from paretune.core.checks import Finding, Verdict, run_check
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, Interrupted, LaunchRefused, ParetuneError
from paretune.core.packages import sagemaker_is_missing
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.estimating.uploading import billed_after_limit_s
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList, usual_price
from paretune.specification import metrics


def run_doctor(request: DoctorRequest) -> CommandOutput:
    """Make all checks and, if asked for, run the paid jobs; failed checks are reported, not raised."""
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
            cost = f"{MOST_USD:g} USD, refused where no price is known" if worst_usd is None else f"{worst_usd:.2f} USD"
            jobs = f"runs {len(request.paid_specs())} small jobs on 1 x {PAID_INSTANCE_TYPE}"
            lines.append(f"`paretune doctor --paid true` {jobs}; they cost at most {cost}")
        return CommandOutput(text="\n".join(lines), document=document, exit_code=BadInput.exit_code if wrong else 0)
    print(printable("\n".join(lines)), flush=True)  # before the minutes that the jobs take
    results, exit_code = _run_paid(request)
    document["paid"] = results
    lines = [
        f"{name}: {result.get('failure') or '; '.join(f'{key} {value:g}' for key, value in result['metrics'].items())}"
        for name, result in results.items()
    ]
    return CommandOutput(text="\n".join(["", *lines]), document=document, exit_code=exit_code)


_SHOWN = (
    *(metrics.STARTING_SECONDS, metrics.DOWNLOADING_SECONDS, metrics.UPLOADING_SECONDS),
    *(metrics.BILLABLE_SECONDS, metrics.COST_USD),
)


def _run_paid(request: DoctorRequest) -> tuple[dict[str, dict[str, Any]], int]:
    """Run the paid jobs one after the other: the metrics of each or why it failed, and the exit code of the first."""
    from paretune.jobs.launch import launch_here

    results: dict[str, dict[str, Any]] = {}
    for name, spec in request.paid_specs().items():
        try:
            result = launch_here(spec).to_dict()
        except Interrupted:
            raise
        except ParetuneError as error:
            results[name] = {"failure": str(error)}
            if len(results) == 1:  # the others would fail alike
                return results, error.exit_code
        else:
            measured = result["metrics"]
            results[name] = {**result, "metrics": {key: measured[key] for key in _SHOWN if key in measured}}
    return results, 0


def examine(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> list[Finding]:
    """The findings of all checks, those of this machine first; nothing is raised, and nothing costs money."""
    all_checks: dict[str, Callable[[], Iterable[Finding]]] = {
        checks.ENVIRONMENT: checks.environment_findings,
        checks.TORCH: lambda: checks.torch_findings(environment),
        checks.BUDGETS: lambda: checks.budget_findings(request, environment, clock.now()),
        checks.MLFLOW: lambda: checks.store_findings(environment),
    }
    if not sagemaker_is_missing():  # which environment_findings says
        all_checks[checks.AWS] = lambda: checks.cloud_findings(request, environment)
    return [finding for subject, check in all_checks.items() for finding in run_check(subject, check)]


def paid_worst_case_usd(request: DoctorRequest, environment: Mapping[str, str], clock: Clock) -> float | None:
    """The highest bill of the paid jobs, or None if a price is unknown, or they would be refused."""
    try:
        from paretune.launchers.sagemaker.launcher import SageMakerLauncher

        worst = []
        for spec in request.paid_specs().values():
            try:
                worst.append(SageMakerLauncher(spec, clock, environment).worst_case_usd(spec))
            except LaunchRefused:  # no region is set yet
                price = usual_price(spec, PriceList.read(environment), environment)
                worst.append(admit(spec, price, billed_after_limit_s(spec, environment)))
    except (ParetuneError, ImportError):  # a check reports it
        return None
    return None if None in worst else sum(filter(None, worst))
