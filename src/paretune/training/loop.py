"""One training, from the job document to the report."""

import gc
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from paretune.specification import metrics
from paretune.specification.container import FailureKind, JobDocument, JobFolder, JobReport, PreparedDataset
from paretune.training import checkpoints, device
from paretune.training.callback import EventWriter, MetricsCallback, Progress
from paretune.training.model import Shape, build_model, load_tokenizer
from paretune.training.on_processor.memory import keep_freed_memory, use_one_arena
from paretune.training.on_processor.suiting import suit_processor
from paretune.training.returned import ReturnedFolder
from paretune.training.rows.batches import GlobalBatchSampler
from paretune.training.rows.data import as_batch, read_vocabulary
from paretune.training.shared import members
from paretune.training.shared.stops import REASONS, Clock, StopRequest
from paretune.training.shared.together import JointSteps, SharedModel, groups_of
from paretune.training.shared.turns import Seat, conduct
from paretune.training.strategies import SideBySide, Strategy, strategy_of
from paretune.training.tasks.losses import Units
from paretune.training.trainer import (
    Diverged,
    LengthGroupedTrainer,
    judge_of,
    loss_of,
    open_split,
    training_arguments,
)

if TYPE_CHECKING:
    from paretune.training.profiling.callback import ProfileCallback

_OVERFLOWN = "precision auto: the loss does not stay finite in fp16, so the training goes on in fp32"


@dataclass(frozen=True, kw_only=True)
class _Training:
    trainer: LengthGroupedTrainer
    prepared: PreparedDataset
    tokenizer: Any
    strategy: Strategy
    build: Callable[[], Any]
    shape: Shape
    units: Units
    profiler: "ProfileCallback | None"


def train(
    document: JobDocument,
    folder: JobFolder,
    stop_signal: StopRequest,
    *,
    strategy: Strategy | None = None,
    clock: Clock | None = None,
) -> bool:
    """Run the training of `document` in `folder`; True when it finished, False when it was stopped.

    Continues from the newest checkpoint that is complete in all processes. A finished training has written model and
    report and removed its checkpoints; a stopped one has written a checkpoint of its last step. Where `precision=auto`
    has chosen fp16 and the loss does not stay finite, it goes on in fp32, from its newest checkpoint or from the start.
    `strategy` is that of the specification with None; its seconds are those of `clock`.

    Raises:
        Diverged: the loss does not stay finite in the precision that was asked for, or in fp32.
    """
    if not device.has_gpu():
        keep_freed_memory()
    strategy = strategy or strategy_of(document.spec)
    strategy.begin()
    try:
        return _train(document, folder, stop_signal, strategy, clock=clock)
    except Diverged:
        if not device.is_fp16_by_choice(document.spec):
            raise
    gc.collect()  # the exception has held the model
    device.release_memory()
    precise = replace(document, spec=replace(document.spec, precision="fp32"))
    return _train(precise, folder, stop_signal, strategy_of(precise.spec), _OVERFLOWN, clock=clock)


def train_members(
    document: JobDocument,
    folder: JobFolder,
    stop_signal: StopRequest,
    classify: Callable[[Exception], tuple[FailureKind, str]],
) -> bool:
    """Train the trials of a shared job in `folder`; True when all have ended, False when it was stopped.

    `classify` names the kind of a failure. A trial that fails does not end the others, but in a job of several
    processes, where they wait for each other.

    Raises:
        Exception: why a trial failed, in a job of several processes.
    """
    is_alone, is_first = "RANK" not in os.environ, os.environ.get("RANK", "0") == "0"
    compiles = any(member.spec.compiler != "none" for member in document.members)
    room = members.Room(
        train=train,
        side_by_side=_train_side_by_side,
        groups=partial(groups_of, is_possible=is_alone and not device.has_gpu()),
        classify=classify,
        tell=EventWriter(folder.events if is_first else None).tell,
        agree=_agree,
        clear=partial(_clear, compiles=compiles),
        is_alone=is_alone,
        is_first=is_first,
        keeps_models=document.spec.on_sagemaker,
    )
    if not members.train_members(document, folder, stop_signal, room):
        return False
    checkpoints.wait_for_all()
    return True


