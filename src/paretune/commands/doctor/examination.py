"""Makes all checks, each independent of the others."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from paretune.commands.doctor import local_checks
from paretune.commands.doctor.budget_checks import BUDGETS, budget_findings
from paretune.commands.doctor.command import DoctorRequest
from paretune.core.checks import Finding, run_check
from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused, ParetuneError
from paretune.core.packages import sagemaker_is_missing
from paretune.estimating.uploading import billed_after_limit_s
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList, usual_price


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
