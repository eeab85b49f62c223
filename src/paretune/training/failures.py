"""The kind of a failure, which tells the launcher whether to retry, and the sentence that the user reads."""

import errno
import re

from paretune.core.errors import BadInput, first_line
from paretune.specification.container import FailureKind

_LOST_CONNECTION = re.compile(
    "connection closed by peer|connection reset by peer|broken pipe|remote process exited|socket closed", re.IGNORECASE
)
"""Parts of gloo's and NCCL's messages when another process has ended; that process has the cause."""


def classify_failure(error: Exception) -> tuple[FailureKind, str]:
    """Kind of the failure, and one sentence for the user."""
    sentence = first_line(error)
    if isinstance(error, BadInput):
        return FailureKind.BAD_INPUT, str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or sentence).partition(".")[0]
        remedy = "list it in the job's requirements, or set sagemaker.training_image to an image that has it"
        return FailureKind.BAD_INPUT, f"package {package} is missing where the job runs: {remedy}"
    from paretune.training.callback import Diverged
    from paretune.training.device import is_out_of_memory

    if isinstance(error, Diverged):
        return FailureKind.DIVERGED, sentence
    if is_out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY, sentence
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in str(error):
        return FailureKind.DISK_FULL, f"the disk is full: {sentence}"
    if _LOST_CONNECTION.search(str(error)):
        return FailureKind.ERROR, f"another process of the job has ended, which is the cause: {sentence}"
    first: BaseException = error
    while (before := first.__cause__ or (None if first.__suppress_context__ else first.__context__)) is not None:
        first = before
    cause = f", because of {type(first).__name__}: {first_line(first)}" if isinstance(first, Exception) else ""
    return FailureKind.ERROR, f"{type(error).__name__}: {sentence}{cause if first is not error else ''}"
