"""Models that a job returns reach the recorded F1 when transformers and MLflow load them in another process."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from sklearn.metrics import f1_score

from paretune.core.clock import SystemClock
from paretune.jobs.card import opening_card
from paretune.jobs.model import record_model
from paretune.launchers.offers import order_of
from paretune.specification.container import JobFolder, JobReport
from paretune.specification.job import JobSpec
from paretune.tracking.run_writer import Run
from tests.support.sentences import sentences
from tests.support.stores import copy_store

pytestmark = [
    pytest.mark.slow,
    # peft 0.21 asks transformers 5.23 for an attribute that was renamed.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # peft notices that GPT-2 stores its matrices transposed, and warns that it has adapted to it.
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
]

LABELS = ("negative", "positive")
FINE_TUNINGS = ("full", "head", "lora", "qlora")
VALIDATION = sentences(60, seed=7)
ANSWER = """
import json, sys
from mlflow.transformers import load_model
from transformers import pipeline

asked = json.load(sys.stdin)
answers = {}
for name, (folder, uri) in asked["models"].items():
    loaded = {"folder": pipeline("text-classification", model=folder), "mlflow": load_model(uri)}
    answers[name] = {way: [said["label"] for said in one(asked["texts"])] for way, one in loaded.items()}
for way, load in (("folder", lambda folder: pipeline("text-generation", model=folder)), ("mlflow", load_model)):
    writer = load(asked["writer"])
    answers[way] = writer("the film", max_new_tokens=3, do_sample=False, pad_token_id=0)[0]["generated_text"]
json.dump(answers, open(sys.argv[1], "w"))
"""


@dataclass(frozen=True)
class Returned:
    """Reports by fine_tuning, and the labels from another process, by fine_tuning and way of loading, one per row."""

    reports: dict[str, JobReport]
    answers: dict[str, Any]

    def f1(self, fine_tuning: str, way: str) -> float:
        """Return the macro F1 of those labels."""
        return float(f1_score([label for _, label in VALIDATION], self.answers[fine_tuning][way], average="macro"))


def train(spec: JobSpec, workspace: Path, model: Path) -> JobFolder:
    """Run a training job in this process, on 48 rows that the tiny tokenizer reads."""
    from transformers import AutoTokenizer

    from paretune.training.job import train
    from paretune.training.rows import tokenized
    from paretune.training.rows.tokenized import Rows

    def rows(of: list[tuple[str, str]]) -> Rows:
        labels = np.array([LABELS.index(label) for _, label in of]) if spec.task == "classification" else None
        return Rows(texts=[text for text, _ in of], labels=labels)

    splits = {"train": rows(sentences(48)), "validation": rows(VALIDATION)}
    labels = LABELS if spec.task == "classification" else ()
    made = tokenized.prepare(
        spec.data_arguments, splits, labels, AutoTokenizer.from_pretrained(model), workspace / "prepared"
    )
    folder = JobFolder(workspace / "job")
    folder.make()
    for link, source in ((folder.dataset, made.folder), (folder.model_source, model)):
        link.symlink_to(source)
    assert train(order_of(spec, job_name="job"), folder, lambda: False)
    return folder


def record(client: MlflowClient, spec: JobSpec, folder: JobFolder) -> str:
    """Record the model in MLflow, and return its address."""
    report = JobReport.model_validate_json(folder.report.read_text())
    run = Run(client, client.create_run("0").info.run_id, SystemClock())
    return record_model(run, opening_card(spec), spec.instance_type, report, str(folder.model))


@pytest.fixture(scope="module")
def returned(
    tiny_model: Path, tiny_causal_model: Path, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Returned:
    """Return the reports of a job with each `fine_tuning`, and the answers of another process.

    It answers with the models of these jobs, and with a language model with merged adapters.
    """
    workspace = tmp_path_factory.mktemp("returned")
    uri = copy_store(empty_store, workspace)
    common: dict[str, Any] = {"precision": "fp32", "max_seq_length": 32, "per_device_train_batch_size": 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        client = MlflowClient()
        reports, models = {}, {}
        for name in FINE_TUNINGS:
            spec = JobSpec(
                **common, model=str(tiny_model), fine_tuning=name, num_train_epochs=5.0, learning_rate=5e-3, seed=2
            )
            folder = train(spec, workspace / name, tiny_model)
            reports[name] = JobReport.model_validate_json(folder.report.read_text())
            models[name] = (str(folder.model), record(client, spec, folder))
        writer = JobSpec(**common, model=str(tiny_causal_model), fine_tuning="lora", task="causal-lm")
        request = {
            "models": models,
            "texts": [text for text, _ in VALIDATION],
            "writer": str(train(writer, workspace / "writer", tiny_causal_model).model),
        }
        answered = subprocess.run(
            [sys.executable, "-c", ANSWER, str(workspace / "answers.json")],
            input=json.dumps(request),
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            cwd=workspace,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert answered.returncode == 0, answered.stderr
    return Returned(reports, json.loads((workspace / "answers.json").read_text()))


@pytest.mark.parametrize("fine_tuning", FINE_TUNINGS)
@pytest.mark.parametrize("way", ["folder", "mlflow"])
def test_the_model_loaded_elsewhere_gives_the_f1_that_was_recorded(
    returned: Returned, fine_tuning: str, way: str
) -> None:
    assert returned.f1(fine_tuning, way) == pytest.approx(returned.reports[fine_tuning].metrics["f1"], abs=1e-9)


def test_the_models_have_learned_so_that_another_model_would_give_another_f1(returned: Returned) -> None:
    learned = {name: report.metrics["f1"] for name, report in returned.reports.items()}
    assert learned["full"] > 0.6
    assert len(set(learned.values())) > 1


def test_a_language_model_with_merged_adapters_goes_on_with_a_text(returned: Returned) -> None:
    assert returned.answers["folder"].startswith("the film")
    assert returned.answers["mlflow"] == returned.answers["folder"]
