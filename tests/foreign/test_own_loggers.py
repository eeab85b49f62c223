"""Training scripts that log with their own libraries run unchanged; the record holds what was used and logged.

Each folder holds a script that knows nothing about paretune, in the usual form of its library. At its end it writes
`truth.json` into the current folder: the settings that it has used, and the numbers and curves that it has given to its
logger. `.ci/full foreign` installs the libraries of all of them.
"""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

import paretune
from paretune.core.errors import BadInput
from tests.support.cloud import Cloud
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.tags import tags_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TRAININGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "mlflow_explicit": ("mlflow", {"lr": 0.3, "epochs": 3}, "MLflow"),
    "mlflow_autolog": ("mlflow", {"alpha": 0.001, "max-iter": 40}, "MLflow"),
    "wandb_offline": ("wandb", {"lr": 0.25, "epochs": 4}, "W&B"),
    "tensorboard_only": ("tensorboard", {"learning-rate": 0.2, "steps": 4}, "TensorBoard"),
    "click_svm": ("click", {"learning_rate": 0.05, "max-iter": 10}, "printed"),
    "typer_ridge": ("typer", {"penalty": 0.5, "n-rows": 20}, "printed"),
    "hydra_logging": ("hydra", {"optimizer.lr": 0.1, "max_epochs": 4}, "printed"),
    "lightning_csv": ("lightning", {"learning_rate": 0.02, "hidden": 16}, "lightning_logs/version_0/metrics.csv"),
    "nanogpt_like": ("numpy", {"batch_size": 8, "max_iters": 20}, "printed"),
    "yaml_config": ("yaml", {"cfg": "yaml_config/fast.yaml"}, "printed in percent and recorded as a share"),
    "keras_fit": ("keras", {"learning-rate": 0.02, "batch-size": 128}, "printed"),
    "xgboost_callback": ("xgboost", {"eta": 0.1, "max_depth": 2}, "printed"),
    "setfit_few_shot": ("setfit", {"sentence-model": "tiny", "body-learning-rate": 0.001, "batch-size": 8}, "printed"),
    "accelerate_tracker": ("accelerate", {"learning_rate": 0.02, "per_device_train_batch_size": 32}, "printed"),
}
"""Maps a name to the module that it needs, its arguments, and the source of its metrics."""
OF_THE_JOB = {"cost_usd", "job_seconds", "billable_seconds"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user whose MLflow store is elsewhere."""
    (tmp_path / "store").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setenv("PARETUNE_HOME", str(tmp_path / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")
    return tmp_path / "home"


def launch(name: str, home: Path) -> tuple[Run, dict[str, Any]]:
    """Launch a training script, and return its run and what it has written about itself."""
    module, given, _ = TRAININGS[name]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}: `.ci/full foreign` runs it")
    shutil.copytree(HERE / name, home / name, ignore=shutil.ignore_patterns("__pycache__", "study.yaml"))
    if name == "setfit_few_shot":
        save_tiny_sentence_model(home / "tiny")
    own = {setting: value for setting, value in given.items() if setting not in paretune.JobSpec.model_fields}
    parameters = {setting: value for setting, value in given.items() if setting not in own}
    spec = paretune.JobSpec(entry_script=f"{name}/train.py", training_arguments=own, **parameters)
    try:
        run_id = paretune.launch(spec, quiet=True).run_id
    except BadInput as error:  # the message names the option to add, or the two to give instead
        _, *lines = map(str.strip, str(error).splitlines())
        if lines:
            project = dict(line.split(": ") for line in lines)
            spec = paretune.JobSpec(**project, training_arguments=given)
        elif str(error).endswith(": add --ask_script true"):
            spec = spec.replace(ask_script=True)
        else:
            raise
        run_id = paretune.launch(spec, quiet=True).run_id
    truth = next(path for path in home.parent.rglob("truth.json"))
    return MlflowClient(mlflow.get_tracking_uri()).get_run(run_id), json.loads(truth.read_text())


def save_tiny_sentence_model(folder: Path) -> None:
    """Save a model with tens of thousands of weights in the format of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "studies" / "tiny_gpt2")
    tokenizer.add_special_tokens({"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"})
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(**size, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    words = Transformer(str(folder))
    SentenceTransformer(modules=[words, Pooling(16)], device="cpu").save(str(folder))


@pytest.mark.foreign
@pytest.mark.parametrize("name", TRAININGS)
def test_what_is_recorded_is_what_was_used_and_what_was_logged(name: str, home: Path) -> None:
    run, truth = launch(name, home)
    _, given, source = TRAININGS[name]
    client = MlflowClient(mlflow.get_tracking_uri())

    assert run.info.status == "FINISHED"
    for setting, value in given.items():
        recorded = run.data.params[
            setting if setting in paretune.JobSpec.model_fields else f"training_arguments.{setting}"
        ]
        used = truth["used"][setting] if setting in truth["used"] else truth["used"][setting.replace("-", "_")]
        assert str(value) == recorded or float(recorded) == value
        assert used == pytest.approx(value, rel=1e-6) if not isinstance(value, str) else used == value
    for metric, value in truth["logged"].items():
        assert run.data.metrics[metric.replace("@", "_")] == pytest.approx(value, abs=2e-4), metric
    for metric, curve in truth["curves"].items():
        points = sorted(client.get_metric_history(run.info.run_id, metric.replace("@", "_")), key=lambda p: p.step)
        by_step = list({point.step: point.value for point in points}.values())
        assert by_step == pytest.approx(curve, abs=2e-4), metric
    assert f"{source}: " in tags_of(run)["paretune.metrics_from"]
    settings = {word.rpartition(".")[2].replace("-", "_") for word in given}
    assert not [metric for metric in run.data.metrics if metric.endswith("token_id")]  # of transformers' warnings
    assert not settings & run.data.metrics.keys() - {"lr"}
    assert not {"seed", "batch_size", "hidden", "Total_params", "Total_FLOPs", "vocab_size"} & run.data.metrics.keys()
    assert not (home / "mlflow.db").exists()
    assert not (home / "wandb").exists()


@pytest.mark.foreign
def test_the_runs_of_a_script_below_its_own_are_children_of_the_run_of_its_job(home: Path) -> None:
    run, _ = launch("mlflow_explicit", home)
    client = MlflowClient(mlflow.get_tracking_uri())

    others = [each for each in client.search_runs([run.info.experiment_id]) if each.info.run_id != run.info.run_id]
    assert sorted(each.info.run_name for each in others) == ["fold 0", "fold 1"]
    assert {tags_of(each)["mlflow.parentRunId"] for each in others} == {run.info.run_id}
    names = {"code", "command.txt", "log.txt", "plan.json", "report.json", "versions.txt", "weights.txt"}
    assert {item.path for item in client.list_artifacts(run.info.run_id)} == names
    assert run.data.params["solver"] == "gradient descent"
    assert len(client.search_experiments()) == 1
    assert "paretune.remarks" not in tags_of(run)


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("name", "metric", "source"),
    [
        ("mlflow_explicit", "valid_loss", "MLflow"),
        ("wandb_offline", "val/acc", "W&B"),
        ("yaml_config", "Acc_1", "printed"),
    ],
)
def test_on_sagemaker_what_was_logged_travels_with_the_results(
    name: str, metric: str, source: str, home: Path, tmp_path: Path
) -> None:
    module, given, _ = TRAININGS[name]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}: `.ci/full foreign` runs it")
    shutil.copytree(HERE / name, home / name, ignore=shutil.ignore_patterns("__pycache__", "study.yaml"))
    if name == "yaml_config":
        given = {}  # its other configuration has another path there
    with Emulator(tmp_path / "account") as emulator:
        cloud = Cloud(emulator, home)
        done = cloud.run(
            entry_script=f"{name}/train.py", training_arguments=given, instance_type="ml.m5.large", launcher="sagemaker"
        )
    assert done.code == 0, done.text

    client = MlflowClient(mlflow.get_tracking_uri())
    (run,) = client.search_runs(["0"], "tags.`paretune.launcher` = 'sagemaker'")
    assert tags_of(run)["paretune.metrics_from"].startswith(source)
    points = {point.step: point.value for point in client.get_metric_history(run.info.run_id, metric)}
    assert len(points) == given.get("epochs", 3)
    assert run.data.metrics[metric] == list(points.values())[-1]
