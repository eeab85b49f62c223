"""Errors of AWS, and why jobs fail: one cause and one next step; an unknown text stays unchanged."""

import pytest
from boto3.exceptions import RetriesExceededError
from botocore import exceptions
from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError

from paretune.launchers.sagemaker.aws_errors import ending_of, explain, is_transient
from paretune.specification.ending import Cause
from tests.support.stand_ins.aws import error

CREDENTIALS: list[BotoCoreError] = [
    exceptions.NoCredentialsError(),
    exceptions.ProfileNotFound(profile="nobody"),
    exceptions.UnauthorizedSSOTokenError(),
    exceptions.TokenRetrievalError(provider="sso", error_msg="expired"),
]
PAGE = ResponseParserError("Unable to parse response (not well-formed), invalid XML received:\nb'<!doctype html>'")
QUOTA_SPENT = "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 0 Instances."


@pytest.mark.parametrize(
    ("trouble", "parts"),
    [
        (
            error("ExpiredToken", "The provided token has expired."),
            ["does not accept", "aws sso login"],
        ),
        (error("SignatureDoesNotMatch", "Signature expired: 20261123T0830Z is now"), ["AWS_PROFILE", "the clock of"]),
        (error("ResourceInUse", "Job name must be unique"), ["could not create the job: Job name must be unique"]),
        (error("AccessDeniedException", "User ada is not authorized"), ["does not allow", "create the job", "ada"]),
        (error("ThrottlingException", "Rate exceeded"), ["throttling", "try again in a minute"]),
        (error("ResourceLimitExceeded", QUOTA_SPENT), ["Service Quotas", "'ml.p4d.24xlarge for training"]),
        (error("Strange"), ["could not create the job: Strange"]),
        (
            exceptions.ParamValidationError(report='Missing required parameter in VpcConfig: "Subnets"'),
            ["could not create the job: Parameter validation failed: Missing", 'in VpcConfig: "Subnets"'],
        ),
        (exceptions.NoRegionError(), ["no AWS region is set", "AWS_REGION"]),
        (exceptions.EndpointConnectionError(endpoint_url="https://x"), ["does not answer", "AWS_ENDPOINT_URL"]),
        (PAGE, ["could not create the job: Unable to parse response"]),
        *[(trouble, ["no usable AWS credentials", "aws sso login"]) for trouble in CREDENTIALS],
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_each_error_becomes_one_sentence_with_a_next_step(trouble: Exception, parts: list[str]) -> None:
    sentence = explain(trouble, "create the job")

    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


def test_errors_that_may_pass_are_distinguished_from_those_that_waiting_does_not_fix() -> None:
    for trouble in (
        error("ThrottlingException"),
        error("InternalFailure", status=500),
        exceptions.EndpointConnectionError(endpoint_url="https://x"),
        exceptions.ReadTimeoutError(endpoint_url="https://x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        RetriesExceededError(exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2)),
        PAGE,
    ):
        assert is_transient(trouble)
    no_region, bug = exceptions.NoRegionError(), exceptions.ParamValidationError(report="a bug")
    refusals = [error(code) for code in ("ExpiredTokenException", "AccessDeniedException", "ValidationException")]
    for trouble in (*CREDENTIALS, *refusals, no_region, bug, ValueError("no error of AWS")):
        assert not is_transient(trouble)


QUOTA = "ml.p3.2xlarge for training job usage"
PUBLIC = [  # texts that jobs and requests of public notebooks and threads have printed
    (
        "Failed Reason: CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
        "different ML instance type.",
        "CAPACITY",
        "AWS had no available instance of this type in time",
    ),  # aws/sagemaker-pytorch-training-toolkit#171
    (
        f"ResourceLimitExceeded: The account-level service limit '{QUOTA}' is 0 Instances, with current utilization of "
        "0 Instances and a request delta of 1 Instances. Please contact",
        "ERROR",
        "a quota of the account is used up: ask for more (AWS console, Service Quotas",
    ),  # gabehollombe-aws/jupyter-notebooks#1
    (
        "User: arn:aws:sts::XXXX:assumed-role/XXXX is not authorized to perform: s3:PutObject on resource: "
        "arn:aws:s3:::smus-mlflow-artifacts/mlflow/x",
        "ERROR",
        "AWS denies access: allow that action",
    ),  # aws/CICD-for-SageMakerUnifiedStudio#14
    (
        "Failed to upload model.pkl: An error occurred (AccessDenied) when calling PutObject: Access Denied",
        "ERROR",
        "AWS denies access: allow that action",
    ),  # sofianhamiti/amazon-sagemaker-pipelines-mlflow#1
    (
        "ClientError: SageMaker was unable to assume the role 'arn:aws:iam::XXXX:role/XXXX'",
        "ERROR",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor`",
    ),  # aws/sagemaker-python-sdk#35
    ("ClientError: Data download failed:Insufficient disk space", "DISK_FULL", "the disk of the instance is full"),
    ("AlgorithmError: Exit Code: 139", "ERROR", "exit code 139: Segmentation fault"),  # aws/sagemaker-python-sdk#134
    (
        "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an "
        "instance.",
        "OUT_OF_MEMORY",
        "the memory of the machine (not of its GPUs) was used up",
    ),
]


@pytest.mark.parametrize(
    ("text", "cause", "part"),
    [
        *PUBLIC,
        ("Stopped. Reason: MaxWaitTimeExceeded", "CAPACITY", "no available instance"),
        ("AlgorithmError: See job logs for more information, exit code: 137", "ERROR", "lack of memory: read the log"),
        ("ClientError: The subnet ID 'subnet-1' does not exist", "ERROR", "'subnet-1' does not exist"),
        ("AlgorithmError: bad_input: the file has no column text\n, exit code: 2", "BAD_INPUT", "has no column text"),
        ("AlgorithmError: out_of_memory: CUDA: 2: x, exit code: 1", "OUT_OF_MEMORY", "CUDA: 2: x"),
        ("AlgorithmError: error: boom, exit code: 1", "ERROR", "boom"),
        ("AlgorithmError: code: NameError: name 'x' is not defined, exit code: 1", "CODE", "NameError: name 'x'"),
        ("AlgorithmError: silent: train.py ended with exit code 3, exit code: 1", "SILENT", "ended with exit code 3"),
        ("AlgorithmError: time_limit: the job stopped itself, exit code: 1", "TIME_LIMIT", "the job stopped itself"),
        ("AlgorithmError: internal: mine, exit code: 1", "ERROR", "ended with exit code 1: read"),
        ("AlgorithmError: the queue has insufficient capacity, exit code: 1", "ERROR", "ended with exit code 1: read"),
        (
            "AlgorithmError: exceeded the maximum number of retries, exit code: 1",
            "ERROR",
            "ended with exit code 1: read",
        ),
        ("AlgorithmError: could not assume role x, exit code: 1", "ERROR", "ended with exit code 1: read"),
        (
            "AlgorithmError: Reason: CapacityError: Unable to provision requested ML compute, exit code: 1",
            "ERROR",
            "1:",
        ),
        ("AlgorithmError: MaxWaitTimeExceeded in my queue, exit code: 1", "ERROR", "ended with exit code 1: read"),
        ("AlgorithmError: ResourceLimitExceeded: my queue, exit code: 1", "ERROR", "ended with exit code 1: read"),
        (
            "AlgorithmError: An error occurred (ResourceLimitExceeded) when calling the CreateEndpoint operation: The "
            "limit is 0 Instances. If AWS Service Quotas is not available, contact AWS support, exit code: 1",
            "ERROR",
            "a quota of the account is used up",
        ),
        ("AlgorithmError: capacity: queue full, exit code: 1", "ERROR", "ended with exit code 1: read"),
        ("AlgorithmError: the service limit of my db is 3, exit code: 1", "ERROR", "ended with exit code 1: read"),
        ("AlgorithmError: not authorized to perform: sts:AssumeRole on resource: x", "ERROR", "AWS denies access"),
        ("  ", "ERROR", "SageMaker gave no reason"),
    ],
    ids=lambda value: value[:40],
)
def test_a_cause_is_read_from_the_text_of_a_real_job_and_from_its_structure(text: str, cause: str, part: str) -> None:
    ending = ending_of(text)

    assert (ending.cause, part in ending.sentence) == (Cause[cause], True)
