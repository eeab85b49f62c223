"""Why AWS refused a request or a training job failed: one cause and one next step from AWS's own text.

AWS's texts have a structure, which is read in this order:

1. wrappers of SDK and boto: `An error occurred (CODE) when calling the OPERATION operation: ...`, `Failed. Reason: ...`
2. the kind before the first colon: CapacityError, ClientError, AlgorithmError, InternalServerError
3. in an AlgorithmError what the training toolkit adds: ExitCode, ErrorMessage, Command
4. the Python exception in ErrorMessage; if there is none, the last exception of the log
5. the exit code; above 128, or below 0, it is a signal

A rule applies only if its words name one cause. Any other text is shown as it is, with the cause "unknown".
Sources: tests/recorded/failures.csv, documentation of AWS, public issue threads.
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
    """A cause and what to do about it.

    Attributes:
        cause: a word or two, such as "quota"; "unknown" if the text does not name one.
        sentence: the cause in words; the whole text if it is unknown.
        next_step: what to do; "" if only the log can tell.
        text: AWS's text without line breaks and wrappers.
    """

    cause: str
    sentence: str
    next_step: str = ""
    text: str = ""
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
    """A cause and the words that name it; groups of the pattern fill the sentences."""

    cause: str
    pattern: str
    sentence: str
    next_step: str
    kind: FailureKind = FailureKind.ERROR
    is_of_aws: bool = False
    """Whether only AWS can mean it: the same words in the error of a script mean something else."""

    def apply(self, text: str) -> Failure | None:
        match = re.search(self.pattern, text)
        if match is None:
            return None
        groups = {name: value.rstrip(".,;:") if value else "..." for name, value in match.groupdict().items()}
        return Failure(
            cause=self.cause,
            sentence=self.sentence.format(**groups),
            next_step=self.next_step.format(**groups),
            text=text,
            kind=self.kind,
        )


_POLICIES = "docs/sagemaker.md has the policies"
_RULES = (
    _Rule(
        CLOCK,
        r"RequestTimeTooSkewed|Signature (?:not yet current|expired)|difference between the request time and the",
        "the clock of this machine differs from AWS's",
        "set it (`timedatectl set-ntp true`, or restart the virtual machine), then repeat the command",
    ),
    _Rule(
        "credentials",
        r"ExpiredToken|token (?:included in the request )?(?:is|has) expired|UnrecognizedClientException"
        r"|token included in the request is invalid|InvalidClientTokenId|Unable to locate credentials",
        "AWS does not accept the credentials",
        "sign in again (`aws sso login`, or check AWS_PROFILE and the access keys)",
    ),
    _Rule(
        "capacity",
        r"^CapacityError|Unable to provision requested ML compute capacity|[Ii]nsufficient ?(?:EC2 )?[Cc]apacity"
        r"|InsufficientInstanceCapacity|(?:not|n't) have (?:enough|sufficient) .{0,60}capacity",
        "AWS had no free instance of this type",
        "try again later, or set fallback_instance_types, capacity_wait_minutes or another region",
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
        "instance type",
        r"resource training-job/(?P<type>ml\.[\w.-]+) is not available in this region"
        r"|Value '(?P<value>[^']+)' at '\S*[iI]nstanceType' failed to satisfy constraint",
        "SageMaker does not offer this instance type for training here",
        "set another instance_type or region",
        is_of_aws=True,
    ),
    _Rule(
        "quota",
        r"ResourceLimitExceeded|(?:exceeded|reached) the maximum number of",
        "a quota of the account is used up",
        "ask for more (AWS console, Service Quotas, Amazon SageMaker), or wait until other jobs have ended",
        is_of_aws=True,
    ),
    _Rule(
        "throttling", r"Rate exceeded|Throttl\w+|TooManyRequests|SlowDown", "AWS throttles requests", "wait a minute"
    ),
    _Rule(
        "name in use",
        r"must be unique within an AWS account|ResourceInUse",
        "a job with this name exists, and AWS never gives a name free",
        "use another name; `aws sagemaker list-training-jobs` shows the existing ones",
        is_of_aws=True,
    ),
    _Rule(
        "role",
        r"(?:unable to|[Cc]ould not|[Cc]annot|not be able to) (?:be )?assumed? (?:the )?role|role \S+ cannot be "
        r"assumed|trust (?:relationship|policy)|[Cc]ross-account pass role|sts:AssumeRole",
        "SageMaker may not assume the role of the job",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor` prints the command",
        is_of_aws=True,
    ),
    _Rule(
        "runtime limit",
        r"MaxRuntimeExceeded|exceeded MaxRuntimeInSeconds",
        "the job ran longer than it was allowed to",
        "set max_runtime_minutes higher; the job continues from its checkpoint",
        is_of_aws=True,
    ),
    _Rule(
        "capacity",
        r"MaxWaitTimeExceeded|exceeded MaxWaitTimeInSeconds",
        "spot capacity did not come within the longest wait",
        "set max_wait_minutes higher, fallback_instance_types, or spot=false",
        FailureKind.CAPACITY,
        is_of_aws=True,
    ),
    _Rule(
        "network",
        r"subnet's route table|S3 VPC endpoint|NAT device",
        "the job's subnets do not reach S3",
        "add a gateway endpoint for S3 or a route to a NAT gateway to their route tables, and allow outbound traffic",
        is_of_aws=True,
    ),
    _Rule(
        "network",
        r"\b[Ss]ubnets?\b|\b[Ss]ecurity groups?\b|[Nn]etwork interface",
        "AWS cannot place the job into its subnets and security groups",
        "check subnets and security_group_ids: they exist, belong to one VPC, and have free addresses",
        is_of_aws=True,
    ),
    _Rule(
        "KMS key",
        r"KMS\.\w+Exception|kms:\w+|AWSKMS|(?:KMS|kms) key \S* ?(?:is|does|not)|[Ff]ailed to .{0,40}KMS"
        r"|customer master key",
        "the key of kms_key may not be used, or is not usable",
        f"allow kms:Decrypt, kms:Encrypt and kms:GenerateDataKey on it to the role of the job ({_POLICIES})",
    ),
    _Rule(
        "permission",
        r"not authorized to perform:? (?P<action>[\w-]+:\w+)(?: on (?:the )?resource:? (?P<resource>\S+))?",
        "{action} is not allowed on {resource}",
        f"add {{action}} to the policy of the user or role that AWS names ({_POLICIES})",
    ),
    _Rule(
        "permission",
        r"role .{0,90}(?:does not have|lacks|without) .{0,20}permissions? to (?P<action>access .{0,60})",
        "the role of the job may not {action}",
        f"extend its policy ({_POLICIES})",
    ),
    _Rule(
        "data",
        r"No S3 objects found under S3 URL[ \"']*(?P<uri>s3://[^\s\"']+)"
        r"|has \"s3:ListBucket\" permissions? on bucket \"(?P<bucket>[^\"]+)",
        "an input of the job has no object in S3, or the role of the job may not list it",
        "look with `aws s3 ls`, and allow s3:ListBucket and s3:GetObject to the role",
    ),
    _Rule(
        "model hub",
        r"GatedRepoError|gated repo|40[13] Client Error.{0,80}huggingface\.co|RepositoryNotFoundError"
        r"|Repository Not Found for url|not a valid model identifier",
        "the Hugging Face Hub does not give this model or data set without a token that may read it, or has none of "
        "that name",
        "check its name, accept its terms, and give the job a token or a copy in S3",
    ),
    _Rule(
        "image",
        r"[Ii]nvalid training image|\bmanifest (?:for|type|unknown)|Requested image not found|[Uu]nsupported [Ii]mage"
        r"|CannotPull\w+|(?:[Cc]annot|[Cc]ould not|[Uu]nable to|[Ff]ailed to) (?:pull|find|access|resolve) "
        r"(?:the |a )?(?:\w+ )?(?:image|container|repository)\b|pull access denied|registry ID"
        r"|repository .{0,200}(?:does not exist|registry|grant ecr:)",
        "the training image does not exist, or the job may not pull it",
        "check image_uri (`aws ecr describe-images`) and the ecr actions of the role",
        is_of_aws=True,
    ),
    _Rule(
        "permission",
        r"\((?:AccessDenied\w*|UnauthorizedOperation|403)\) when calling the (?P<operation>\w+) operation",
        "AWS does not allow {operation}",
        f"allow it to the role that calls ({_POLICIES})",
    ),
    _Rule(
        "permission",
        r"^\W*AccessDenied(?:Exception)?\b|\b[Aa]ccess [Dd]enied\b",
        "AWS denies access",
        f"compare the policies of your identity and of the role of the job with the documented ones ({_POLICIES})",
    ),
    _Rule(
        "data",
        r"\((?:404|NoSuchKey)\) when calling the (?P<operation>\w+) operation|specified key does not exist",
        "an object in S3 that was asked for does not exist",
        "look with `aws s3 ls`",
    ),
    _Rule(
        "image",
        r"CannotStartContainer",
        "the container of the job did not start",
        "check that image_uri is a training image with bash and python3",
        is_of_aws=True,
    ),
    _Rule(
        "spot settings",
        r"MaxWaitTimeInSeconds",
        "a longest wait goes with spot jobs only, and is at least as long as the longest runtime",
        "set spot=true and max_wait_minutes to at least max_runtime_minutes, or leave max_wait_minutes out",
        is_of_aws=True,
    ),
    _Rule(
        "parameter",
        r"Value '(?P<value>[^']*)' at '(?P<field>[^']+)' failed to satisfy constraint: (?P<rule>[^\n]+)",
        "AWS does not take {value} as {field} ({rule})",
        "change that parameter",
    ),
    _Rule(
        "missing job",
        r"Requested resource not found|\(ResourceNotFound\w*\) when calling",
        "AWS knows no job of this name in this account and region",
        "check name, region and AWS_PROFILE",
        is_of_aws=True,
    ),
    _Rule(
        "bucket",
        r"NoSuchBucket|specified bucket does not exist",
        "the bucket does not exist",
        "check bucket with `aws s3 ls`",
    ),
    _Rule(
        "bucket",
        r"bucket is in this region|PermanentRedirect|must be addressed using the specified endpoint",
        "the bucket lies in another region than the job",
        "set region to the bucket's, or bucket to one of this region",
    ),
    _Rule(
        "disk full",
        r"No space left on device|[Ii]nsufficient disk space|Disk quota exceeded|100% disk usage",
        "the disk of the instance is full",
        "set volume_gib to a larger volume",
        FailureKind.DISK_FULL,
    ),
    _Rule(
        "host memory",
        r"use an instance type with more memory|Cannot allocate memory|DefaultCPUAllocator|\bMemoryError\b"
        r"|\bjava\.lang\.OutOfMemoryError|\bray\.exceptions\.OutOfMemory|OOM when allocating .*by allocator cpu"
        r"|std::bad_alloc|Unable to allocate .{0,60} for an array|DataLoader worker .{0,30}killed by signal: Killed",
        "the memory of the machine (not of its GPUs) was used up",
        "use a larger instance, or load fewer data at once",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        "shared memory",
        r"out of shared memory|killed by signal: Bus error",
        "the shared memory of the container was used up",
        "lower the number of data loader workers",
    ),
    _Rule(
        "killed",
        r"exitcode *: -9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL|terminated with signal SIGKILL",
        "a process of the job was killed, most often because the memory of the machine was used up",
        "use a larger instance, or load fewer data at once",
    ),
    _Rule(
        "GPU memory",
        r"(?:CUDA|HIP) (?:error: )?out of memory|\bOutOfMemoryError\b|CUBLAS_STATUS_ALLOC_FAILED|OOM when allocating"
        r"|RESOURCE_EXHAUSTED: Out of memory",
        "the memory of a GPU was used up",
        "lower the batch size or the sequence length, or use an instance with larger GPUs",
        FailureKind.OUT_OF_MEMORY,
    ),
    _Rule(
        "AWS",
        r"^InternalServerError|encountered an internal error|\((?:InternalFailure|InternalError|InternalServer\w*|"
        r"ServiceUnavailable\w*)\) when calling",
        "AWS's own trouble",
        "start the job again",
    ),
    _Rule(
        "Debugger rule",
        r"RuleEvaluationConditionMet: Evaluation of the rule (?P<rule>\S+)",
        "the SageMaker Debugger rule {rule} was met, as it was asked to report",
        "look at the training that it watches; the rule itself works",
    ),
    _Rule(
        "GPU driver",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|no kernel image is available"
        r"|Found no NVIDIA driver|No CUDA GPUs are available|unsupported display driver|not compiled with CUDA",
        "the image's PyTorch or CUDA does not fit the GPU or its driver",
        "set image_uri to an image for this instance type, or take another instance_type",
    ),
    _Rule(
        "communication",
        r"NCCL (?:error|communicator)|nccl(?:System|Internal|Unhandled\w*|Remote)Error|Watchdog caught collective"
        r"|DistBackendError|\bgloo/transport\b"
        r"|Rendezvous\w*Error|connectFullMesh|DistNetworkError",
        "the processes of the job lost each other",
        "look in the log for the process that failed first; between instances, check that the security groups let them "
        "talk to each other",
    ),
    _Rule(
        "network",
        r"Max retries exceeded|NewConnectionError|Name or service not known|failure in name resolution|"
        r"Failed to establish a new connection|ConnectTimeout|Could not connect to the endpoint URL|"
        r"LocalEntryNotFoundError|[Cc]ouldn't connect to|Network is unreachable|Connection error|Read timed out|"
        r"\b50[0234] Server Error",
        "the job did not get an answer from a server",
        "give its subnets a route to a NAT gateway or leave subnets out, or bring model and data from S3",
    ),
    _Rule(
        "package",
        r"No module named|cannot import name|No matching distribution found|Could not find a version that satisfies"
        r"|Install\w*Error",
        "a Python package is missing in the job, has another version, or could not be installed",
        "put it into requirements.txt beside the script, in a version that the image's Python can install",
    ),
    _Rule(
        "arguments",
        r"unrecognized arguments: (?P<arguments>[^\n\"]+)|the following arguments are required: (?P<required>[^\n\"]+)"
        r"|error: argument (?P<argument>[^\n\"]+)",
        "the script does not accept its arguments",
        "compare its argument parser with the hyperparameters of the job",
    ),
    _Rule(
        "library",
        r"(?P<library>lib[\w.+-]+): cannot open shared object file",
        "the image lacks the library {library}, or has another version of it",
        "set image_uri to an image with the version that the package was built for",
    ),
    _Rule(
        "missing file",
        r"FileNotFoundError|No such file or directory",
        "the script did not find a file",
        "check names of files, channels and folders: code lies in /opt/ml/input/data/code, data in /opt/ml/input/data",
    ),
    _Rule(
        "other process",
        r"MPI_ABORT was invoked on rank (?P<rank>\d+)|SignalException|got signal: (?P<signal>\d+)",
        "another process of the job failed first and the rest was ended",
        "look in the log for the first error",
    ),
    _Rule(
        "data",
        r"Data download failed: ?(?P<problem>.+)",
        "an input of the job could not be downloaded ({problem})",
        "look at it with `aws s3 ls`; a key may not be an object and a folder at once",
        is_of_aws=True,
    ),
    _Rule(
        "upload",
        r"Artifact upload failed: ?(?P<problem>.+)",
        "the results of the job could not be uploaded ({problem})",
        f"compare the policy of the role with the documented one ({_POLICIES})",
        is_of_aws=True,
    ),
    _Rule(
        "parameter",
        r"\(Validation\w*\) when calling the (?P<operation>\w+) operation: (?P<problem>.+)",
        "AWS does not accept the request {operation}: {problem}",
        "change what it names",
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
    rf"{_KINDS}|ChildFailedError|CalledProcessError|\w*ScriptError|SignalException|Process\w+Exception|"
    r"UnexpectedStatusException"
)
"""Exceptions that report the failure of another process, and AWS's own kinds."""
_OURS = {member.value for member in FailureKind}


