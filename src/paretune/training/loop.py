"""One training, from the job document to the report."""

import importlib.metadata
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from paretune.estimating.architecture import of_config
from paretune.estimating.workload import evaluation_batch
from paretune.specification import metrics
from paretune.specification.container import JobDocument, JobFolder, JobReport, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.training import checkpoints, device, mlflow_model, processes, strategies
from paretune.training.callback import EventWriter, MetricsCallback, ProfileCallback
from paretune.training.model import build_model, load_tokenizer, mask_format, parameter_counts, write_model
from paretune.training.processes import StopSignal
from paretune.training.rows.tokenised import GlobalBatchSampler, TokenRows, masked, pad_multiple
from paretune.training.strategies import Division
from paretune.training.tasks import Evaluation, summed_loss
from paretune.training.trainer import LengthGroupedTrainer, training_arguments


def train(document: JobDocument, folder: JobFolder, stop_signal: StopSignal) -> bool:
    """Run the training of `document` in `folder`; True when it finished, False when it was stopped.

    Continues from the newest checkpoint that is complete in all processes. A finished training has written model and
    report and removed its checkpoints; a stopped one has written a checkpoint of its last step.
    """
    spec = document.spec
    if not device.has_gpu():
        device.keep_freed_memory()
    strategies.begin(spec)
    inputs = _open(spec, folder)
    trainer = _trainer(document, inputs, stop_signal)
    checkpoint = checkpoints.agree(folder.checkpoints)
    if not _fit(trainer, document, folder, checkpoint):
        return False
    _write_results(trainer, inputs, document, resumed=checkpoint is not None)
    processes.wait_for_all()
    if processes.is_first(of_instance=True):
        for path in folder.checkpoints.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)
    return True


def _fit(trainer: LengthGroupedTrainer, document: JobDocument, folder: JobFolder, checkpoint: Path | None) -> bool:
    """Train from the checkpoint, or from the start if it is None; False when the training was stopped."""
    callback, profile_steps = trainer.callback, document.spec.profile_steps
    if profile_steps is not None and processes.is_first():
        trainer.add_callback(ProfileCallback(profile_steps, folder.profile, callback))
    if checkpoint is not None:
        callback.events.write(0, {}, message=f"continuing from {checkpoint.name}")
        if trainer.division is not None:
            trainer.division.resumes_from = checkpoint
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    callback.stopwatch.stop()
    if callback.stopped_at is None or callback.stopped_at >= trainer.state.max_steps:
        return True
    message = f"stopped after step {callback.stopped_at}, checkpoint written"
    callback.events.write(callback.stopped_at, {}, message=message)
    return False


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    folder: JobFolder
    pad_multiple: int  # of the tokens of a batch's rows
    prepared: PreparedDataset
    tokenizer: Any
    model: Any  # the share of it that this process has
    division: Division | None
    counts: tuple[int, int]  # of all weights of the whole model, and of those that are trained

    def rows(self, split: str) -> TokenRows | None:
        """The rows of a split, those of an evaluation longest first; None if the data set does not have it."""
        folder, pad_id = self.folder.dataset / split, self.tokenizer.pad_token_id
        if not folder.exists():
            return None
        return TokenRows(folder, pad_id=pad_id, pad_multiple=self.pad_multiple, longest_first=split != "train")


def _open(spec: JobSpec, folder: JobFolder) -> _Inputs:
    transformers.set_seed(spec.seed)
    prepared = PreparedDataset.read(folder.dataset)
    source = folder.model_source.resolve()
    tokenizer = load_tokenizer(source)

    def build(drawn: Sequence[str] | None = None) -> tuple[Any, list[str]]:
        model, missing = build_model(spec, source, prepared.labels, tokenizer, drawn=drawn)
        strategies.checkpoint_activations(model, spec)
        if not device.has_gpu() and not spec.is_compiled:
            device.use_cpu_kernels(model, spec.max_seq_length)
        return model, missing

    division = Division(spec, build) if strategies.divides(spec) else None
    model = build()[0] if division is None else division.model
    counts = parameter_counts(model) if division is None else division.counts
    return _Inputs(
        folder=folder,
        pad_multiple=pad_multiple(spec.max_seq_length) if device.has_gpu() else 1,
        prepared=prepared,
        tokenizer=tokenizer,
        model=model,
        division=division,
        counts=counts,
    )


def _trainer(document: JobDocument, inputs: _Inputs, stop_signal: StopSignal) -> LengthGroupedTrainer:
    spec, folder, division = document.spec, inputs.folder, inputs.division
    rows = inputs.rows("train")
    assert rows is not None  # every prepared data set has a train split
    sampler = GlobalBatchSampler(rows.lengths, document.plan, rank=strategies.data_rank(spec), seed=spec.seed)
    events = EventWriter(folder.events if processes.is_first() else None)
    arguments = training_arguments(
        document,
        folder.checkpoints,
        steps_per_epoch=sampler.steps,
        of_strategy=strategies.trainer_arguments(spec, inputs.model.config),
        in_place=division is not None,
    )  # initialises the process group
    built = of_config(inputs.model.config.to_dict(), spec.task)
    arguments.per_device_eval_batch_size = evaluation_batch(spec, document.plan, built.vocabulary if built else 1)
    is_language_model = spec.task == metrics.CAUSAL_LM  # whose own loss is right, and all that is measured
    smoothing = float(spec.training_arguments.get("label_smoothing_factor", 0.0))
    return LengthGroupedTrainer(
        model=inputs.model,
        args=arguments,
        train_dataset=rows,
        eval_dataset=inputs.rows("validation"),
        # A pipeline divides the mask with its batches.
        data_collator=dict if division and division.pipeline else partial(masked, form=mask_format(inputs.model, spec)),
        compute_metrics=None if is_language_model else Evaluation(spec.task, inputs.prepared.labels),
        compute_loss_func=None if is_language_model else partial(summed_loss, spec.task, smoothing=smoothing),
        sampler=sampler,
        callback=MetricsCallback(events, sampler, rows.lengths, lambda: stop_signal.stop_requested, on_spot=spec.spot),
        division=division,
    )


