"""`mlflow run` from another folder: what is written and read lies where the command was typed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paretune import cli
from paretune.cli import go_where_typed, main
from tests.conftest import sentences, write_csv

REPOSITORY = Path(__file__).parents[3]


def test_a_relative_path_counts_from_where_it_was_typed_then_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project, typed = tmp_path / "clone", tmp_path / "typed"
    for folder in (project, typed):
        folder.mkdir()
        (folder / "rows.csv").write_bytes(b"\x80")
    (project / "own.yaml").write_text("nmae: x")
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_RUN_ID", "1")
    monkeypatch.setattr(cli, "_mlflow_folder", lambda: typed)
    monkeypatch.setattr(cli, "_record_refusal", lambda *_: None)

    assert go_where_typed() == project
    assert Path.cwd() == typed
    assert main(["train", "--dataset", "rows.csv"], project) == main(["study", "own.yaml"], project) == 2

    err = capsys.readouterr().err
    assert "paretune: dataset rows.csv is not UTF-8" in err
    assert f"{project / 'own.yaml'}:1: " in err


@pytest.mark.slow
def test_mlflow_run_from_another_folder_reads_rows_and_keeps_store_and_model_there(
    tmp_path: Path, tiny_model: Path, workplace: Path
) -> None:
    write_csv(workplace / "rows.csv", sentences(60))
    job = {"dataset": "rows.csv", "model": str(tiny_model), "max_seq_length": "32"}
    words = [sys.executable, "-m", "mlflow", "run", str(REPOSITORY), "--env-manager", "local"]
    words += [word for name, text in job.items() for word in ("-P", f"{name}={text}")]
    retained = {name: text for name, text in os.environ.items() if name not in {"PARETUNE_HOME", "MLFLOW_TRACKING_URI"}}
    (workplace / "mlflow.db").unlink()

    done = subprocess.run(words, cwd=workplace, env=retained, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert "F1 (macro, validation)" in done.stdout + done.stderr
    assert list((workplace / ".paretune" / "jobs").glob("*/model/model.safetensors"))
    assert (workplace / "mlflow.db").is_file()
