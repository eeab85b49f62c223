"""Reasons why AWS refused a request or a training job failed: one cause and one next step from AWS's own text.

AWS's texts have a structure, which is read in this order:

1. wrappers of SDK and boto: `An error occurred (CODE) when calling the OPERATION operation: ...`, `Failed. Reason: ...`
2. the kind before the first colon: CapacityError, ClientError, AlgorithmError, InternalServerError
3. in an AlgorithmError what the training toolkit adds: ExitCode, ErrorMessage, Command
4. the Python exception in ErrorMessage; if there is none, the first of the last chain of exceptions in the log
5. the exit code; above 128, or below 0, it is a signal

A rule applies only if its words name one cause. Any other text is shown as it is. Sources: documentation of AWS, public
issue threads and notebooks, some of which tests/unit/launchers/sagemaker/test_failures.py quotes.
"""

import re
import signal
from collections.abc import Callable, Sequence
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
    is_of_aws: bool = False  # holds for AWS's own words only: in the error of a script they mean something else

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
        is_of_aws=True,
    ),
    _Rule(
        r"\bservice limit (?:for )?'?(?P<quota>[^']+?)'? is (?P<limit>[\d.]+)(?:.*utilization of (?P<used>[\d.]+))?",
        "the account's quota {quota} is {limit} instances, of which {used} are in use",
        'ask for more (AWS console, Service Quotas, Amazon SageMaker, "{quota}"), or use another instance type',
        is_of_aws=True,
    ),
    _Rule(
        "ResourceLimitExceeded(?!.*not available)|(?:exceeded|reached) the maximum number of",
        "a quota of the account is used up",
        "ask for more (AWS console, Service Quotas, Amazon SageMaker), or wait until other jobs have ended",
        is_of_aws=True,
    ),
    _Rule(
        r"(?:unable to|[Cc]ould not|[Cc]annot|not be able to) (?:be )?assumed? (?:the )?role|role \S+ cannot be assumed"
        r"|sts:AssumeRole",
        "SageMaker may not assume the role of the job",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor` prints the command",
        is_of_aws=True,
    ),
    _Rule(
        "MaxRuntimeExceeded|exceeded MaxRuntimeInSeconds",
        "the job ran longer than it was allowed to",
        "set max_runtime_minutes higher; the job continues from its checkpoint",
        is_of_aws=True,
    ),
    _Rule(
        r"not authorized to perform:? (?P<action>[\w-]+:\w+)(?: on (?:the )?resource:? (?P<resource>\S+))?",
        "{action} is not allowed on {resource}",
        f"add {{action}} to the policy of the user or role that AWS names {_POLICIES}",
    ),
    _Rule(
        r"GatedRepoError|gated repo|40[134] Client Error.{0,80}huggingface\.co|Repository ?Not ?Found",
        "the Hugging Face Hub does not give this model or data set without a token that may read it, or has none of "
        "that name",
        "check its name, accept its terms, and give the job a token or a copy in S3",
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
        r"use an instance type with more memory|Cannot allocate memory|DefaultCPUAllocator|\bMemoryError\b"
        r"|\bjava\.lang\.OutOfMemoryError|OOM when allocating .*by allocator cpu|std::bad_alloc"
        r"|DataLoader worker .{0,30}killed by signal: Killed",
        "the memory of the machine (not of its GPUs) was used up",
        "use a larger instance, or load fewer data at once",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        r"(?:CUDA|HIP) (?:error: )?out of memory|\bOutOfMemoryError\b|CUBLAS_STATUS_ALLOC_FAILED|OOM when allocating",
        "the memory of a GPU was used up",
        "lower the batch size or the sequence length, or use an instance with larger GPUs",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        "^InternalServerError|encountered an internal error",
        "AWS's own trouble",
        "start the job again",
        is_of_aws=True,
    ),
)

_KINDS = r"(?:Algorithm|Client|Capacity|InternalServer)Error|ResourceLimitExceeded|ValidationException"
_WRAPPED = re.compile(r"^.{0,200}?(?:[Rr]eason: |Reason for failure: )(?=\w+Error)|^botocore\.\S+: ", re.DOTALL)
_NOISE = re.compile(r"\[\d+,\d+\]<std(?:err|out)>:?|\x1b\[[0-9;]*m|#015|#011|[│┃]")
_COMMAND = re.compile(r',? ?Command "')
_EXIT_CODE = re.compile(r"(?:[Ee]xit ?[Cc]ode|return code) ?[:=]? ?'?(-?\d+)")
_EXCEPTION = re.compile(r"\b((?:\w+\.)*[A-Z]\w*?(?:Error|Exception))\1*: (?!with |raise |return |self\.)")
_SECONDARY = re.compile(
    rf"(?:\w+\.)*(?:{_KINDS}|ParamValidationError|ChildFailedError|CalledProcessError|\w*ScriptError|SignalException|"
    r"Process\w+Exception|UnexpectedStatusException)"
)
"""Exceptions that report the failure of another process, and AWS's own kinds."""
_CHAINED = re.compile("direct cause of the following exception|During handling of the above exception")
_OF_A_PARSER = re.compile(r"\S+: error: (?:unrecognized|argument|the following|ambiguous)|^Segmentation fault")
_OURS = {member.value for member in FailureKind}


def classify(reason: str, log: Callable[[], Sequence[str]] = tuple) -> tuple[FailureKind, str]:
    """The kind and sentence of a training job's FailureReason.

    A sentence of kind ERROR has the next step. For other kinds it depends on the job, and `jobs.ending` adds it. `log`
    reads the last lines of the job's log; it is called only if the reason names no cause.
    """
    text = " ".join(_NOISE.sub("", _WRAPPED.sub("", reason.strip())).split())
    words, is_of_script = _COMMAND.split(text)[0], text.startswith("AlgorithmError")  # arguments name no cause
    failure = (
        _ours(text)
        or named_cause(words, is_of_script=is_of_script)
        or _by_exception(words, is_of_script=is_of_script)
        or _by_log(log())
        or _by_exit_code(text)
        or Failure(sentence=text or "SageMaker gave no reason")
    )
    if failure.kind is FailureKind.ERROR or not failure.text:
        return failure.kind, str(failure)
    return failure.kind, f"{failure.sentence} (AWS: {failure.text[:_LONGEST_QUOTE]})"


def named_cause(words: str, *, is_of_script: bool = False) -> Failure | None:
    """The cause that AWS's words name, or those of a script's error; None if they name none."""
    rules = (rule for rule in _RULES if not (is_of_script and rule.is_of_aws))
    return next(filter(None, (rule.apply(words) for rule in rules)), None)


def _ours(text: str) -> Failure | None:
    """The line "kind: sentence" of our failure file; SageMaker puts its own kind and the exit code around it."""
    inner = re.sub(r",? ?exit code: \d+$", "", re.sub(r"^AlgorithmError: ", "", text)).strip()
    kind, _, sentence = inner.partition(": ")
    return Failure(sentence=sentence.strip(), kind=FailureKind(kind)) if kind in _OURS else None


def _by_exception(text: str, *, is_of_script: bool) -> Failure | None:
    """The last Python exception that does not merely report another one."""
    _, *parts = _EXCEPTION.split(text)
    causes = [cause for cause in zip(parts[::2], parts[1::2], strict=True) if not _SECONDARY.fullmatch(cause[0])]
    if not causes:
        return None
    name, message = causes[-1]
    message = re.split(r",? ?exit code: | Traceback \(", message)[0].strip(' ":')
    raiser = "the script" if is_of_script else "the command"
    return Failure(sentence=f"{raiser} raised {name}: {message}", next_step="the log has its traceback")


def _by_log(log: Sequence[str]) -> Failure | None:
    """The first exception of the last chain in the log, or the last error of an argument parser."""
    lines = [_NOISE.sub("", line) for line in log]
    causes = []
    for number, line in enumerate(lines):
        match = _EXCEPTION.search(line)
        if (match is not None and not _SECONDARY.fullmatch(match[1])) or _OF_A_PARSER.search(line):
            causes.append(number)
    if not causes:
        return None
    last = causes.pop()
    while causes and any(map(_CHAINED.search, lines[causes[-1] : last])):
        last = causes.pop()
    line = lines[last].strip()
    if _OF_A_PARSER.search(line):
        return Failure(sentence=f"the script ended with `{line}`", next_step="the log has more")
    return named_cause(line, is_of_script=True) or _by_exception(line, is_of_script=True)


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
