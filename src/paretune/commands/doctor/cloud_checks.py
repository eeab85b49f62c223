"""Checks of an AWS account that cost nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime

from paretune.commands.doctor.request import PAID_INSTANCE_TYPE, DoctorRequest
from paretune.core.checks import Finding, failed, not_checked, passed, run_check
from paretune.core.errors import ParetuneError
from paretune.launchers.sagemaker import preflight
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.network import NETWORK
from paretune.launchers.sagemaker.queue.checks import QUEUE, queue_findings
from paretune.launchers.sagemaker.training_plans import PLAN, plan_findings
from paretune.pricing.prices import PriceList, price_remarks
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement
from paretune.specification.regions import usual_region

AWS, REGION, CREDENTIALS, PRICE = "aws", "region", "credentials", "price"
_USUAL_TYPES = (PAID_INSTANCE_TYPE, "ml.g5.xlarge", "ml.g5.12xlarge", "ml.p4d.24xlarge")
"""Instance types whose quotas are shown beside those of the job."""
_UNNEEDED = "local and simulated jobs need nothing of AWS"


def cloud_findings(request: DoctorRequest, environment: Mapping[str, str], now: datetime) -> Iterator[Finding]:
    """Yield every check of the account, in the order in which faults are repaired."""
    if request.is_local:
        yield passed(AWS, f"not checked: {_UNNEEDED}")
        return
    spec = request.spec
    try:
        account = Account(spec, environment)
    except ParetuneError as error:
        if request.wants_sagemaker:
            yield failed(REGION, f"{error} ({_UNNEEDED})")
            yield from _not_reached("a region")
        else:
            yield passed(AWS, f"no region is set: {_UNNEEDED}")
        account = None
    if account is not None and not request.wants_sagemaker and not account.has_credentials:
        yield passed(AWS, f"no credentials are found: {_UNNEEDED}; `paretune doctor --launcher sagemaker` checks more")
        return
    if account is not None:
        yield passed(REGION, account.region)
        yield from _account_findings(spec, account, now.timestamp())
    elif not request.wants_sagemaker:
        return
    region = account.region if account is not None else usual_region(spec.region, environment)
    yield from run_check(preflight.IMAGE, lambda: preflight.image_findings(spec, region))
    yield from run_check(PRICE, lambda: [_price_finding(spec, region, environment, now.date())])


def _account_findings(spec: JobSpec, account: Account, now: float) -> Iterator[Finding]:
    """Yield the identity, then role, bucket, network, quotas, queue and plan if the credentials are valid."""
    try:
        identity = account.identity
    except ParetuneError as error:
        yield failed(CREDENTIALS, f"{error} ({_UNNEEDED})")
        yield from _not_reached("credentials")
        return
    yield passed(CREDENTIALS, f"{identity['Arn']} in account {identity['Account']}")
    others = [name for name in _USUAL_TYPES if name not in spec.instance_types()]
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        preflight.TYPE: lambda: preflight.type_findings(spec, account),
        preflight.ROLE: lambda: preflight.pass_findings(account),
        preflight.BUCKET: lambda: preflight.bucket_findings(account),
        NETWORK: lambda: preflight.subnet_findings(spec, account),
        preflight.QUOTAS: lambda: preflight.quota_findings(spec, account, others),
        QUEUE: lambda: queue_findings(spec, account),
        PLAN: lambda: plan_findings(spec, account, now, SageMakerLauncher.billed_after_limit_s),
    }
    for subject, check in checks.items():
        results = list(run_check(subject, check))
        yield from results
        if subject == preflight.ROLE and not _has_no_role(account):
            yield from run_check(subject, lambda: [preflight.trust_finding(account)])


def _has_no_role(account: Account) -> bool:
    try:
        return not account.role_arn
    except ParetuneError:  # which another check reports
        return True


def _not_reached(first: str) -> Iterator[Finding]:
    for subject in (preflight.ROLE, preflight.BUCKET, preflight.QUOTAS):
        yield not_checked(subject, f"needs {first} first")


def _price_finding(spec: Placement, region: str, environment: Mapping[str, str], today: date) -> Finding:
    """Return whether the price of the instance type is known, with remarks on its age."""
    price = PriceList.read(environment).price(spec.instance_type, region)
    remarks = price_remarks(price, spec.instance_type, region, today)
    if price is None:
        return failed(PRICE, "; ".join(remarks))
    price_text = (
        f"{spec.instance_type} in {region}: {price.usd_per_hour:g} USD an hour, read {price.as_of or 'some day'}"
    )
    return passed(PRICE, "; ".join([price_text, *remarks]))
