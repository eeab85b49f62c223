"""Why jobs fail and requests are refused: one cause and one next step, and an unknown text as it is."""

import csv
from pathlib import Path

import pytest

from paretune.launchers.sagemaker.failures import UNKNOWN, classify, failure_of
from paretune.specification.container import FailureKind

PUBLIC = Path(__file__).with_name("failures.csv")
"""Texts that jobs and requests of public notebooks and threads have printed, with the cause that we read in them."""


def rows() -> list[dict[str, str]]:
    with PUBLIC.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["source"][:50])
def test_a_text_of_a_real_job_has_its_cause(row: dict[str, str]) -> None:
    failure = failure_of(row["message"])

    assert failure.cause == row["cause"]
    assert "..." not in failure.sentence or failure.cause in {UNKNOWN, "script", "quota", "permission"}
    assert failure.next_step or failure.cause in {UNKNOWN, "exit code"}


def test_most_public_texts_have_a_cause_and_the_rest_is_shown_whole() -> None:
    failures = [failure_of(row["message"]) for row in rows()]
    unknown = [failure for failure in failures if failure.cause == UNKNOWN]

    assert len(unknown) <= len(failures) / 2
    assert all(str(failure) == failure.sentence for failure in unknown)


def toolkit(error: str, code: int = 1) -> str:
    """What the training toolkit reports of a script, as SageMaker passes it on."""
    return (
        f'AlgorithmError: ExecuteUserScriptError:\nExitCode {code}\nErrorMessage "{error}"\n'
        f'Command "/opt/conda/bin/python3.10 train.py --epochs 3 --note AccessDenied", exit code: {code}'
    )


@pytest.mark.parametrize(
    ("text", "cause", "kind", "part"),
    [
        (toolkit("KeyError: 'SM_CHANNEL_TRAIN'"), "script", "ERROR", "the script raised KeyError: 'SM_CHANNEL_TRAIN'"),
        (toolkit("OSError: x\nChildFailedError: train.py FAILED"), "script", "ERROR", "raised OSError: x"),
        (toolkit("ModuleNotFoundErrorModuleNotFoundError: No module named 'trl'"), "script", "ERROR", "trl"),
        (toolkit("torch.cuda.OutOfMemoryError: CUDA out of memory."), "GPU memory", "OUT_OF_MEMORY", "a GPU"),
        (toolkit("MemoryError: Unable to allocate 2 GiB"), "host memory", "OUT_OF_MEMORY", "not of its GPUs"),
        (toolkit("OSError: [Errno 28] No space left on device"), "disk full", "DISK_FULL", "the disk"),
        (
            toolkit("OSError: libcudart.so.11.0: cannot open shared object file"),
            "script",
            "ERROR",
            "libcudart.so.11.0",
        ),
        (toolkit("train.py: error: unrecognized arguments: --lr 1", 2), UNKNOWN, "ERROR", "arguments: --lr 1"),
        (toolkit("", 2), "exit code", "ERROR", "exit code 2"),
        (toolkit("", -9), "exit code", "ERROR", "signal 9"),
        (
            toolkit("botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation"),
            "permission",
            "ERROR",
            "HeadObject",
        ),
        (
            toolkit("401 Client Error: Unauthorized for url: https://huggingface.co/meta-llama/x"),
            "model hub",
            "ERROR",
            "token",
        ),
        (
            "AlgorithmError: framework error: \nTraceback (most recent call last):\nx.UserError: No data, exit code: 1",
            "toolkit",
            "ERROR",
            "the training toolkit of the image raised x.UserError: No data",
        ),
        (
            "Could not assume role arn:aws:iam::1:role/x. Please ensure that it exists",
            "role",
            "ERROR",
            "let the role trust",
        ),
        (
            "User: x is not authorized to perform: iam:PassRole on resource: arn:aws:iam::1:role/r because no",
            "permission",
            "ERROR",
            "add iam:PassRole to the policy",
        ),
        (
            "The account-level service limit 'Number of instances across all training jobs' is 4 Instances, with "
            "current utilization of 4 Instances",
            "quota",
            "ERROR",
            'Amazon SageMaker, "Number of instances across all training jobs"',
        ),
        (
            "1 validation error detected: Value 'a_b' at 'trainingJobName' failed to satisfy constraint: x",
            UNKNOWN,
            "ERROR",
            "a_b",
        ),
        ("Stopped. Reason: MaxWaitTimeExceeded", "capacity", "CAPACITY", "spot=false"),
        ("Training job runtime exceeded MaxRuntimeInSeconds provided", "runtime limit", "ERROR", "max_runtime_minutes"),
        ("ClientError: Artifact upload failed:Insufficient disk space", "disk full", "DISK_FULL", "the disk"),
        ("ClientError: Artifact upload failed:Error 7", UNKNOWN, "ERROR", "upload failed:Error 7"),
        ("ClientError: Data download failed:a file clashes", UNKNOWN, "ERROR", "failed:a file clashes"),
        (
            "ClientError: Access denied for repository: x in registry ID: 1. Please check",
            "image",
            "ERROR",
            "may not pull it",
        ),
        ("ClientError: Cannot pull algorithm container. Either", "image", "ERROR", "may not pull it"),
        (
            "ParamValidationError: Parameter validation failed: Invalid name",
            UNKNOWN,
            "ERROR",
            "failed: Invalid name",
        ),
        ("Failed (ClientError: Failed to download data. x failed for s3://b)", UNKNOWN, "ERROR", "x failed for s3"),
        (
            toolkit("OSError: 404 Client Error: for url: https://huggingface.co/x"),
            "model hub",
            "ERROR",
            "check its name",
        ),
        ("torch: failed (exitcode: -11) local_rank: 0", "exit code", "ERROR", "signal 11"),
        ("ClientError: The subnet ID 'subnet-1' does not exist", UNKNOWN, "ERROR", "'subnet-1' does not exist"),
        ("AlgorithmError: See job logs for more information, exit code: 137", "exit code", "ERROR", "lack of memory"),
        (
            "An error occurred (ValidationException) when calling the CreateTrainingJob operation: Something is odd",
            UNKNOWN,
            "ERROR",
            "operation: Something is odd",
        ),
        (
            toolkit("ImportError: cannot import name 'AdamW' from 'transformers'"),
            "script",
            "ERROR",
            "cannot import name 'AdamW'",
        ),
        (toolkit("java.lang.OutOfMemoryError: Java heap space"), "host memory", "OUT_OF_MEMORY", "not of its GPUs"),
        (
            toolkit("ResourceExhaustedError: OOM when allocating tensor by allocator cpu"),
            "host memory",
            "OUT_OF_MEMORY",
            "not of its GPUs",
        ),
        (toolkit("ResourceExhaustedError: OOM when allocating tensor"), "GPU memory", "OUT_OF_MEMORY", "a GPU"),
        (
            toolkit("HTTPError: 503 Server Error: for url: https://huggingface.co"),
            "script",
            "ERROR",
            "503 Server Error",
        ),
        (toolkit("ValueError: the limit for 'length' is 512"), "script", "ERROR", "is 512"),
        (toolkit("ValueError: subnet of weights is empty"), "script", "ERROR", "subnet of weights"),
        (toolkit("KeyError: no trust policy for ResourceLimitExceeded"), "script", "ERROR", "KeyError"),
    ],
)
def test_a_cause_is_read_from_the_structure_of_the_text(text: str, cause: str, kind: str, part: str) -> None:
    failure = failure_of(text)

    assert (failure.cause, failure.kind) == (cause, FailureKind[kind])
    assert part in str(failure)


