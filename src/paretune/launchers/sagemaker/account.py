"""The AWS identity of a job: session, region, role and bucket."""

import contextlib
import io
import logging
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Any

import boto3
from botocore.config import Config
from botocore.model import OperationModel

from paretune.core.errors import BadInput, LaunchRefused, first_line
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, NO_REGION, code, explain, refused_to
from paretune.specification.job import JobSpec

PREFIX = "paretune"  # the first part of every S3 key
_ATTEMPTS = 8  # of one call: about a minute of backing off; the adaptive mode also slows calls down when AWS throttles


def has_credentials() -> bool:
    """Whether credentials are configured on this machine; AWS is not asked whether it accepts them."""
    try:
        return boto3.Session().get_credentials() is not None
    except AWS_ERRORS:  # some are configured, and cannot be used
        return True


class Account:
    """An AWS identity in one region. No call is made before its answer is needed.

    A setting that no parameter gives comes from the SageMaker SDK's own configuration file (default bucket, role), then
    from the environment (AWS's own variables and profiles; PARETUNE_ROLE, PARETUNE_BUCKET).

    Raises:
        LaunchRefused: no region is set anywhere.
    """

    def __init__(self, cluster: JobSpec, environment: Mapping[str, str]) -> None:
        with refused_to("sign in"):
            # AWS_REGION is what AWS itself sets in its services; boto reads AWS_DEFAULT_REGION and the profile.
            self.session = boto3.Session(region_name=cluster.region or environment.get("AWS_REGION"))
        if self.session.region_name is None:
            raise LaunchRefused(NO_REGION)
        self.region: str = self.session.region_name
        self._cluster = cluster
        self._environment = environment
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """The boto client of a service; it backs off when AWS throttles."""
        if service not in self._clients:
            config = Config(
                retries={"mode": "adaptive", "total_max_attempts": _ATTEMPTS},
                user_agent_extra=f"paretune/{version('paretune')}",
                connect_timeout=10,
                read_timeout=60,
            )
            client = self._clients[service] = self.session.client(service, config=config)
            if service == "s3":
                client.meta.events.register("provide-client-params.s3", self._name_bucket_owner)
        return self._clients[service]

    def _name_bucket_owner(self, params: Mapping[str, Any], model: OperationModel, **_: object) -> Mapping[str, Any]:
        """Let S3 refuse a bucket of another account: the job would run code from it, and its default name is known."""
        if "ExpectedBucketOwner" not in model.input_shape.members:
            return params
        return {**params, "ExpectedBucketOwner": self.identity["Account"]}

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Account and Arn of the caller; raises LaunchRefused without credentials that AWS accepts."""
        with refused_to("sign in"):
            answer = self.client("sts").get_caller_identity()
        return {"Account": answer["Account"], "Arn": answer["Arn"]}

    @cached_property
    def configured(self) -> Mapping[str, str | None]:
        """`role` and `bucket` of the SageMaker SDK's configuration file; None where it has none."""
        # The SDK prints and logs which files it did not find.
        logging.getLogger("sagemaker.config").setLevel(logging.WARNING)
        with contextlib.redirect_stdout(io.StringIO()):
            from sagemaker.core.config.config import load_sagemaker_config

            try:
                config = load_sagemaker_config()
            except Exception as error:  # whatever its readers of YAML and schemas raise
                reason = first_line(error)
                raise BadInput([f"the SageMaker SDK's configuration file cannot be read: {reason}"]) from error
        settings = config.get("SageMaker") or {}
        session = ((settings.get("PythonSDK") or {}).get("Modules") or {}).get("Session") or {}
        return {"bucket": session.get("DefaultS3Bucket"), "role": (settings.get("TrainingJob") or {}).get("RoleArn")}

    @cached_property
    def role_arn(self) -> str:
        """ARN of the execution role; raises BadInput if no role is set anywhere."""
        role = self._cluster.role or self.configured["role"] or self._environment.get("PARETUNE_ROLE")
        if not role:
            caller = self.identity["Arn"]
            if ":assumed-role/" not in caller or "SageMaker" not in caller:
                shown = "docs/sagemaker.md shows its policy, `aws iam list-roles` the existing roles"
                raise BadInput([f"role must be set: an IAM role that SageMaker may assume, by name or ARN; {shown}"])
            role = caller.split("/")[1]  # a notebook's own execution role
        if role.startswith("arn:"):
            return role
        with contextlib.suppress(*AWS_ERRORS):  # an identity without iam:GetRole
            return str(self.described_role(role.rpartition("/")[2])["Arn"])  # with its path, such as service-role/
        partition = self.session.get_partition_for_region(self.region)
        return f"arn:{partition}:iam::{self.identity['Account']}:role/{role}"

    def described_role(self, name: str) -> Mapping[str, Any]:
        """The role as GetRole describes it. Raises boto's AWS_ERRORS."""
        role: Mapping[str, Any] = self.client("iam").get_role(RoleName=name)["Role"]
        return role

    @property
    def bucket(self) -> str:
        """Name of the S3 bucket; by default `sagemaker-REGION-ACCOUNT`, the SDK's own default."""
        name = (
            self._cluster.sagemaker.s3_bucket or self.configured["bucket"] or self._environment.get("PARETUNE_BUCKET")
        )
        return (name or self.default_bucket).removeprefix("s3://").strip("/")

    @property
    def default_bucket(self) -> str:
        """Name of the bucket that the SageMaker SDK would create."""
        return f"sagemaker-{self.region}-{self.identity['Account']}"

    @property
    def use_of_bucket(self) -> str:
        """The action to name in an error about the bucket."""
        return f"use the bucket {self.bucket}, which must belong to account {self.identity['Account']}"

    def create_default_bucket(self) -> None:
        """Create the default bucket if the account uses it and it does not exist yet."""
        if self.bucket != self.default_bucket:
            return
        s3 = self.client("s3")
        try:
            s3.head_bucket(Bucket=self.bucket)
        except AWS_ERRORS as error:
            if code(error) not in {"404", "NoSuchBucket"}:
                raise LaunchRefused(explain(error, self.use_of_bucket)) from error
            location = {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
            with refused_to(f"create the bucket {self.bucket}; set s3_bucket in sagemaker"):
                s3.create_bucket(Bucket=self.bucket, **({} if self.region == "us-east-1" else location))
