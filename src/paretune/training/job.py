"""One job: from its document and its folder to the trained model and the report."""

import importlib.metadata
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import transformers

from paretune.estimating.architecture import of_config
from paretune.estimating.workload import evaluation_batch, training_steps
from paretune.specification import metrics
from paretune.specification.container import JobDocument, JobFolder, JobReport, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.training import device, mlflow_model, processes, strategies
from paretune.training.arguments import training_arguments
from paretune.training.evaluation import evaluate
from paretune.training.loop import Loop, Rows
from paretune.training.meter import EventWriter
from paretune.training.model import build_model, load_tokenizer, write_model
from paretune.training.optimizer import MasterAdamW
from paretune.training.processes import StopSignal
from paretune.training.rows.tokenised import GlobalBatchSampler, TokenRows, pad_multiple
from paretune.training.strategies import Build, Replicas, Shards
from paretune.training.tasks import Evaluation, summed_loss


def train(document: JobDocument, folder: JobFolder, stop_signal: StopSignal) -> bool:
    """Run the training of `document` in `folder`; True when it finished, False when it was stopped.

    Continues from the newest checkpoint that is complete in all processes. A finished training has written model and
    report and removed its checkpoints; a stopped one has written a checkpoint of its last step.
    """
    spec = document.spec
    if not device.has_gpu():
        device.keep_freed_memory()
    strategies.begin(spec)
    inputs = _open(document, folder)
    loop = _loop(document, inputs)
    is_resumed = loop.resume()
    profiled = spec.profile_steps if processes.is_first() else None
    profile_into = None if profiled is None else (profiled, folder.profile)
    if not loop.run(lambda: stop_signal.stop_requested, profile_into):
        return False
    _write_results(loop, inputs, document, is_resumed=is_resumed)
    processes.wait_for_all()
    if processes.is_first(of_instance=True):
        for path in folder.checkpoints.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)
    return True


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    folder: JobFolder
    prepared: PreparedDataset
    tokenizer: Any
    strategy: Replicas
    judge: Evaluation | None  # a language model has a loss only
    pad_multiple: int  # of the tokens of a batch's rows
    eval_batch: int  # rows of an evaluation batch in each process
    task: str

    def rows(self, split: str) -> TokenRows | None:
        """The rows of a split, those of an evaluation longest first; None if the data set does not have it."""
        folder, pad_id = self.folder.dataset / split, self.tokenizer.pad_token_id
        if not folder.exists():
            return None
        return TokenRows(folder, pad_id=pad_id, pad_multiple=self.pad_multiple, longest_first=split != "train")

    def evaluated(self, rows: TokenRows) -> dict[str, float]:
        """Loss and metrics of these rows."""
        return evaluate(self.strategy, rows, self.eval_batch, self.task, self.judge)


def _open(document: JobDocument, folder: JobFolder) -> _Inputs:
    spec = document.spec
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

    strategy = _strategy(spec, build)
    built = of_config(strategy.model.config.to_dict(), spec.task)
    return _Inputs(
        folder=folder,
        prepared=prepared,
        tokenizer=tokenizer,
        strategy=strategy,
        judge=None if spec.task == metrics.CAUSAL_LM else Evaluation(spec.task, prepared.labels),
        pad_multiple=pad_multiple(spec.max_seq_length) if device.has_gpu() else 1,
        eval_batch=evaluation_batch(spec, document.plan, built.vocabulary if built else 1),
        task=spec.task,
    )


def _strategy(spec: JobSpec, build: Build) -> Replicas:
    if not strategies.divides(spec):
        return Replicas(spec, build)
    if spec.degrees.pipeline > 1:
        from paretune.training.experiments.pipeline import Stages

        return Stages(spec, build)
    if spec.degrees.tensor > 1:
        from paretune.training.experiments.tensor import TensorGroups

        return TensorGroups(spec, build)
    return Shards(spec, build)


