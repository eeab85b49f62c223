"""Reasons why AWS refused a request or a training job failed: one cause and one next step from AWS's own text.

The text of a failed job is the line of our own failure file behind `AlgorithmError: `, AWS's sentence, or an exit code.
A rule applies only if its words name one cause. Any other text is shown as it is. Sources: documentation of AWS, public
issue threads and notebooks, some of which tests/unit/launchers/sagemaker/test_failures.py quotes.
"""

import re
import signal
from typing import NamedTuple

from paretune.specification.container import FailureKind

_LONGEST_QUOTE = 400  # characters of AWS's text behind a cause; an unknown text is shown whole
_SIGNALLED = 128  # an exit code above it is 128 and the number of a signal
_EXIT_CODES = {
    126: "its command may not be executed",
    127: "its command was not found",
    137: "it was killed, most often for lack of memory",
}


class Cause(NamedTuple):
    """A cause that words (a regular expression, whose groups fill `sentence` and `next_step`) name."""

    words: str
    sentence: str
    next_step: str
    kind: FailureKind = FailureKind.ERROR


_POLICIES = "(docs/sagemaker.md has the policies)"
_CAUSES = (  # the first one that applies counts
    Cause(
        r"^CapacityError|Unable to provision requested ML compute|[Ii]nsufficient ?(?:EC2 |Instance)?[Cc]apacity"
        r"|MaxWaitTimeExceeded|exceeded MaxWaitTimeInSeconds",
        "AWS had no free instance of this type in time",
        "try again later, or set fallback_instance_types, another region or spot=false",
        FailureKind.CAPACITY,
    ),
    Cause(
        r"\bservice limit (?:for )?'?(?P<quota>[^']+?)'? is (?P<limit>[\d.]+)(?:.*utilization of (?P<used>[\d.]+))?",
        "the account's quota {quota} is {limit} instances, of which {used} are in use",
        'ask for more (AWS console, Service Quotas, Amazon SageMaker, "{quota}"), or use another instance type',
    ),
    Cause(
        "ResourceLimitExceeded(?!.*not available)|(?:exceeded|reached) the maximum number of",
        "a quota of the account is used up",
        "ask for more (AWS console, Service Quotas, Amazon SageMaker), or wait until other jobs have ended",
    ),
    Cause(
        r"(?:unable to|[Cc]ould not|[Cc]annot|not be able to) (?:be )?assumed? (?:the )?role|role \S+ cannot be assumed"
        r"|sts:AssumeRole",
        "SageMaker may not assume the role of the job",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor` prints the command",
    ),
    Cause(
        r"not authorized to perform:? (?P<action>[\w-]+:\w+)(?: on (?:the )?resource:? (?P<resource>\S+))?",
        "{action} is not allowed on {resource}",
        f"add {{action}} to the policy of the user or role that AWS names {_POLICIES}",
    ),
    Cause(
        r"\b(?:[Aa]ccess [Dd]enied|AccessDenied(?:Exception)?)\b|\(403\) when calling",
        "AWS denies access",
        f"compare the policies of your identity and of the role of the job with the documented ones {_POLICIES}",
    ),
    Cause(
        "No space left on device|[Ii]nsufficient disk space|Disk quota exceeded|100% disk usage",
        "the disk of the instance is full",
        "set sagemaker.volume_size_in_gb to a larger volume",
        FailureKind.DISK_FULL,
    ),
    Cause(
        "use an instance type with more memory",
        "the memory of the machine (not of its GPUs) was used up",
        "use a larger instance, or load fewer data at once",
        FailureKind.OUT_OF_MEMORY,
    ),
    Cause(
        "^InternalServerError|encountered an internal error",
        "AWS's own trouble",
        "start the job again",
    ),
)

_EXIT_CODE = re.compile(r"(?:[Ee]xit ?[Cc]ode|return code) ?[:=]? ?'?(-?\d+)")
_WRAPPERS = re.compile(r"^AlgorithmError: |,? ?exit code: \d+$")  # what SageMaker puts around our own line
_OURS = {member.value for member in FailureKind}


def classify(reason: str) -> tuple[FailureKind, str]:
    """The kind and sentence of a training job's FailureReason.

    A sentence of kind ERROR has the next step. For other kinds it depends on the job, and `jobs.outcome` adds it.
    """
    text = " ".join(reason.split())
    kind, _, sentence = _WRAPPERS.sub("", text).strip().partition(": ")
    if kind in _OURS:
        return FailureKind(kind), sentence.strip()
    if cause := named_cause(text):
        step = f": {cause.next_step}" if cause.kind is FailureKind.ERROR else ""
        return cause.kind, f"{cause.sentence}{step}{quoted(text)}"
    if match := _EXIT_CODE.search(text):
        code = int(match[1])
        number = -code if code < 0 else code - _SIGNALLED
        meaning = _EXIT_CODES.get(code) or (signal.strsignal(number) if 0 < number < signal.NSIG else None)
        meant = f": {meaning}" if meaning else ""
        return FailureKind.ERROR, f"the container ended with exit code {code}{meant}: read the log{quoted(text)}"
    return FailureKind.ERROR, text or "SageMaker gave no reason"


def named_cause(text: str) -> Cause | None:
    """The cause that AWS's words name, with their names filled in; None if they name none."""
    for cause in _CAUSES:
        if match := re.search(cause.words, text):
            groups = {name: value.rstrip(".,;:") if value else "..." for name, value in match.groupdict().items()}
            return cause._replace(sentence=cause.sentence.format(**groups), next_step=cause.next_step.format(**groups))
    return None


def quoted(text: str) -> str:
    """AWS's text behind a cause, shortened."""
    return f" (AWS: {text if len(text) <= _LONGEST_QUOTE else f'{text[:_LONGEST_QUOTE]}...'})"
