"""The AWS identity of a job: session, region, role and bucket. `account_checks` checks them for free."""

import contextlib
import io
import logging
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, overload

import boto3
from botocore.config import Config
from botocore.model import OperationModel

from paretune.core.errors import BadInput, NoAccount, first_line
from paretune.launchers.sagemaker.aws_errors import (
    AWS_ERRORS,
    NO_REGION,
    code,
    refused_to,
)
from paretune.specification.job import SageMaker

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient

PREFIX = "paretune"  # the first part of every S3 key
_ATTEMPTS = 8  # attempts per call, in about a minute; adaptive mode also slows calls down when AWS throttles
GROUP = "/aws/sagemaker/TrainingJobs"  # CloudWatch log group of all training jobs
NO_BUCKET = {"404", "NoSuchBucket"}  # error codes for a bucket that does not exist
# CreateBucket's error codes if another process creates the same bucket now, or has just created it.
_CREATED_ELSEWHERE = {"BucketAlreadyOwnedByYou", "OperationAborted"}
SAGEMAKER = "sagemaker.amazonaws.com"
_CONSOLE_ROLE = "AmazonSageMaker-ExecutionRole"  # prefix of roles made by the console, as in the SDK
_ARN_COLONS = 5  # arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE


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

    def settings(self, role: str | None, given: SageMaker, tags: Mapping[str, str]) -> dict[str, Any]:
        """Return role, bucket, KMS key, network and tags of a job, by parameter.

        Missing parameters come from the SageMaker SDK's own configuration file or, if they are not there either, from
        the environment (PARETUNE_ROLE, PARETUNE_BUCKET). Network isolation and encryption of traffic are on if either
        the job or that file turns them on. Raises BadInput if no role is set anywhere, or if that file cannot be used.
        """
        found = {"role": self.role_arn(role), "sagemaker.s3_bucket": self.bucket(given.s3_bucket)}
        return {**self.usual(given, tags), **found}

    def usual(self, given: SageMaker, tags: Mapping[str, str]) -> dict[str, Any]:
        """Return KMS key, network and tags of a job, by parameter, without calling AWS.

        Raises BadInput if the SDK's configuration cannot be read or is ambiguous.
        """
        job = _part(self._configuration, "TrainingJob")
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
            "tags": {**{tag["Key"]: tag["Value"] for tag in job.get("Tags", ())}, **tags},
        }

    def role_arn(self, given: str | None) -> str:
        """Return the ARN of a job's execution role, by default the usual one.

        Raises BadInput if no role is set anywhere, or its ARN is cut off.

        In a SageMaker notebook, the default is the notebook's own role.
        """
        role = given or _part(self._configuration, "TrainingJob").get("RoleArn")
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

    def bucket(self, given: str | None) -> str:
        """Return the name of a job's S3 bucket: by default `sagemaker-REGION-ACCOUNT`, as in the SageMaker SDK."""
        usual = _part(self._configuration, "PythonSDK", "Modules", "Session").get("DefaultS3Bucket")
        name = str(given or usual or self._environment.get("PARETUNE_BUCKET") or self.default_bucket)
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
            if code(error) not in NO_BUCKET:
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
