"""`mlflow run` from another folder: what is written and read lies where the command was typed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paretune import cli
from paretune.cli import go_where_typed
from tests.conftest import sentences, write_csv

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the command was typed; the current one is that of the project, which has studies/smoke.yaml."""
    project, folder = tmp_path / "clone", tmp_path / "typed"
    (project / "studies").mkdir(parents=True)
    (project / "studies" / "smoke.yaml").touch()
    (project / "rows.csv").touch()
    folder.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_RUN_ID", "1")
    monkeypatch.setattr(cli, "_mlflow_folder", lambda: folder)
    return folder


def test_a_relative_path_counts_from_where_it_was_typed_then_from_the_project(typed: Path) -> None:
    (typed / "rows.csv").touch()
    words = ["train", "--dataset", "rows.csv", "--study=studies/smoke.yaml", "--model", "gpt2", "--dry_run"]

    go_where_typed(words)

    study = typed.parent / "clone" / "studies" / "smoke.yaml"
    assert Path.cwd() == typed
    assert words == ["train", "--dataset", "rows.csv", f"--study={study}", "--model", "gpt2", "--dry_run"]


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