def _write_results(trainer: LengthGroupedTrainer, inputs: _Inputs, document: JobDocument, *, resumed: bool) -> None:
    """Evaluate the model and write it with the report; a probe writes only a report of its speed."""
    spec, folder = document.spec, inputs.folder
    is_probe = spec.probe_steps is not None
    quality: dict[str, float] = {}
    report_entries: Mapping[str, Any] = {}
    if not is_probe:
        quality = _validation_quality(trainer, spec.task)
        if trainer.compute_metrics is not None:  # read now: the evaluation of the test split replaces the entries
            report_entries = trainer.compute_metrics.report_entries or {}
        test = inputs.rows("test")
        if test is not None:
            test_quality = _quality(trainer.evaluate(test, metric_key_prefix="test"), "test", spec.task)
            quality |= {f"test_{name}": value for name, value in test_quality.items()}
    speed = _speed(trainer, inputs.counts, document)  # before the model is written, which takes memory of its own
    if not is_probe:
        _save(trainer, inputs, spec)
    if not processes.is_first():
        return
    report = JobReport(
        model_fault="" if is_probe else mlflow_model.describe(folder.model),
        metrics=quality | speed | ({"resumed": 1.0} if resumed else {}),  # marks seconds of a part of the training
        facts={
            "device": device.device_name(),
            "precision": device.choose_precision(spec.precision),
            "steps": trainer.state.global_step,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")},
        },
        labels=() if is_probe else inputs.prepared.labels,
        **report_entries,
    )
    report.write(folder.report)


def _save(trainer: LengthGroupedTrainer, inputs: _Inputs, spec: JobSpec) -> None:
    """Write the trained model as a Hugging Face folder; all processes must call it."""
    folder, events, division = inputs.folder, trainer.callback.events, inputs.division
    if division is not None or processes.is_first():
        write_model(trainer.model, folder.model, spec, lambda text: events.write(0, {}, message=text), division)
    if processes.is_first():
        inputs.tokenizer.save_pretrained(str(folder.model))


def _validation_quality(trainer: LengthGroupedTrainer, task: str) -> dict[str, float]:
    """Metrics of the returned model on the validation split, from the last evaluation if it was after the last step."""
    history = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    is_after_last_step = history and history[-1]["step"] == trainer.state.global_step
    in_this_process = trainer.compute_metrics is None or trainer.compute_metrics.report_entries is not None
    is_final = is_after_last_step and in_this_process and not trainer.args.load_best_model_at_end
    measured = history[-1] if is_final else trainer.evaluate()
    quality = _quality(measured, "eval", task)
    return {metrics.EVAL_LOSS: quality.pop("loss"), **quality}


def _quality(measured: Mapping[str, Any], prefix: str, task: str) -> dict[str, float]:
    """Loss and the task's metrics from the results of `Trainer.evaluate`, whose names begin with `prefix`."""
    values = {name.removeprefix(f"{prefix}_"): value for name, value in measured.items()}
    quality = {name: float(values[name]) for name in ("loss", *metrics.TASKS[task].measures) if name in values}
    if task == metrics.CAUSAL_LM and "loss" in quality:
        perplexity = metrics.perplexity(quality["loss"])
        quality |= {} if perplexity is None else {metrics.PERPLEXITY: perplexity}
    return quality


def _speed(trainer: LengthGroupedTrainer, counts: tuple[int, int], document: JobDocument) -> dict[str, float]:
    total, trainable = counts
    built = of_config(trainer.model.config.to_dict(), document.spec.task)
    measured: dict[str, float] = {
        metrics.TRAIN_SECONDS: trainer.callback.stopwatch.seconds(),
        metrics.PEAK_MEMORY_GIB: max(processes.gather(device.peak_memory_gib())),
        metrics.TRAINABLE_PARAMETERS: trainable,
        metrics.TOTAL_PARAMETERS: total,
    }
    if built is not None:
        measured |= {"layers": built.layers, "hidden_size": built.hidden_size, "vocabulary": built.vocabulary}
        measured["matrix_parameters"] = built.matrices
    throughput = trainer.callback.throughput()
    if throughput is None:
        return measured
    measured[metrics.THROUGHPUT_SAMPLES], measured[metrics.THROUGHPUT_TOKENS] = throughput
    peak = device.peak_flops(device.choose_precision(document.spec.precision))
    if peak is not None and built is not None:
        flops = metrics.training_flops(
            parameters=built.matrices,
            trained_share=trainable / total,
            layers=built.layers,
            hidden_size=built.hidden_size,
            mean_length=float(trainer.train_dataset.lengths.mean()),
        )
        measured[metrics.MFU] = flops * throughput[1] / (peak * document.spec.degrees.devices)
    return measured
