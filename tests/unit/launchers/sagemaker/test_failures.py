"""Why jobs fail and requests are refused: one cause and one next step, and an unknown text as it is."""

import pytest

from paretune.launchers.sagemaker.failures import classify
from paretune.specification.container import FailureKind

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
]


@pytest.mark.parametrize(("text", "kind", "part"), PUBLIC, ids=lambda value: value[:40])
def test_a_text_of_a_real_job_has_its_cause(text: str, kind: str, part: str) -> None:
    actual, sentence = classify(text)

    assert (actual, part in sentence) == (FailureKind[kind], True)


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("Stopped. Reason: MaxWaitTimeExceeded", "CAPACITY", "no free instance"),
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