def _train_side_by_side(trials: Sequence[members.Trial], stop_signal: StopRequest) -> None:
    """Train trials that are alike but for the learning rate on one frozen base."""
    shared = SharedModel()
    use_one_arena()

    def task(trial: members.Trial, seat: Seat) -> None:
        strategy = SideBySide(trial.document.spec, seat=seat, shared=shared, trials=len(trials))
        trial.run(stop_signal, partial(train, strategy=strategy, clock=seat.seconds), seat.seconds)

    conduct([partial(task, trial) for trial in trials], JointSteps().answer)


def _agree(reason: str) -> str:
    """Of the reasons to stop that the processes have found, the one that counts first."""
    found: list[Any] = [reason]
    if torch.distributed.is_initialized():
        found = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(found, reason)
    return next((known for known in REASONS if known in found), "")


def _clear(*, compiles: bool) -> None:
    """Free what a trial has left, so that the next one finds the process as the first one did."""
    gc.collect()
    device.release_memory()
    device.reset_peak_memory()
    if compiles:
        torch.compiler.reset()  # else the code of the next model counts as compiled once more, eight times at most


def _train(
    document: JobDocument,
    folder: JobFolder,
    stop_signal: StopRequest,
    strategy: Strategy,
    message: str = "",
    *,
    clock: Clock | None,
) -> bool:
    kept = checkpoints.CheckpointFolder(folder.checkpoints)
    parts = _build_parts(document, folder, stop_signal, strategy, kept.current, clock)
    callback = parts.trainer.callback
    for sentence in [message] if message else device.machine_remarks(document.spec):
        callback.events.write(0, {}, message=sentence)
    is_first_of_instance = os.environ.get("LOCAL_RANK", "0") == "0"
    if is_first_of_instance:
        kept.remove_finished()
    checkpoint = checkpoints.agree(kept)
    if checkpoint is not None:
        callback.events.write(0, {}, message=f"continuing from {checkpoint.name}")
    try:
        parts.trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        if parts.profiler is not None:
            parts.profiler.abandon()
    callback.stopwatch.stop()
    stopped_at = callback.stopped_at
    if stopped_at is not None and stopped_at < parts.trainer.state.max_steps:
        callback.events.write(stopped_at, {}, message=f"stopped after step {stopped_at}, checkpoint written")
        return False
    _finish(parts, document, folder, resumed=checkpoint is not None)
    checkpoints.wait_for_all()
    if is_first_of_instance:
        kept.finish()
    return True


def _build_parts(
    document: JobDocument,
    folder: JobFolder,
    stop_signal: StopRequest,
    strategy: Strategy,
    output: Path,
    clock: Clock | None = None,
) -> _Training:
    spec = document.spec
    transformers.set_seed(spec.seed)
    prepared = PreparedDataset.read(folder.dataset)
    source = folder.model_source.resolve()
    tokenizer = load_tokenizer(source)

    def build() -> Any:
        model = build_model(spec, source, prepared.labels, tokenizer)
        strategy.leave_out_rows(model, lambda: read_vocabulary(folder.dataset))
        if spec.task == metrics.REGRESSION and _learnt_numbers(source):
            Units.of(prepared.facts, model).take_out_of(model)
        if not device.has_gpu() and spec.compiler == "none":
            suit_processor(model)
        return model

    model = strategy.make(build)
    shape = Shape.of(model)
    units = Units.of(prepared.facts, model)
    rows = open_split(folder, "train", tokenizer.pad_token_id, units)
    assert rows is not None  # written by data.prepare, always
    sampler = GlobalBatchSampler(rows.lengths, document.plan, rank=strategy.data_rank(), seed=spec.seed)
    events = EventWriter(folder.events if os.environ.get("RANK", "0") == "0" else None, member=folder.member)
    progress = Progress(sampler, rows.lengths)
    callback = MetricsCallback(events, progress, lambda: stop_signal.stop_requested, clock=clock)
    smoothing = float(spec.training_arguments.get("label_smoothing_factor", 0.0))
    arguments = training_arguments(
        document, output, steps_per_epoch=sampler.steps, of_strategy=strategy.training_arguments()
    )
    trainer = strategy.trainer(
        model=strategy.spread(model),
        args=arguments,
        train_dataset=rows,
        eval_dataset=open_split(folder, "validation", tokenizer.pad_token_id, units),
        data_collator=as_batch,
        compute_metrics=judge_of(spec.task, len(prepared.labels), units),
        compute_loss_func=loss_of(spec.task, smoothing),
        sampler=sampler,
        callback=callback,
    )
    profiler = _profiler(document, folder, callback)
    if profiler is not None:
        trainer.add_callback(profiler)
    return _Training(
        trainer=trainer,
        prepared=prepared,
        tokenizer=tokenizer,
        strategy=strategy,
        build=build,
        shape=shape,
        units=units,
        profiler=profiler,
    )


