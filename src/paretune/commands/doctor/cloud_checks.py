"""Checks of an AWS account that cost nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from importlib.metadata import version
from typing import Any

from paretune.commands.doctor.command import PAID_INSTANCE_TYPE, DoctorRequest
from paretune.core.checks import Finding, failed, not_checked, passed, run_check
from paretune.core.errors import ParetuneError
from paretune.launchers.sagemaker import images, preflight
from paretune.launchers.sagemaker.account import Account, has_credentials
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.permissions import PERMISSIONS, SERVICE, permission_findings, policy_text
from paretune.launchers.sagemaker.preflight import ROLE, network_findings
from paretune.pricing.prices import PriceList, price_remarks
from paretune.specification.job import JobSpec
from paretune.specification.regions import usual_region

AWS, REGION, CREDENTIALS, IMAGE, PRICE = "aws", "region", "credentials", "image", "price"
_USUAL_TYPES = (PAID_INSTANCE_TYPE, "ml.g5.xlarge", "ml.g5.12xlarge", "ml.p4d.24xlarge")
"""Instance types whose quotas are shown beside those of the job."""
_TRUST = {"Effect": "Allow", "Principal": {"Service": SERVICE}, "Action": "sts:AssumeRole"}
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
    """Yield the identity, then role, bucket, network and quotas if the credentials are valid."""
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
        ROLE: lambda: preflight.pass_findings(account),
        PERMISSIONS: lambda: [] if _has_no_role(account) else permission_findings(spec, account),
        preflight.BUCKET: lambda: preflight.bucket_findings(account),
        preflight.NETWORK: lambda: subnet_findings(spec, account),
        preflight.QUOTAS: lambda: preflight.quota_findings(spec, account, others),
    }
    for subject, check in checks.items():
        results = list(run_check(subject, check))
        yield from results
        if subject == ROLE and not _has_no_role(account):
            yield from run_check(subject, lambda: [trust_finding(account)])


def _has_no_role(account: Account) -> bool:
    try:
        return not account.role_arn
    except ParetuneError:  # which another check reports
        return True


def _not_reached(first: str) -> Iterator[Finding]:
    for subject in (ROLE, preflight.BUCKET, preflight.QUOTAS):
        yield not_checked(subject, f"needs {first} first")


def _price_finding(spec: JobSpec, region: str, environment: Mapping[str, str], today: date) -> Finding:
    """Return whether the price of the instance type is known, with remarks on its age."""
    price = PriceList.read(environment).price(spec.instance_type, region)
    remarks = price_remarks(price, spec.instance_type, region, today)
    if price is None:
        return failed(PRICE, "; ".join(remarks))
    price_text = (
        f"{spec.instance_type} in {region}: {price.usd_per_hour:g} USD an hour, read {price.as_of or 'some day'}"
    )
    return passed(PRICE, "; ".join([price_text, *remarks]))


def subnet_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Yield whether the job's subnets, if it has any, reach S3 and the packages that pip has to install."""
    installed: Sequence[str] = ()
    with suppress(ValueError):  # a missing image is a finding of its own
        installed = images.choose(spec, account.region).requirements
    yield from network_findings(spec, account, installed)


def trust_finding(account: Account) -> Finding:
    """Return whether the role exists and SageMaker may assume it; raises BadInput if no role is set."""
    role = account.role_arn
    name = role.rpartition("/")[2]
    if role.split(":")[4] != account.identity["Account"]:
        return not_checked(ROLE, f"{role} belongs to another account than yours, {account.identity['Account']}")
    try:
        policy = account.described_role(name).get("AssumeRolePolicyDocument", {})
    except AWS_ERRORS as error:  # the identity may lack iam:GetRole, which no launch needs
        if code(error) != "NoSuchEntity":
            return not_checked(ROLE, f"whether SageMaker may assume {role}: {explain(error, 'read the role')}")
        return failed(
            ROLE,
            f"role {role} does not exist: set role to an existing one (`aws iam list-roles` shows them), or create it "
            f"with `aws iam create-role --role-name {name} --assume-role-policy-document '{policy_text([_TRUST])}'` "
            "and give it the second policy of docs/sagemaker.md",
        )
    statements = _statements(policy)
    if not any(_trusts_sagemaker(statement) for statement in statements):
        return failed(
            ROLE,
            f"role {role} must trust {SERVICE}, or no job can use it: allow that with `aws iam "
            f"update-assume-role-policy --role-name {name} --policy-document '{policy_text([*statements, _TRUST])}'`",
        )
    return passed(ROLE, f"{role} exists and trusts {SERVICE}")


def _statements(policy: Any) -> list[Any]:
    """Return the statements of a policy, which may have one without a list."""
    statements = policy.get("Statement", []) if isinstance(policy, Mapping) else []
    return list(statements) if isinstance(statements, list) else [statements]


def _trusts_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    services = principal.get("Service", []) if isinstance(principal, Mapping) else [principal]
    actions = statement.get("Action", [])
    is_allowed = {"sts:AssumeRole", "sts:*", "*"} & set([actions] if isinstance(actions, str) else actions)
    is_named = {SERVICE, "*"} & set([services] if isinstance(services, str) else services)
    return statement.get("Effect") == "Allow" and bool(is_allowed) and bool(is_named)


def image_findings(spec: JobSpec, region: str) -> list[Finding]:
    """Return whether there is an image for strategy, instance type and region. Makes no call to AWS."""
    faults = images.faults(spec, region)
    if faults:
        return [failed(IMAGE, fault) for fault in faults]
    uri = images.choose(spec, region).uri
    listed = f"newest on {images.LIST_READ_ON} in the list of sagemaker-core, {version('sagemaker-core')} is installed"
    origin = "training_image" if spec.sagemaker.training_image else listed
    name = uri.rpartition("/")[2]
    return [passed(IMAGE, f"{name} for {spec.strategy} on {spec.instance_type} in {region} ({origin})")]
