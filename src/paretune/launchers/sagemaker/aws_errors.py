"""Explains AWS's errors and why jobs failed, in sentences with one cause and one next step.

The FailureReason of a job is a line of our own failure file after `AlgorithmError: `, a sentence of AWS, or an exit
code. A cause is named only if AWS's words can have no other cause. An exit code is explained. Any other text is shown
unchanged. The sources are documentation of AWS, public issue threads and notebooks;
tests/unit/launchers/sagemaker/test_aws_errors.py quotes some.
"""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from boto3.exceptions import RetriesExceededError, S3UploadFailedError
from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from paretune.core.errors import LaunchRefused, NoAccount, ParetuneError, first_line
from paretune.specification.ending import Cause, Ending, cut_off, failed

_NOT_AWS = (ResponseParserError, UnicodeDecodeError, RetriesExceededError, S3UploadFailedError)
"""Errors of boto (1.44) if a proxy answers instead of AWS (with an HTML page or in another encoding), if every attempt
to download an object is cut off, and if an upload is cut off."""
AWS_ERRORS = (BotoCoreError, ClientError, *_NOT_AWS)  # everything boto raises

_NO_CREDENTIALS = (
    *(exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.CredentialRetrievalError),
    *(exceptions.NoAuthTokenError, exceptions.TokenRetrievalError, exceptions.SSOError, exceptions.LoginError),
    exceptions.ProfileNotFound,
)
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"}
_THROTTLED = {
    *("Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException"),
    *("RequestLimitExceeded", "RequestThrottled", "SlowDown"),
}
NO_REGION = "no AWS region is set: set region, AWS_REGION, or `aws configure set region us-east-1`"
_EXIT_CODE = re.compile(r"(?:[Ee]xit ?[Cc]ode|return code) ?[:=]? ?'?(-?\d+)")
_NOT_OF_JOB = "^(?!AlgorithmError: )(?s:.*)"  # a job's own program, which may print anything, wrote the text after this
_WRAPPERS = re.compile(r"^AlgorithmError: |,? ?exit code: \d+$")  # SageMaker's words around our own line


class Explanation(NamedTuple):
    """One explanation of errors."""

    words: str  # regular expression that recognizes it in AWS's text
    sentence: str  # describes what has happened
    next_step: str  # tells the user what to do
    cause: Cause = Cause.ERROR