@pytest.mark.parametrize(
    "text",
    [
        "ClientError: Unable to parse csv: rows 1-1000, file /opt/ml/input/data/train/x.csv",
        "ClientError: Unable to initialize the algorithm. (caused by ValidationError) Caused by: 'train' is required",
        "AlgorithmError: InternalServerError",
        "AlgorithmError: Training did not complete successfully! Please check the logs for errors, exit code: 1",
        f"AlgorithmError: {'a text that goes on ' * 45}and ends",
    ],
)
def test_an_unknown_text_is_shown_whole(text: str) -> None:
    failure = failure_of(text)

    assert failure.cause == UNKNOWN
    assert str(failure) == text


@pytest.mark.parametrize(
    "text", [toolkit(""), 'AlgorithmError: ExecuteUserScriptError: Command "train"', "ClientError: ?"]
)
def test_the_log_gives_the_cause_where_the_text_gives_none(text: str) -> None:
    log = [
        "Traceback (most recent call last):",
        "\x1b[34m[1,14]<stderr>:ValueError: labels must be 0 or 1\x1b[0m",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED",
        "2024-04-30 12:50:16,315 sagemaker-training-toolkit ERROR    Reporting training FAILURE",
    ]

    assert failure_of(text, lambda: log).sentence == "the script raised ValueError: labels must be 0 or 1"


def test_of_a_chain_of_exceptions_the_first_is_the_cause() -> None:
    log = [
        "ValueError: an earlier one, which was handled",
        "Traceback (most recent call last):",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 11",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
    ]

    assert (
        "raised UnicodeDecodeError: 'utf-8' codec" in failure_of("AlgorithmError: , exit code: 1", lambda: log).sentence
    )


def test_the_reason_of_an_argument_parser_is_the_cause() -> None:
    log = ["usage: train.py [-h] --rate RATE", "train.py: error: the following arguments are required: --rate", ""]

    sentence = failure_of("AlgorithmError: , exit code: 2", lambda: log).sentence

    assert sentence == "the script ended with `train.py: error: the following arguments are required: --rate`"


def test_the_log_is_not_read_for_a_text_that_names_its_cause() -> None:
    def read() -> list[str]:
        raise AssertionError

    assert failure_of("CapacityError: Unable to provision requested ML compute capacity.", read).cause == "capacity"


@pytest.mark.parametrize(
    ("reason", "kind", "sentence"),
    [
        (
            "AlgorithmError: bad_input: the file has no column text\n, exit code: 2",
            "BAD_INPUT",
            "the file has no column text",
        ),
        ("AlgorithmError: out_of_memory: CUDA: 2: x, exit code: 1", "OUT_OF_MEMORY", "CUDA: 2: x"),
        ("out_of_memory: without SageMaker's words", "OUT_OF_MEMORY", "without SageMaker's words"),
        (
            "ClientError: Please use an instance type with more memory, or reduce the size of training data.",
            "OUT_OF_MEMORY",
            "the memory of the machine (not of its GPUs) was used up (AWS: ClientError: Please use an instance type "
            "with more memory, or reduce the size of training data.)",
        ),
        (
            "AlgorithmError: unknown_kind: text, exit code: 1",
            "ERROR",
            "AlgorithmError: unknown_kind: text, exit code: 1",
        ),
        ("AlgorithmError: error: boom, exit code: 1", "ERROR", "boom"),
        ("AlgorithmError: , exit code: 3", "ERROR", "the container ended with exit code 3 and no reason: read the log"),
        (
            "AlgorithmError: , exit code: 137",
            "ERROR",
            "the container ended with exit code 137 and no reason: it was killed, most often for lack of memory: read "
            "the log",
        ),
        ("  ", "ERROR", "SageMaker gave no reason"),
    ],
)
def test_a_failure_reason_is_taken_apart(reason: str, kind: str, sentence: str) -> None:
    assert classify(reason) == (FailureKind[kind], sentence)