def _loop(document: JobDocument, inputs: _Inputs) -> Loop:
    spec, plan, strategy = document.spec, document.plan, inputs.strategy
    tokens, validation = inputs.rows("train"), inputs.rows("validation")
    assert tokens is not None  # every prepared data set has a train split
    arguments = training_arguments(spec, spec.probe_steps or training_steps(spec, plan, len(tokens)))
    optimizer = MasterAdamW(
        strategy.model.named_parameters(),
        arguments,
        plan.learning_rate,
        half=strategy.half,
        scales=device.choose_precision(spec.precision) == "fp16",
    )
    strategy.wrap(arguments)
    return Loop(
        strategy,
        optimizer,
        Rows(
            tokens=tokens,
            sampler=GlobalBatchSampler(tokens.lengths, plan, rank=strategy.rank, seed=spec.seed),
            items=tokens.items(shifted=spec.task == metrics.CAUSAL_LM),
        ),
        arguments,
        loss=partial(summed_loss, spec.task, smoothing=arguments.label_smoothing_factor),
        evaluate=None if validation is None else partial(inputs.evaluated, validation),
        folder=inputs.folder.checkpoints,
        events=EventWriter(inputs.folder.events if processes.is_first() else None),
        on_spot=spec.spot,
    )


def _write_results(loop: Loop, inputs: _Inputs, document: JobDocument, *, is_resumed: bool) -> None:
    """Evaluate the model and write it with the report; a probe writes only a report of its speed."""
    spec, folder, judge = document.spec, inputs.folder, inputs.judge
    is_probe = spec.probe_steps is not None
    quality: dict[str, float] = {}
    report_entries: Mapping[str, Any] = {}
    if not is_probe:
        is_measured = loop.progress.evaluated_step == loop.progress.step
        in_this_process = judge is None or judge.report_entries is not None
        measured = loop.progress.evaluated if is_measured and in_this_process else loop.evaluate()
        quality = _quality(measured, spec.task)
        quality = {metrics.EVAL_LOSS: quality.pop("loss"), **quality}
        if judge is not None:  # read now: the evaluation of the test split replaces the entries
            report_entries = judge.report_entries or {}
        if (test := inputs.rows("test")) is not None:
            quality |= {f"test_{name}": value for name, value in _quality(inputs.evaluated(test), spec.task).items()}
    speed = _speed(loop, document)  # before the model is written, which takes memory of its own
    if not is_probe:
        _save(loop, inputs, spec)
    if not processes.is_first():
        return
    report = JobReport(
        model_fault="" if is_probe else mlflow_model.describe(folder.model),
        metrics=quality | speed | ({"resumed": 1.0} if is_resumed else {}),  # marks seconds of a part of the training
        facts={
            "device": device.device_name(),
            "precision": device.choose_precision(spec.precision),
            "steps": loop.progress.step,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")},
        },
        labels=() if is_probe else inputs.prepared.labels,
        **report_entries,
    )
    report.write(folder.report)


def _save(loop: Loop, inputs: _Inputs, spec: JobSpec) -> None:
    """Write the trained model as a Hugging Face folder; all processes must call it."""
    strategy, folder = inputs.strategy, inputs.folder
    shards = strategy if isinstance(strategy, Shards) else None
    loop.optimizer.give_masters()
    if strategy.uses_cache:
        strategy.model.config.use_cache = True
    if shards is not None or processes.is_first():
        write_model(strategy.model, folder.model, spec, lambda text: loop.events.write(0, {}, message=text), shards)
    if processes.is_first():
        inputs.tokenizer.save_pretrained(str(folder.model))


def _quality(values: Mapping[str, float], task: str) -> dict[str, float]:
    """Loss and the task's metrics from the results of an evaluation."""
    quality = {name: float(values[name]) for name in ("loss", *metrics.TASKS[task].measures) if name in values}
    if task == metrics.CAUSAL_LM and "loss" in quality:
        perplexity = metrics.perplexity(quality["loss"])
        quality |= {} if perplexity is None else {metrics.PERPLEXITY: perplexity}
    return quality


def _speed(loop: Loop, document: JobDocument) -> dict[str, float]:
    total, trainable = loop.strategy.counts
    built = of_config(loop.strategy.model.config.to_dict(), document.spec.task)
    measured: dict[str, float] = {
        metrics.TRAIN_SECONDS: loop.meter.stopwatch.seconds(),
        metrics.PEAK_MEMORY_GIB: max(processes.gather(device.peak_memory_gib())),
        metrics.TRAINABLE_PARAMETERS: trainable,
        metrics.TOTAL_PARAMETERS: total,
    }
    if built is not None:
        measured |= {"layers": built.layers, "hidden_size": built.hidden_size, "vocabulary": built.vocabulary}
        measured["matrix_parameters"] = built.matrices
    throughput = loop.meter.throughput()
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
            mean_length=float(loop.rows.tokens.lengths.mean()),
        )
        measured[metrics.MFU] = flops * throughput[1] / (peak * document.spec.degrees.devices)
    return measured
