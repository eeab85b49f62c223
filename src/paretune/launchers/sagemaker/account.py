"""The AWS identity of a job: session, region, role and bucket, and free checks of them.

A check reports a fault only if the job is certain to fail or AWS denies a permission. If something cannot be checked,
`doctor` shows it as not checked, and a launch leaves it to CreateTrainingJob, which has its own error messages.
"""

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from json import dumps
from typing import TYPE_CHECKING, Any, Literal, overload

import boto3
from botocore.config import Config
from botocore.model import OperationModel

from paretune.core.checks import Finding, failed, faults_of, not_checked, passed
from paretune.core.errors import BadInput, NoAccount, first_line
from paretune.launchers.sagemaker.aws_errors import (
    AWS_ERRORS,
    NO_REGION,
    code,
    explain,
    is_denied,
    is_transient,
    refused_to,
)
from paretune.specification.job import JobSpec

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient

PREFIX = "paretune"  # the first part of every S3 key
_ATTEMPTS = 8  # attempts per call, in about a minute; adaptive mode also slows calls down when AWS throttles
ROLE, BUCKET, PERMISSIONS, QUOTAS = "role", "bucket", "permissions", "quotas"  # subjects of findings
TRAINING_PLAN, NETWORK = "training plan", "network"
GROUP = "/aws/sagemaker/TrainingJobs"  # CloudWatch log group of all training jobs
_NO_JOB = "paretune-doctor"  # no job has this name
_NO_BUCKET = {"404", "NoSuchBucket"}
# CreateBucket's error codes if another process creates the same bucket now, or has just created it.
_CREATED_ELSEWHERE = {"BucketAlreadyOwnedByYou", "OperationAborted"}
_NOTHING_THERE = {"ValidationException", "ResourceNotFound", "ResourceNotFoundException", "NoSuchBucket", "NoSuchKey"}
SAGEMAKER = "sagemaker.amazonaws.com"
_CONSOLE_ROLE = "AmazonSageMaker-ExecutionRole"  # prefix of roles made by the console, as in the SDK
_ARN_COLONS = 5  # arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE
_TRUST = {"Effect": "Allow", "Principal": {"Service": SAGEMAKER}, "Action": "sts:AssumeRole"}


def has_credentials() -> bool:
    """Return whether credentials are configured on this machine. AWS is not asked whether they are valid."""
    try:
        return boto3.Session().get_credentials() is not None
    except AWS_ERRORS:  # credentials are configured, but unusable
        return True


@overload
def client_of(session: boto3.Session, service: Literal["s3"]) -> "S3Client": ...
@overload
def client_of(session: boto3.Session, service: str) -> Any: ...
def client_of(session: boto3.Session, service: Any) -> Any:
    """Return the boto client of a service.

    If the session has no region, the client uses us-east-1, from where S3 finds the buckets of all regions. Raises
    NoAccount if the endpoint that the user has configured is not an address.
    """
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": _ATTEMPTS},
        user_agent_extra=f"paretune/{version('paretune')}",
        connect_timeout=10,
        read_timeout=60,
    )
    try:
        return session.client(service, region_name=session.region_name or "us-east-1", config=config)
    except ValueError as error:  # boto raises no type of its own for this
        if not str(error).startswith("Invalid endpoint"):
            raise
        remedy = "set AWS_ENDPOINT_URL to a whole address, such as http://localhost:4566, or leave it out"
        raise NoAccount(f"{error}: {remedy}") from error


