"""Adapters trained through the product: on 4-bit weights, in one process and in two, stopped, resumed and loaded."""

from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient
from transformers import AutoModelForSequenceClassification

from paretune.cli import main
from paretune.specification.container import JobFolder, JobReport
from paretune.specification.job import JobSpec
from paretune.training.rows.tokenised import open_split
from tests.conftest import sentences, write_csv
from tests.end_to_end.instances import curves, make_job, run
from tests.end_to_end.test_strategies import model_without_dropout, on_two_processes

pytestmark = [
    pytest.mark.slow,
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


@pytest.fixture(scope="module")
def quantised(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    """Forty-two steps in one process, an evaluation after every third, of a model without dropout."""
    folder = tmp_path_factory.mktemp("inputs")
    return JobSpec(
        model=str(model_without_dropout(tiny_model, folder / "sober")),
        dataset=str(write_csv(folder / "reviews.csv", sentences(120))),
        max_seq_length=32,
        num_train_epochs=6.0,
        learning_rate=5e-3,
        global_batch_size=16,
        precision="fp32",
        fine_tuning="qlora",
        lora={"r": 4},
        training_arguments={"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 3},
    )


@pytest.fixture(scope="module")
def undisturbed(quantised: JobSpec, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str], float]:
    """What is recorded of that job."""
    job = make_job(tmp_path_factory.mktemp("alone") / "job", quantised)
    run([job])
    result = curves(job)
    losses = [value for (_, name), value in result.items() if name == "train/loss"]
    assert len(losses) == 42
    assert max(losses) - min(losses) > 0.01  # something is learnt
    return result


def test_two_processes_train_four_bit_weights_to_the_losses_of_one(
    quantised: JobSpec, undisturbed: dict[tuple[int, str], float], tmp_path: Path
) -> None:
    together = make_job(tmp_path / "job", on_two_processes(quantised))

    run([together], environment={"GLOO_SOCKET_IFNAME": "lo"})

    assert curves(together) == pytest.approx(undisturbed, rel=1e-3, abs=1e-5)


def test_the_product_trains_and_the_folder_answers_as_the_trained_model_did(
    workplace: Path, tiny_model: Path, reviews: Path
) -> None:
    words = ["--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32", "--launcher", "local"]
    words += ["--num_train_epochs", "12", "--learning_rate", "0.002", "--per_device_train_batch_size", "4"]
    words += ["--training_arguments", '{"eval_strategy": "no"}', "--precision", "fp32"]
    assert main(["train", "--fine_tuning", "qlora", *words]) == 0

    (trained,) = MlflowClient().search_runs(["0"])
    assert trained.data.params["fine_tuning"] == "qlora"
    (folder,) = (workplace / ".paretune" / "jobs").iterdir()
    job = JobFolder(folder)
    left = {path.name for path in job.model.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= left
    assert not [name for name in left if name.startswith("adapter")]
    report = JobReport.model_validate_json(job.report.read_text())
    loaded = AutoModelForSequenceClassification.from_pretrained(job.model).eval()
    rows = open_split(job, "validation", pad_id=0)
    assert rows is not None
    with torch.no_grad():
        result = loaded(**rows.__getitems__([*range(len(rows))]))
    assert report.metrics["eval_loss"] < 0.6  # it has learnt: 0.69 is that of one who guesses
    assert result.loss == pytest.approx(report.metrics["eval_loss"], rel=1e-3)
    (recorded,) = MlflowClient().search_logged_models(["0"])
    assert recorded.source_run_id == trained.info.run_id
    assert trained.data.tags["paretune.model_uri"] == recorded.model_uri
    assert {"f1", "cost_usd"} <= {metric.key for metric in recorded.metrics or ()}
