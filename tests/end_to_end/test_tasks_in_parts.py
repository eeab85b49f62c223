"""Numbers learnt by a model whose weights lie in parts in two processes: what is written is the whole model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from paretune.training.tasks.evaluation import regression_metrics
from tests.conftest import sentences
from tests.end_to_end.instances import make_job, run

pytestmark = pytest.mark.slow


def test_a_sharded_model_of_numbers_is_written_in_their_units(tiny_model: Path, tmp_path: Path) -> None:
    rows = [(text, 500 + 10 * len(text.split())) for text, _ in sentences(60)]
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"{text},{number}\n" for text, number in rows))
    spec = JobSpec(
        model=str(tiny_model),
        dataset=str(path),
        validation_file=str(path),
        task="regression",
        strategy="fsdp",
        instance_count=2,
        max_seq_length=32,
        num_train_epochs=2.0,
        learning_rate=1e-3,
        precision="fp32",
    )
    folder = make_job(tmp_path / "job", spec)

    run([folder])

    model = AutoModelForSequenceClassification.from_pretrained(folder.model)
    inputs = AutoTokenizer.from_pretrained(folder.model)([text for text, _ in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        answers = model(**inputs).logits[:, 0].double().numpy()
    report = JobReport.read(folder.report)
    assert report.metrics["rmse"] == pytest.approx(
        regression_metrics(np.array([number for _, number in rows], dtype=np.float64), answers)["rmse"], rel=1e-3
    )