def failure_of(text: str, log: Callable[[], Sequence[str]] = tuple) -> Failure:
    """The cause that AWS's text names, else the one that the last exception of the log names.

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


def _ours(text: str) -> Failure | None:
    """What our training wrote into the failure file, "kind: sentence"; SageMaker puts its kind and exit code around."""
    inner = re.sub(r",? ?exit code: \d+$", "", re.sub(r"^AlgorithmError: ", "", text)).strip()
    kind, _, sentence = inner.partition(": ")
    if kind not in _OURS:
        return None
    return Failure(cause=kind, sentence=sentence.strip(), kind=FailureKind(kind))


def _by_text(text: str) -> Failure:
    """The cause by rule, else by exception, else by exit code."""
    words = _COMMAND.split(text)[0]  # a command's arguments name no cause
    is_of_script = text.startswith("AlgorithmError")
    if failure := named_cause(words, is_of_script=is_of_script):
        return failure
    if failure := _by_exception(words):
        return failure
    code = _EXIT_CODE.search(text)
    if code is not None and (_is_bare(words) or not 0 <= int(code[1]) <= _SIGNALLED):
        return Failure(cause="exit code", sentence=_ended_with(int(code[1])), next_step="read the log")
    if "ExecuteUserScriptError" in words and _is_bare(words):
        return Failure(cause="exit code", sentence="the script failed, and AWS gives only its command", text=text)
    return Failure(cause=UNKNOWN, sentence=text or "SageMaker gave no reason")


def named_cause(words: str, *, is_of_script: bool = False) -> Failure | None:
    """The cause that AWS's words name, or those of a script's error; None if they name none."""
    rules = (rule for rule in _RULES if not (is_of_script and rule.is_of_aws))
    return next(filter(None, (rule.apply(words) for rule in rules)), None)


def _is_bare(words: str) -> bool:
    """Whether only kinds and an exit code are left of a text."""
    rest = re.sub(rf"{_KINDS}|ExecuteUserScriptError|UserScriptError|ErrorMessage|Training failed error", "", words)
    return not re.search(r"\w", _EXIT_CODE.sub("", rest))


def _by_exception(text: str) -> Failure | None:
    """The last Python exception that does not merely report another one."""
    _, *parts = _EXCEPTION.split(text)
    causes = [
        cause
        for cause in zip(parts[::2], parts[1::2], strict=True)
        if not _SECONDARY.fullmatch(cause[0].rpartition(".")[2])
    ]
    if not causes:
        return None
    name, message = causes[-1]
    message = re.split(r",? ?exit code: | Traceback \(", message)[0].strip(' ":')
    is_toolkit = re.search("[Ff]ramework [Ee]rror", text)
    raiser = "the training toolkit of the image" if is_toolkit else "the script"
    return Failure(
        cause="toolkit" if is_toolkit else "script",
        sentence=f"{raiser} raised {name}: {message}",
        next_step="the log has its traceback",
    )


def _by_log(log: Sequence[str]) -> Failure | None:
    """The cause on the last line of the log that has an exception of its own, or an error of argparse or MPI."""
    lines = [_NOISE.sub("", line) for line in log]
    for line in reversed(lines):
        match = _EXCEPTION.search(line)
        is_cause = match is not None and not _SECONDARY.fullmatch(match[1].rpartition(".")[2])
        if is_cause or re.search("error: (?:unrecognized|argument|the following)|MPI_ABORT|^Segmentation fault", line):
            return named_cause(line.strip(), is_of_script=True) or _by_exception(line)
    return None


def _ended_with(code: int) -> str:
    """What an exit code says; a shell adds 128 to the number of the signal that ended a command."""
    sentence = f"the container ended with exit code {code} and no reason"
    if code == 137:
        return f"{sentence}: it was killed, most often for lack of memory"
    if code in (126, 127):
        return f"{sentence}: its command was not found or may not be executed"
    number = -code if code < 0 else code - _SIGNALLED
    if 0 < number < signal.NSIG and (name := signal.strsignal(number)):
        return f"{sentence}: {name} (signal {number})"
    return sentence
