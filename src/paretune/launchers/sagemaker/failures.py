"""Reasons why AWS refused a request or a training job failed: one cause and one next step from AWS's own text.

The text of a failed job is the line of our own failure file behind `AlgorithmError: `, AWS's sentence, or an exit code.
A rule applies only if its words name one cause. Any other text is shown as it is. Sources: documentation of AWS, public
issue threads and notebooks, some of which tests/unit/launchers/sagemaker/test_failures.py quotes.
"""

import re
import signal
from dataclasses import dataclass

from paretune.specification.container import FailureKind

_LONGEST_QUOTE = 400  # characters of AWS's text behind a cause; an unknown text is shown whole
_SIGNALLED = 128  # an exit code above it is 128 and the number of a signal
_EXIT_CODES = {
    126: "its command may not be executed",
    127: "its command was not found",
    137: "it was killed, most often for lack of memory",
}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cause and what to do about it."""

    sentence: str  # the cause in words; the whole text if it is unknown
    next_step: str = ""  # what to do; "" if only the log can tell
    text: str = ""  # AWS's text without line breaks and wrappers, if `sentence` does not hold it
    kind: FailureKind = FailureKind.ERROR

    def __str__(self) -> str:
        """Cause, next step and AWS's words."""
        quote = self.text if len(self.text) <= _LONGEST_QUOTE else f"{self.text[:_LONGEST_QUOTE]}..."
        step = f": {self.next_step}" if self.next_step else ""
        return f"{self.sentence}{step}" + (f" (AWS: {quote})" if quote else "")


@dataclass(frozen=True)
class _Rule:
    """A cause named by words (a regular expression, whose groups fill `sentence` and `next_step`)."""

    words: str
    sentence: str
    next_step: str
    kind: FailureKind = FailureKind.ERROR

    def apply(self, text: str) -> Failure | None:
        match = re.search(self.words, text)
        if match is None:
            return None
        groups = {name: value.rstrip(".,;:") if value else "..." for name, value in match.groupdict().items()}
        sentence, step = self.sentence.format(**groups), self.next_step.format(**groups)
        return Failure(sentence=sentence, next_step=step, text=text, kind=self.kind)


_POLICIES = "(docs/sagemaker.md has the policies)"
_RULES = (  # the first one that applies counts
    _Rule(
        r"^CapacityError|Unable to provision requested ML compute|[Ii]nsufficient ?(?:EC2 |Instance)?[Cc]apacity"
        r"|MaxWaitTimeExceeded|exceeded MaxWaitTimeInSeconds",
        "AWS had no free instance of this type in time",
        "try again later, or set fallback_instance_types, another region or spot=false",
        FailureKind.CAPACITY,
    ),
    _Rule(
        r"\bservice limit (?:for )?'?(?P<quota>[^']+?)'? is (?P<limit>[\d.]+)(?:.*utilization of (?P<used>[\d.]+))?",
        "the account's quota {quota} is {limit} instances, of which {used} are in use",
        'ask for more (AWS console, Service Quotas, Amazon SageMaker, "{quota}"), or use another instance type',
    ),
    _Rule(
        "ResourceLimitExceeded(?!.*not available)|(?:exceeded|reached) the maximum number of",
        "a quota of the account is used up",
        "ask for more (AWS console, Service Quotas, Amazon SageMaker), or wait until other jobs have ended",
    ),
    _Rule(
        r"(?:unable to|[Cc]ould not|[Cc]annot|not be able to) (?:be )?assumed? (?:the )?role|role \S+ cannot be assumed"
        r"|sts:AssumeRole",
        "SageMaker may not assume the role of the job",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor` prints the command",
    ),
    _Rule(
        r"not authorized to perform:? (?P<action>[\w-]+:\w+)(?: on (?:the )?resource:? (?P<resource>\S+))?",
        "{action} is not allowed on {resource}",
        f"add {{action}} to the policy of the user or role that AWS names {_POLICIES}",
    ),
    _Rule(
        r"\b(?:[Aa]ccess [Dd]enied|AccessDenied(?:Exception)?)\b|\(403\) when calling",
        "AWS denies access",
        f"compare the policies of your identity and of the role of the job with the documented ones {_POLICIES}",
    ),
    _Rule(
        "No space left on device|[Ii]nsufficient disk space|Disk quota exceeded|100% disk usage",
        "the disk of the instance is full",
        "set sagemaker.volume_size_in_gb to a larger volume",
        FailureKind.DISK_FULL,
    ),
    _Rule(
        "use an instance type with more memory",
        "the memory of the machine (not of its GPUs) was used up",
        "use a larger instance, or load fewer data at once",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        "^InternalServerError|encountered an internal error",
        "AWS's own trouble",
        "start the job again",
    ),
)

_EXIT_CODE = re.compile(r"(?:[Ee]xit ?[Cc]ode|return code) ?[:=]? ?'?(-?\d+)")
_OURS = {member.value for member in FailureKind}


def classify(reason: str) -> tuple[FailureKind, str]:
    """The kind and sentence of a training job's FailureReason.

    A sentence of kind ERROR has the next step. For other kinds it depends on the job, and `jobs.ending` adds it.
    """
    text = " ".join(reason.split())
    failure = _ours(text) or named_cause(text) or _by_exit_code(text)
    if failure is None:
        return FailureKind.ERROR, text or "SageMaker gave no reason"
    if failure.kind is FailureKind.ERROR or not failure.text:
        return failure.kind, str(failure)
    return failure.kind, f"{failure.sentence} (AWS: {failure.text[:_LONGEST_QUOTE]})"


def named_cause(words: str) -> Failure | None:
    """The cause that AWS's words name; None if they name none."""
    return next(filter(None, (rule.apply(words) for rule in _RULES)), None)


def _ours(text: str) -> Failure | None:
    """The line "kind: sentence" of our failure file; SageMaker puts its own kind and the exit code around it."""
    inner = re.sub(r",? ?exit code: \d+$", "", re.sub(r"^AlgorithmError: ", "", text)).strip()
    kind, _, sentence = inner.partition(": ")
    return Failure(sentence=sentence.strip(), kind=FailureKind(kind)) if kind in _OURS else None


def _by_exit_code(text: str) -> Failure | None:
    """The meaning of an exit code; a shell adds 128 to the number of a signal."""
    match = _EXIT_CODE.search(text)
    if match is None:
        return None
    code = int(match[1])
    number = -code if code < 0 else code - _SIGNALLED
    meaning = _EXIT_CODES.get(code) or (signal.strsignal(number) if 0 < number < signal.NSIG else None)
    sentence = f"the container ended with exit code {code}" + (f": {meaning}" if meaning else "")
    return Failure(sentence=sentence, next_step="read the log", text=text)
