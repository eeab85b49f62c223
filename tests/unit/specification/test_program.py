"""The program of a job: definitions of metrics as SageMaker has them."""

import json
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile

DEFINITIONS = [{"Name": "valid:f1", "Regex": "f1=(.*?);"}]


def test_a_study_file_holds_metric_definitions_in_the_shape_of_sagemaker(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    path = tmp_path / "study.yaml"
    path.write_text(
        "name: mine\nentry_script: train.py\n"
        "metric_definitions:\n- {Name: 'valid:f1', Regex: 'f1=(.*?);'}\n"
        "search: {learning_rate: {low: 0.001, high: 0.1}}\n"
        "objectives: {cost_usd: minimize, 'valid:f1': maximize}\nn_trials: 2\n"
    )

    file = StudyFile.read(str(path), {})

    assert file.spec_at({"learning_rate": 0.01}).definitions() == DEFINITIONS
    copy = tmp_path / "copy.yaml"
    copy.write_text(file.as_yaml())
    assert StudyFile.read(str(copy), {}).job == file.job


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "metric_definitions must be a list such as"),
        ("{}", "with 1 to 40 entries"),
        ("[]", "with 1 to 40 entries"),
        (json.dumps(DEFINITIONS * 41), "with 1 to 40 entries"),
        ('[{"Name": "f1"}]', "entry 1 has to have the texts Name and Regex"),
        ('[{"Name": "f1", "Regex": 3}]', "entry 1 has to have the texts Name and Regex"),
        ('[{"Name": "f1?", "Regex": "(.)"}]', "entry 1 has a Name that MLflow does not take"),
        ('[{"Name": "f1", "Regex": "f1=.*"}]', "without parentheses"),
        ('[{"Name": "f1", "Regex": "f1=(.*"}]', "that Python cannot read"),
        (json.dumps([{"Name": "f1", "Regex": "(" + "a" * 500 + ")"}]), "of 502 characters: at most 500"),
    ],
)
def test_wrong_metric_definitions_are_refused_with_the_entry(text: str, fault: str) -> None:
    with pytest.raises(BadInput) as refused:
        JobSpec(entry_script="train.py", metric_definitions=text)

    assert [fault in message for message in refused.value.faults] == [True]


def test_metric_definitions_of_paretunes_own_training_are_refused() -> None:
    with pytest.raises(BadInput, match="goes with project or entry_script"):
        JobSpec(metric_definitions=json.dumps(DEFINITIONS))
