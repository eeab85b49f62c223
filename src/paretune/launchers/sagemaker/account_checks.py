"""Free checks of the AWS identity of a job: its role, bucket, permissions and quotas.

A check reports a fault only if the job is certain to fail or AWS denies a permission. If something cannot be checked,
`doctor` shows it as not checked, and a launch leaves it to CreateTrainingJob, which has its own error messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Any

from paretune.core.checks import Finding, failed, faults_of, not_checked, passed
from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import GROUP, NO_BUCKET, PREFIX, SAGEMAKER, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied, is_transient
from paretune.specification.job import JobSpec

ROLE, BUCKET, PERMISSIONS, QUOTAS = "role", "bucket", "permissions", "quotas"  # subjects of findings
TRAINING_PLAN, NETWORK = "training plan", "network"
_NO_JOB = "paretune-doctor"  # no job has this name
_NOTHING_THERE = {"ValidationException", "ResourceNotFound", "ResourceNotFoundException", "NoSuchBucket", "NoSuchKey"}
_TRUST = {"Effect": "Allow", "Principal": {"Service": SAGEMAKER}, "Action": "sts:AssumeRole"}


def account_faults(role: str | None, s3_bucket: str | None, account: Account) -> list[str]:
    """Return the faults of a job's role and bucket that are certain; by default, they are the usual ones.

    Raises LaunchRefused if AWS does not identify the caller.
    """
    account.identity  # noqa: B018  # raises
    return faults_of([*role_findings(role, account), *bucket_findings(s3_bucket, account)])


def role_findings(given: str | None, account: Account) -> Iterator[Finding]:
    """Check whether a role is set and exists with this ARN, and whether SageMaker may assume it."""
    try:
        role = account.role_arn(given)
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


def bucket_findings(given: str | None, account: Account) -> Iterator[Finding]:
    """Check whether the bucket exists, is in the region of the jobs, and belongs to this account."""
    bucket, region, s3 = account.bucket(given), account.region, account.client("s3")
    actual, is_missing = region, False
    try:
        actual = s3.head_bucket(Bucket=bucket).get("BucketRegion", region)  # boto redirects to the bucket's region
    except AWS_ERRORS as error:
        is_missing = code(error) in NO_BUCKET
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
    job, there = (
        {"TrainingJobName": _NO_JOB},
        {"Bucket": account.bucket(spec.sagemaker.s3_bucket), "Key": f"{PREFIX}/doctor"},
    )
    key = account.usual(spec.sagemaker, spec.tags)["sagemaker.kms_key_id"]
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
            {
                "Effect": "Allow",
                "Action": "iam:PassRole",
                "Resource": account.role_arn(spec.role),
                "Condition": to_sagemaker,
            }
        )
    except BadInput:  # no role is set, or its ARN is cut off; `role_findings` reports this
        yield not_checked(PERMISSIONS, "iam:PassRole: needs a role first")
    usual, known = spec.replace(**account.usual(spec.sagemaker, spec.tags)), dict[tuple[str, str], list[str]]()
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


def plan_findings(name: str, instance_type: str, count: int, account: Account) -> Iterator[Finding]:
    """Check whether a training plan has this many instances of a type now, and what an hour of one costs."""
    try:
        plan = account.client("sagemaker").describe_training_plan(TrainingPlanName=name.rpartition("/")[2])
    except AWS_ERRORS as error:
        yield not_checked(TRAINING_PLAN, explain(error, "describe the training plan"))
        return
    free, types = plan.get("AvailableInstanceCount", 0), plan.get("ReservedCapacitySummaries", ())
    reserved = sorted({str(part["InstanceType"]) for part in types})
    sentence = f"{name} is {plan['Status']}, with {free} free instances of {', '.join(reserved) or 'an unknown type'}"
    until = f", until {plan['EndTime']:%Y-%m-%d %H:%M %Z}" if "EndTime" in plan else ""
    if plan["Status"] != "Active" or free < count or (reserved and instance_type not in reserved):
        needs = f"the job needs {count} of {instance_type} in an active plan"
        yield failed(TRAINING_PLAN, f"{sentence}{until}: {needs}")
        return
    hours = plan.get("DurationHours", 0) + plan.get("DurationMinutes", 0) / 60
    fee, total = float(plan.get("UpfrontFee") or 0), plan.get("TotalInstanceCount", 0)
    per_hour = fee / hours / total if fee and hours and total and plan.get("CurrencyCode", "USD") == "USD" else None
    price = "" if per_hour is None else f"; sagemaker.training_plan_usd_per_hour={per_hour:.4g} is its fee per hour"
    yield passed(TRAINING_PLAN, f"{sentence}{until}{price}")


def network_findings(groups: Sequence[str], instance_count: int, account: Account) -> Iterator[Finding]:
    """Check whether the instances of a job in a VPC may connect to each other: a security group must allow itself.

    AWS requires this for jobs with several instances, and for EFA from and to the group itself (SageMaker Developer
    Guide, "Give SageMaker Training Jobs Access to Resources in Your Amazon VPC", read 2026-11-30).
    """
    try:
        found = account.client("ec2").describe_security_groups(GroupIds=[*groups])["SecurityGroups"]
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
            f"no security group of {', '.join(groups)} allows all traffic {direction} itself, so {instance_count} "
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
