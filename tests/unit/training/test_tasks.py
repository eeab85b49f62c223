"""Trainings on several labels a row, from rows to the written model and its report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from paretune.specification.container import JobDocument, JobFolder, JobReport
from paretune.specification.job import JobSpec
from paretune.training.loop import train
from paretune.training.rows import tokenised
from paretune.training.rows.tokenised import Rows
from paretune.training.stop_signal import StopSignal
from paretune.training.tasks import multi_label_metrics
from tests.conftest import BAD, GOOD, OTHER
from tests.unit.training.conftest import SPEC

pytestmark = [  # of peft with transformers 5.23
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You are trying to modify a model with PEFT:UserWarning"),
]
FINE_TUNINGS = ("full", pytest.param("lora", marks=pytest.mark.slow))
TASK = SPEC.replace(
    task="multi-label",
    per_device_train_batch_size=8,
    num_train_epochs=12.0,
    learning_rate=2e-3,
    training_arguments={"warmup_steps": 2},
)
"""A training that learns its rows in a second."""


def rows(count: int, seed: int) -> Rows:
    """Texts with up to four good and up to four bad words, and which of them there are."""
    random = np.random.default_rng(seed)
    good, bad = random.integers(0, 4, count), random.integers(0, 4, count)
    texts = [
        " ".join(random.permutation([*random.choice(GOOD, plus), *random.choice(BAD, minus), *random.choice(OTHER, 4)]))
        for plus, minus in zip(good, bad, strict=True)
    ]
    return Rows(texts=texts, labels=np.stack([good > 0, bad > 0], axis=1).astype(np.float32))


def job_folder(model: Path, workspace: Path) -> JobFolder:
    """A job with 96 rows to train, 24 to validate and 8 to test."""
    splits = {"train": rows(96, 0), "validation": rows(24, 1), "test": rows(8, 2)}
    tokenizer = AutoTokenizer.from_pretrained(model)
    made = tokenised.prepare(TASK, splits, ("good", "bad"), tokenizer, workspace / "rows")
    folder = JobFolder(workspace / "job")
    folder.make()
    for link, source in ((folder.dataset, made.folder), (folder.model_source, model)):
        if link.is_dir():
            link.rmdir()
        link.symlink_to(source)
    return folder


def trained(spec: JobSpec, folder: JobFolder) -> JobReport:
    assert train(JobDocument(job_name="job", spec=spec, plan=spec.plan()), folder, StopSignal())
    report = JobReport.read_json(folder.report.read_bytes())
    assert report is not None
    return report


def answers(folder: JobFolder, texts: list[str]) -> np.ndarray:
    """What the written model answers, as somebody loads it who knows nothing of paretune."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder.model)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder.model)
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        logits: np.ndarray = model.eval()(**inputs).logits.numpy()
    return logits


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("fine_tuning", FINE_TUNINGS)
@pytest.mark.slow
def test_several_labels_a_row_are_learnt_and_the_written_model_answers_them(
    tiny_model: Path, tmp_path: Path, fine_tuning: str
) -> None:
    folder = job_folder(tiny_model, tmp_path)
    report = trained(TASK.replace(fine_tuning=fine_tuning), folder)
    validation = rows(24, 1)
    assert validation.labels is not None

    assert report.metrics["f1"] > 0.8
    assert {"f1_micro", "subset_accuracy", "test_f1", "eval_loss"} <= set(report.metrics)
    assert report.labels == ("good", "bad")
    assert [sum(counts) for counts in report.label_counts] == [24, 24]
    if fine_tuning == "full":
        answered = answers(folder, list(validation.texts)) >= 0
        expected = multi_label_metrics(validation.labels > 0.5, answered)
        assert {name: report.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
        config = (folder.model / "config.json").read_text()
        assert '"multi_label_classification"' in config
        assert '"good"' in config