def _learnt_numbers(source: Path) -> bool:
    """Whether the model in a folder is one that answers numbers already, in their own units."""
    config = json.loads((source / "config.json").read_text())
    return config.get("problem_type") == "regression" and "SequenceClass" in str(config.get("architectures"))


def _profiler(document: JobDocument, folder: JobFolder, callback: MetricsCallback) -> "ProfileCallback | None":
    """What profiles the training, where that was asked for."""
    spec, plan = document.spec, document.plan
    if spec.profile_steps is None:
        return None
    from paretune.training.profiling.advice import Circumstances
    from paretune.training.profiling.callback import ProfileCallback

    circumstances = Circumstances(
        spec=spec,
        batch=plan.per_device_train_batch_size,
        accumulation=plan.gradient_accumulation_steps,
        precision=device.choose_precision(spec.precision),
        has_bf16=device.has_bf16(),
        processes=spec.degrees.devices,
    )
    described = {
        "device": device.device_name(),
        "precision": circumstances.precision,
        "strategy": spec.strategy,
        "processes": circumstances.processes,
        "threads": torch.get_num_threads(),
        "per_device_train_batch_size": circumstances.batch,
        "gradient_accumulation_steps": circumstances.accumulation,
        "torch": importlib.metadata.version("torch"),
    }
    return ProfileCallback(
        spec.profile_steps,
        folder.profile,
        uncounted=callback.uncounted,
        circumstances=circumstances,
        described=described,
        peak_memory_gib=device.peak_memory_gib,
        tell=lambda sentence: callback.events.write(0, {}, message=sentence),
    )


def _finish(parts: _Training, document: JobDocument, folder: JobFolder, *, resumed: bool) -> None:
    """Evaluate the model, write it and the report; a probe writes only a report of its speed."""
    trainer = parts.trainer
    is_probe = document.spec.probe_steps is not None
    quality: dict[str, float] = {}
    shown: Mapping[str, Any] = {}
    if not is_probe:
        quality = _final_quality(trainer, document.spec.task)
        # Of the validation rows: the next evaluation replaces it.
        shown = trainer.compute_metrics.shown or {} if trainer.compute_metrics is not None else {}
        test = open_split(folder, "test", parts.tokenizer.pad_token_id, parts.units)
        if test is not None:
            measured = _quality(trainer.evaluate(test, metric_key_prefix="test"), "test", document.spec.task)
            quality |= {f"test_{name}": value for name, value in measured.items()}
    speed = _speed(parts, document)  # before the model is written: that takes memory of its own
    if not is_probe:
        if document.spec.task == metrics.REGRESSION:
            parts.units.put_into(trainer.model)
        parts.strategy.save(trainer, parts.build, _returned(document, folder, trainer.callback.events))
    if not trainer.is_world_process_zero():
        return
    if not is_probe:
        parts.tokenizer.save_pretrained(str(folder.model))
    report = JobReport(
        metrics=quality | speed | ({"resumed": 1.0} if resumed else {}),  # marks seconds of a part of the training
        facts=_facts(document, parts, resumed=resumed),
        labels=() if is_probe else parts.prepared.labels,
        **shown,
    )
    report.write(folder.report)


