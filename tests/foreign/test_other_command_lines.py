"""Trainings whose command lines or endings differ from those of most scripts: what they used and logged is recorded.

Each folder holds a training that knows nothing about paretune and writes `truth.json`, as in test_own_loggers. If
paretune refuses one, the test does what the message says, and nothing else. `.ci/full foreign` installs the libraries.
"""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

import paretune
from paretune.core.errors import BadInput, JobFailed

HERE = Path(__file__).parent
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "subcommands": ("sklearn", {"alpha": 0.5, "rows": 80}),
    "own_parser": ("json", {"model.smoothing": 0.1, "trainer.max_iters": 30}),
    "papermill_notebook": ("papermill", {"alpha": 0.5, "rounds": 4}),
    "fails_after_training": ("json", {"lr": 0.3, "epochs": 3}),
    "lightning_rich": ("lightning", {"lr": 0.02, "hidden": 16}),
    "fire_cli": ("fire", {"learning_rate": 0.05, "epochs": 4}),
}
"""Maps a name to the module that it needs, and its arguments."""
OF_THE_JOB = {"cost_usd", "job_seconds", "billable_seconds"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARETUNE_HOME", str(tmp_path / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return tmp_path


def launch(spec: paretune.JobSpec, folder: Path) -> None:
    """Launch a training, after doing what a refusal says: one more option."""
    try:
        paretune.launch(spec, quiet=True)
    except BadInput as error:
        message = str(error)
        if message.endswith(": add --ask_script true"):
            paretune.launch(spec.replace(ask_script=True), quiet=True)
            return
        words = re.search(r"add --script_words (\w+)", message)
        assert words is not None, message
        launch(spec.replace(script_words=words[1]), folder)


@pytest.mark.foreign
@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_with_another_command_line_or_end_is_recorded_as_it_ran(name: str, home: Path) -> None:
    module, given = TRAININGS[name]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}: `.ci/full foreign` runs it")
    shutil.copytree(HERE / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    named = {"project": name} if name == "papermill_notebook" else {"entry_script": f"{name}/train.py"}
    parameters = {key: value for key, value in given.items() if key in paretune.JobSpec.model_fields}
    arguments = {key: value for key, value in given.items() if key not in parameters}
    spec = paretune.JobSpec(**named, **parameters, training_arguments=arguments)

    if fails := name == "fails_after_training":
        with pytest.raises(JobFailed, match=r"FileNotFoundError: .*data/test\.npz"):
            launch(spec, home / name)
    else:
        launch(spec, home / name)

    client = MlflowClient(mlflow.get_tracking_uri())
    (run,) = client.search_runs(["0"])
    truth = json.loads(next(home.rglob("truth.json")).read_text())
    assert run.info.status == ("FAILED" if fails else "FINISHED")
    for key, value in given.items():
        text = run.data.params[key if key in parameters else f"training_arguments.{key}"]
        assert float(text) == truth["used"][key] == value
    recorded = {key: value for key, value in run.data.metrics.items() if key not in OF_THE_JOB}
    assert {key: recorded[key] for key in truth["logged"]} == pytest.approx(truth["logged"], abs=2e-3)
    for metric, curve in truth["curves"].items():
        points = sorted(client.get_metric_history(run.info.run_id, metric), key=lambda point: point.step)
        assert list({point.step: point.value for point in points}.values()) == pytest.approx(curve, abs=2e-4)
    wrong = {"alpha", "rounds", "lr", "learning_rate", "epochs", "hidden", "CrossEntropyLoss", "smoothing", "max_iters"}
    assert not wrong & recorded.keys()
    files = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"log.txt", "command.txt", "versions.txt", "code"} <= files
    assert ("traceback.txt" in files) is fails
