"""One training, from the job document to the report."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

from paretune.container import JobDocument, JobFolder, JobReport, PreparedDataset
from paretune.metrics import (
    EVAL_LOSS,
    F1,
    MFU,
    PEAK_MEMORY_GIB,
    PERPLEXITY,
    THROUGHPUT_SAMPLES,
    THROUGHPUT_TOKENS,
    TRAIN_SECONDS,
    TRAINABLE_PARAMETERS,
    perplexity,
    training_flops,
)
from paretune.training import device, vocabulary
from paretune.training.batches import GlobalBatchSampler
from paretune.training.data import TokenRows, as_batch, read_vocabulary
from paretune.training.lifeline import Lifeline
from paretune.training.model import build_model, count_parameters, load_tokenizer, matrix_parameters
from paretune.training.recorder import EventWriter, Progress, Recorder
from paretune.training.trainer import Judge, LengthGroupedTrainer, open_split, training_arguments


def train(document: JobDocument, folder: JobFolder, lifeline: Lifeline) -> bool:
    """Run the training of `document` in `folder`; True when it finished, False when it was stopped.

    Continues from the newest checkpoint in the folder. After a finish the model and the report are there and the
    checkpoints are gone; after a stop there is a checkpoint of the last step.
    """
    rank = int(os.environ.get("RANK", "0"))
    transformers.set_seed(document.spec.seed)
    prepared = PreparedDataset.read(folder.dataset)
    source = folder.model_source.resolve()
    tokenizer = load_tokenizer(source)
    model = build_model(document.spec, source, prepared.labels, tokenizer)
    weight_decay = float(document.spec.training_arguments.get("weight_decay", 0.0))
    compact = vocabulary.use_only(model, read_vocabulary(folder.dataset), weight_decay=weight_decay)

    rows = open_split(folder, "train", tokenizer.pad_token_id)
    validation = open_split(folder, "validation", tokenizer.pad_token_id)
    assert rows is not None  # written by data.prepare, always
    sampler = GlobalBatchSampler(rows.lengths, document.plan, rank=rank, seed=document.spec.seed)
    events = EventWriter(folder.events if rank == 0 else None)
    recorder = Recorder(events, Progress(sampler, rows.lengths), lambda: lifeline.stop_requested)
    judge = Judge(len(prepared.labels))
    arguments = training_arguments(document, folder, steps_per_epoch=sampler.steps)
    trainer = LengthGroupedTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        eval_dataset=validation,
        data_collator=as_batch,
        compute_metrics=judge if prepared.labels else None,
        sampler=sampler,
        recorder=recorder,
    )
    checkpoint = get_last_checkpoint(str(folder.checkpoints)) if folder.checkpoints.is_dir() else None
    if checkpoint is not None:
        events.write(0, {}, message=f"continuing from {Path(checkpoint).name}")
    trainer.train(resume_from_checkpoint=checkpoint)
    recorder.stopwatch.stop()
    if recorder.stopped_at is not None:
        events.write(recorder.stopped_at, {}, message=f"stopped after step {recorder.stopped_at}, checkpoint written")
        return False

    quality = _final_quality(trainer)
    confusion = judge.confusion
    quality |= _test_quality(trainer, open_split(folder, "test", tokenizer.pad_token_id))
    speed = _speed(trainer, recorder, rows, prepared, document)
    vocabulary.restore(trainer.model)
    if rank == 0:
        trainer.save_model(str(folder.model))
        tokenizer.save_pretrained(str(folder.model))
        report = JobReport(
            metrics=quality | speed,
            facts=_facts(document, model, trainer.state.global_step, compact, checkpoint is not None),
            labels=prepared.labels,
            confusion_matrix=tuple(
                tuple(int(count) for count in row) for row in ([] if confusion is None else confusion)
            ),
        )
        report.write(folder.report)
        for leftover in folder.checkpoints.glob("checkpoint-*"):
            shutil.rmtree(leftover, ignore_errors=True)
    return True


def _final_quality(trainer: LengthGroupedTrainer) -> dict[str, float]:
    """Quality of the returned model on the validation split; not measured again if the last step already was."""
    history = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    if history and history[-1]["step"] == trainer.state.global_step and not trainer.args.load_best_model_at_end:
        measured: Mapping[str, Any] = history[-1]
    else:
        measured = trainer.evaluate()
    quality = {EVAL_LOSS: float(measured["eval_loss"])}
    if "eval_f1" in measured:
        quality |= {F1: float(measured["eval_f1"]), "accuracy": float(measured["eval_accuracy"])}
    else:
        quality |= _perplexity(PERPLEXITY, quality[EVAL_LOSS])
    return quality


def _test_quality(trainer: LengthGroupedTrainer, test: TokenRows | None) -> dict[str, float]:
    if test is None:
        return {}
    measured = trainer.evaluate(test, metric_key_prefix="test")
    names: tuple[str, ...] = ("test_loss", "test_f1", "test_accuracy")
    quality = {name: float(measured[name]) for name in names if name in measured}
    return quality if "test_f1" in quality else quality | _perplexity("test_perplexity", quality["test_loss"])


def _perplexity(name: str, loss: float) -> dict[str, float]:
    value = perplexity(loss)
    return {} if value is None else {name: value}


def _speed(
    trainer: LengthGroupedTrainer, recorder: Recorder, rows: TokenRows, prepared: PreparedDataset, document: JobDocument
) -> dict[str, float]:
    trainable, total = count_parameters(trainer.model)
    measured: dict[str, float] = {
        TRAIN_SECONDS: recorder.stopwatch.seconds(),
        PEAK_MEMORY_GIB: device.peak_memory_gib(),
        "total_parameters": total,
    }
    table = vocabulary.unused_parameters(trainer.model)
    measured[TRAINABLE_PARAMETERS] = trainable + (table if trainable == total else 0)
    measured["total_parameters"] += table
    speed = recorder.throughput()
    if speed is None:
        return measured
    measured[THROUGHPUT_SAMPLES], measured[THROUGHPUT_TOKENS] = speed
    peak = device.peak_flops(device.choose_precision(document.spec.precision))
    config = trainer.model.config
    if peak is not None and hasattr(config, "num_hidden_layers") and hasattr(config, "hidden_size"):
        parameters, trained_share = matrix_parameters(trainer.model)
        flops = training_flops(
            parameters=parameters,
            trained_share=trained_share,
            tokens=1,
            layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            mean_length=float(rows.lengths.mean()),
        )
        measured[MFU] = flops * speed[1] / (peak * document.plan.devices)
    return measured


def _facts(document: JobDocument, model: Any, steps: int, compact: bool, resumed: bool) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "model_class": type(model).__name__,
        "device": device.device_name(),
        "devices": document.plan.devices,
        "precision": device.choose_precision(document.spec.precision),
        "per_device_train_batch_size": document.plan.per_device_train_batch_size,
        "gradient_accumulation_steps": document.plan.gradient_accumulation_steps,
        "global_batch_size": document.plan.global_batch_size,
        "learning_rate": document.plan.learning_rate,
        "steps": steps,
        "attempt": document.attempt,
        "resumed": resumed,
        "used_vocabulary_only": compact,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")},
    }
