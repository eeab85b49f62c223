"""A training run from its document to its report: what a probe leaves, and what an ordinary job does."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from paretune.estimating.architecture import of_config
from paretune.estimating.workload import flops_of_row
from paretune.launchers.offers import order_of
from paretune.specification.container import Event, JobFolder, PreparedDataset, write_json
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec
from paretune.training import checkpoints, device, meter, strategies
from paretune.training.__main__ import classify_failure
from paretune.training.job import train
from paretune.training.meter import Diverged
from paretune.training.model import load_tokenizer
from paretune.training.rows import tokenized
from paretune.training.rows.sources import read_rows
from paretune.training.rows.tokenized import TokenRows
from tests.support.instances import run
from tests.support.trainings import SPEC, give, report_of


@pytest.mark.slow
def test_a_probe_makes_its_steps_although_the_rows_are_fewer_and_keeps_nothing(folder: JobFolder) -> None:
    report = report_of(SPEC.replace(probe_steps=20), folder)

    assert report.facts["steps"] == 20  # an epoch has six
    assert {"throughput_samples_per_second", "peak_memory_gib", "train_seconds"} <= set(report.metrics)
    assert not {"f1", "eval_loss", "accuracy"} & set(report.metrics)
    assert report.labels == report.confusion_matrix == ()
    assert not [path for path in folder.model.rglob("*") if path.is_file()]
    assert not list(folder.checkpoints.glob("checkpoint-*"))


@pytest.mark.slow
def test_a_job_imports_neither_adapters_nor_a_compiler_nor_readers_of_data_that_it_does_not_use(
    folder: JobFolder,
) -> None:
    spec = SPEC.replace(training_arguments={})
    write_json(folder.document, order_of(spec, job_name="job").as_json())

    run([folder], environment={"PYTHONPROFILEIMPORTTIME": "1"})

    lines = folder.log.read_text().splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if "import time:" in line}
    assert "paretune.training.job" in imported
    assert not {"peft", "bitsandbytes", "torch._inductor.compile_fx", "datasets"} & imported  # they take seconds


def test_utilization_counts_every_device_also_those_that_share_rows(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "peak_flops", lambda _: 1.0)
    eight = {"instance_type": "ml.p4d.24xlarge", "strategy": "device_map", "fine_tuning": "lora"}

    spec = SPEC.replace(probe_steps=20, **eight)
    measured = report_of(spec, folder).metrics

    built = of_config(json.loads((folder.model_source / "config.json").read_text()))
    assert built is not None
    tokens = measured["throughput_tokens_per_second"] / measured["throughput_samples_per_second"]
    flops = flops_of_row(spec.model_arguments, built, tokens).once * measured["throughput_samples_per_second"]
    assert measured["mfu"] == pytest.approx(flops / 8, rel=0.02)  # batches of one step differ a little in length


def test_an_ordinary_job_is_judged_and_says_what_its_model_consists_of(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(SPEC, folder)

    assert "\nstep 6 of 6: train/learning_rate " in capsys.readouterr().out  # what `paretune logs` shows

    assert report.facts["steps"] == 6
    assert 0 <= report.metrics["f1"] <= 1
    assert json.loads((folder.model / "config.json").read_text())["use_cache"]  # for generating text, not for training
    assert (report.metrics["layers"], report.metrics["hidden_size"]) == (2, 32)
    assert report.metrics["matrix_parameters"] < report.metrics["total_parameters"]
    assert report.metrics["vocabulary"] > 50
    assert "resumed" not in report.metrics
    assert load_tokenizer(folder.model).model_max_length == 16  # the length at which texts were cut
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # it would make a plan for each length of a batch


OFFLOADED = {"strategy": "fsdp", "cpu_offload": True}


def evaluations(folder: JobFolder) -> list[float]:
    """Return the validation losses of a training run, in the order of its steps."""
    events = [Event.model_validate_json(line) for line in folder.events.read_text().splitlines()]
    return [event.metrics["eval/loss"] for event in events if "eval/loss" in event.metrics]


@pytest.mark.parametrize(
    ("highest", "changes", "precision"),
    [
        (True, {}, "fp32"),
        *((False, changes, precision) for changes in ({}, OFFLOADED) for precision in ("fp32", "bf16")),
    ],
    ids=str,
)
def test_the_best_model_is_returned_also_if_it_is_the_last(
    folder: JobFolder, highest: bool, changes: dict[str, Any], precision: str
) -> None:
    # With random labels the loss rises, so the last model is the best one if a high loss is asked for.
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": highest}
    arguments = {"eval_strategy": "epoch", "save_strategy": "epoch", "warmup_steps": 0, **best}
    spec = SPEC.replace(num_train_epochs=3.0, learning_rate=1e-3, precision=precision, training_arguments=arguments)

    report = report_of(spec.replace(**changes), folder)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()

    losses = evaluations(folder)[:3]
    assert precision == "bf16" or losses[-1] == max(losses)
    assert report.metrics["eval_loss"] == pytest.approx(max(losses) if highest else min(losses), abs=1e-6)


def test_label_smoothing_changes_the_training_but_not_how_a_model_is_judged(folder: JobFolder) -> None:
    arguments = {**SPEC.training_arguments, "label_smoothing_factor": 0.3}

    report = report_of(SPEC.replace(training_arguments=arguments, learning_rate=0.02), folder)

    model = AutoModelForSequenceClassification.from_pretrained(folder.model)
    rows = TokenRows(folder.dataset / "validation", pad_id=0)
    batch = rows.batch(range(len(rows)))
    loss = torch.nn.functional.cross_entropy(model(**{**batch, "labels": None}).logits, batch["labels"])
    assert report.metrics["eval_loss"] == pytest.approx(loss.item(), abs=1e-6)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_training_after_ten_steps(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, accumulation: int
) -> None:
    seldom = {"logging_steps": 100, "save_strategy": "no"}
    spec = SPEC.replace(num_train_epochs=20.0, gradient_accumulation_steps=accumulation, training_arguments=seldom)
    steps, backward = [], strategies.Replicas.backward

    def broken(*args: Any, **kwargs: Any) -> torch.Tensor:
        steps.append(1)
        loss: torch.Tensor = backward(*args, **kwargs)
        return loss * (math.inf if len(steps) > 3 * accumulation else 1.0)

    monkeypatch.setattr(strategies.Replicas, "backward", broken)
    monkeypatch.setattr(meter, "AGREE_S", math.inf)
    with pytest.raises(Diverged, match=r"not a finite number .* for 10 steps in a row"):
        train(order_of(spec, job_name="job"), folder, lambda: False)

    assert len(steps) == 21 * accumulation  # checked after 1, after 11, when 8 were wrong, and after 21
    assert not folder.report.exists()


def break_gradients(monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
    """Make a gradient infinite in the micro-batches `first` to `last`, counted from 1."""
    steps, backward = [], strategies.Replicas.backward

    def broken(strategy: strategies.Replicas, *args: Any, **kwargs: Any) -> torch.Tensor:
        steps.append(1)
        loss = backward(strategy, *args, **kwargs)
        gradient = next(item.grad for item in strategy.model.parameters() if item.grad is not None)
        if first <= len(steps) <= last:
            gradient.view(-1)[0] = math.inf
        return loss

    monkeypatch.setattr(strategies.Replicas, "backward", broken)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_whose_gradients_are_not_finite_is_skipped_and_counted_and_no_checkpoint_has_it(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, precision: Any
) -> None:
    break_gradients(monkeypatch, 3, 3)
    write, finite = checkpoints.write, list[bool]()

    def noted(path: Path, tensors: dict[str, torch.Tensor], *args: Any, **kwargs: Any) -> None:
        finite.extend(bool(item.isfinite().all()) for item in tensors.values())
        write(path, tensors, *args, **kwargs)

    monkeypatch.setattr(checkpoints, "write", noted)
    arguments = {**SPEC.training_arguments, "save_strategy": "steps", "save_steps": 1, "logging_steps": 1}

    report = report_of(SPEC.replace(precision=precision, training_arguments=arguments), folder)

    assert report.metrics["skipped_steps"] == 1
    assert math.isfinite(report.metrics["eval_loss"])
    assert all(finite)
    assert finite
    messages = [Event.model_validate_json(line).message for line in folder.events.read_text().splitlines()]
    assert [message.partition(" skipped")[0] for message in messages if message] == ["1 of the steps up to 3"]


def test_gradients_that_are_not_finite_for_ten_steps_end_the_job_as_diverged(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_gradients(monkeypatch, 3, 10_000)
    spec = SPEC.replace(num_train_epochs=5.0, training_arguments={"save_strategy": "no"})

    with pytest.raises(
        Diverged, match=r"norm of its gradients was not a finite number .* for 10 steps in a row"
    ) as caught:
        train(order_of(spec, job_name="job"), folder, lambda: False)

    assert classify_failure(caught.value)[0] is Cause.DIVERGED


def test_words_are_learned_and_judged_by_their_entities(folder: JobFolder, tmp_path: Path) -> None:
    rows = tmp_path / "words.jsonl"
    labels = {"great": "B-GOOD", "warm": "I-GOOD", "the": "O", "film": "O", "dull": "B-BAD", "cold": "I-BAD"}
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["great warm", "the", "film", "dull cold"], size=5)).split() for _ in range(60)]
    lines = [json.dumps({"text": words, "label": [labels[word] for word in words]}) for words in texts]
    rows.write_text("\n".join(lines))
    task = {"task": "token-classification", "dataset": str(rows)}
    spec = SPEC.replace(**task, learning_rate=0.02, num_train_epochs=3.0, training_arguments={"save_strategy": "no"})
    prepared = prepared_for(spec, folder)

    report = report_of(spec, folder)

    assert prepared.labels == ("B-BAD", "B-GOOD", "I-BAD", "I-GOOD", "O")
    assert prepared.facts["baseline_f1_words"] == 1.0
    assert report.metrics["f1"] > 0.9
    model = AutoModelForTokenClassification.from_pretrained(folder.model)
    assert model.config.id2label[0] == "B-BAD"


@pytest.mark.slow
def test_several_labels_a_row_are_learned(folder: JobFolder, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = []
    for good, bad in random.integers(0, 4, size=(128, 2)):
        words = [*random.choice(["great", "warm"], good), *random.choice(["dull", "cold"], bad), "the", "film"]
        labels = ["good"] * bool(good) + ["bad"] * bool(bad)
        lines.append(json.dumps({"text": " ".join(random.permutation(words)), "label": labels}))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    task = {"task": "multi-label", "dataset": str(tmp_path / "rows.jsonl"), "per_device_train_batch_size": 8}
    spec = SPEC.replace(**task, num_train_epochs=16.0, learning_rate=2e-3, training_arguments={"warmup_steps": 2})
    prepared_for(spec, folder)

    report = report_of(spec, folder)

    assert report.labels == ("bad", "good")
    assert report.metrics["f1"] > 0.8
    assert json.loads((folder.model / "config.json").read_text())["problem_type"] == "multi_label_classification"


def prepared_for(spec: JobSpec, folder: JobFolder) -> PreparedDataset:
    """Return the data set of `spec`, and put it into the job's folder."""
    source = folder.model_source.resolve()
    read, names = read_rows(spec.data_arguments)
    prepared = tokenized.prepare(spec.data_arguments, read, names, load_tokenizer(source), folder.root.parent / "other")
    give(folder, prepared, source)
    return prepared
