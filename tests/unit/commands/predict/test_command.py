"""What can be asked of `predict`: everything wrong is said at once, before anything is read."""

from pathlib import Path

import pytest

from paretune.commands.predict.command import PredictRequest
from paretune.core.errors import BadInput
from paretune.specification.parameters import read


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with rows and a folder `model`, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.csv").write_text("text\na\n")
    return tmp_path / "rows.csv"


GOOD = {"model": "model", "data": "rows.csv"}
WRONG = {
    "no model": ({"model": ""}, "model must name the model that predicts"),
    "no data": ({"data": ""}, "data must name the file with the rows"),
    "a folder that is not there": ({"model": "modell"}, "model modell does not exist"),
    "a file as model": ({"model": "rows.csv"}, "model rows.csv is no folder"),
    "a registered model without alias or version": ({"model": "models:/sentiment"}, "needs an alias or a version"),
    "another store": ({"model": "s3://bucket/model"}, "download it first"),
    "no such data, but an output": ({"data": "row.csv", "output": "rows.csv"}, "data row.csv does not exist"),
    "no such data": ({"data": "row.csv"}, "data row.csv does not exist"),
    "output of another kind": ({"output": "out.xlsx"}, "output must end in .csv, .tsv, .jsonl, got out.xlsx"),
    "output in no folder": ({"output": "a/out.csv"}, "folder that exists, got a/out.csv: mkdir a"),
    "output over data": ({"output": "./rows.csv"}, "output must be another file than data"),
    "batch of none": ({"batch_size": "0"}, "batch_size must be at least 1"),
    "unknown type": ({"instance_type": "ml.g5.xlage"}, "did you mean ml.g5.xlarge"),
    "unknown region": ({"region": "eu-west-9"}, "eu-west-9"),
    "two prices": ({"instance_type": "ml.g5.xlarge", "local_price_usd_per_hour": "1"}, "leave one of them out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_refused_with_the_rule_and_the_value(rows: Path, case: str) -> None:
    changes, sentence = WRONG[case]
    with pytest.raises(BadInput) as raised:
        read(PredictRequest, GOOD | changes, "predict")
    assert len(raised.value.faults) == 1
    assert sentence in raised.value.faults[0]


def test_all_faults_are_told_at_once(rows: Path) -> None:
    with pytest.raises(BadInput) as raised:
        read(PredictRequest, {"output": "out.xlsx", "batch_size": "0"}, "predict")
    assert len(raised.value.faults) == 4


@pytest.mark.parametrize(
    "model",
    ["models:/a@champion", "models:/a-b/12", "models:/m-1a2b", "runs:/0a1b2c3d", "runs:/0a1b2c3d/x/y", "./model"],
)
def test_every_form_of_a_model_is_taken(rows: Path, model: str) -> None:
    content = read(PredictRequest, GOOD | {"model": model}, "predict")
    assert content.is_address is (model != "./model")


def test_a_file_address_of_a_folder_is_that_folder(rows: Path) -> None:
    assert read(PredictRequest, GOOD | {"model": f"file://{rows.parent / 'model'}"}, "predict").model_folder.is_dir()
