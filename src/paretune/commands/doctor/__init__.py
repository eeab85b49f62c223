"""The command `doctor`: checks machine, account and server; real jobs show whether AWS behaves as expected.

checks  Python environment, PyTorch's device, what is left of shared budgets, the MLflow store; credentials, role,
        bucket, quotas
paid    what each paid check settles, and the jobs that settle it; large_output/ is the script of one of them
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from paretune.commands.command import Command, describe_opened_run
from paretune.core.checks import Finding, Verdict, run_check
from paretune.core.clock import SystemClock
from paretune.core.commands import command_line
from paretune.core.errors import BadInput, JobFailed, ParetuneError, collecting, refuse
from paretune.core.packages import sagemaker_is_missing
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Parameters, affecting, parameter
from paretune.specification.profile import CHARGED, NOTIFY, with_profile


class DoctorOptions(Parameters):
    """The options of the command; others are parameters of the job that is checked for."""

    paid: bool = parameter(False)
    """after the checks, settle by small jobs in your AWS account what else is open, for at most 0.50 USD"""
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
        usual = {} if is_local else {"instance_type": "ml.m5.large"}
        with collecting(faults):  # the launcher decides which settings of the profile have an effect
            profile = with_profile({**typed, **({} if is_local else {"launcher": "sagemaker"})}, environment)
        with collecting(faults):
            spec = JobSpec.read(usual | (profile or typed))
        refuse(faults)
        account = {"instance_type", *affecting(JobSpec, "ownership")} - set(CHARGED)
        wants = paid or typed.get("launcher") == "sagemaker" or bool(account & {*typed, *profile})
        return cls(spec=spec, paid=paid, is_local=is_local, wants_sagemaker=wants and not is_local)


def run_doctor(request: DoctorRequest) -> CommandOutput:
    """Make all checks and, if asked for, the paid ones; failed checks are reported, not raised."""
    findings = examine(request, dict(os.environ), SystemClock().now())
    counts = Counter(finding.verdict for finding in findings)
    wrong = counts[Verdict.FAILED]
    listed = [
        {"subject": item.subject, "verdict": item.verdict.value, "text": item.text, "commands": item.commands}
        for item in findings
    ]
    document: dict[str, object] = {"checks": listed, "wrong": wrong, "paid": []}
    lines = [f"{item.verdict.value:<11}  {item.subject:<11}  {' '.join(item.text.split())}" for item in findings]
    summary = f"{counts[Verdict.PASSED]} ok, {wrong} wrong, {counts[Verdict.NOT_CHECKED]} could not be asked"
    lines += ["", f"{summary}; nothing was paid for this"]
    if request.paid and not wrong:
        _print("\n".join(lines))  # before the minutes that the jobs take
        return _run_paid(request, document)
    failed = [f"- {item.subject}: {item.text}" for item in findings if item.verdict is Verdict.FAILED]
    with suppress(ParetuneError):  # a check reports faults of MLflow
        describe_opened_run("doctor", "\n".join([summary, *failed]))
    if request.paid:
        lines.append("paid=true: no job was launched, repair what is wrong first")
    elif not request.is_local:
        lines.append("`paretune doctor --paid true` settles by small jobs what else is open, for at most 0.50 USD")
    return CommandOutput(text="\n".join(lines), document=document, exit_code=BadInput.exit_code if wrong else 0)


def _run_paid(request: DoctorRequest, document: dict[str, object]) -> CommandOutput:
    from paretune.commands.doctor.paid import run_checks

    results = []
    for result in run_checks(request.spec):
        results.append(result)
        verdict = "settled" if result["is_settled"] else "open"
        about = f"{result['settles']}: {result['text']}; {result['cost_usd']:.4f} USD"
        _print(f"{verdict:<11}  {result['name']:<11}  {about}")
    has_failed = any(result["run_ids"] and not result["is_settled"] for result in results)
    usd = sum(result["cost_usd"] for result in results)
    cost = f"the paid checks have cost {usd:.4f} USD; `{command_line('sync')}` books instances that are still kept"
    code = JobFailed.exit_code if has_failed else 0
    return CommandOutput(text=cost, document=document | {"paid": results}, exit_code=code)


def _print(text: str) -> None:
    print(printable(text), flush=True)


def examine(request: DoctorRequest, environment: Mapping[str, str], now: float) -> list[Finding]:
    """The findings of all checks, those of this machine first; nothing is raised, and nothing costs money."""
    from paretune.commands.doctor import checks

    all_checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "environment": lambda: checks.environment_findings(needs_sagemaker=request.wants_sagemaker),
        "torch": lambda: checks.torch_findings(environment),
        "budgets": lambda: checks.budget_findings(request.spec.budget, environment, now),
        NOTIFY: lambda: checks.notice_findings(environment),
        "mlflow": lambda: checks.store_findings(environment),
    }
    if not sagemaker_is_missing():  # which environment_findings says
        all_checks["aws"] = lambda: checks.cloud_findings(request, environment)
    return [finding for subject, check in all_checks.items() for finding in run_check(subject, check)]


COMMAND = Command(
    read=lambda texts: DoctorRequest.from_text(texts, os.environ),
    run=run_doctor,
    options=DoctorOptions,
    takes_jobs=True,
)
