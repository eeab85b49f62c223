"""Whole jobs on tiny models, as a user starts them, looked at in MLflow."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli.main import main
from paretune.specification.job import JobSpec
from tests.conftest import sentences, write_csv

# What DESIGN promises for a local classification job on a CPU, where mfu cannot be known.
METRICS = {
    "f1",
    "throughput_samples_per_second",
    "throughput_tokens_per_second",
    "cost_usd",
    "train_seconds",
    "job_seconds",
    "billable_seconds",
    "peak_memory_gib",
    "memory_gib_per_process",
    "eval_loss",
    "baseline_f1_majority",
    "baseline_f1_tfidf",
    "trainable_parameters",
    "truncated_share",
    "train/loss",
    "train/learning_rate",
    "train/samples_per_second",
    "eval/f1",
    "eval/loss",
    "system/memory_gib",
}
TAGS = {
    "paretune.origin": "measured",
    "paretune.launcher": "local",
    "paretune.state": "Completed",
    "paretune.price_usd_per_hour": "7.2",
}


def run_job(*arguments: str) -> Run:
    """Run `paretune main`, expect success, and return the one run it recorded."""
    assert main(["main", "--max_seq_length", "32", *arguments]) == 0
    (run,) = MlflowClient().search_runs(["0"])
    return run


def report(run: Run) -> dict[str, Any]:
    path = MlflowClient().download_artifacts(run.info.run_id, "report.json")
    result: dict[str, Any] = json.loads(Path(path).read_text())
    return result


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Jobs of one thread: a second one does nothing for a tiny model but take the other core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paretune.launchers.local.usable_cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def finished(one_thread: None, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One job that has learnt the tiny data set, looked at by several tests, with its folder as the current one."""
    workspace = tmp_path_factory.mktemp("finished")
    data = write_csv(workspace / "reviews.csv", sentences(120))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace)
        patch.setenv("PARETUNE_HOME", str(workspace / ".paretune"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workspace / 'mlflow.db'}")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield run_job(
            *("--model", str(tiny_model), "--dataset", str(data), "--precision", "fp32"),
            *("--num_train_epochs", "12", "--learning_rate", "1e-2", "--local_price_usd_per_hour", "7.2"),
        )


def test_a_job_records_every_metric_param_tag_and_artifact_of_the_design(finished: Run) -> None:
    assert finished.info.status == "FINISHED"
    assert set(finished.data.metrics) >= METRICS
    assert set(finished.data.params) >= {name for name, text in JobSpec().as_text().items() if text}
    assert "" not in finished.data.params.values()
    assert {name: finished.data.tags.get(name) for name in TAGS} == TAGS
    assert set(finished.data.tags) >= {"paretune.job_name", "paretune.spec_hash", "paretune.command"}
    message = finished.data.tags["mlflow.note.content"]
    assert f"F1 **{finished.data.metrics['f1']:.3f}** on" in message
    named = {
        (dataset_input.tags[0].value, dataset_input.dataset.digest) for dataset_input in finished.inputs.dataset_inputs
    }
    key = finished.data.tags["paretune.dataset_key"][:36]  # MLflow takes no longer digest
    assert named == {("training", key), ("validation", key)}
    artifacts = {file.path for file in MlflowClient().list_artifacts(finished.info.run_id)}
    assert artifacts >= {"report.json", "confusion_matrix.png", "classification_report.txt"}
    assert "mfu" not in finished.data.metrics


def test_cost_is_seconds_times_instances_times_price(finished: Run) -> None:
    expected = finished.data.metrics["billable_seconds"] * 1 * 7.2 / 3600
    assert finished.data.metrics["cost_usd"] == pytest.approx(expected)
    assert finished.data.tags["paretune.price_source"].startswith("notional")


def test_f1_agrees_with_the_confusion_matrix_and_beats_the_majority(finished: Run) -> None:
    counts = report(finished)["confusion_matrix"]
    scores = [2 * counts[item][item] / (sum(counts[item]) + counts[0][item] + counts[1][item]) for item in range(2)]
    assert finished.data.metrics["f1"] == pytest.approx(sum(scores) / 2)
    assert finished.data.metrics["f1"] > finished.data.metrics["baseline_f1_majority"] + 0.3