def _returned(document: JobDocument, folder: JobFolder, events: EventWriter) -> ReturnedFolder:
    return ReturnedFolder(
        path=folder.model,
        source=folder.model_source.resolve(),
        spec=document.spec,
        tell=lambda sentence: events.write(0, {}, message=sentence),
    )


def _final_quality(trainer: LengthGroupedTrainer, task: str) -> dict[str, float]:
    """Metrics of the returned model on the validation split, from the last evaluation if it was after the last step."""
    history = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    evaluated = history and history[-1]["step"] == trainer.state.global_step
    in_this_process = trainer.compute_metrics is None or trainer.compute_metrics.shown is not None
    is_last_word = evaluated and in_this_process and not trainer.args.load_best_model_at_end
    measured = history[-1] if is_last_word else trainer.evaluate()
    quality = _quality(measured, "eval", task)
    speed = float(measured.get("eval_samples_per_second", 0.0))
    rates = {metrics.EVALUATION_SAMPLES: speed} if speed > 0 else {}
    return {metrics.EVAL_LOSS: quality.pop("loss"), **quality, **rates}


def _quality(measured: Mapping[str, Any], prefix: str, task: str) -> dict[str, float]:
    """Loss and measures of an evaluation."""
    found = {name.removeprefix(f"{prefix}_"): value for name, value in measured.items()}
    quality = {name: float(found[name]) for name in ("loss", *metrics.TASKS[task].measures) if name in found}
    perplexity = metrics.perplexity(quality["loss"]) if task == metrics.CAUSAL_LM else None
    return quality | ({} if perplexity is None else {metrics.PERPLEXITY: perplexity})


def _speed(parts: _Training, document: JobDocument) -> dict[str, float]:
    """Seconds, memory and throughput, and the sizes of the model that they depend on."""
    trainer, shape, config = parts.trainer, parts.shape, parts.trainer.model.config
    names = {"layers": "num_hidden_layers", "hidden_size": "hidden_size", "vocabulary": "vocab_size"}
    sizes = {name: getattr(config, theirs) for name, theirs in names.items() if hasattr(config, theirs)}
    measured: dict[str, float] = {
        metrics.TRAIN_SECONDS: trainer.callback.stopwatch.seconds(),
        **dict.fromkeys((metrics.PEAK_MEMORY_GIB, metrics.MEMORY_GIB_PER_PROCESS), device.largest_peak_memory_gib()),
        metrics.TRAINABLE_PARAMETERS: shape.trainable,
        metrics.TOTAL_PARAMETERS: shape.total,
        "matrix_parameters": shape.matrices,
        **sizes,
    }
    speed = trainer.callback.throughput()
    if speed is None:
        return measured
    measured[metrics.THROUGHPUT_SAMPLES], measured[metrics.THROUGHPUT_TOKENS] = speed
    if trainer.callback.others_share is not None:
        measured[metrics.OTHERS_CPU_SHARE] = trainer.callback.others_share
    peak = device.peak_flops(device.choose_precision(document.spec.precision))
    if peak is not None and {"layers", "hidden_size"} <= set(sizes):
        flops = metrics.training_flops(
            parameters=shape.matrices,
            trained_share=shape.trained_share,
            layers=sizes["layers"],
            hidden_size=sizes["hidden_size"],
            mean_length=float(trainer.train_dataset.lengths.mean()),
        )
        measured[metrics.MFU] = flops * speed[1] / (peak * document.plan.devices)
    return measured


def _facts(document: JobDocument, parts: _Training, *, resumed: bool) -> dict[str, Any]:
    return {
        "model_class": parts.shape.name,
        "device": device.device_name(),
        "precision": device.choose_precision(document.spec.precision),
        **asdict(document.plan),
        "global_batch_size": document.plan.global_batch_size,
        "steps": parts.trainer.state.global_step,
        "attempt": document.attempt,
        "resumed": resumed,
        "used_vocabulary_only": parts.shape.left_out > 0,
        "threads": torch.get_num_threads(),
        **parts.strategy.facts(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")},
    }
