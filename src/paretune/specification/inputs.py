"""The inputs of a training: the model to start from and the data set."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from paretune.core.untrusted import exists, is_file, is_folder
from paretune.specification import metrics

BUNDLED = "bundled:"  # prefix of the model and the data sets that come as Python packages
BUNDLED_MODEL = f"{BUNDLED}all-MiniLM-L6-v2"
BUNDLED_MODEL_ID = "sentence-transformers/all-MiniLM-L6-v2"
"""Hub id of the original of the bundled model."""
BUNDLED_DATASET = f"{BUNDLED}rotten_tomatoes"
INPUT_FILES = ("model", "dataset", "validation_file", "test_file")
"""Parameters of a job that may name files or folders of the launching machine, besides `entry_script`."""
SCRIPT_CHANNELS = {"model": "model", "dataset": "train", "validation_file": "validation", "test_file": "test"}
"""The same to channels of a user's own script, named as SageMaker's examples do: SM_CHANNEL_TRAIN, SM_CHANNEL_TEST."""
PATHS = (*INPUT_FILES, "entry_script", "budget")
"""Parameters of a job that may name files or folders; `simulation.runs` is one, too."""
IN_S3 = "s3://"  # prefix of a file or folder in S3; it is downloaded before the job is launched
ROW_FILES = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet", ".txt": "text"}
"""Suffix of a file with rows to the reader of the `datasets` library."""
_WITH_A_SCRIPT = (
    "paretune has no training of its own for it; give a script such as transformers' run_qa.py or run_summarization.py "
    "with entry_script, and its arguments in training_arguments"
)
OTHER_TASKS = {
    **dict.fromkeys(("question-answering", "qa", "sequence-to-sequence"), _WITH_A_SCRIPT),
    **dict.fromkeys(("text2text-generation", "summarization", "translation"), _WITH_A_SCRIPT),
    "ner": f"set task={metrics.TOKEN_CLASSIFICATION}",
}
"""Names of tasks elsewhere to what to do instead."""


def current_name(text: str) -> str:
    """The name of a model or a data set, with the path in place of a file: URI."""
    return unquote(text.removeprefix("file://")) if text.startswith("file://") else text


def missing_files(texts: Mapping[str, str]) -> list[str]:
    """One fault for each parameter that must be a path and leads nowhere, or to a device or a pipe."""
    faults = []
    project = texts.get("project", "").partition("#")[0]
    if project and not re.match(r"\w+://|git@|file:", project) and not exists(project):
        faults.append(
            f"project {project} does not exist (looked from {Path.cwd()}): give a folder, or a git URI such as "
            "https://github.com/mlflow/mlflow-example"
        )
    for name in (*INPUT_FILES, "entry_script"):
        text = current_name(texts.get(name, ""))
        is_web = text.lower().startswith(("http://", "https://"))  # which another rule refuses
        if is_web or (text.startswith(IN_S3) and name != "entry_script"):
            continue  # S3 is looked up once everything else is right
        is_path = name.endswith(("_file", "_script")) or text.startswith((".", "/", "~"))
        is_path = is_path or Path(text).suffix.lower() in ROW_FILES
        if text and is_path and not exists(text):
            faults.append(f"{name} {text} does not exist (looked from {Path.cwd()})")
        elif text and exists(text) and not is_file(text) and not is_folder(text):
            faults.append(f"{name} must be a file or a folder, and {text} is a device, a pipe or a socket")
        elif text and name == "entry_script" and is_folder(text):
            faults.append(f"{name} must be a file, and {text} is a folder: name the script in it")
    return faults
