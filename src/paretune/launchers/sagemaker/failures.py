"""Reasons why AWS refused a request or a training job failed: one cause and one next step from AWS's own text.

AWS's texts have a structure, which is read in this order:

1. wrappers of SDK and boto: `An error occurred (CODE) when calling the OPERATION operation: ...`, `Failed. Reason: ...`
2. the kind before the first colon: CapacityError, ClientError, AlgorithmError, InternalServerError
3. in an AlgorithmError what the training toolkit adds: ExitCode, ErrorMessage, Command
4. the Python exception in ErrorMessage; if there is none, the last exception of the log
5. the exit code; above 128, or below 0, it is a signal

A rule of failures.toml applies only if its words name one cause. Any other text is shown as it is, with the cause
"unknown". Sources: tests/unit/launchers/sagemaker/failures.csv, documentation of AWS, public issue threads.
"""

import re
import signal
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

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
    """A rule of failures.toml."""

    cause: str
    words: Sequence[str]
    sentence: str
    next_step: str
    kind: str = FailureKind.ERROR.value
    is_of_aws: bool = False

    def apply(self, text: str) -> Failure | None:
        match = re.search("|".join(self.words), text)
        if match is None:
            return None
        groups = {name: value.rstrip(".,;:") if value else "..." for name, value in match.groupdict().items()}
        return Failure(
            cause=self.cause,
            sentence=self.sentence.format(**groups),
            next_step=self.next_step.format(**groups),
            text=text,
            kind=FailureKind(self.kind),
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
    """The line "kind: sentence" of our failure file; SageMaker puts its own kind and the exit code around it."""
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
    if failure := _by_exception(words, is_of_script=is_of_script):
        return failure
    code = _EXIT_CODE.search(text)
    if code is not None and (_is_bare(words) or not 0 <= int(code[1]) <= _SIGNALLED):
        return Failure(cause="exit code", sentence=_ended_with(int(code[1])), next_step="read the log")
    if "ExecuteUserScriptError" in words and _is_bare(words):
        return Failure(cause="exit code", sentence="the script failed, and AWS gives only its command", text=text)
    return Failure(cause=UNKNOWN, sentence=text or "SageMaker gave no reason")


@cache
def _rules() -> tuple[_Rule, ...]:
    table = files("paretune.launchers.sagemaker").joinpath("failures.toml").read_text(encoding="utf-8")
    return tuple(_Rule(**rule) for rule in tomllib.loads(table)["rule"])


def named_cause(words: str, *, is_of_script: bool = False) -> Failure | None:
    """The cause that AWS's words name, or those of a script's error; None if they name none."""
    rules = (rule for rule in _rules() if not (is_of_script and rule.is_of_aws))
    return next(filter(None, (rule.apply(words) for rule in rules)), None)


def _is_bare(words: str) -> bool:
    """Whether only kinds and an exit code are left of a text."""
    rest = re.sub(rf"{_KINDS}|ExecuteUserScriptError|UserScriptError|ErrorMessage|Training failed error", "", words)
    return not re.search(r"\w", _EXIT_CODE.sub("", rest))


def _by_exception(text: str, *, is_of_script: bool) -> Failure | None:
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
    raiser = "the training toolkit of the image" if is_toolkit else "the script" if is_of_script else "the command"
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
            return named_cause(line.strip(), is_of_script=True) or _by_exception(line, is_of_script=True)
    return None


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
