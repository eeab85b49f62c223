"""Runs one training job, from its order and its folder to the trained model and the report."""

import importlib.metadata
import platform
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from paretune.estimating.architecture import of_config
from paretune.estimating.workload import evaluation_batch, flops_of_row, training_steps
from paretune.specification import metrics
from paretune.specification.container import GPU_IDLE_SHARE, JobFolder, JobReport, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.specification.parallelism import DEVICE_MAP, BatchPlan, ParallelDegrees, pipeline_parts
from paretune.training import cpu, device, mlflow_model, processes, strategies
from paretune.training.arguments import training_arguments
from paretune.training.evaluation import evaluate
from paretune.training.loop import Loop
from paretune.training.model import (
    build_model,
    find_formats,
    load_tokenizer,
    use_causal_attention,
    use_fused_norms,
    write_model,
)
from paretune.training.rows.tokenized import OF_TENSOR_CORES, GlobalBatchSampler, TokenRows
from paretune.training.strategies import Replicas, Shards
from paretune.training.tasks import Evaluation, SummedLoss


def train(order: Order, folder: JobFolder, stop_requested: Callable[[], bool]) -> bool:
    """Run the training of `order` in `folder`. Returns True if it finished, and False if it was stopped.

    The training continues from the newest checkpoint that is complete in all processes, if there is one. When it
    finishes, it writes the model (unless the job is a probe) and the report, and removes its checkpoints. When it is
    stopped, it writes a checkpoint after the current step.
    """
    spec = JobSpec.read(order.training)
    if not device.has_gpu():
        cpu.keep_freed_memory()
    # On recent GPUs, PyTorch prefers cuDNN's attention, which makes a plan for each new batch shape. A plan takes a
    # second on a B200 (modelscope/FunASR issue 3704). So only causal-lm uses it: nearly all its batches have one shape.
    torch.backends.cuda.enable_cudnn_sdp(spec.task == metrics.CAUSAL_LM)
    strategies.begin(spec.degrees)
    job = _Job(spec, order.batch, folder)
    is_resumed = job.loop.resume()
    if not job.loop.run(stop_requested, spec.profile_steps):
        return False
    job.write_results(is_resumed=is_resumed)
    processes.wait_for_all()  # the first one may still be writing
    if processes.is_first(of_instance=True):
        for path in folder.checkpoints.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)
    return True