_EXPLANATIONS = (  # the first match wins; the text of a failed request is its error code, a colon and its message
    Explanation(
        "^(?:ExpiredToken|InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|InvalidSignature|AuthFailure"
        "|RequestExpired|RequestTimeTooSkewed)",
        "AWS does not accept the credentials",
        "sign in again (`aws sso login`), or check AWS_PROFILE, the access keys and the clock of this machine",
    ),
    Explanation(f"^(?:{'|'.join(sorted(_THROTTLED))})", "AWS is throttling requests", "try again in a minute"),
    Explanation(
        rf"^CapacityError|{_NOT_OF_JOB}(?:Unable to provision requested ML compute"
        r"|[Ii]nsufficient ?(?:EC2 |Instance)?[Cc]apacity"
        r"|Max(?:Wait|Pending)TimeExceeded|exceeded Max(?:Wait|Pending)TimeInSeconds)",
        "AWS had no available instance of this type in time",
        "try again later, or set fallback_instance_types, another region or spot=false",
        Cause.CAPACITY,
    ),
    Explanation("^InternalServerError", "AWS had an internal error", "launch it again", Cause.INTERNAL),
    Explanation(
        rf"{_NOT_OF_JOB}(?:ResourceLimitExceeded(?!.*not available)|\bservice limit\b.* is [\d.]+"
        r"|(?:exceeded|reached) the maximum number of)|\(ResourceLimitExceeded\) when calling"
        r"(?!.*(?<!Service Quotas is )not available)",
        "a quota of the account is used up",
        "ask for more (AWS console, Service Quotas, SageMaker), wait for other jobs, or use another instance type",
    ),
    Explanation(
        rf"{_NOT_OF_JOB}(?:(?:unable to|[Cc]ould not|[Cc]annot|not be able to) (?:be )?assumed? (?:the )?role"
        r"|role \S+ cannot be assumed|sts:AssumeRole)",
        "SageMaker may not assume the role of the job",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor` prints the command",
    ),
    Explanation(
        r"not authorized to perform|\b(?:[Aa]ccess [Dd]enied|AccessDenied(?:Exception)?)\b|\(403\) when calling",
        "AWS denies access",
        "allow that action for your identity, or for the role of the job; `paretune doctor` names each denied one",
    ),
    Explanation(
        "No space left on device|[Ii]nsufficient disk space|Disk quota exceeded|100% disk usage",
        "the disk of the instance is full",
        "set sagemaker.volume_size_in_gb to a larger volume",
        Cause.DISK_FULL,
    ),
    Explanation(
        "use an instance type with more memory",
        "the memory of the machine (not of its GPUs) was used up",
        "use a larger instance, or load less data at once",
        Cause.OUT_OF_MEMORY,
    ),
)


def code(error: BaseException) -> str:
    """Return AWS's error code, such as ResourceInUse; "" if the error has none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def is_transient(error: BaseException) -> bool:
    """Return whether the call may succeed later, as after throttling, a broken connection or a fault inside AWS."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return code(error) in _THROTTLED or status >= 500
    permanent = (*_NO_CREDENTIALS, exceptions.NoRegionError, exceptions.ParamValidationError)
    return isinstance(error, AWS_ERRORS) and not isinstance(error, permanent)


def was_heard(error: BaseException) -> bool:
    """Return whether AWS may have carried out the call without confirming it.

    If AWS throttled boto's only attempt, it has not carried out the call. After several attempts, it may have carried
    out an earlier one, because boto reports only the last.
    """
    metadata = error.response.get("ResponseMetadata", {}) if isinstance(error, ClientError) else {}
    return is_transient(error) and (code(error) not in _THROTTLED or bool(metadata.get("RetryAttempts")))


def is_denied(error: BaseException) -> bool:
    """Return whether the identity lacks a permission."""
    return code(error) in _DENIED


@contextmanager
def refused_to(doing: str, kind: type[ParetuneError] = LaunchRefused) -> Iterator[None]:
    """Convert AWS's errors in the block to errors of type `kind` with the text of `explain`.

    Without usable credentials or a region, LaunchRefused becomes NoAccount.
    """
    try:
        yield
    except AWS_ERRORS as error:
        is_unknown = kind is LaunchRefused and isinstance(error, (exceptions.NoRegionError, *_NO_CREDENTIALS))
        raise (NoAccount if is_unknown else kind)(explain(error, doing)) from error


def explain(error: BaseException, doing: str) -> str:
    """Return a sentence with the cause and the next step; `doing` is what failed, as in "create the training job"."""
    if isinstance(error, exceptions.NoRegionError):
        return NO_REGION
    if isinstance(error, _NO_CREDENTIALS):
        return f"no usable AWS credentials ({error}): run `aws configure` or `aws sso login`, or set AWS_PROFILE"
    if isinstance(error, exceptions.EndpointConnectionError):
        return f"AWS does not answer ({error}): check the network, the region and AWS_ENDPOINT_URL"
    message = first_line(error)
    if isinstance(error, exceptions.ParamValidationError):  # its cause is in the lines after the first
        message = " ".join(str(error).split())
    if isinstance(error, ClientError):
        message = str(error.response.get("Error", {}).get("Message", "")) or code(error)
    if is_denied(error):
        return f"AWS does not allow this identity to {doing}: {message}"
    text = f"{code(error)}: {message}"
    known = _explanation(text)
    reason = message if known is None else f"{known.sentence}: {known.next_step} (AWS: {text})"
    return f"could not {doing}: {reason}"


def ending_of(reason: str) -> Ending:
    """Return the ending of a training job that failed with this FailureReason.

    The first word of our own failure file is the cause. A training that has stopped itself at its deadline is not a
    failure. For the cause ERROR, the sentence includes the next step if AWS's words are known. For other causes, the
    next step depends on the job, and `jobs.outcome` adds it.
    """
    text = " ".join(reason.split())
    word, _, sentence = _WRAPPERS.sub("", text).strip().partition(": ")
    with suppress(ValueError):  # the text is not from our own failure file
        if not (own := Cause(word)).is_of_a_service:
            return cut_off(sentence.strip()) if own is Cause.TIME_LIMIT else failed(own, sentence.strip())
    if known := _explanation(text):
        step = f": {known.next_step}" if known.cause is Cause.ERROR else ""
        return failed(known.cause, f"{known.sentence}{step} (AWS: {text})")
    if match := _EXIT_CODE.search(text):
        number = int(match[1])
        signalled = -number if number < 0 else number - 128
        meaning = f": {signal.strsignal(signalled)}" if 0 < signalled < signal.NSIG else ""
        if signalled == signal.SIGKILL:
            meaning = ": it was killed, most often for lack of memory"
        sentence = f"the container ended with exit code {number}{meaning}: read the log (AWS: {text})"
        return failed(Cause.ERROR, sentence)
    return failed(Cause.ERROR, text or "SageMaker gave no reason")


def _explanation(text: str) -> Explanation | None:
    return next((known for known in _EXPLANATIONS if re.search(known.words, text)), None)