def test_the_returned_model_gives_the_recorded_f1(finished: Run) -> None:
    """The saved folder stands alone: whole vocabulary, tokenizer, class names."""
    from sklearn.metrics import f1_score
    from transformers import pipeline

    from paretune.training.rows.sources import read_rows

    rows, names = read_rows(JobSpec(dataset="reviews.csv"))
    job = Path(".paretune/jobs") / finished.data.tags["paretune.job_name"]
    classify = pipeline("text-classification", model=str(job / "model"), device="cpu")
    answers = [names.index(answer["label"]) for answer in classify(list(rows["validation"].texts))]
    assert f1_score(rows["validation"].labels, answers, average="macro") == pytest.approx(finished.data.metrics["f1"])


def test_a_checkpoint_does_not_outlive_a_finished_job(finished: Run) -> None:
    assert finished.data.tags["paretune.state"] == "Completed"
    assert list(Path(".paretune/checkpoints").glob("*/checkpoint-*")) == []


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_integer_labels_three_classes_and_own_validation_and_test_files(
    workplace: Path, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [(text, str(number % 3 + 7)) for number, (text, _) in enumerate(sentences(90))]
    train = write_csv(tmp_path / "train.csv", rows[:60], "words,stars")
    validation = write_csv(tmp_path / "valid.csv", rows[60:75], "words,stars")
    test = write_csv(tmp_path / "test.csv", rows[75:], "words,stars")
    run = run_job(
        *("--model", str(tiny_model), "--dataset", str(train), "--text_column", "words", "--label_column", "stars"),
        *("--validation_file", str(validation), "--test_file", str(test)),
    )

    assert report(run)["labels"] == ["7", "8", "9"]
    assert {"test_f1", "test_loss", "test_accuracy"} <= set(run.data.metrics)
    assert [run.data.metrics[f"{split}_rows"] for split in ("train", "validation", "test")] == [60, 15, 15]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_random_weights_learn_from_a_folder_that_has_none(workplace: Path, tiny_model: Path, reviews: Path) -> None:
    folder = shutil.copytree(tiny_model, workplace / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    run = run_job(
        *("--model", str(folder), "--init", "random", "--dataset", str(reviews), "--precision", "fp32"),
        *("--num_train_epochs", "12", "--learning_rate", "3e-3", "--local_price_usd_per_hour", "7.2"),
    )

    assert run.data.params["init"] == "random"
    assert set(run.data.metrics) >= METRICS
    assert run.data.metrics["f1"] > run.data.metrics["baseline_f1_majority"] + 0.3


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_causal_language_model_is_judged_by_perplexity_and_has_no_f1(
    workplace: Path, tiny_causal_model: Path, tmp_path: Path
) -> None:
    text = tmp_path / "stories.txt"
    text.write_text("\n".join(sentence for sentence, _ in sentences(300)) + "\n")
    run = run_job(
        *("--task", "causal-lm", "--model", str(tiny_causal_model), "--dataset", str(text)),
        *("--num_train_epochs", "4", "--learning_rate", "5e-3"),
    )

    assert "f1" not in run.data.metrics
    assert run.data.metrics["perplexity"] == pytest.approx(math.exp(run.data.metrics["eval_loss"]))
    history = MlflowClient().get_metric_history(run.info.run_id, "eval/loss")
    assert history[-1].value < history[0].value


@pytest.mark.slow
def test_the_bundled_default_beats_both_baselines(workplace: Path) -> None:
    """The command a newcomer types, on a quarter of its rows."""
    assert main(["main", "--max_train_samples", "2000"]) == 0
    (run,) = MlflowClient().search_runs(["0"])

    metrics, tags = run.data.metrics, run.data.tags
    assert metrics["f1"] > metrics["baseline_f1_tfidf"] + 0.02 > metrics["baseline_f1_majority"] + 0.3
    assert (tags["paretune.price_region"], tags["paretune.price_as_of"]) == ("us-east-1", "2026-08-11")