def _seed_all(seed: int) -> None:
    """Seed all random generators that a model may use, as `transformers.set_seed` does, which imports peft."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # of all devices


class _Job:
    """The model of a job, its rows, and the loop that trains it."""

    def __init__(self, spec: JobSpec, batch: BatchPlan, folder: JobFolder) -> None:
        self._spec, self._plan, self._folder = spec, batch, folder
        _seed_all(self._spec.seed)
        self._labels = PreparedDataset.read(folder.dataset).labels
        source = folder.model_source.resolve()
        self._tokenizer = load_tokenizer(source)
        self._formats = find_formats(spec.model_arguments, spec.degrees, spec.precision, source)
        is_judged = self._spec.task != metrics.CAUSAL_LM  # a language model has only loss and perplexity
        self._judge = Evaluation(self._spec.task, self._labels) if is_judged else None
        self._has_joined_texts = any(
            self._rows(split.name).has_joined_texts for split in folder.dataset.iterdir() if split.is_dir()
        )
        self.loop = self._make_loop()
        self._strategy = self.loop.strategy
        self._architecture = of_config(self._strategy.model.config.to_dict(), self._spec.task)

    def _build(self, drawn: Sequence[str] | None = None, *, packs: bool = True) -> tuple[Any, list[str]]:
        spec, source, inputs = self._spec, self._folder.model_source.resolve(), (self._labels, self._tokenizer)
        spreads = spec.strategy == DEVICE_MAP
        model, missing = build_model(
            spec.model_arguments, source, *inputs, self._formats, drawn=drawn, packs=packs, spreads=spreads
        )
        if spec.checkpoints_activations:
            strategies.checkpoint_activations(model, on_cpu=spec.activation_offloading)
        if not device.has_gpu() and not spec.is_compiled:
            cpu.use_cpu_kernels(model, spec.max_seq_length)
        use_causal_attention(model, spec.max_seq_length, self._formats, has_joined_texts=self._has_joined_texts)
        if spec.fine_tuning == "full":
            use_fused_norms(model)
        return model, missing

    def _make_loop(self) -> Loop:
        spec, plan, rows = self._spec, self._plan, self._rows("train")
        arguments = training_arguments(
            spec, spec.probe_steps or training_steps(spec.training_arguments, spec.num_train_epochs, plan, len(rows))
        )
        parts = pipeline_parts(spec.plan().per_device_train_batch_size, spec.degrees.pipeline, spec.max_seq_length)
        strategy = _kind_for(spec.degrees)(spec.degrees, self._formats, self._build, parts)
        is_causal = spec.task == metrics.CAUSAL_LM
        optimizer = strategies.begin_training(strategy, arguments, plan.learning_rate, is_causal=is_causal)
        return Loop(
            strategy,
            optimizer,
            rows,
            GlobalBatchSampler(rows.lengths, plan, rank=strategy.rank, seed=spec.seed),
            arguments,
            loss=SummedLoss(task=spec.task, smoothing=arguments.label_smoothing_factor),
            evaluate=partial(self._evaluate, self._rows("validation")),
            folder=self._folder,
            on_spot=spec.spot,
        )

    def _rows(self, split: str) -> TokenRows:
        """Return the rows of a split. Rows for evaluation are sorted by length, the longest first."""
        folder, pad_id = self._folder.dataset / split, self._tokenizer.pad_token_id
        return TokenRows(
            folder,
            pad_id=pad_id,
            multiple=OF_TENSOR_CORES if device.has_gpu() else 1,
            has_few_lengths=self._spec.is_compiled,
            longest_first=split != "train",
        )

    def _evaluate(self, rows: TokenRows) -> dict[str, float]:
        """Return the loss and metrics on these rows."""
        spec, vocabulary = self._spec, self._architecture.vocabulary if self._architecture else 1
        size = evaluation_batch(
            spec.model_arguments, spec.training_arguments, self._plan, vocabulary
        )  # rows in each process
        return evaluate(self._strategy, rows, size, spec.task, self._judge)

    def write_results(self, *, is_resumed: bool) -> None:
        """Evaluate and write the model, and write the report. A probe only reports its speed and memory."""
        spec, folder, judge = self._spec, self._folder, self._judge
        is_probe = spec.probe_steps is not None
        quality: dict[str, float] = {}
        report_entries: Mapping[str, Any] = {}
        if not is_probe:
            quality = {**self.loop.evaluate()}
            quality = {metrics.EVAL_LOSS: quality.pop("loss"), **quality}
            if judge is not None:  # read now: the evaluation of the test split replaces the entries
                report_entries = judge.report_entries or {}
            if (folder.dataset / "test").exists():
                quality |= {f"test_{name}": value for name, value in self._evaluate(self._rows("test")).items()}
        speed = self._speed()  # before the model is written, which would raise the peak memory
        if not is_probe:
            self._write_model()
        if not processes.is_first():
            return
        if self.loop.progress.skipped_steps:
            speed[metrics.SKIPPED_STEPS] = self.loop.progress.skipped_steps
        idle = self.loop.meter.gpu_idle_share()
        report = JobReport(
            model_fault="" if is_probe else mlflow_model.describe(folder.model, spec.text_column),
            metrics=quality | speed | ({"resumed": 1.0} if is_resumed else {}),  # seconds cover the last attempt only
            facts={
                "device": device.device_name(),
                "precision": device.choose_precision(spec.precision),
                "steps": self.loop.progress.step,
                **({} if idle is None else {GPU_IDLE_SHARE: round(idle, 3)}),
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")},
            },
            labels=() if is_probe else self._labels,
            **report_entries,
        )
        report.write(folder.report)

    def _write_model(self) -> None:
        """Write the trained model as a Hugging Face folder. All processes must call this."""
        strategy, folder, loop = self._strategy, self._folder.model, self.loop
        shards = strategy if isinstance(strategy, Shards) else None
        loop.optimizer.give_masters()
        if strategy.uses_cache:
            strategy.model.config.use_cache = True
        if shards is not None or processes.is_first():
            write_model(
                strategy.model,
                folder,
                self._spec.model_arguments,
                self._formats,
                lambda text: loop.events.write(0, {}, message=text),
                shards,
            )
        if processes.is_first():
            if self._judge is not None:  # so that users of the model truncate texts as in training
                self._tokenizer.model_max_length = self._spec.max_seq_length
            self._tokenizer.save_pretrained(str(folder))

    def _speed(self) -> dict[str, float]:
        """Return seconds, memory and model size, and the throughput if there were steps after the warm-up."""
        (total, trainable), built, meter = self._strategy.counts, self._architecture, self.loop.meter
        measured: dict[str, float] = {
            metrics.TRAIN_SECONDS: meter.stopwatch.seconds(),
            metrics.PEAK_MEMORY_GIB: max(processes.gather(device.peak_memory_gib())),
            metrics.TRAINABLE_PARAMETERS: trainable,
            metrics.TOTAL_PARAMETERS: total,
        }
        if built is not None:
            measured |= {metrics.LAYERS: built.layers, metrics.HIDDEN_SIZE: built.hidden_size}
            measured |= {metrics.VOCABULARY: built.vocabulary, metrics.MATRIX_PARAMETERS: built.matrices}
        throughput = meter.throughput()
        if throughput is None:
            return measured
        measured[metrics.THROUGHPUT_SAMPLES], measured[metrics.THROUGHPUT_TOKENS] = throughput
        peak = device.peak_flops(self._formats.compute)
        if peak is not None and built is not None:
            flops = flops_of_row(self._spec.model_arguments, built, float(self.loop.rows.lengths.mean())).once
            measured[metrics.MFU] = flops * throughput[0] / (peak * self._spec.degrees.devices)
        return measured


def _kind_for(degrees: ParallelDegrees) -> type[Replicas]:
    """Return the class of the job's strategy."""
    if not strategies.divides(degrees):
        return Replicas
    if degrees.pipeline > 1:
        from paretune.training.experiments.pipeline import Stages

        return Stages
    if degrees.tensor > 1:
        from paretune.training.experiments.tensor import TensorGroups

        return TensorGroups
    return Shards
