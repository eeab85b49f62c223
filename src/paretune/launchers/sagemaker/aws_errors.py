"""AWS's errors, translated into sentences with a next step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import RetriesExceededError
from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from paretune.core.errors import LaunchRefused, ParetuneError, first_line
from paretune.launchers.sagemaker.failures import named_cause, quoted

_NOT_AWS = (ResponseParserError, UnicodeDecodeError, RetriesExceededError)
"""Errors of boto (1.44) when a proxy has answered in AWS's place, with an HTML page or in another encoding, and when
all attempts to download an object were cut off."""
AWS_ERRORS = (BotoCoreError, ClientError, *_NOT_AWS)  # everything boto raises

_NO_CREDENTIALS = (
    *(exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.CredentialRetrievalError),
    *(exceptions.NoAuthTokenError, exceptions.TokenRetrievalError, exceptions.SSOError, exceptions.LoginError),
    exceptions.ProfileNotFound,
)
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_UNKNOWN_KEY = {
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "AuthFailure",
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"}
_THROTTLED = {
    *("Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException"),
    *("RequestLimitExceeded", "RequestThrottled", "SlowDown"),
}


_CLOCK = re.compile(
    "RequestTimeTooSkewed|Signature (?:not yet current|expired)|difference between the request time and the"
)


def code(error: BaseException) -> str:
    """AWS's error code, such as ResourceInUse; "" if it has none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def message(error: BaseException) -> str:
    """AWS's own sentence."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Message", "")) or code(error)
    return first_line(error)


def is_transient(error: BaseException) -> bool:
    """Whether to repeat the call later: throttling, a broken connection, or a fault inside AWS."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return code(error) in _THROTTLED or status >= 500
    if isinstance(error, _NOT_AWS):
        return True
    permanent = (*_NO_CREDENTIALS, exceptions.NoRegionError, exceptions.ParamValidationError)
    return isinstance(error, BotoCoreError) and not isinstance(error, permanent)


def was_heard(error: BaseException) -> bool:
    """Whether AWS may have carried out the call without confirming it: no answer, or a fault inside AWS."""
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500
    unclear = (exceptions.HTTPClientError, *_NOT_AWS)
    return isinstance(error, unclear) and not isinstance(error, exceptions.EndpointConnectionError)


def is_denied(error: BaseException) -> bool:
    """Whether this identity lacks the permission."""
    return code(error) in _DENIED


def is_missing(error: BaseException) -> bool:
    """Whether DescribeTrainingJob knows no job with the name."""
    return code(error) in {"ValidationException", "ResourceNotFound"}


@contextmanager
def refused_to(doing: str, kind: type[ParetuneError] = LaunchRefused) -> Iterator[None]:
    """Raise an error of this kind, with the sentence of `explain`, for AWS's errors in the block."""
    try:
        yield
    except AWS_ERRORS as error:
        raise kind(explain(error, doing)) from error


def explain(error: BaseException, doing: str) -> str:
    """A sentence with the next step; `doing` names the attempt, such as "create the training job"."""
    if isinstance(error, exceptions.NoRegionError):
        return "no AWS region is set: set region, AWS_REGION, or `aws configure set region us-east-1`"
    if isinstance(error, _NO_CREDENTIALS):
        return f"no usable AWS credentials ({error}): `aws configure`, `aws sso login`, or set AWS_PROFILE"
    if isinstance(error, exceptions.EndpointConnectionError):
        return f"AWS does not answer ({error}): check the network, the region and AWS_ENDPOINT_URL"
    if _CLOCK.search(f"{code(error)}: {message(error)}"):
        step = "set it (`timedatectl set-ntp true`, or restart the virtual machine), then repeat the command"
        return f"the clock of this machine differs from AWS's: {step}"
    if code(error) in _EXPIRED:
        return "the AWS credentials have expired: sign in again (`aws sso login`), then repeat the command"
    if code(error) in _UNKNOWN_KEY:
        hint = "check AWS_PROFILE, the access keys and the clock of this machine"
        return f"AWS does not know these credentials ({message(error)}): {hint}"
    if is_denied(error):
        return f"AWS does not allow this identity to {doing}: {message(error)}"
    if code(error) in _THROTTLED:
        return f"AWS is throttling requests and did not let us {doing}: try again in a minute"
    text = f"{code(error)}: {message(error)}"
    cause = named_cause(text)
    reason = message(error) if cause is None else f"{cause.sentence}: {cause.next_step}{quoted(text)}"
    return f"AWS would not {doing}: {reason}"
