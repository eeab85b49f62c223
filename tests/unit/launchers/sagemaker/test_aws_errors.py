"""What AWS answers when it will not, in plain words with a next step."""

import pytest
from boto3.exceptions import RetriesExceededError
from botocore import exceptions
from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError

from paretune.launchers.sagemaker.aws_errors import explain, is_denied, is_missing, is_transient
from tests.stand_ins.aws import error

CREDENTIALS: list[BotoCoreError] = [
    exceptions.NoCredentialsError(),
    exceptions.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
    exceptions.ProfileNotFound(profile="nobody"),
    exceptions.CredentialRetrievalError(provider="custom-process", error_msg="exit 1"),
    exceptions.UnauthorizedSSOTokenError(),
    exceptions.SSOTokenLoadError(error_msg="no token"),
    exceptions.TokenRetrievalError(provider="sso", error_msg="expired"),
    exceptions.NoAuthTokenError(),
]


PAGE = ResponseParserError("Unable to parse response (not well-formed), invalid XML received:\nb'<!doctype html>'")


@pytest.mark.parametrize(
    ("trouble", "parts"),
    [
        (error("ExpiredToken", "The provided token has expired."), ["expired", "aws sso login"]),
        (
            error("InvalidClientTokenId", "The security token is invalid."),
            ["does not know these credentials", "AWS_PROFILE"],
        ),
        (
            error("SignatureDoesNotMatch", "Signature expired: 20261123T0830Z is now earlier than 20261123T1015Z"),
            ["the clock of this machine differs from AWS's", "timedatectl"],
        ),
        (
            error("RequestTimeTooSkewed", "The difference between the request time and the current time is too large."),
            ["the clock of this machine differs from AWS's", "timedatectl"],
        ),
        (error("SignatureDoesNotMatch", "Check your key"), ["does not know these credentials", "the clock"]),
        (
            error("ResourceInUse", "Job name must be unique within an AWS account and region, and a job exists"),
            ["AWS would not create the job: Job name must be unique"],
        ),
        (error("AccessDeniedException", "User ada is not authorized"), ["does not allow", "create the job", "ada"]),
        (error("403", "Forbidden", 403), ["does not allow", "Forbidden"]),
        (error("ThrottlingException", "Rate exceeded"), ["throttling", "try again in a minute"]),
        (
            error(
                "ResourceLimitExceeded",
                "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 0 Instances.",
            ),
            ["Service Quotas", '"ml.p4d.24xlarge for training job usage"', "another instance type"],
        ),
        (error("ResourceLimitExceeded", "no type here"), ["a quota of the account is used up", "Service Quotas"]),
        (error("ValidationException", "1 validation error"), ["AWS would not create the job: 1 validation error"]),
        (error("Strange"), ["AWS would not create the job: Strange"]),
        (exceptions.NoRegionError(), ["no AWS region is set", "AWS_REGION"]),
        (exceptions.EndpointConnectionError(endpoint_url="https://x"), ["does not answer", "AWS_ENDPOINT_URL"]),
        (PAGE, ["AWS would not create the job: Unable to parse response"]),
        *[(trouble, ["no usable AWS credentials", "aws sso login"]) for trouble in CREDENTIALS],
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_each_error_becomes_one_sentence_with_a_next_step(trouble: Exception, parts: list[str]) -> None:
    sentence = explain(trouble, "create the job")

    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    "trouble",
    [
        error("ThrottlingException"),
        error("SlowDown", status=503),
        error("InternalFailure", status=500),
        error("ServiceUnavailable", status=503),
        exceptions.EndpointConnectionError(endpoint_url="https://x"),
        exceptions.ReadTimeoutError(endpoint_url="https://x"),
        exceptions.ConnectTimeoutError(endpoint_url="https://x"),
        exceptions.ConnectionClosedError(endpoint_url="https://x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        RetriesExceededError(exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2)),
        PAGE,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_be_answered_later_passes(trouble: Exception) -> None:
    assert is_transient(trouble)


@pytest.mark.parametrize(
    "trouble",
    [
        *CREDENTIALS,
        error("ExpiredTokenException"),
        error("AccessDeniedException"),
        error("ValidationException"),
        exceptions.NoRegionError(),
        exceptions.ParamValidationError(report="a bug"),
        ValueError("no error of AWS"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_no_waiting_heals_does_not_pass(trouble: Exception) -> None:
    assert not is_transient(trouble)


def test_denied_and_missing_are_told_apart() -> None:
    assert is_denied(error("AccessDeniedException"))
    assert is_denied(error("AccessDenied", status=403))
    assert is_missing(error("ValidationException", "Requested resource not found."))
    assert not is_missing(error("AccessDeniedException"))
    assert not is_denied(exceptions.NoCredentialsError())
