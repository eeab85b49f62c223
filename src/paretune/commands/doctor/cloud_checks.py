"""Checks of an AWS account that cost nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from importlib.metadata import version

from paretune.commands.doctor.command import PAID_INSTANCE_TYPE, DoctorRequest
from paretune.core.checks import Finding, failed, not_checked, passed, run_check
from paretune.core.errors import ParetuneError
from paretune.launchers.sagemaker import checks, images
from paretune.launchers.sagemaker.account import Account, has_credentials
from paretune.pricing.prices import PriceList, price_remarks
from paretune.specification.job import JobSpec
from paretune.specification.regions import usual_region

AWS, REGION, CREDENTIALS, IMAGE, PRICE = "aws", "region", "credentials", "image", "price"
_USUAL_TYPES = (PAID_INSTANCE_TYPE, "ml.g5.xlarge", "ml.g5.12xlarge", "ml.p4d.24xlarge")
"""Instance types whose quotas are shown beside those of the job."""
_UNNEEDED = "local and simulated jobs need nothing of AWS"


def cloud_findings(request: DoctorRequest, environment: Mapping[str, str], now: datetime) -> Iterator[Finding]:
    """Every check of the account, in the order in which faults are repaired."""
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
    if account is not None and not request.wants_sagemaker and not has_credentials():
        yield passed(AWS, f"no credentials are found: {_UNNEEDED}; `paretune doctor --launcher sagemaker` checks more")
        return
    if account is not None:
        yield passed(REGION, account.region)
        yield from _account_findings(spec, account, now.timestamp(), environment)
    elif not request.wants_sagemaker:
        return
    region = account.region if account is not None else usual_region(spec.region, environment)
    yield from run_check(IMAGE, lambda: image_findings(spec, region))
    yield from run_check(PRICE, lambda: [_price_finding(spec, region, environment, now.date())])


def _account_findings(spec: JobSpec, account: Account, now: float, environment: Mapping[str, str]) -> Iterator[Finding]:
    """The identity, then role, bucket and quotas if the credentials are valid."""
    try:
        identity = account.identity
    except ParetuneError as error:
        yield failed(CREDENTIALS, f"{error} ({_UNNEEDED})")
        yield from _not_reached("credentials")
        return
    yield passed(CREDENTIALS, f"{identity['Arn']} in account {identity['Account']}")
    others = [name for name in _USUAL_TYPES if name not in spec.instance_types()]
    all_checks: dict[str, Callable[[], Iterable[Finding]]] = {
        checks.ROLE: lambda: checks.role_findings(account),
        checks.BUCKET: lambda: checks.bucket_findings(account),
        checks.QUOTAS: lambda: checks.quota_findings(spec, account, others),
    }
    for subject, check in all_checks.items():
        yield from run_check(subject, check)


def _not_reached(first: str) -> Iterator[Finding]:
    for subject in (checks.ROLE, checks.BUCKET, checks.QUOTAS):
        yield not_checked(subject, f"needs {first} first")


def _price_finding(spec: JobSpec, region: str, environment: Mapping[str, str], today: date) -> Finding:
    """Whether the price of the instance type is known, with remarks on its age."""
    price = PriceList.read(environment).price(spec.instance_type, region)
    remarks = price_remarks(price, spec.instance_type, region, today)
    if price is None:
        return failed(PRICE, "; ".join(remarks))
    price_text = (
        f"{spec.instance_type} in {region}: {price.usd_per_hour:g} USD an hour, read {price.as_of or 'some day'}"
    )
    return passed(PRICE, "; ".join([price_text, *remarks]))


def image_findings(spec: JobSpec, region: str) -> list[Finding]:
    """Whether there is an image for strategy, instance type and region. Makes no call to AWS."""
    faults = images.faults(spec, region)
    if faults:
        return [failed(IMAGE, fault) for fault in faults]
    uri = images.choose(spec, region).uri
    listed = f"of the list of sagemaker-core on {images.LIST_READ_ON}, {version('sagemaker-core')} is installed"
    origin = "training_image" if spec.sagemaker.training_image else listed
    name = uri.rpartition("/")[2]
    return [passed(IMAGE, f"{name} for {spec.strategy} on {spec.instance_type} in {region} ({origin})")]