class Account:
    """An AWS identity in one region. It calls AWS only when it must.

    Raises NoAccount if no region is set, or if the AWS profile does not exist.
    """

    def __init__(self, region: str | None, environment: Mapping[str, str]) -> None:
        with refused_to("identify your account"):
            # AWS's own services set AWS_REGION. boto reads only AWS_DEFAULT_REGION and the profile.
            self.session = boto3.Session(region_name=region or environment.get("AWS_REGION"))
        if self.session.region_name is None:
            raise NoAccount(NO_REGION)
        self.region: str = self.session.region_name
        self._environment, self._clients, self._arns = environment, dict[str, Any](), dict[str, str]()

    @overload
    def client(self, service: Literal["s3"]) -> "S3Client": ...
    @overload
    def client(self, service: Literal["sagemaker"]) -> "SageMakerClient": ...
    @overload
    def client(self, service: str) -> Any: ...
    def client(self, service: str) -> Any:
        """Return the boto client of a service. The client slows down when AWS throttles requests."""
        if service not in self._clients:
            client = self._clients[service] = client_of(self.session, service)
            if service == "s3":
                client.meta.events.register("provide-client-params.s3", self._name_bucket_owner)
        return self._clients[service]

    def _name_bucket_owner(self, params: Mapping[str, Any], model: OperationModel, **_: object) -> Mapping[str, Any]:
        """Make S3 refuse another account's bucket: default names can be guessed, and a job runs its bucket's code."""
        if model.input_shape is None or "ExpectedBucketOwner" not in model.input_shape.members:
            return params
        return {**params, "ExpectedBucketOwner": self.identity["Account"]}

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Account and Arn of the caller. Raises LaunchRefused if AWS does not accept the credentials."""
        with refused_to("identify your account"):
            answer: Mapping[str, str] = self.client("sts").get_caller_identity()
        return answer

    @cached_property
    def _configuration(self) -> Mapping[str, Any]:
        """The settings in the SageMaker SDK's configuration files of administrator and user.

        Raises BadInput if they cannot be read.
        """
        # The SDK prints and logs which files it did not find.
        logging.getLogger("sagemaker.config").setLevel(logging.WARNING)
        with contextlib.redirect_stdout(io.StringIO()):
            from sagemaker.core.config.config import load_sagemaker_config

            try:
                config = load_sagemaker_config()
            except Exception as error:  # its YAML and schema libraries raise errors of many types
                reason = first_line(error)
                raise BadInput([f"the SageMaker SDK's configuration file cannot be read: {reason}"]) from error
        return _part(config, "SageMaker")

    def settings(self, spec: JobSpec) -> dict[str, Any]:
        """Return role, bucket, KMS key, network and tags of a job, by parameter.

        Missing parameters come from the SageMaker SDK's own configuration file or, if they are not there either, from
        the environment (PARETUNE_ROLE, PARETUNE_BUCKET). Network isolation and encryption of traffic are on if either
        the job or that file turns them on. Raises BadInput if no role is set anywhere, or if that file cannot be used.
        """
        return {**self.usual(spec), "role": self.role_arn(spec), "sagemaker.s3_bucket": self.bucket(spec)}

    def usual(self, spec: JobSpec) -> dict[str, Any]:
        """Return KMS key, network and tags of a job, by parameter, without calling AWS.

        Raises BadInput if the SDK's configuration cannot be read or is ambiguous.
        """
        job, given = _part(self._configuration, "TrainingJob"), spec.sagemaker
        network = {} if given.subnets else _part(job, "VpcConfig")
        output = _part(job, "OutputDataConfig").get("KmsKeyId")
        volume = _part(job, "ResourceConfig").get("VolumeKmsKeyId")
        if not given.kms_key_id and output and volume and output != volume:
            both = f"the SageMaker SDK's configuration has the KmsKeyId {output} and the VolumeKmsKeyId {volume}"
            raise BadInput([f"{both}, and a job has one key: set sagemaker.kms_key_id"])
        encrypts = given.encrypt_traffic or job.get("EnableInterContainerTrafficEncryption", False)
        return {
            "sagemaker.kms_key_id": given.kms_key_id or output or volume,
            "sagemaker.subnets": given.subnets or network.get("Subnets", ()),
            "sagemaker.security_group_ids": given.security_group_ids or network.get("SecurityGroupIds", ()),
            "sagemaker.network_isolation": given.network_isolation or job.get("EnableNetworkIsolation", False),
            "sagemaker.encrypt_traffic": encrypts,
            "tags": {**{tag["Key"]: tag["Value"] for tag in job.get("Tags", ())}, **spec.tags},
        }

    def role_arn(self, spec: JobSpec) -> str:
        """Return the ARN of a job's execution role. Raises BadInput if no role is set anywhere, or its ARN is cut off.

        In a SageMaker notebook, the default is the notebook's own role.
        """
        role = spec.role or _part(self._configuration, "TrainingJob").get("RoleArn")
        role = role or self._environment.get("PARETUNE_ROLE")
        if not role:
            caller = self.identity["Arn"]
            if ":assumed-role/" not in caller or "SageMaker" not in caller:
                hint = "`aws iam list-roles` shows the existing roles"
                raise BadInput([f"role must be set: an IAM role that SageMaker may assume, by name or ARN; {hint}"])
            role = caller.split("/")[1]  # a notebook's own execution role
        if not role.startswith("arn:"):
            return self.arn_of(role)
        if role.count(":") < _ARN_COLONS:
            example = "arn:aws:iam::123456789012:role/NAME"
            raise BadInput([f"role must be the name of an IAM role or its whole ARN, such as {example}, got {role}"])
        return role

    def arn_of(self, role: str) -> str:
        """Return the ARN of a role in this account. It has the role's path if this identity may ask IAM for it."""
        if role not in self._arns:
            partition = self.session.get_partition_for_region(self.region)
            path = "service-role/" if role.startswith(_CONSOLE_ROLE) else ""
            self._arns[role] = f"arn:{partition}:iam::{self.identity['Account']}:role/{path}{role}"
            with contextlib.suppress(*AWS_ERRORS):  # an identity without iam:GetRole
                described = self.client("iam").get_role(RoleName=role.rpartition("/")[2])
                self._arns[role] = str(described["Role"]["Arn"])  # with its path, such as service-role/
        return self._arns[role]

    def bucket(self, spec: JobSpec) -> str:
        """Return the name of a job's S3 bucket: by default `sagemaker-REGION-ACCOUNT`, as in the SageMaker SDK."""
        usual = _part(self._configuration, "PythonSDK", "Modules", "Session").get("DefaultS3Bucket")
        given = spec.sagemaker.s3_bucket or usual or self._environment.get("PARETUNE_BUCKET")
        name = str(given or self.default_bucket)
        return name.removeprefix("s3://").strip("/")

    @property
    def default_bucket(self) -> str:
        """Name of the bucket that the SageMaker SDK would create."""
        return f"sagemaker-{self.region}-{self.identity['Account']}"

    def create_default_bucket(self) -> None:
        """Create the default bucket if it does not exist.

        If S3 does not say whether it exists, nothing is created: an upload then succeeds or reports the error.
        """
        s3, bucket = self.client("s3"), self.default_bucket
        try:
            s3.head_bucket(Bucket=bucket)
        except AWS_ERRORS as error:
            if code(error) not in _NO_BUCKET:
                return
            location: Any = {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
            with refused_to(f"create the bucket {bucket} (sagemaker.s3_bucket can name an existing one)"):
                try:
                    s3.create_bucket(Bucket=bucket, **(location if self.region != "us-east-1" else {}))
                except AWS_ERRORS as failure:
                    if code(failure) not in _CREATED_ELSEWHERE:
                        raise
                    s3.get_waiter("bucket_exists").wait(Bucket=bucket, WaiterConfig={"Delay": 1, "MaxAttempts": 20})


def _part(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        config = config.get(name) or {}
    return config


def account_faults(spec: JobSpec, account: Account) -> list[str]:
    """Return the faults of a job's role and bucket that are certain.

    Raises LaunchRefused if AWS does not identify the caller.
    """
    account.identity  # noqa: B018  # raises
    return faults_of([*role_findings(spec, account), *bucket_findings(spec, account)])


def role_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Check whether a role is set and exists with this ARN, and whether SageMaker may assume it."""
    try:
        role = account.role_arn(spec)
    except BadInput as error:
        yield from (failed(ROLE, fault) for fault in error.faults)
        return
    name = role.rpartition("/")[2]
    if role.split(":")[4] != account.identity["Account"]:
        yield not_checked(ROLE, f"{role} belongs to an account other than yours, {account.identity['Account']}")
        return
    try:
        described = account.client("iam").get_role(RoleName=name)["Role"]
    except AWS_ERRORS as error:  # the identity may lack iam:GetRole, which no launch needs
        if code(error) != "NoSuchEntity":
            yield not_checked(ROLE, f"whether SageMaker may assume {role}: {explain(error, 'read the role')}")
            return
        create = f"`aws iam create-role --role-name {name} --assume-role-policy-document '{_policy([_TRUST])}'`"
        allow = "let it use the bucket, CloudWatch and ECR"
        hint = f"set role to an existing one (`aws iam list-roles` shows them), or create it with {create} and {allow}"
        yield failed(ROLE, f"role {role} does not exist: {hint}")
        return
    if (actual := described["Arn"]) != role:  # IAM finds a role by its name, whatever its path is
        yield failed(ROLE, f"role {role} does not exist: set role to {actual}")
        return
    statements = described.get("AssumeRolePolicyDocument", {}).get("Statement", [])
    statements = [statements] if isinstance(statements, dict) else statements  # IAM accepts one without a list
    # This only looks for the service's name or a wildcard; CreateTrainingJob evaluates the whole policy.
    if any(words in dumps(statements) for words in (SAGEMAKER, '"*"', "NotPrincipal")):
        yield passed(ROLE, f"{role} exists and trusts {SAGEMAKER}")
        return
    allow = f"update-assume-role-policy --role-name {name} --policy-document '{_policy([*statements, _TRUST])}'"
    yield failed(ROLE, f"role {role} must trust {SAGEMAKER}, or no job can use it: allow that with `aws iam {allow}`")


def _policy(statements: Sequence[object]) -> str:
    return dumps({"Version": "2012-10-17", "Statement": statements})


def bucket_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Check whether the bucket exists, is in the region of the jobs, and belongs to this account."""
    bucket, region, s3 = account.bucket(spec), account.region, account.client("s3")
    actual, is_missing = region, False
    try:
        actual = s3.head_bucket(Bucket=bucket).get("BucketRegion", region)  # boto redirects to the bucket's region
    except AWS_ERRORS as error:
        is_missing = code(error) in _NO_BUCKET
    if is_missing and bucket == account.default_bucket:
        yield passed(BUCKET, f"{bucket} does not exist yet: the first job creates it")
    elif is_missing:
        hint = f"leave sagemaker.s3_bucket out, or create it with `aws s3 mb s3://{bucket} --region {region}`"
        yield failed(BUCKET, f"bucket {bucket} does not exist: {hint}")
    elif actual != region:
        rule = f"the job would run in {region}: use a bucket of that region"
        yield failed(BUCKET, f"bucket {bucket} is in {actual}, {rule}")
    else:
        try:  # an identity without HeadBucket may still be allowed to list our own prefix
            s3.list_objects_v2(Bucket=bucket, Prefix=f"{PREFIX}/", MaxKeys=1)
            yield passed(BUCKET, f"{bucket} in {region} belongs to account {account.identity['Account']}")
        except AWS_ERRORS as refusal:
            use = f"use the bucket {bucket}, which must belong to account {account.identity['Account']}"
            if is_transient(refusal):
                yield not_checked(BUCKET, explain(refusal, use))
                return
            hint = "set sagemaker.s3_bucket to one that `aws s3 ls` shows, or leave it out"
            yield failed(BUCKET, f"{explain(refusal, use)}: {hint}")


def permission_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Check the permissions that are needed to launch and follow a job.

    Most are checked by calls that have no effect or are undone, because AWS's answer takes every policy into account.
    CreateTrainingJob and iam:PassRole are only simulated by IAM.
    """
    job, there = {"TrainingJobName": _NO_JOB}, {"Bucket": account.bucket(spec), "Key": f"{PREFIX}/doctor"}
    key = account.usual(spec)["sagemaker.kms_key_id"]
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}
    calls: list[tuple[str, str, Mapping[str, object]]] = [
        ("sagemaker", "describe_training_job", job),
        ("sagemaker", "stop_training_job", job),
        ("sagemaker", "list_training_jobs", {"NameContains": _NO_JOB}),
        ("logs", "filter_log_events", {"logGroupName": GROUP, "logStreamNamePrefix": _NO_JOB, "startTime": 0}),
        ("s3", "put_object", {**there, **encryption, "Body": b""}),
        ("s3", "get_object", there),
        ("s3", "delete_object", there),
    ]
    simulated = [*_launching_findings(spec, account)]
    yield from simulated
    is_in_order = not simulated
    for service, method, parameters in calls:
        name = f"{service}:{''.join(part.capitalize() for part in method.split('_'))}"
        try:
            getattr(account.client(service), method)(**parameters)
        except AWS_ERRORS as error:
            if code(error) in _NOTHING_THERE:
                continue
            is_in_order, text = False, explain(error, f"call {name}")
            if is_denied(error):
                yield failed(PERMISSIONS, f"{text}: ask an administrator to allow you {name}")
            else:
                yield not_checked(PERMISSIONS, text)
    if is_in_order:
        yield passed(PERMISSIONS, "AWS allows you to create a job, to pass it the role, and to follow it")


def _launching_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Yield a finding for each of CreateTrainingJob and iam:PassRole, unless IAM's simulation allows it."""
    caller, region, owner = account.identity["Arn"], account.region, account.identity["Account"]
    if ":assumed-role/" in caller:
        caller = account.arn_of(caller.split("/")[1])
    jobs = f"arn:{account.session.get_partition_for_region(region)}:sagemaker:{region}:{owner}:training-job/{PREFIX}-*"
    to_sagemaker = {"StringEquals": {"iam:PassedToService": SAGEMAKER}}
    needed: list[dict[str, Any]] = [{"Effect": "Allow", "Action": "sagemaker:CreateTrainingJob", "Resource": jobs}]
    try:
        needed.append(
            {"Effect": "Allow", "Action": "iam:PassRole", "Resource": account.role_arn(spec), "Condition": to_sagemaker}
        )
    except BadInput:  # no role is set, or its ARN is cut off; `role_findings` reports this
        yield not_checked(PERMISSIONS, "iam:PassRole: needs a role first")
    usual, known = spec.replace(**account.usual(spec)), dict[tuple[str, str], list[str]]()
    known["aws:RequestedRegion", "string"] = [region]
    known["iam:PassedToService", "string"] = [SAGEMAKER]
    known["sagemaker:InstanceTypes", "stringList"] = [*usual.instance_types()]
    known["sagemaker:VpcSubnets", "stringList"] = [*usual.sagemaker.subnets]
    known["sagemaker:VpcSecurityGroupIds", "stringList"] = [*usual.sagemaker.security_group_ids]
    context = [
        {"ContextKeyName": name, "ContextKeyType": kind, "ContextKeyValues": texts}
        for (name, kind), texts in known.items()
        if texts
    ]
    for statement in needed:
        action, resource = statement["Action"], statement["Resource"].replace(f"{PREFIX}-*", _NO_JOB)
        question = {"ActionNames": [action], "ResourceArns": [resource], "ContextEntries": context}
        try:
            answer = account.client("iam").simulate_principal_policy(PolicySourceArn=caller, **question)
        except AWS_ERRORS as error:  # the identity may lack iam:SimulatePrincipalPolicy, which no launch needs
            yield not_checked(PERMISSIONS, f"{action}: {explain(error, 'simulate your policies')}")
            continue
        (result,) = answer["EvaluationResults"]
        parts = [result, *result.get("ResourceSpecificResults", [])]
        unknown = sorted({key for part in parts for key in part.get("MissingContextValues", ())})
        if result["EvalDecision"] == "allowed":
            continue
        sentence = f"{caller} is not allowed to perform {action} on {resource}"
        if unknown:
            yield not_checked(PERMISSIONS, f"{sentence}, unless {', '.join(unknown)} has a value that a policy allows")
        else:
            yield failed(
                PERMISSIONS, f"{sentence}: ask an administrator to add this statement to its policy: {dumps(statement)}"
            )


def quota_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Check whether the account's quotas cover a job's instances of each type, and those kept after the job."""
    spot, clusters = "spot " if spec.spot else "", spec.clusters()
    needed = {f"{each.instance_type} for {spot}training job usage": each.instance_count for each in clusters}
    if spec.sagemaker.keep_alive_minutes:
        needed[f"{spec.instance_type} for training warm pool usage"] = spec.instance_count
    quotas = dict[str, Mapping[str, Any]]()
    try:
        pages = account.client("service-quotas").get_paginator("list_service_quotas")
        for page in pages.paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 100}):
            quotas |= {quota["QuotaName"]: quota for quota in page["Quotas"] if quota["QuotaName"] in needed}
            if quotas.keys() == needed.keys():
                break
    except AWS_ERRORS as error:  # the identity may lack servicequotas:ListServiceQuotas, which no launch needs
        yield not_checked(QUOTAS, explain(error, "list the quotas of SageMaker"))
        return
    for name, count in needed.items():
        if (quota := quotas.get(name)) is None:
            yield not_checked(QUOTAS, f"AWS lists no quota {name!r} in {account.region}")
            continue
        sentence = f"the quota {name!r} in {account.region} is {quota['Value']:g}, and the job needs {count}"
        if quota["Value"] >= count:
            yield passed(QUOTAS, sentence)
        else:
            ask = "aws service-quotas request-service-quota-increase --service-code sagemaker"
            more = f"--quota-code {quota['QuotaCode']} --desired-value {count} --region {account.region}"
            yield failed(QUOTAS, f"{sentence}: request more with `{ask} {more}`, or use another instance_type")


def plan_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Check whether the job's training plan has enough instances of its type now, and what an hour of one costs."""
    name = str(spec.sagemaker.training_plan)
    try:
        plan = account.client("sagemaker").describe_training_plan(TrainingPlanName=name.rpartition("/")[2])
    except AWS_ERRORS as error:
        yield not_checked(TRAINING_PLAN, explain(error, "describe the training plan"))
        return
    free, types = plan.get("AvailableInstanceCount", 0), plan.get("ReservedCapacitySummaries", ())
    reserved = sorted({str(part["InstanceType"]) for part in types})
    sentence = f"{name} is {plan['Status']}, with {free} free instances of {', '.join(reserved) or 'an unknown type'}"
    until = f", until {plan['EndTime']:%Y-%m-%d %H:%M %Z}" if "EndTime" in plan else ""
    if plan["Status"] != "Active" or free < spec.instance_count or (reserved and spec.instance_type not in reserved):
        needs = f"the job needs {spec.instance_count} of {spec.instance_type} in an active plan"
        yield failed(TRAINING_PLAN, f"{sentence}{until}: {needs}")
        return
    hours = plan.get("DurationHours", 0) + plan.get("DurationMinutes", 0) / 60
    fee, count = float(plan.get("UpfrontFee") or 0), plan.get("TotalInstanceCount", 0)
    per_hour = fee / hours / count if fee and hours and count and plan.get("CurrencyCode", "USD") == "USD" else None
    price = "" if per_hour is None else f"; sagemaker.training_plan_usd_per_hour={per_hour:.4g} is its fee per hour"
    yield passed(TRAINING_PLAN, f"{sentence}{until}{price}")


def network_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Check whether the instances of a job in a VPC may connect to each other: a security group must allow itself.

    AWS requires this for jobs with several instances, and for EFA from and to the group itself (SageMaker Developer
    Guide, "Give SageMaker Training Jobs Access to Resources in Your Amazon VPC", read 2026-11-30).
    """
    groups = [*spec.sagemaker.security_group_ids]
    try:
        found = account.client("ec2").describe_security_groups(GroupIds=groups)["SecurityGroups"]
    except AWS_ERRORS as error:  # the identity may lack ec2:DescribeSecurityGroups, which no launch needs
        yield not_checked(NETWORK, explain(error, "describe the security groups"))
        return
    lacking = {
        direction: not any(_allows_members(group[key], group["GroupId"], direction) for group in found)
        for direction, key in (("from", "IpPermissions"), ("to", "IpPermissionsEgress"))
    }
    for direction in filter(lacking.get, lacking):
        rule = "ingress" if direction == "from" else "egress"
        command = f"aws ec2 authorize-security-group-{rule} --group-id {groups[0]} --region {account.region}"
        pair = f"--ip-permissions IpProtocol=-1,UserIdGroupPairs=[{{GroupId={groups[0]}}}]"
        yield failed(
            NETWORK,
            f"no security group of {', '.join(groups)} allows all traffic {direction} itself, so {spec.instance_count} "
            f"instances cannot connect to each other: `{command} {pair}`",
        )
    if not any(lacking.values()):
        yield passed(NETWORK, f"the instances may connect to each other in {', '.join(groups)}")


def _allows_members(rules: Sequence[Mapping[str, Any]], group: str, direction: str) -> bool:
    """Return whether rules of a security group allow all traffic from or to the group itself."""
    for rule in rules:
        pairs = {pair.get("GroupId") for pair in rule.get("UserIdGroupPairs", ())}
        is_open = direction == "to" and any(item.get("CidrIp") == "0.0.0.0/0" for item in rule.get("IpRanges", ()))
        if rule.get("IpProtocol") == "-1" and (group in pairs or is_open):
            return True
    return False
