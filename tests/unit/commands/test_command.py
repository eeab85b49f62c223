"""What commands have in common: the note of the run that `mlflow run` opens."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main

HEADER = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1"
COMMANDS = {
    "import": (
        *("import", "--recorded_runs", "runs.csv", "--model", "m", "--dataset", "d", "--num_train_epochs", "1"),
        *("--max_seq_length", "128", "--precision", "fp32"),
    ),
    "prices": ("prices", "--region", "us-east-1"),
    "doctor": ("doctor",),
}
ANSWERS = {"import": "runs.csv: 1 runs imported as published", "prices": "on demand, us-east-1: ", "doctor": " ok, "}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_note_begins_with_the_answer(name: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "runs.csv").write_text(f"{HEADER}\nml.g5.xlarge,1,16,5e-5,900,0.8\n")
    client = MlflowClient()
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)

    main([*COMMANDS[name]])

    tags = client.get_run(run_id).data.tags
    assert tags["paretune.kind"] == name
    assert ANSWERS[name] in tags["mlflow.note.content"].splitlines()[0]
