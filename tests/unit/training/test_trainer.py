"""The Trainer's arguments, its metrics, and its evaluation."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from paretune.specification.container import JobDocument, JobFolder
from paretune.specification.job import JobSpec
from paretune.training import processes
from paretune.training.callback import EventWriter, MetricsCallback
from paretune.training.rows import tokenised
from paretune.training.rows.tokenised import GlobalBatchSampler, Rows, TokenRows, masked
from paretune.training.tasks import Evaluation, summed_loss
from paretune.training.trainer import LengthGroupedTrainer, training_arguments

BASE = JobSpec(precision="fp32")  # the same on every machine


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "job")


def arguments_of(spec: JobSpec, folder: JobFolder) -> TrainingArguments:
    document = JobDocument(job_name="job", spec=spec, plan=spec.plan())
    return training_arguments(document, folder.checkpoints, steps_per_epoch=100)


def test_what_the_user_decides_reaches_the_trainer(folder: JobFolder) -> None:
    batch = {"global_batch_size": 64, "per_device_train_batch_size": 8}
    rate = {"learning_rate": 1e-4, "learning_rate_scaling": "linear"}
    made = arguments_of(BASE.replace(**batch, **rate, num_train_epochs=2.5, seed=7), folder)

    assert made.learning_rate == pytest.approx(4e-4)  # 64 rows, four times the reference
    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps) == (8, 8)
    assert (made.num_train_epochs, made.seed) == (2.5, 7)
    assert made.output_dir == str(folder.checkpoints)
    assert (made.bf16, made.fp16, made.torch_compile) == (False, False, False)


def test_a_probe_makes_its_steps_whatever_the_epochs_and_arguments_are(folder: JobFolder) -> None:
    custom = {"max_steps": 500, "eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    made = arguments_of(BASE.replace(probe_steps=40, num_train_epochs=50.0, training_arguments=custom), folder)

    assert (made.max_steps, made.eval_strategy, made.save_strategy) == (40, "no", "no")
    assert made.logging_steps == 1


def test_a_process_trains_on_one_gpu_also_where_pytorch_sees_several(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingArguments, "_setup_devices", property(lambda self: setattr(self, "_n_gpu", 4)))

    assert arguments_of(BASE, folder).n_gpu == 1


@pytest.fixture(scope="module")
def prepared(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a prepared data set: 40 rows to train on, 50 to validate, of many lengths."""
    random = np.random.default_rng(0)
    words = ["great", "warm", "dull", "cold", "the", "film", "story", "rather", "very"]

    def rows(count: int) -> Rows:
        texts = [" ".join(random.choice(words, size=random.integers(1, 30))) for _ in range(count)]
        return Rows(texts=texts, labels=random.integers(0, 3, size=count))

    made = tokenised.prepare(
        JobSpec(max_seq_length=32),
        {"train": rows(40), "validation": rows(50)},
        ("a", "b", "c"),
        AutoTokenizer.from_pretrained(tiny_model),
        tmp_path_factory.mktemp("prepared"),
    )
    return made.folder


def trainer_of(rows: TokenRows, tiny_model: Path, folder: JobFolder) -> LengthGroupedTrainer:
    torch.manual_seed(0)
    sampler = GlobalBatchSampler(rows.lengths, BASE.plan(), rank=0, seed=0)
    callback = MetricsCallback(EventWriter(None), sampler, rows.lengths, lambda: False)
    return LengthGroupedTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=3),
        args=arguments_of(BASE.replace(training_arguments={"per_device_eval_batch_size": 8}), folder),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=masked,
        compute_metrics=Evaluation("classification", ("a", "b", "c")),
        compute_loss_func=partial(summed_loss, "classification"),
        sampler=sampler,
        callback=callback,
    )


def test_an_evaluation_does_not_depend_on_processes_and_batches(
    prepared: Path, tiny_model: Path, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = TokenRows(prepared / "validation", pad_id=0, longest_first=True)
    trainer = trainer_of(rows, tiny_model, folder)
    alone = trainer.evaluate()
    trainer.args.per_device_eval_batch_size = 5
    parts = []
    for rank in range(4):  # 50 rows: 13, 13, 12 and 12
        trainer.division = SimpleNamespace(share=lambda rank=rank: (rank, 4, True), pipeline=None)
        parts.append(trainer._evaluate_share(5, trainer.model, rows))
    trainer.division = None
    monkeypatch.setattr(processes, "gather", lambda _: parts)
    together = trainer.evaluate()

    assert [sum(batch.items for batch in share) for share in parts] == [13, 13, 12, 12]
    assert together["eval_loss"] == pytest.approx(alone["eval_loss"], rel=1e-6)
    assert (together["eval_f1"], together["eval_accuracy"]) == (alone["eval_f1"], alone["eval_accuracy"])


def test_an_evaluation_that_does_not_fit_continues_with_smaller_batches(
    prepared: Path, tiny_model: Path, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = TokenRows(prepared / "validation", pad_id=0, longest_first=True)
    trainer = trainer_of(rows, tiny_model, folder)
    expected, forward = trainer.evaluate(), trainer.model.forward

    def logits(**inputs: Any) -> Any:
        if len(inputs["input_ids"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(**inputs)

    monkeypatch.setattr(trainer.model, "forward", logits)

    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-6)
