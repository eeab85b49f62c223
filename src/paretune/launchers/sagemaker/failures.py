"""Reasons why AWS refused a request or a training job failed: one cause and one next step from AWS's own text.

AWS's texts have a structure, which is read in this order:

1. wrappers of SDK and boto: `An error occurred (CODE) when calling the OPERATION operation: ...`, `Failed. Reason: ...`
2. the kind before the first colon: CapacityError, ClientError, AlgorithmError, InternalServerError
3. in an AlgorithmError what the training toolkit adds: ExitCode, ErrorMessage, Command
4. the Python exception in ErrorMessage; if there is none, the first of the last chain of exceptions in the log
5. the exit code; above 128, or below 0, it is a signal

A rule applies only if its words name one cause. Any other text is shown as it is, with the cause "unknown". Sources:
tests/unit/launchers/sagemaker/failures.csv, documentation of AWS, public issue threads.
"""

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paretune.specification.container import FailureKind

UNKNOWN, CLOCK = "unknown", "clock"
_LONGEST_QUOTE = 400  # characters of AWS's text behind a cause; an unknown text is shown whole
_SIGNALLED = 128  # an exit code above it is 128 and the number of a signal
_BARE = {UNKNOWN, "exit code"}  # causes that the log may still explain


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cause and what to do about it."""

    cause: str  # a word or two, such as "quota"; "unknown" if the text does not name one
    sentence: str  # the cause in words; the whole text if it is unknown
    next_step: str = ""  # what to do; "" if only the log can tell
    text: str = ""  # AWS's text without line breaks and wrappers
    kind: FailureKind = FailureKind.ERROR

    def __str__(self) -> str:
        """Cause, next step and AWS's words."""
        step = f": {self.next_step}" if self.next_step else ""
        if not self.text or self.text in self.sentence:
            return f"{self.sentence}{step}"
        quote = self.text if len(self.text) <= _LONGEST_QUOTE else f"{self.text[:_LONGEST_QUOTE]}..."
        return f"{self.sentence}{step} (AWS: {quote})"


@dataclass(frozen=True)
class _Rule:
    """A cause named by words (a regular expression, whose groups fill `sentence` and `next_step`)."""

    cause: str
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
        return Failure(cause=self.cause, sentence=sentence, next_step=step, text=text, kind=self.kind)


