"""Why jobs fail and requests are refused: one cause and one next step, and an unknown text as it is."""

import pytest

from paretune.launchers.sagemaker.failures import classify
from paretune.specification.container import FailureKind

_SCRIPT = "AlgorithmError: ExecuteUserScriptError:"
QUOTA = "ml.p3.2xlarge for training job usage"
PUBLIC = [  # texts that jobs and requests of public notebooks and threads have printed
    (
        "Failed Reason: CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
        "different ML instance type.",
        "CAPACITY",
        "AWS had no free instance of this type in time",
    ),  # aws/sagemaker-pytorch-training-toolkit#171
    (
        f"ResourceLimitExceeded: The account-level service limit '{QUOTA}' is 0 Instances, with current utilization of "
        "0 Instances and a request delta of 1 Instances. Please contact",
        "ERROR",
        "is 0 instances, of which 0 are in use: ask for more (AWS console, Service Quotas",
    ),  # gabehollombe-aws/jupyter-notebooks#1
    (
        "User: arn:aws:sts::XXXX:assumed-role/XXXX is not authorized to perform: s3:PutObject on resource: "
        "arn:aws:s3:::smus-mlflow-artifacts/mlflow/x",
        "ERROR",
        "s3:PutObject is not allowed on arn:aws:s3:::smus-mlflow-artifacts/mlflow/x: add s3:PutObject to the policy",
    ),  # aws/CICD-for-SageMakerUnifiedStudio#14
    (
        "Failed to upload model.pkl: An error occurred (AccessDenied) when calling PutObject: Access Denied",
        "ERROR",
        "AWS denies access: compare the policies",
    ),  # sofianhamiti/amazon-sagemaker-pipelines-mlflow#1
    (
        "ClientError: SageMaker was unable to assume the role 'arn:aws:iam::XXXX:role/XXXX'",
        "ERROR",
        "let the role trust sagemaker.amazonaws.com; `paretune doctor`",
    ),  # aws/sagemaker-python-sdk#35
    ("ClientError: Data download failed:Insufficient disk space", "DISK_FULL", "the disk of the instance is full"),
    ("AlgorithmError: Exit Code: 139", "ERROR", "exit code 139: Segmentation fault"),  # aws/sagemaker-python-sdk#134
    (
        "InternalServerError: We encountered an internal error. Please try again.",
        "ERROR",
        "AWS's own trouble: start the job again",
    ),  # aws/sagemaker-python-sdk#70
    (
        "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an "
        "instance.",
        "OUT_OF_MEMORY",
        "the memory of the machine (not of its GPUs) was used up",
    ),
    (
        f'{_SCRIPT} ExitCode 1 ErrorMessage "[1,14]<stderr>:RuntimeError[1,14]<stderr>:: CUDA out of memory. Tried to '
        'allocate 64.00 MiB (GPU 6; 15.78 GiB total capacity; 14.05 GiB"',
        "OUT_OF_MEMORY",
        "the memory of a GPU was used up",
    ),  # aws/amazon-sagemaker-examples, training/distributed
    (
        f'{_SCRIPT} ExitCode 2 ErrorMessage "" Command "/opt/conda/bin/python3.9 training.py --note AccessDenied"',
        "ERROR",
        "the container ended with exit code 2: read the log",
    ),
]


@pytest.mark.parametrize(("text", "kind", "part"), PUBLIC, ids=lambda value: value[:40])
def test_a_text_of_a_real_job_has_its_cause(text: str, kind: str, part: str) -> None:
    actual, sentence = classify(text)

    assert (actual, part in sentence) == (FailureKind[kind], True)