_POLICIES = "(docs/sagemaker.md has the policies)"
_RULES = (  # the first one that applies counts
    _Rule(
        CLOCK,
        "RequestTimeTooSkewed|Signature (?:not yet current|expired)|difference between the request time and the",
        "the clock of this machine differs from AWS's",
        "set it (`timedatectl set-ntp true`, or restart the virtual machine), then repeat the command",
    ),
    _Rule(
        "capacity",
        r"^CapacityError|Unable to provision requested ML compute|[Ii]nsufficient ?(?:EC2 |Instance)?[Cc]apacity"
        r"|MaxWaitTimeExceeded|exceeded MaxWaitTimeInSeconds",
        "AWS had no free instance of this type in time",
        "try again later, or set fallback_instance_types, another region or spot=false",
        FailureKind.CAPACITY,
        is_of_aws=True,
    ),
    _Rule(
        "quota",
        r"\bservice limit (?:for )?'?(?P<quota>[^']+?)'? is (?P<limit>[\d.]+)(?:.*utilization of (?P<used>[\d.]+))?",
        "the account's quota {quota} is {limit} instances, of which {used} are in use",
        'ask for more (AWS console, Service Quotas, Amazon SageMaker, "{quota}"), or use another instance type',
        is_of_aws=True,
    ),
    _Rule(
        "quota",
        "ResourceLimitExceeded(?!.*not available)|(?:exceeded|reached) the maximum number of",
        "a quota of the account is used up",
        "ask for more (AWS console, Service Quotas, Amazon SageMaker), or wait until other jobs have ended",
        is_of_aws=True,
    ),
    _Rule(
        "role",
        r"(?:unable to|[Cc]ould not|[Cc]annot|not be able to) (?:be )?assumed? (?:the )?role|role \S+ cannot be assumed"
        r"|sts:AssumeRole",
        "SageMaker may not assume the role of the job",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor` prints the command",
        is_of_aws=True,
    ),
    _Rule(
        "runtime limit",
        "MaxRuntimeExceeded|exceeded MaxRuntimeInSeconds",
        "the job ran longer than it was allowed to",
        "set max_runtime_minutes higher; the job continues from its checkpoint",
        is_of_aws=True,
    ),
    _Rule(
        "network",
        "subnet's route table|S3 VPC endpoint|NAT device",
        "the job's subnets do not reach S3",
        "add a gateway endpoint for S3 or a route to a NAT gateway to their route tables, and allow outbound traffic",
        is_of_aws=True,
    ),
    _Rule(
        "permission",
        r"not authorized to perform:? (?P<action>[\w-]+:\w+)(?: on (?:the )?resource:? (?P<resource>\S+))?",
        "{action} is not allowed on {resource}",
        f"add {{action}} to the policy of the user or role that AWS names {_POLICIES}",
    ),
    _Rule(
        "data",
        r"No S3 objects found under S3 URL|has \"s3:ListBucket\" permissions? on bucket",
        "an input of the job has no object in S3, or the role of the job may not list it",
        "look with `aws s3 ls`, and allow s3:ListBucket and s3:GetObject to the role",
    ),
    _Rule(
        "model hub",
        r"GatedRepoError|gated repo|40[134] Client Error.{0,80}huggingface\.co|Repository ?Not ?Found",
        "the Hugging Face Hub does not give this model or data set without a token that may read it, or has none of "
        "that name",
        "check its name, accept its terms, and give the job a token or a copy in S3",
    ),
    _Rule(
        "image",
        r"[Ii]nvalid training image|\bmanifest (?:for|unknown)|CannotPull\w+|CannotStartContainer|Cannot pull algorithm"
        r"|(?:[Aa]ccess denied for|[Cc]annot find) repository",
        "the training image does not exist, does not start, or the job may not pull it",
        "check sagemaker.training_image (`aws ecr describe-images`) and the ecr actions of the role",
        is_of_aws=True,
    ),
    _Rule(
        "permission",
        r"\b(?:[Aa]ccess [Dd]enied|AccessDenied(?:Exception)?)\b|\(403\) when calling",
        "AWS denies access",
        f"compare the policies of your identity and of the role of the job with the documented ones {_POLICIES}",
    ),
    _Rule(
        "disk full",
        "No space left on device|[Ii]nsufficient disk space|Disk quota exceeded|100% disk usage",
        "the disk of the instance is full",
        "set sagemaker.volume_size_in_gb to a larger volume",
        FailureKind.DISK_FULL,
    ),
    _Rule(
        "host memory",
        r"use an instance type with more memory|Cannot allocate memory|DefaultCPUAllocator|\bMemoryError\b"
        r"|\bjava\.lang\.OutOfMemoryError|OOM when allocating .*by allocator cpu|std::bad_alloc"
        r"|DataLoader worker .{0,30}killed by signal: Killed",
        "the memory of the machine (not of its GPUs) was used up",
        "use a larger instance, or load fewer data at once",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        "GPU memory",
        r"(?:CUDA|HIP) (?:error: )?out of memory|\bOutOfMemoryError\b|CUBLAS_STATUS_ALLOC_FAILED|OOM when allocating",
        "the memory of a GPU was used up",
        "lower the batch size or the sequence length, or use an instance with larger GPUs",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        "GPU driver",
        "NVIDIA driver on your system is too old|CUDA driver version is insufficient|no kernel image is available"
        "|Found no NVIDIA driver|No CUDA GPUs are available|not compiled with CUDA",
        "the image's PyTorch or CUDA does not fit the GPU or its driver",
        "set sagemaker.training_image to an image for this instance type, or take another instance_type",
    ),
    _Rule(
        "AWS",
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
    rf"{_KINDS}|ParamValidationError|ChildFailedError|CalledProcessError|\w*ScriptError|SignalException|Process\w+Exception|"
    r"UnexpectedStatusException"
)
"""Exceptions that report the failure of another process, and AWS's own kinds."""
_CHAINED = re.compile("direct cause of the following exception|During handling of the above exception")
_OF_A_PARSER = re.compile(r"\S+: error: (?:unrecognized|argument|the following|ambiguous)|^Segmentation fault")
_OURS = {member.value for member in FailureKind}


def failure_of(text: str, log: Callable[[], Sequence[str]] = tuple) -> Failure:
    """The cause that AWS's text names, else the one that the last exceptions of the log name.

    Args:
        text: FailureReason, a refusal of a request, or a status message.
        log: reads the last lines of the job's log; called only if the text names no cause.
    """
    plain = " ".join(_NOISE.sub("", _WRAPPED.sub("", text.strip())).split())
    failure = _ours(plain) or _by_text(plain)
    if failure.cause in _BARE and (logged := _by_log(log())) is not None:
        return logged
    return failure


def classify(reason: str, log: Callable[[], Sequence[str]] = tuple) -> tuple[FailureKind, str]:
    """The kind and sentence of a training job's FailureReason.

    A sentence of kind ERROR has the next step. For other kinds it depends on the job, and `jobs.ending` adds it.
    """
    failure = failure_of(reason, log)
    return failure.kind, str(failure if failure.kind is FailureKind.ERROR else replace(failure, next_step=""))


def named_cause(words: str, *, is_of_script: bool = False) -> Failure | None:
    """The cause that AWS's words name, or those of a script's error; None if they name none."""
    rules = (rule for rule in _RULES if not (is_of_script and rule.is_of_aws))
    return next(filter(None, (rule.apply(words) for rule in rules)), None)


def _ours(text: str) -> Failure | None:
    """The line "kind: sentence" of our failure file; SageMaker puts its own kind and the exit code around it."""
    inner = re.sub(r",? ?exit code: \d+$", "", re.sub(r"^AlgorithmError: ", "", text)).strip()
    kind, _, sentence = inner.partition(": ")
    return Failure(cause=kind, sentence=sentence.strip(), kind=FailureKind(kind)) if kind in _OURS else None


def _by_text(text: str) -> Failure:
    """The cause by rule, else by exception, else by exit code."""
    words = _COMMAND.split(text)[0]  # a command's arguments name no cause
    is_of_script = text.startswith("AlgorithmError")
    if failure := named_cause(words, is_of_script=is_of_script) or _by_exception(words, is_of_script=is_of_script):
        return failure
    code = _EXIT_CODE.search(text)
    if code is not None and (_is_bare(words) or not 0 <= int(code[1]) <= _SIGNALLED):
        return Failure(cause="exit code", sentence=_ended_with(int(code[1])), next_step="read the log")
    if "ExecuteUserScriptError" in words and _is_bare(words):
        return Failure(cause="exit code", sentence="the script failed, and AWS gives only its command", text=text)
    return Failure(cause=UNKNOWN, sentence=text or "SageMaker gave no reason")


def _is_bare(words: str) -> bool:
    """Whether only kinds and an exit code are left of a text."""
    rest = re.sub(rf"{_KINDS}|ExecuteUserScriptError|UserScriptError|ErrorMessage|Training failed error", "", words)
    return not re.search(r"\w", _EXIT_CODE.sub("", rest))


def _by_exception(text: str, *, is_of_script: bool) -> Failure | None:
    """The last Python exception that does not merely report another one."""
    _, *parts = _EXCEPTION.split(text)
    causes = [cause for cause in zip(parts[::2], parts[1::2], strict=True) if not _is_secondary(cause[0])]
    if not causes:
        return None
    name, message = causes[-1]
    message = re.split(r",? ?exit code: | Traceback \(", message)[0].strip(' ":')
    is_toolkit = re.search("[Ff]ramework [Ee]rror", text)
    raiser = "the training toolkit of the image" if is_toolkit else "the script" if is_of_script else "the command"
    cause = "toolkit" if is_toolkit else "script"
    return Failure(cause=cause, sentence=f"{raiser} raised {name}: {message}", next_step="the log has its traceback")


def _is_secondary(name: str) -> bool:
    return _SECONDARY.fullmatch(name.rpartition(".")[2]) is not None


def _by_log(log: Sequence[str]) -> Failure | None:
    """The first exception of the last chain in the log, or the last error of an argument parser."""
    lines = [_NOISE.sub("", line) for line in log]
    causes = []
    for number, line in enumerate(lines):
        match = _EXCEPTION.search(line)
        if (match is not None and not _is_secondary(match[1])) or _OF_A_PARSER.search(line):
            causes.append(number)
    if not causes:
        return None
    last = causes.pop()
    while causes and any(map(_CHAINED.search, lines[causes[-1] : last])):
        last = causes.pop()
    line = lines[last].strip()
    if _OF_A_PARSER.search(line):
        return Failure(cause="script", sentence=f"the script ended with `{line}`", next_step="the log has more")
    return named_cause(line, is_of_script=True) or _by_exception(line, is_of_script=True)


def _ended_with(code: int) -> str:
    """The meaning of an exit code; a shell adds 128 to the number of the signal that ended a command."""
    sentence = f"the container ended with exit code {code} and no reason"
    if code == 137:
        return f"{sentence}: it was killed, most often for lack of memory"
    if code in (126, 127):
        return f"{sentence}: its command was not found or may not be executed"
    number = -code if code < 0 else code - _SIGNALLED
    if 0 < number < signal.NSIG and (name := signal.strsignal(number)):
        return f"{sentence}: {name} (signal {number})"
    return sentence