def toolkit(error: str, code: int = 1) -> str:
    """What the training toolkit reports of a script, as SageMaker passes it on."""
    return (
        f'AlgorithmError: ExecuteUserScriptError:\nExitCode {code}\nErrorMessage "{error}"\n'
        f'Command "/opt/conda/bin/python3.10 train.py --epochs 3 --note AccessDenied", exit code: {code}'
    )


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        (toolkit("KeyError: 'SM_CHANNEL_TRAIN'"), "ERROR", "the script raised KeyError: 'SM_CHANNEL_TRAIN'"),
        (toolkit("OSError: x\nChildFailedError: train.py FAILED"), "ERROR", "raised OSError: x"),
        (toolkit("torch.cuda.OutOfMemoryError: CUDA out of memory."), "OUT_OF_MEMORY", "a GPU"),
        (toolkit("MemoryError: Unable to allocate 2 GiB"), "OUT_OF_MEMORY", "not of its GPUs"),
        (toolkit("OSError: [Errno 28] No space left on device"), "DISK_FULL", "the disk"),
        (toolkit("", -9), "ERROR", "exit code -9: Killed"),
        (toolkit("401 Client Error: Unauthorized for url: https://huggingface.co/meta-llama/x"), "ERROR", "a token"),
        (toolkit("ValueError: the limit for 'length' is 512"), "ERROR", "is 512"),
        (toolkit("KeyError: no trust policy for ResourceLimitExceeded"), "ERROR", "raised KeyError"),
        ("Stopped. Reason: MaxWaitTimeExceeded", "CAPACITY", "no free instance"),
        ("Training job runtime exceeded MaxRuntimeInSeconds provided", "ERROR", "max_runtime_minutes"),
        ("AlgorithmError: See job logs for more information, exit code: 137", "ERROR", "lack of memory: read the log"),
        ("ClientError: The subnet ID 'subnet-1' does not exist", "ERROR", "'subnet-1' does not exist"),
        ("AlgorithmError: bad_input: the file has no column text\n, exit code: 2", "BAD_INPUT", "has no column text"),
        ("AlgorithmError: out_of_memory: CUDA: 2: x, exit code: 1", "OUT_OF_MEMORY", "CUDA: 2: x"),
        ("AlgorithmError: error: boom, exit code: 1", "ERROR", "boom"),
        ("  ", "ERROR", "SageMaker gave no reason"),
    ],
)
def test_a_cause_is_read_from_the_structure_of_the_text(text: str, kind: str, part: str) -> None:
    actual, sentence = classify(text)

    assert (actual, part in sentence) == (FailureKind[kind], True)


@pytest.mark.parametrize(
    "text",
    [
        "ClientError: Unable to parse csv: rows 1-1000, file /opt/ml/input/data/train/x.csv",
        "Invalid training image. Please provide a valid Amazon Elastic Container Registry path of the Docker image.",
        f"AlgorithmError: {'a text that goes on ' * 45}and ends",
    ],
)
def test_an_unknown_text_is_shown_whole(text: str) -> None:
    assert classify(text) == (FailureKind.ERROR, text)


@pytest.mark.parametrize("text", [toolkit(""), 'AlgorithmError: ExecuteUserScriptError: Command "train"'])
def test_the_log_gives_the_cause_where_the_text_gives_none(text: str) -> None:
    log = [
        "Traceback (most recent call last):",
        "\x1b[34m[1,14]<stderr>:ValueError: labels must be 0 or 1\x1b[0m",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED",
        "2024-04-30 12:50:16,315 sagemaker-training-toolkit ERROR    Reporting training FAILURE",
    ]

    assert "the script raised ValueError: labels must be 0 or 1: the log has" in classify(text, lambda: log)[1]


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

    assert "raised UnicodeDecodeError: 'utf-8' codec" in classify("AlgorithmError: , exit code: 1", lambda: log)[1]


def test_the_reason_of_an_argument_parser_is_the_cause() -> None:
    log = ["usage: train.py [-h] --rate RATE", "train.py: error: the following arguments are required: --rate", ""]

    sentence = classify("AlgorithmError: , exit code: 2", lambda: log)[1]

    assert sentence.startswith("the script ended with `train.py: error: the following arguments are required: --rate`")


def test_the_log_is_not_read_for_a_text_that_names_its_cause() -> None:
    def read() -> list[str]:
        raise AssertionError

    assert (
        classify("CapacityError: Unable to provision requested ML compute capacity.", read)[0] is FailureKind.CAPACITY
    )
